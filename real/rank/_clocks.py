"""Measures a rank's epoch and splits it into the components every driver reports.

A clock is always in exactly one component, so the components sum to the epoch by construction: `compute` unless
inside a span (codec, sample, swap) or a blocking exchange (halo, reduce). Clocks measure one rank without regard to the
others: `wait` is 0 here, and time spent waiting for a slower rank is counted as halo or reduce.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from harness.effects import Component, Effect
from harness.rank import COMPONENTS, Clock
from real.rank.place import Activity

Stamp = TypeVar("Stamp")


class Mark(NamedTuple):
    """When a started exchange began, in nanoseconds of epoch time and, on a GPU, as an event on its stream."""

    at: int
    event: torch.cuda.Event | None


Done = int | torch.cuda.Event | None
"""When an exchange was done: a value of `now`, or the event with which a device is; None where it is not known."""


class _Span(AbstractContextManager[None]):
    """Puts a clock into one component for the length of a `with`."""

    __slots__ = ("clock", "kind")

    def __init__(self, clock: _Clock[Any], kind: Component) -> None:
        self.clock, self.kind = clock, kind

    def __enter__(self) -> None:
        self.clock._enter(self.kind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clock._leave()


class _Clock(ABC, Generic[Stamp]):
    """The bookkeeping common to both clocks; a subclass defines what a stamp is and the time between two of them.

    Attributes:
        epochs: epochs that were begun.
        ended: epochs that were ended.
        activity: where changes of component are recorded for the launcher.
        stamps, seconds: stamps taken in all ended epochs, and how long those were.
    """

    def __init__(self) -> None:
        self.activity = Activity(None)
        self.stamps, self.seconds = 0, 0.0
        self.epochs = self.ended = 0
        self._running = self._paused = False
        self._stack = ["compute"]
        self._stamps: list[tuple[str, Stamp]] = []  # the component that begins at each stamp
        self._booked = self._since = 0  # ns of epoch time up to `_since`
        self._hidden_ns = 0

    def begin_epoch(self) -> None:
        """Start measuring."""
        self.epochs += 1
        self._running, self._paused = True, False
        self._stack, self._stamps, self._hidden_ns = ["compute"], [], 0
        self._since = time.perf_counter_ns()
        self._stamp_now()

    def end_epoch(self) -> dict[str, float]:
        """Seconds since `begin_epoch`: every component, their sum `epoch`, and `hidden`; pauses are not counted."""
        self._stamps.append(("", self._stamp()))
        self._settle()
        self._running = False
        self.ended += 1
        self._finish_stamps()
        seconds = dict.fromkeys(COMPONENTS, 0.0)
        for (kind, begin), (_, end) in zip(self._stamps, self._stamps[1:], strict=False):
            if kind:
                seconds[kind] += self._between(begin, end)
        seconds["epoch"] = sum(seconds.values())
        self.stamps, self.seconds = self.stamps + len(self._stamps), self.seconds + seconds["epoch"]
        seconds["hidden"] = self._hidden_ns * 1e-9 + self._hidden_on_device()
        return seconds

    def span(self, kind: Component) -> AbstractContextManager[None]:
        """Book what happens inside under `kind`."""
        return _Span(self, kind)

    def blocked(self, kind: Component) -> AbstractContextManager[None]:
        """Book the time a driver blocks in an exchange (`halo`, `reduce`) or a copy (`swap`)."""
        return _Span(self, kind)

    def pause(self, paused: bool) -> None:
        """Stop counting time until unpaused."""
        self._settle()
        self._paused = paused
        self._stamp_now()

    def now(self) -> int:
        """Nanoseconds of epoch time so far, over all epochs: it does not advance between epochs and in pauses."""
        return self._booked + (time.perf_counter_ns() - self._since if self._running and not self._paused else 0)

    def mark(self) -> Mark:
        """When a started exchange begins."""
        return Mark(self.now(), None)

    def overlapped(self, begin: Mark, done: Done) -> None:
        """Count as hidden the time from `begin` to `done`, or to this moment, whichever comes first."""
        self._hidden_ns += max(0, min(done if isinstance(done, int) else self.now(), self.now()) - begin.at)

    def converted(self, effect: Effect, begin: float) -> None:
        """The rank's second thread has encoded or decoded rows since `begin`, by the time of day; not booked."""

    def _enter(self, kind: str) -> None:
        self._stack.append(kind)
        self._stamp_now()

    def _leave(self) -> None:
        if len(self._stack) > 1:  # an epoch that began inside a span has reset the stack
            self._stack.pop()
        self._stamp_now()

    def _stamp_now(self) -> None:
        self.activity.component(self._stack[-1])
        if self._running:
            self._stamps.append(("" if self._paused else self._stack[-1], self._stamp()))

    def _settle(self) -> None:
        self._booked, self._since = self.now(), time.perf_counter_ns()

    @abstractmethod
    def _stamp(self) -> Stamp:
        """The moment."""

    @abstractmethod
    def _between(self, begin: Stamp, end: Stamp) -> float:
        """Seconds from one moment to another."""

    def _finish_stamps(self) -> None:
        """Make sure that every stamp can be read."""

    def _hidden_on_device(self) -> float:
        return 0.0


