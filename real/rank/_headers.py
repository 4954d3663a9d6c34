"""Headers of fixed size, in which a rank announces its next exchange to the others."""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import torch
from torch import Tensor

from harness.effects import Effect, Recv, Send
from harness.errors import ProgramError

_LAYOUT = struct.Struct("<B8s8s8sIQ288s192s")
IN_EFFECT, RETURNED = 0, 1


class Header(NamedTuple):
    """The effect that one rank is about to begin, or that it has returned."""

    state: int
    what: bytes  # hash of kind and tag
    shape: bytes  # hash of the shape signature
    path: bytes  # hash of all collectives of this rank so far
    length: int  # how many of them since the last check
    balance: int  # rows sent minus rows expected; see `_journal`
    text: str
    signature: str

    @classmethod
    def of(cls, effect: Effect, path: bytes = b"", length: int = 0, balance: int = 0) -> Header:
        """Of an effect that is about to begin."""
        signature = repr(effect.shape_signature())
        hashes = digest(what(effect)), digest(signature.encode())
        return cls(IN_EFFECT, *hashes, path, length, balance, str(effect), signature)

    def pack(self) -> Tensor:
        """As uint8 [HEADER_BYTES] on the host."""
        texts = (shortened(self.text, 288), shortened(self.signature, 192))
        return torch.frombuffer(bytearray(_LAYOUT.pack(*self[:6], *texts)), dtype=torch.uint8)

    @classmethod
    def unpack(cls, row: Tensor) -> Header:
        """From what `pack` made."""
        *head, text, signature = _LAYOUT.unpack(row.numpy().tobytes())
        return cls(*head, *(t.rstrip(b"\0").decode(errors="replace") for t in (text, signature)))


HEADER_BYTES = _LAYOUT.size


def agree(rank_a: int, a: Header, rank_b: int, b: Header) -> None:
    """Raise ProgramError unless two headers belong to the same exchange."""
    if a.state != b.state:
        (gone, _), (here, header) = sorted([(rank_a, a), (rank_b, b)], key=lambda pair: pair[1].state != RETURNED)
        raise ProgramError(f"ranks disagree: rank {here} is in {header.text}, but rank {gone} has returned")
    if a.what != b.what:
        raise ProgramError(f"ranks disagree: rank {rank_a} is in {a.text}, but rank {rank_b} is in {b.text}")
    if a.shape != b.shape:
        raise ProgramError(
            f"ranks disagree on shape or dtype: rank {rank_a} has {a.signature} in {a.text}, "
            f"but rank {rank_b} has {b.signature} in {b.text}"
        )


def what(effect: Effect) -> bytes:
    """Kind, label, direction, layer and epoch; the two ends of a message are of one kind."""
    kind = "Send or Recv" if isinstance(effect, Send | Recv) else effect.kind
    return f"{kind} {tuple(effect.tag)}".encode()


def digest(*parts: bytes) -> bytes:
    """8 bytes of BLAKE2b."""
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).digest()


def shortened(text: str, size: int) -> bytes:
    """At most `size` bytes; a longer text loses its middle, as the label is in front and the line at the end."""
    data = text.encode()
    if len(data) <= size:
        return data
    head = (size - 3) // 2
    return data[:head] + b"..." + data[len(data) - (size - 3 - head) :]
