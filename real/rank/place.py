"""The current activity of a rank, in a small file that it keeps up to date and its launcher reads once it has died.

A rank that was killed by a signal, or is frozen, cannot report where it is; but the file is memory-mapped and outlives
the process. Writing to it costs about a microsecond and no system call.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from harness.effects import Effect
from harness.rank import Rank

_HEAD = struct.Struct("<q?16s24sH")  # epoch, whether inside the effect, component, stage, length of the text
_TEXT = 400
SIZE = _HEAD.size + _TEXT

_PHASES = {b"halo": "exchange"}  # components with another name in messages


class Place(NamedTuple):
    """The content of such a file; `str()` describes it in a sentence.

    Attributes:
        epoch: -1 before the first one.
        inside: whether the rank is in `effect`; else it has continued since.
        component: one of COMPONENTS, or empty before training begins.
        stage: its activity outside the measured time: set-up, evaluation, checkpoint; empty in an epoch.
        effect: the latest effect, with label, layer, file and line.
    """

    epoch: int
    inside: bool
    component: str
    stage: str
    effect: str

    def __str__(self) -> str:
        if not self.component:
            return f"in {self.stage or 'start-up'}"
        when = f"epoch {self.epoch}, " if self.epoch >= 0 else ""
        phase = self.stage or (_PHASES.get(self.component.encode(), self.component))
        where = f", {'in' if self.inside else 'after'} {self.effect}" if self.effect else ""
        return f"in {when}{phase}{where}"


class Activity:
    """Writes a rank's activity. Without a file (no launcher) it does nothing, at negligible cost.

    Args:
        path: a file of SIZE bytes that the launcher made, or None.
    """

    def __init__(self, path: Path | None) -> None:
        self._memory: mmap.mmap | None = None
        self._rank: Rank | None = None
        if path is not None:
            with path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), SIZE)

    def before(self, stage: str) -> None:
        """Write what the process does before or after its program."""
        if self._memory is not None:
            _HEAD.pack_into(self._memory, 0, -1, False, b"", stage.encode(), 0)

    def follow(self, rank: Rank) -> None:
        """Take epoch and stage from this rank from now on."""
        self._rank = rank
        self.component("compute")

    def component(self, name: str) -> None:
        """The rank continues, in another component."""
        if self._memory is not None and self._rank is not None:
            rank = self._rank
            head = (rank.epoch, False, name.encode(), rank.stage.encode())
            _HEAD.pack_into(self._memory, 0, *head, *_HEAD.unpack_from(self._memory)[4:])

    def effect(self, effect: Effect, component: str) -> None:
        """The rank is in an effect, until the next call of `component`."""
        if self._memory is not None and self._rank is not None:
            text = str(effect).encode()[:_TEXT]
            self._memory[_HEAD.size : _HEAD.size + len(text)] = text
            head = (self._rank.epoch, True, component.encode(), self._rank.stage.encode(), len(text))
            _HEAD.pack_into(self._memory, 0, *head)


def create(path: Path) -> None:
    """Create the file of one rank, whose content means that it has not begun."""
    path.write_bytes(bytes(SIZE))


def read_activity(path: Path) -> Place:
    """The activity in a file now."""
    data = path.read_bytes()
    epoch, inside, component, stage, length = _HEAD.unpack_from(data)
    names = [part.rstrip(b"\0").decode(errors="replace") for part in (component, stage)]
    return Place(epoch, inside, names[0], names[1], data[_HEAD.size :][: min(length, _TEXT)].decode(errors="replace"))