class HostClock(_Clock[int]):
    """Host time of a CPU rank: a monotonic clock, read at every change of component."""

    def __init__(self) -> None:
        super().__init__()
        _forget_peak()
        self._held = _memory("VmRSS") - _memory("RssFile")

    def _stamp(self) -> int:
        return time.perf_counter_ns()

    def _between(self, begin: int, end: int) -> float:
        return (end - begin) * 1e-9

    def peak_memory(self) -> int:
        """Peak resident bytes above what the process held when the clock was made.

        That is what a rank's data takes, as the other drivers count it: pages of files, which are those of libraries,
        are left out, since they come when their code first runs. 0 where the kernel does not report it.
        """
        return max(0, _memory("VmHWM") - _memory("RssFile") - self._held)


def _forget_peak() -> None:
    """Reset the kernel's high-water mark of memory: preparing the data is not part of the run."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(key: str) -> int:
    """A line of this process's status, in bytes. Not `ru_maxrss`, which a process inherits from its launcher."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


Stamps = list[tuple[str, torch.cuda.Event]]
"""Components and the events with which they begin."""


class CudaClock(_Clock[torch.cuda.Event]):
    """Time on the current stream of a GPU rank, from events: a kernel counts where it ran, not where launched.

    `end_epoch` waits for the device. Peak memory is counted from when the clock is made.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        torch.cuda.reset_peak_memory_stats(device)
        self._free: list[torch.cuda.Event] = []
        self._overlaps: list[tuple[torch.cuda.Event, torch.cuda.Event | None, torch.cuda.Event]] = []
        self._begun: dict[torch.cuda.Event, float | None] = {}  # marks -> epoch time, once their epoch has ended
        self._capturing = False
        self._captured = set[torch.cuda.Event]()  # events of graphs, which record them anew in every epoch

    @contextlib.contextmanager
    def capturing(self) -> Iterator[Stamps]:
        """Changes of component inside are nodes of the graph that is captured; yields them, for `stamped_again`."""
        begin, found = len(self._stamps), Stamps()
        self._capturing = True
        try:
            yield found
        finally:
            self._capturing = False
            found.extend(self._stamps[begin:])
            self._captured.update(event for _, event in found)

    def stamped_again(self, stamps: Stamps) -> None:
        """A captured graph was launched in another epoch."""
        self._stamps.extend(stamps)

    def mark(self) -> Mark:
        """When a started exchange begins, on the host and on the stream."""
        mark = Mark(self.now(), self._stamp())
        assert mark.event is not None
        self._begun[mark.event] = None
        return mark

    def overlapped(self, begin: Mark, done: Done) -> None:
        """Book hidden time; see `_Clock.overlapped`."""
        if isinstance(done, int) or begin.event is None:
            super().overlapped(begin, done)
        elif self._running and not self._paused:
            self._overlaps.append((begin.event, done, self._stamp()))
            return
        self._begun.pop(begin.event, None)  # type: ignore[arg-type]

    def peak_memory(self) -> int:
        """Peak bytes that tensors of the run held on its device."""
        return int(torch.cuda.max_memory_allocated(self.device))

    def _stamp(self) -> torch.cuda.Event:
        if self._capturing:
            event = torch.cuda.Event(enable_timing=True, external=True)
        else:
            event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _between(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(begin.elapsed_time(end)) * 1e-3

    def _finish_stamps(self) -> None:
        self._stamps[-1][1].synchronize()

    def _hidden_on_device(self) -> float:
        total = self._hidden() if self._overlaps or self._begun else 0.0
        self._overlaps.clear()
        self._free.extend(event for _, event in self._stamps if event not in self._captured)
        self._stamps = []
        return total

    def _hidden(self) -> float:
        """Seconds for which the exchanges that were waited for in this epoch were hidden, without pauses."""
        first = self._stamps[0][1]
        at = np.array([self._between(first, event) for _, event in self._stamps])
        counted = np.array([bool(kind) for kind, _ in self._stamps[:-1]])
        booked = np.concatenate([[0.0], np.cumsum(np.diff(at) * counted)])

        def place(event: torch.cuda.Event) -> float:
            """Epoch time of an event of this epoch or of the pause before it, over all epochs."""
            return self.seconds - float(booked[-1]) + float(np.interp(self._between(first, event), at, booked))

        self._begun = {event: place(event) if known is None else known for event, known in self._begun.items()}
        total = 0.0
        for begin, done, waited in self._overlaps:
            known = self._begun.pop(begin)
            longest = place(waited) - (place(begin) if known is None else known)
            if done is not None:
                done.synchronize()  # it is on a stream of its own
                longest = min(longest, self._between(begin, done))
            total += max(0.0, longest)
        return total


def make_clock(device: torch.device) -> HostClock | CudaClock:
    """The clock for a rank whose tensors are on `device`."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


def stamp_cost(device: torch.device, activity: Activity, spans: int = 1000) -> float:
    """Measured seconds that one change of component costs on this device: host time, with the update of `activity`.

    On a GPU it also records an event, which takes the host no longer, and the stream at most as long.
    """
    clock = make_clock(device)
    clock.activity = activity
    clock.begin_epoch()
    begin = time.perf_counter()
    for _ in range(spans):
        with clock.span("codec"):
            pass
    took = time.perf_counter() - begin
    clock.end_epoch()
    return took / (2 * spans)


def overhead(clock: Clock, device: torch.device) -> dict[str, float]:
    """Overhead of a clock itself: stamps per epoch, their seconds per epoch, and these as a share of the epoch.

    Empty for a clock that measures nothing, or has measured no epoch yet.
    """
    if not isinstance(clock, _Clock) or not clock.seconds:
        return {}
    cost = stamp_cost(device, clock.activity)
    stamps = clock.stamps / clock.ended
    return {
        "clock_stamps": stamps,
        "clock_overhead_seconds": stamps * cost,
        "clock_overhead_share": clock.stamps * cost / clock.seconds,
    }
