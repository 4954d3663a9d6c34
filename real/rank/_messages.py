"""Checks the messages between every pair of ranks: what one sends, the other must receive, in the same order.

Both ends keep a rolling hash of kind, tag and shape of every message of a pair. The first message of a pair in each
epoch is preceded by a note: its own header, and the sender's hash of all earlier messages. So an error is found with
the first message of the next epoch, or when the programs return, however collectives and messages are interleaved.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.effects import Effect
from harness.errors import ProgramError
from real.rank._headers import HEADER_BYTES, Header, agree, digest, shortened

_TRAIL_BYTES = 512
NOTE_BYTES = HEADER_BYTES + _TRAIL_BYTES


class Note(NamedTuple):
    """A message's header, the hash of those before it, and a text that lists those since the last note."""

    header: Header
    trail: str

    def pack(self) -> Tensor:
        """As uint8 [NOTE_BYTES] on the host."""
        return torch.cat([self.header.pack(), _packed(self.trail)])

    @classmethod
    def unpack(cls, row: Tensor) -> Note:
        """From what `pack` made."""
        return cls(Header.unpack(row[:HEADER_BYTES]), _unpacked(row[HEADER_BYTES:]))


class MessageStream:
    """One direction between two ranks, as recorded at one end.

    Attributes:
        path: rolling hash of all its messages.
    """

    def __init__(self) -> None:
        self.path = bytes(8)
        self._epoch: int | None = None  # of the last note
        self._since: list[str] = []  # messages since then

    @property
    def trail(self) -> str:
        """The messages since the last note, as text."""
        return "; ".join(self._since) or "nothing"

    def add(self, effect: Effect, always: bool) -> Note | None:
        """Add a message that is about to be sent; returns the note to send before it, or None where none is due."""
        header, note = Header.of(effect, self.path, len(self._since)), None
        if always or effect.tag.epoch != self._epoch:
            note = Note(header, self.trail)
            self._epoch, self._since = effect.tag.epoch, []
        self.path = digest(self.path, header.what, header.shape)
        self._since.append(header.text)
        return note


@dataclass(frozen=True)
class MessageStreams:
    """All messages of one rank, by the other rank."""

    sent: defaultdict[int, MessageStream]
    received: defaultdict[int, MessageStream]

    @classmethod
    def none(cls) -> MessageStreams:
        """Before the first message."""
        return cls(defaultdict(MessageStream), defaultdict(MessageStream))

    def sent_table(self, size: int) -> Tensor:
        """Hash and text of the messages to every rank, int64 [size, k], as `complaint` of that rank reads them."""
        rows = [_row(self.sent.get(peer, MessageStream())) for peer in range(size)]
        return torch.from_numpy(np.stack(rows))

    def complaint(self, rank: int, table: Tensor) -> str:
        """What is wrong with the rows for this rank in all ranks' `sent_table`; empty where nothing is."""
        for peer, row in enumerate(table):
            mine, theirs = self.received.get(peer, MessageStream()), row.numpy()
            if theirs[:1].tobytes() != mine.path:
                return differ(peer, _unpacked(torch.from_numpy(theirs[1:].copy()).view(torch.uint8)), rank, mine.trail)
        return ""


def differ(source: int, sent: str, rank: int, received: str) -> str:
    """The error message for messages that were received as others than were sent."""
    return f"messages differ: rank {source} sent rank {rank} {sent}, but rank {rank} received {received}"


def compare_notes(source: int, theirs: Note, rank: int, mine: Note) -> None:
    """Raise ProgramError unless two notes are of the same message, and the messages before it were the same."""
    if theirs.header.path != mine.header.path:
        raise ProgramError(differ(source, theirs.trail, rank, mine.trail))
    agree(source, theirs.header, rank, mine.header)


def _row(way: MessageStream) -> np.ndarray:
    return np.concatenate([np.frombuffer(way.path, np.int64), _packed(way.trail).numpy().view(np.int64)])


def _packed(text: str) -> Tensor:
    return torch.frombuffer(bytearray(shortened(text, _TRAIL_BYTES).ljust(_TRAIL_BYTES, b"\0")), dtype=torch.uint8)


def _unpacked(row: Tensor) -> str:
    return row.numpy().tobytes().rstrip(b"\0").decode(errors="replace")
