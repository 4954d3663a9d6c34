"""What the ranks of one run did, without the numbers: operators by their work, effects by their bytes.

A recording knows no device, no link and no time, so that `_replay` can time it on any cluster. The file is
compressed msgpack of exactly the fields below; it holds no code and no pickle.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from harness.effects import AllReduce, AllToAll, Broadcast, Effect, HostCopy, Recv, Rows, Send, Start, Tag, Wait
from harness.errors import InputError
from harness.rank import COMPONENTS
from harness.running.results import write_atomically
from sims.device import Work

FORMAT = 2
PIECE, BEGIN, END, DO, START, WAIT = range(6)
"""What an operation of a stream does: charge a piece of compute, begin or end an epoch, carry out or start an exchange,
wait for the n-th started one."""

_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Rows of an all-to-all: bytes of one, and the numbers of its counts; `recv` is -1 where only senders know."""

    row_bytes: int
    send: int
    recv: int


class Exchange(msgspec.Struct, frozen=True, array_like=True):
    """One effect of one rank, by its shapes.

    Attributes:
        peer: root, destination or source.
        flag: deterministic (AllReduce), to the host (HostCopy).
    """

    kind: str
    tag: Tag
    parts: tuple[Part, ...] = ()
    elements: int = 0
    width: int = 1
    peer: int = -1
    flag: bool = False


Operation = tuple[int, int, bool]  # a code from above, what it is about, whether the rank is off the clock


class PeakMemory(msgspec.Struct, frozen=True):
    """What the ranks needed, whatever their devices hold.

    Attributes:
        peaks: most bytes of every rank.
        rank: the one that filled its device most where it was recorded; `setup` and `contributors` are about it (see
            `sims.device.Fullest`).
    """

    peaks: list[int]
    rank: int
    setup: bool
    contributors: dict[str, int]


class Recording(msgspec.Struct):
    """A run of `size` ranks.

    Attributes:
        config: of the run that was recorded; its cluster did not matter.
        graph: as the result file describes it.
        facts: of the ranks (layer0).
        works: distinct operators.
        pieces: stretches of compute between two effects: int32 pairs of component and work, in the order of execution.
        counts: distinct int64 counts per rank.
        streams: per rank what it did, in order.
        memory: of the ranks.
        timed: it depended on when messages arrived (`Facts.timed`).
    """

    size: int
    config: dict[str, Any]
    graph: dict[str, Any]
    facts: dict[str, Any]
    works: list[Work]
    pieces: list[bytes]
    counts: list[bytes]
    exchanges: list[Exchange]
    streams: list[list[Operation]]
    memory: PeakMemory
    timed: bool = False
    format: int = FORMAT

    def save(self, path: Path) -> None:
        """Write the recording. Raises InputError where it cannot be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, zlib.compress(msgspec.msgpack.encode(self), 6))

    def effects(self) -> list[Effect]:
        """Every exchange as an effect on tensors of the meta device."""
        counts = [np.frombuffer(raw, np.int64) for raw in self.counts]
        return [_effect(exchange, counts) for exchange in self.exchanges]


def load(path: Path) -> Recording:
    """A recording from its file. Raises InputError when it is not one."""
    try:
        recording = msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=Recording)
    except (OSError, zlib.error, msgspec.DecodeError) as error:
        raise InputError(f"cannot read recording {path}: {error}") from None
    if recording.format != FORMAT:
        raise InputError(f"{path} is a recording of format {recording.format}, this version reads {FORMAT}")
    return recording


class Recorder:
    """Collects what the ranks of one simulation do; `sims.engine.simulate` feeds it."""

    def __init__(self, size: int) -> None:
        self.tables = _Tables()
        self.tracks = [Track(self.tables) for _ in range(size)]

    def recording(
        self,
        config: dict[str, Any],
        graph: dict[str, Any],
        facts: dict[str, Any],
        memory: PeakMemory,
        timed: bool = False,
    ) -> Recording:
        """What was collected."""
        tables = self.tables
        streams = [track.done() for track in self.tracks]
        return Recording(
            size=len(self.tracks),
            config=config,
            graph=graph,
            facts=facts,
            works=list(tables.works),
            pieces=list(tables.pieces),
            counts=list(tables.counts),
            exchanges=list(tables.exchanges),
            streams=streams,
            memory=memory,
            timed=timed,
        )


class _Tables:
    """Distinct values and their numbers, shared by all ranks."""

    def __init__(self) -> None:
        self.works: dict[Work, int] = {}
        self.pieces: dict[bytes, int] = {}
        self.counts: dict[bytes, int] = {}
        self.exchanges: dict[Exchange, int] = {}


class Track:
    """What one rank does, in order."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables
        self._operations: list[Operation] = []
        self._open: list[int] = []  # component and work, of the stretch of compute that is not closed yet
        self._started: dict[int, int] = {}  # id of a started effect -> its number
        self._alive: list[Effect] = []  # keeps those ids unique

    def work(self, component: str, work: Work) -> None:
        """One operator was charged."""
        number = self._tables.works.setdefault(work, len(self._tables.works))
        self._open += (_COMPONENT[component], number)

    def begin_epoch(self) -> None:
        """An epoch begins."""
        self._add(BEGIN)

    def end_epoch(self) -> None:
        """An epoch ends."""
        self._add(END)

    def effect(self, effect: Effect, paused: bool) -> None:
        """The rank asked for an effect, off the clock if `paused`."""
        if isinstance(effect, Wait):
            self._add(WAIT, self._started[id(effect.handle.effect)], paused)
            return
        wire = effect.effect if isinstance(effect, Start) else effect
        exchange = exchange_of(wire, self._tables.counts)
        number = self._tables.exchanges.setdefault(exchange, len(self._tables.exchanges))
        if isinstance(effect, Start):
            self._started[id(wire)] = len(self._started)
            self._alive.append(wire)
            self._add(START, number, paused)
        else:
            self._add(DO, number, paused)

    def done(self) -> list[Operation]:
        """Everything, the last compute included."""
        self._close()
        return self._operations

    def _add(self, code: int, about: int = 0, paused: bool = False) -> None:
        self._close()
        self._operations.append((code, about, paused))

    def _close(self) -> None:
        if self._open:
            piece, self._open = np.asarray(self._open, np.int32).tobytes(), []
            self._operations.append((PIECE, self._tables.pieces.setdefault(piece, len(self._tables.pieces)), False))


