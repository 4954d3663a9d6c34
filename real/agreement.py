"""Checks that all ranks are in the same exchange, so that a slip in a rank program is a message and not a hang.

Before a collective every rank shows the others a header of fixed size: what it is about to do, in words and hashed,
or that it has returned. Until the first epoch has ended, and always in debug mode, this is done for every collective;
after that for the first one of every epoch, together with a hash of the path taken since. Headers are the price of
checking: they are never booked as traffic.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.effects import AllToAll, Effect, Recv, Send
from harness.errors import ProgramError
from harness.rank import Rank
from real.transport import Link, Pending

_LAYOUT = struct.Struct("<B8s8s8sI288s192s")
_IN_EFFECT, _RETURNED = 0, 1


class Header(NamedTuple):
    """What one rank is about to do."""

    state: int
    what: bytes  # hash of kind and tag
    shape: bytes  # hash of the shape signature
    path: bytes  # hash of all collectives of this rank so far
    length: int  # how many those are
    text: str
    signature: str

    def pack(self) -> Tensor:
        """As uint8 [HEADER_BYTES] on the host."""
        texts = (_fit(self.text, 288), _fit(self.signature, 192))
        return torch.frombuffer(bytearray(_LAYOUT.pack(*self[:5], *texts)), dtype=torch.uint8)

    @classmethod
    def unpack(cls, row: Tensor) -> Header:
        """From what `pack` made."""
        *head, text, signature = _LAYOUT.unpack(row.numpy().tobytes())
        return cls(*head, *(t.rstrip(b"\0").decode(errors="replace") for t in (text, signature)))


HEADER_BYTES = _LAYOUT.size


class Agreement:
    """One rank's side of the checks.

    Args:
        link: how headers travel.
        rank: whose debug mode and epoch decide how often.
    """

    def __init__(self, link: Link, rank: Rank) -> None:
        self.link, self.rank = link, rank
        self.path, self.count = b"", 0
        self.epoch: int | None = None  # the last epoch with a header

    def collective(self, effect: Effect) -> None:
        """Check one collective before it begins, if its turn has come.

        Raises:
            ProgramError: another rank is in something else, has returned, took another path, or counts other rows.
        """
        if self._thorough or self.rank.epoch != self.epoch:
            self.epoch = self.rank.epoch
            self._compare(self._header(effect))
            if self._thorough and isinstance(effect, AllToAll):
                self._compare_counts(effect)
        self.path, self.count = _digest(self.path, _what(effect), _shape(effect)), self.count + 1

    def returned(self) -> None:
        """Check at the end that all ranks return. Raises ProgramError as `collective` does."""
        self._compare(Header(_RETURNED, b"", b"", self.path, self.count, "", ""))

    def pair(self, effect: Send | Recv) -> Pending | None:
        """Check one send or receive with its peer, if its turn has come; a sender's header is in flight on return.

        Raises:
            ProgramError: the receiver expects something else than was sent, or both are one rank.
        """
        if self.link.rank == (effect.to if isinstance(effect, Send) else effect.source):
            raise ProgramError(f"rank {self.link.rank} exchanges with itself in {effect}")
        if not self._thorough:
            return None
        mine = self._header(effect)
        if isinstance(effect, Send):
            return self.link.send(mine.pack().to(self.link.device), effect.to)
        theirs = Header.unpack(self.link.recv(HEADER_BYTES, effect.source).result().cpu())
        _agree(effect.source, theirs, self.link.rank, mine)
        return None

    @property
    def _thorough(self) -> bool:
        return self.rank.debug or self.link.clock.ended == 0

    def _header(self, effect: Effect) -> Header:
        signature = repr(effect.shape_signature())
        what, shape = _digest(_what(effect)), _digest(_shape(effect))
        return Header(_IN_EFFECT, what, shape, self.path, self.count, str(effect), signature)

    def _compare(self, mine: Header) -> None:
        headers = [Header.unpack(row) for row in self.link.gather_host(mine.pack())]
        for rank, header in enumerate(headers[1:], 1):
            _agree(0, headers[0], rank, header)
        for rank, header in enumerate(headers):
            if header.path != headers[0].path:
                raise ProgramError(
                    f"ranks took different paths before epoch {self.rank.epoch}: rank 0 has {headers[0].length} "
                    f"collectives behind it, rank {rank} has {header.length}, and they are not the same; "
                    f"set HALOSCOPE_DEBUG=1 to see where"
                )

    def _compare_counts(self, effect: AllToAll) -> None:
        """All ranks see all counts, so that all of them fail with the same words."""
        known = [part for part in effect.parts if part.recv is not None]
        if not known:
            return
        rows = np.stack([np.stack([part.send, np.asarray(part.recv)]) for part in known]).astype(np.int64)
        table = torch.stack(self.link.gather_host(torch.from_numpy(rows))).numpy()  # [rank, part, send | recv, rank]
        for rank, part, peer in np.argwhere(table[:, :, 1, :] != table[:, :, 0, :].transpose(2, 1, 0)).tolist():
            raise ProgramError(
                f"rank {rank} expects {table[rank, part, 1, peer]} rows from rank {peer}, which sends "
                f"{table[peer, part, 0, rank]}, in {effect}"
            )


def _agree(rank_a: int, a: Header, rank_b: int, b: Header) -> None:
    """Raise ProgramError unless two headers belong to the same exchange."""
    if a.state != b.state:
        (gone, _), (here, header) = sorted([(rank_a, a), (rank_b, b)], key=lambda pair: pair[1].state != _RETURNED)
        raise ProgramError(f"ranks disagree: rank {here} is in {header.text}, but rank {gone} has returned")
    if a.what != b.what:
        raise ProgramError(f"ranks disagree: rank {rank_a} is in {a.text}, but rank {rank_b} is in {b.text}")
    if a.shape != b.shape:
        raise ProgramError(
            f"ranks disagree on shape or dtype: rank {rank_a} has {a.signature} in {a.text}, "
            f"but rank {rank_b} has {b.signature} in {b.text}"
        )


def _what(effect: Effect) -> bytes:
    kind = "Send or Recv" if isinstance(effect, Send | Recv) else effect.kind
    return f"{kind} {tuple(effect.tag)}".encode()


def _shape(effect: Effect) -> bytes:
    return repr(effect.shape_signature()).encode()


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).digest()


def _fit(text: str, size: int) -> bytes:
    """At most `size` bytes; of a longer text the middle goes, since the label is in front and the line at the end."""
    data = text.encode()
    if len(data) <= size:
        return data
    head = (size - 3) // 2
    return data[:head] + b"..." + data[len(data) - (size - 3 - head) :]
