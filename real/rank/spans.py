"""What every rank of a measured run did when: the intervals of its clock, and its started exchanges in flight.

A rank writes its spans where `HALOSCOPE_TRACE` names a folder; `real.launch` puts those of all ranks together. Ranks of
one machine share its time of day; that of different machines may differ by the error of their time service.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from harness.effects import Component, Effect, Start, Wait, component_of
from harness.machine import write_atomically
from harness.running.trace import Span, Stream
from harness.trampoline import Stepper
from real.rank._clocks import CudaClock, Done, HostClock, Mark, _Clock, make_clock

TRACE_VARIABLE = "HALOSCOPE_TRACE"
SHORTEST_S = 1e-6  # shorter spans are dropped


class RankSpans(msgspec.Struct):
    """What one rank writes: its machine, and its spans in seconds of the machine's clock."""

    rank: int
    host: int
    spans: list[Span]


def clock_of(device: torch.device, rank: int, size: int) -> HostClock | CudaClock:
    """The clock of a rank: one that keeps its spans where a trace is asked for."""
    if TRACE_VARIABLE not in os.environ:
        return make_clock(device)
    clock: _TracedHost | _TracedCuda = _TracedCuda(device) if device.type == "cuda" else _TracedHost()
    clock.rank, clock.size = rank, size
    return clock


def watch(clock: HostClock | CudaClock, stepper: Stepper) -> None:
    """Give a traced clock the stepper whose effects it records."""
    if isinstance(clock, _Traced):
        clock.stepper = stepper


def leave(clock: HostClock | CudaClock, host: int) -> None:
    """Write what a traced clock kept; nothing for any other clock."""
    if isinstance(clock, _Traced):
        content = msgspec.json.encode(RankSpans(clock.rank, host, clock.spans))
        write_atomically(Path(os.environ[TRACE_VARIABLE], f"rank-{clock.rank}.json"), content, durable=False)


class _Named(NamedTuple):
    """What spans say of an effect, whose tensors they do not keep.

    Attributes:
        nbytes: what the rank sends in it.
        beside: it starts an exchange, or waits for one, which has a span of its own.
    """

    name: str
    nbytes: int
    beside: bool
    details: dict[str, Any]


class _Traced(_Clock[Any]):
    """Mixed into a clock: keeps its intervals, each with the effect that the rank was in.

    Attributes:
        stepper: the running program, which has the current effect.
        spans: kept so far, seconds of the time of day.
    """

    rank, size = 0, 1
    stepper: Stepper | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.spans: list[Span] = []
        self._origin: tuple[Any, float] | None = None  # a stamp, and the time of day then
        self._effects: dict[int, _Named] = {}  # place among the epoch's stamps -> effect that begins there
        self._marks: dict[int, float] = {}  # when started exchanges began, by their mark

    def begin_epoch(self) -> None:
        """Also take a stamp to count from, anew: events far apart are compared in single precision."""
        self._effects = {}
        origin = self._stamp()
        self._come_to(origin)
        self._origin = origin, time.time()
        super().begin_epoch()

    def _come_to(self, stamp: Any) -> None:
        """Wait until a stamp is now; it is where host and rank are the same."""

    def blocked(self, kind: Component) -> AbstractContextManager[None]:
        """Also record the effect."""
        if self.stepper is not None and self.stepper.last is not None:
            self._effects[len(self._stamps)] = self._named(self.stepper.last)
        return super().blocked(kind)

    def mark(self) -> Mark:
        """Also record the time of day."""
        mark = super().mark()
        self._marks[mark.at] = time.time()
        return mark

    def overlapped(self, begin: Mark, done: Done) -> None:
        """Also keep a span of the exchange: on the host from its start until it was done, where that is known."""
        super().overlapped(begin, done)
        end = time.time() - (max(0, self.now() - done) * 1e-9 if isinstance(done, int) else 0.0)
        effect = self.stepper.last if self.stepper is not None else None
        if isinstance(effect, Wait) and begin.at in self._marks:
            wire = effect.handle.effect
            self._keep("communication", component_of(effect), self._named(wire), self._marks.pop(begin.at), end)

    def converted(self, effect: Effect, begin: float) -> None:
        """Also keep a span of the second thread."""
        details = {"epoch": self.epochs - 1, "direction": effect.tag.direction, "layer": effect.tag.layer}
        self.spans.append(Span(self.rank, "background", "codec", effect.tag.label, begin, time.time(), 0, details))

    def _finish_stamps(self) -> None:
        super()._finish_stamps()
        assert self._origin is not None
        origin, day = self._origin
        for at, ((kind, begin), (_, end)) in enumerate(zip(self._stamps, self._stamps[1:], strict=False)):
            if kind:
                effect = self._effects.get(at)
                stream: Stream = "copy" if kind == "swap" else "compute" if effect is None else "communication"
                stream = "compute" if effect is not None and effect.beside else stream
                self._keep(stream, kind, effect, day + self._between(origin, begin), day + self._between(origin, end))

    def _keep(self, stream: Stream, kind: str, effect: _Named | None, begin: float, end: float) -> None:
        """Keep one span, unless it is very short: a clock has thousands of those."""
        if end - begin < SHORTEST_S:
            return
        name, nbytes, details = (kind, 0, {}) if effect is None else (effect.name, effect.nbytes, effect.details)
        self.spans.append(
            Span(self.rank, stream, kind, name, begin, end, nbytes, {"epoch": self.epochs - 1, **details})
        )

    def _named(self, effect: Effect) -> _Named:
        waits, beside = isinstance(effect, Wait), isinstance(effect, Wait | Start)
        name = f"wait {effect.tag.label}" if waits else effect.tag.label
        nbytes = 0 if beside else int(effect.sent(self.rank, self.size).sum())
        details = {"kind": effect.kind, "direction": effect.tag.direction, "layer": effect.tag.layer}
        return _Named(name, nbytes, beside, details)


class _TracedHost(_Traced, HostClock):
    """A traced clock of a CPU rank."""


class _TracedCuda(_Traced, CudaClock):
    """A traced clock of a GPU rank: intervals on the stream, started exchanges as seen by the host."""

    def _come_to(self, stamp: Any) -> None:
        stamp.synchronize()