_COMPONENT = {name: number for number, name in enumerate(COMPONENTS)}


def exchange_of(effect: Effect, counts: dict[bytes, int]) -> Exchange:
    """The shapes of an effect; counts are numbered in `counts`."""

    def number(values: np.ndarray | None) -> int:
        if values is None:
            return -1
        return counts.setdefault(np.ascontiguousarray(values, np.int64).tobytes(), len(counts))

    kind, tag = effect.kind, effect.tag
    if isinstance(effect, AllToAll):
        parts = tuple(Part(part.row_bytes, number(part.send), number(part.recv)) for part in effect.parts)
        return Exchange(kind, tag, parts)
    tensor = effect.like if isinstance(effect, Recv) else effect.tensors()[0]
    shape: dict[str, Any] = {"elements": tensor.numel(), "width": tensor.element_size()}
    if isinstance(effect, AllReduce):
        return Exchange(kind, tag, **shape, flag=effect.deterministic)
    if isinstance(effect, HostCopy):
        return Exchange(kind, tag, **shape, flag=effect.to_host)
    if isinstance(effect, Broadcast):
        return Exchange(kind, tag, **shape, peer=effect.root)
    assert isinstance(effect, Send | Recv)
    return Exchange(kind, tag, **shape, peer=effect.to if isinstance(effect, Send) else effect.source)


def _effect(exchange: Exchange, counts: list[np.ndarray]) -> Effect:
    """The effect that has these shapes. Raises InputError for a kind that is not known."""
    tag = Tag(*exchange.tag)
    if exchange.kind == "AllToAll":
        return AllToAll(tag=tag, parts=tuple(_rows(part, counts) for part in exchange.parts))
    if exchange.width not in _TYPES:
        raise InputError(f"recording: no type of {exchange.width} bytes")
    tensor = torch.empty(exchange.elements, dtype=_TYPES[exchange.width], device="meta")
    match exchange.kind:
        case "AllReduce":
            return AllReduce(tag=tag, tensor=tensor, deterministic=exchange.flag)
        case "HostCopy":
            return HostCopy(tag=tag, tensor=tensor, to_host=exchange.flag)
        case "Broadcast":
            return Broadcast(tag=tag, tensor=tensor, root=exchange.peer)
        case "Send":
            return Send(tag=tag, tensor=tensor, to=exchange.peer)
        case "Recv":
            return Recv(tag=tag, like=tensor, source=exchange.peer)
    raise InputError(f"recording: unknown effect {exchange.kind!r}")


def _rows(part: Part, counts: list[np.ndarray]) -> Rows:
    send = counts[part.send]
    tensor = torch.empty((int(send.sum()), part.row_bytes), dtype=torch.uint8, device="meta")
    return Rows(tensor, send, None if part.recv < 0 else counts[part.recv])
