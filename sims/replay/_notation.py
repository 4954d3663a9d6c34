"""The notation of what a rank did, without tensor values: operators by their work, effects by their shapes.

It holds no device, link or time. A rank's track is a list of actions that refer to numbered values, whose tables all
ranks share. Recordings are files of it, `_player` replays it, and two epochs are equal if their actions are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.effects import (
    AllReduce,
    AllToAll,
    Background,
    Broadcast,
    Collective,
    Direction,
    Effect,
    HostCopy,
    Recv,
    Rows,
    Send,
    Start,
    Tag,
    Wait,
)
from harness.errors import InputError, ProgramError
from harness.rank import COMPONENTS
from sims.device import Work

COMPUTE, BEGIN, END, DO, START, WAIT, START_BESIDE = range(7)
"""Codes of actions: let a stretch of compute pass, begin or end an epoch, carry out or start an effect, wait for the
n-th effect that was started, start an exchange with its conversion in the background."""

Converted = tuple[int, int, int]
"""A background exchange: numbers of its effect, and of the stretches of compute that encode and decode its rows."""

Action = tuple[int, int, bool]
"""A code, the number of the value that it refers to, and whether the rank is off the clock."""

_TYPES = {
    str(each).removeprefix("torch."): each
    for each in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
        torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip

_COMPONENT = {name: number for number, name in enumerate(COMPONENTS)}

T = TypeVar("T", bound=Hashable)


class RowsShape(msgspec.Struct, frozen=True, array_like=True):
    """Rows of an all-to-all.

    Attributes:
        row: shape of one row.
        dtype: of its elements, such as "float32".
        send, recv: numbers of its counts; `recv` is -1 if only senders know them.
    """

    row: tuple[int, ...]
    dtype: str
    send: int
    recv: int


class EffectShape(msgspec.Struct, frozen=True, array_like=True):
    """One effect of one rank without its values and its epoch, which follows from its position among the actions.

    Attributes:
        kind: name of the effect's class.
        rows: those of an all-to-all; any other effect has a tensor of `shape` and `dtype`.
        peer: root, destination or source.
        flag: deterministic (AllReduce), to the host (HostCopy).
        group: the ranks of a collective; empty for all.
    """

    kind: str
    label: str
    direction: Direction
    layer: int
    rows: tuple[RowsShape, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    peer: int = -1
    flag: bool = False
    group: tuple[int, ...] = ()

    def effect(self, counts: Sequence[np.ndarray], epoch: int = 0) -> Effect:
        """The effect on tensors of the meta device. Raises InputError for an unknown kind or type."""
        tag = Tag(self.label, self.direction, self.layer, epoch)
        if self.kind in ("AllToAll", "Background"):
            return AllToAll(tag=tag, parts=tuple(_rows(rows, counts) for rows in self.rows))
        tensor, group = _empty(self.shape, self.dtype), self.group or None
        match self.kind:
            case "AllReduce":
                return AllReduce(tag=tag, tensor=tensor, deterministic=self.flag, group=group)
            case "HostCopy":
                return HostCopy(tag=tag, tensor=tensor, to_host=self.flag)
            case "Broadcast":
                return Broadcast(tag=tag, tensor=tensor, root=self.peer, group=group)
            case "Send":
                return Send(tag=tag, tensor=tensor, to=self.peer)
            case "Recv":
                return Recv(tag=tag, like=tensor, source=self.peer)
        raise InputError(f"recording: unknown effect {self.kind!r}")


class Numbered(Generic[T]):
    """Distinct values in the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """The value's position in `values`, where it is added if it is new."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class NumberedCounts:
    """Distinct counts per rank in the order in which they were first seen, int64 [ranks].

    Those that nobody can write, such as rows of a described workload's table, are referred to instead of copied: of
    thousands of ranks all counts are as large as that table.
    """

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []
        self._numbers: dict[bytes, int] = {}
        self._of_array: dict[int, int] = {}  # by id, of arrays in `values`, which live as long as this does

    def number(self, counts: np.ndarray) -> int:
        """The position of equal counts in `values`, where they are added if they are new."""
        known = self._of_array.get(id(counts))
        if known is not None:
            return known
        found = np.ascontiguousarray(counts, np.int64)
        key = blake2b(found.data, digest_size=16).digest()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            if found.flags.writeable:
                found = found.copy()
                found.flags.writeable = False
            self.values.append(found)
            self._of_array[id(found)] = number
        return number


class Tables:
    """The values that actions refer to, shared by all ranks.

    Attributes:
        works: distinct operators.
        stretches: compute between two effects: int32 pairs of component and work, in the order of execution.
        counts: int64 counts per rank.
        effects: distinct effects.
        converted: distinct background exchanges.
    """

    def __init__(self) -> None:
        self.works: Numbered[Work] = Numbered()
        self.stretches: Numbered[bytes] = Numbered()
        self.counts = NumberedCounts()
        self.effects: Numbered[EffectShape] = Numbered()
        self.converted: Numbered[Converted] = Numbered()

    def shape(self, effect: Effect) -> EffectShape:
        """An effect that is sent over the wire, without its values."""
        named = (effect.kind, effect.tag.label, effect.tag.direction, effect.tag.layer)
        if isinstance(effect, AllToAll):
            return EffectShape(*named, rows=tuple(self._rows(part) for part in effect.parts))
        tensor = effect.like if isinstance(effect, Recv) else effect.tensors()[0]
        whole: dict[str, Any] = {"shape": tuple(tensor.shape), "dtype": _type_name(tensor)}
        if isinstance(effect, Collective):
            whole["group"] = effect.group or ()
        if isinstance(effect, AllReduce):
            return EffectShape(*named, **whole, flag=effect.deterministic)
        if isinstance(effect, HostCopy):
            return EffectShape(*named, **whole, flag=effect.to_host)
        if isinstance(effect, Broadcast):
            return EffectShape(*named, **whole, peer=effect.root)
        assert isinstance(effect, Send | Recv)
        return EffectShape(*named, **whole, peer=effect.to if isinstance(effect, Send) else effect.source)

    def _rows(self, rows: Rows) -> RowsShape:
        recv = -1 if rows.recv is None else self.counts.number(rows.recv)
        return RowsShape(tuple(rows.tensor.shape[1:]), _type_name(rows.tensor), self.counts.number(rows.send), recv)


class Track:
    """What one rank does, in order. Keeps no tensor alive."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._actions: list[Action] = []
        self._open: list[int] = []  # component and work, of the stretch of compute that is not closed yet
        self._started: WeakKeyDictionary[Effect, int] = WeakKeyDictionary()
        self._starts = 0
        self._beside: WeakKeyDictionary[Effect, int] = WeakKeyDictionary()  # background exchange -> its entry of:
        self._conversions: list[tuple[int, list[int], list[int]]] = []  # effect; components and works before and after

    def operator(self, component: str, work: Work) -> None:
        """An operator was charged."""
        self._open += (_COMPONENT[component], self.tables.works.number(work))

    def converting(self, effect: Background, received: bool, work: Work) -> None:
        """An operator of a background exchange was charged."""
        _, before, after = self._conversions[self._beside[effect]]
        (after if received else before).extend((_COMPONENT["codec"], self.tables.works.number(work)))

    def epoch(self, code: int) -> None:
        """An epoch begins or ends (BEGIN, END)."""
        self._add(code)

    def effect(self, effect: Effect, paused: bool) -> None:
        """An effect was issued, off the clock if `paused`.

        Raises:
            ProgramError: a wait for what was started before this track began.
        """
        if isinstance(effect, Wait):
            number = self._started.get(effect.handle.effect)
            if number is None:
                raise ProgramError(f"{effect} was started in another epoch: such epochs do not repeat")
            self._add(WAIT, number, paused)
            return
        wire = effect.wire
        number = self.tables.effects.number(self.tables.shape(wire))
        if isinstance(effect, Start):
            self._started[wire] = self._starts
            self._starts += 1
        if isinstance(wire, Background):
            self._beside[wire] = len(self._conversions)
            self._conversions.append((number, [], []))
            self._add(START_BESIDE, self._beside[wire], paused)
            return
        self._add(START if isinstance(effect, Start) else DO, number, paused)

    def close(self) -> list[Action]:
        """All actions so far, including compute after the last effect."""
        self._pass()
        beside = [
            self.tables.converted.number((effect, self._stretch(before), self._stretch(after)))
            for effect, before, after in self._conversions
        ]
        return [(code, beside[at] if code == START_BESIDE else at, paused) for code, at, paused in self._actions]

    def _add(self, code: int, about: int = 0, paused: bool = False) -> None:
        self._pass()
        self._actions.append((code, about, paused))

    def _pass(self) -> None:
        if self._open:
            stretch, self._open = self._open, []
            self._actions.append((COMPUTE, self._stretch(stretch), False))

    def _stretch(self, pairs: list[int]) -> int:
        return self.tables.stretches.number(np.asarray(pairs, np.int32).tobytes())


def in_epoch(effect: Effect, epoch: int) -> Effect:
    """A copy of an effect for another epoch."""
    return replace(effect, tag=effect.tag._replace(epoch=epoch))


def counts_of(raw: Sequence[bytes]) -> list[np.ndarray]:
    """Tables' counts as arrays, int64 [ranks]."""
    return [np.frombuffer(each, np.int64) for each in raw]


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _empty(shape: tuple[int, ...], dtype: str) -> Tensor:
    if dtype not in _TYPES:
        raise InputError(f"recording: no such type of elements: {dtype!r}")
    return torch.empty(shape, dtype=_TYPES[dtype], device="meta")


def _rows(rows: RowsShape, counts: Sequence[np.ndarray]) -> Rows:
    send = counts[rows.send]
    tensor = _empty((int(send.sum()), *rows.row), rows.dtype)
    return Rows(tensor, send, None if rows.recv < 0 else counts[rows.recv])
