"""Recordings: what the ranks of one run did, collected while it is simulated, and saved as a file.

A recording holds no device, link or time, so that `_replay` can time it on any cluster. The file is compressed msgpack
of exactly the fields below; it holds no code and no pickle.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.effects import Background, Effect
from harness.errors import InputError
from harness.machine import write_atomically
from sims.device import Work
from sims.engine import Observer
from sims.replay._notation import BEGIN, END, Action, Converted, EffectShape, Tables, Track, counts_of

RECORDING_FORMAT = 7


class PeakMemory(msgspec.Struct, frozen=True):
    """Memory that the ranks needed, independent of the capacity of their devices.

    Attributes:
        peaks: peak bytes of every rank.
        rank: the rank with the highest share of its device's memory when it was recorded; `setup` and `contributors`
            describe it (see `sims.device.Fullest`).
    """

    peaks: list[int]
    rank: int
    setup: bool
    contributors: dict[str, int]


class Recording(msgspec.Struct):
    """A run of `size` ranks.

    Attributes:
        config: the config of the recorded run; actions do not depend on its cluster unless `timed`.
        graph: the description of the graph in the result file.
        facts: facts of the ranks (layer0).
        works, stretches, counts, effects, converted: values that actions refer to, by number (see `_notation.Tables`).
        actions: the actions of every rank, in order.
        memory: the memory that the ranks needed.
        timed: whether actions depended on when messages arrived (`Facts.timed`).
        skew: coefficient of variation of the graph's degrees, by which devices with a cache price sums.
    """

    size: int
    config: dict[str, Any]
    graph: dict[str, Any]
    facts: dict[str, Any]
    works: list[Work]
    stretches: list[bytes]
    counts: list[bytes]
    effects: list[EffectShape]
    converted: list[Converted]
    actions: list[list[Action]]
    memory: PeakMemory
    timed: bool = False
    skew: float = 0.0
    format: int = RECORDING_FORMAT

    def save(self, path: Path) -> None:
        """Write the recording. Raises InputError if it cannot be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, zlib.compress(msgspec.msgpack.encode(self), 6))

    def on_meta(self, rows: float = 1.0) -> list[Effect]:
        """Every distinct effect on tensors of the meta device, with `rows` times the rows that layers exchange.

        Raises InputError for an unknown effect.
        """
        counts = counts_of(self.counts)
        between = counts if rows == 1 else [np.round(each * rows).astype(np.int64) for each in counts]
        return [shape.effect(counts if shape.layer < 0 else between) for shape in self.effects]


class _Header(msgspec.Struct):
    """The field that every format has."""

    format: int = 0


def load_recording(path: Path) -> Recording:
    """Load a recording. Raises InputError if the file is not a recording of this format."""
    try:
        content = zlib.decompress(path.read_bytes())
        found = msgspec.msgpack.decode(content, type=_Header).format
        if found != RECORDING_FORMAT:
            raise InputError(f"{path} is a recording of format {found}, this version reads {RECORDING_FORMAT}")
        return msgspec.msgpack.decode(content, type=Recording)
    except (OSError, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"cannot read recording {path}: {error}") from None


class Recorder(Observer):
    """Records what the ranks of one simulation do."""

    def __init__(self, size: int) -> None:
        self.tables = Tables()
        self.tracks = [Track(self.tables) for _ in range(size)]

    def epoch_began(self, rank: int, now: float) -> None:
        """See `Observer`."""
        self.tracks[rank].epoch(BEGIN)

    def epoch_ended(self, rank: int, seconds: dict[str, float]) -> None:
        """See `Observer`."""
        self.tracks[rank].epoch(END)

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        """See `Observer`."""
        self.tracks[rank].operator(component, work)

    def converting(self, rank: int, effect: Background, received: bool, work: Work, seconds: float) -> None:
        """See `Observer`."""
        self.tracks[rank].converting(effect, received, work)

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        """See `Observer`."""
        self.tracks[rank].effect(effect, paused)

    def recording(
        self,
        config: dict[str, Any],
        graph: dict[str, Any],
        facts: dict[str, Any],
        memory: PeakMemory,
        timed: bool = False,
        skew: float = 0.0,
    ) -> Recording:
        """The recording of the run, after its end."""
        tables, actions = self.tables, [track.close() for track in self.tracks]
        return Recording(
            size=len(self.tracks),
            config=config,
            graph=graph,
            facts=facts,
            works=tables.works.values,
            stretches=tables.stretches.values,
            counts=[each.tobytes() for each in tables.counts.values],
            effects=tables.effects.values,
            converted=tables.converted.values,
            actions=actions,
            memory=memory,
            timed=timed,
            skew=skew,
        )
