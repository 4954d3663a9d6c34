"""The clock of a GPU rank, with stand-ins for its events: what is hidden, peak memory."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from real.rank import _clocks as clocks
from real.rank import spans
from real.rank._clocks import CudaClock, HostClock, Mark


class Line:
    """Time of host and device, which is advanced explicitly (milliseconds); replaces the module `time`.

    Attributes:
        busy: until when the device computes what the host has already launched.
    """

    def __init__(self) -> None:
        self.ms, self.busy = 7, 0

    def perf_counter_ns(self) -> int:
        return self.ms * 10**6

    def time(self) -> float:
        return self.ms * 1e-3

    def event(self, **_: Any) -> Any:
        return _Event(self)


class _Event:
    """As `torch.cuda.Event`: it is recorded when the device has come to it."""

    def __init__(self, line: Line) -> None:
        self.line, self.at = line, -1

    def record(self, stream: object = None) -> None:
        self.at = max(self.line.ms, self.line.busy)

    def synchronize(self) -> None:
        assert self.at >= 0, "never recorded"
        self.line.ms = max(self.line.ms, self.at)

    def elapsed_time(self, end: _Event) -> float:
        assert min(self.at, end.at) >= 0, "never recorded"
        return float(np.float32(end.at - self.at))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    line = Line()
    monkeypatch.setattr(torch.cuda, "Event", line.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(clocks, "time", line)
    return line


def gpu_clock() -> CudaClock:
    return CudaClock(torch.device("cuda"))


def test_an_exchange_behind_an_evaluation_is_hidden_until_its_real_end(line: Line) -> None:
    """It is waited for an epoch later, with an evaluation and a checkpoint between."""
    clock, end = gpu_clock(), line.event()
    clock.begin_epoch()
    begun = clock.mark()
    line.ms += 2
    end.record()
    line.ms += 10
    assert clock.end_epoch()["hidden"] == 0
    line.ms += 1000
    clock.begin_epoch()
    line.ms += 5
    clock.overlapped(begun, end)
    assert clock.end_epoch()["hidden"] == pytest.approx(2e-3)


def test_an_exchange_that_outlasts_its_wait_is_hidden_until_then(line: Line) -> None:
    clock, end = gpu_clock(), line.event()
    clock.begin_epoch()
    begun = clock.mark()
    line.ms += 3
    clock.overlapped(begun, end)
    line.ms += 4
    end.record()
    line.ms += 1
    assert clock.end_epoch()["hidden"] == pytest.approx(3e-3)


STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "wait", "end", "begin", "pause", "go", "codec"]), st.integers(0, 9))
)


@settings(deadline=None, max_examples=150)
@given(STEPS)
def test_where_the_end_is_unknown_pauses_are_not_hidden(steps: list[tuple[str, int]]) -> None:
    """What a GPU clock books agrees with the host's clock on the same timeline, in every epoch."""
    with pytest.MonkeyPatch.context() as patch:
        line = Line()
        for name, stand_in in (("Event", line.event), ("current_stream", id), ("reset_peak_memory_stats", id)):
            patch.setattr(torch.cuda, name, stand_in)
        patch.setattr(clocks, "time", line)
        both = HostClock(), gpu_clock()
        marks: list[tuple[Mark, ...]] = []
        inside = paused = False
        for step, ms in [("begin", 1), *steps, ("end", 1)]:
            line.ms += ms
            if step in ("begin", "end") and inside != (step == "begin"):
                found = [clock.begin_epoch() if step == "begin" else clock.end_epoch() for clock in both]
                if found[1] is not None:
                    assert found[1] == pytest.approx(found[0])
                inside, paused = step == "begin", False
            elif step in ("pause", "go") and inside:
                paused = step == "pause"
                for clock in both:
                    clock.pause(paused)
            elif step == "start":
                marks.append(tuple(clock.mark() for clock in both))
            elif step == "wait" and marks and inside and not paused:
                for clock, mark in zip(both, marks.pop(0), strict=True):
                    clock.overlapped(mark, None)
            elif step == "codec":
                for clock in both:
                    with clock.span("codec"):
                        line.ms += 1


def test_events_of_exchanges_are_let_go(line: Line) -> None:
    """Also of those that are waited for while the clock is paused, which count nothing."""
    clock = gpu_clock()
    clock.begin_epoch()
    waited, paused, host = clock.mark(), clock.mark(), clock.mark()
    clock.overlapped(waited, None)
    clock.overlapped(host, clock.now())
    clock.pause(True)
    clock.overlapped(paused, None)
    clock.pause(False)
    clock.end_epoch()
    assert not clock._begun and not clock._overlaps


def test_spans_begin_when_the_device_comes_to_them(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the host has launched them, and as exactly after a day as in the first epoch."""
    monkeypatch.setattr(spans, "time", line)
    clock = spans._TracedCuda(torch.device("cuda"))
    line.busy = 500  # with what set-up has launched
    for day in (0, 10**8):
        line.ms += day
        clock.begin_epoch()
        begin = line.ms
        with clock.span("codec"):
            line.ms += 3
        clock.end_epoch()
        assert begin == day + 500 + (3 if day else 0)
        last = next(span for span in reversed(clock.spans) if span.component == "codec")
        assert (last.start_s, last.end_s) == pytest.approx((begin * 1e-3, begin * 1e-3 + 3e-3), abs=1e-6)


def test_peak_memory_is_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have made larger runs, or prepared its data on the device."""
    peaks = {"cuda:0": 10**9}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peaks.update({str(device): 5}))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peaks[str(device)])
    clock = CudaClock(torch.device("cuda:0"))
    peaks["cuda:0"] += 3
    assert clock.peak_memory() == 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_peak_memory_on_a_gpu() -> None:
    device = torch.device("cuda")
    del (big := [torch.ones(1 << 22, device=device)])[0]
    clock = CudaClock(device)
    held = clock.peak_memory()
    small = torch.ones(1 << 10, device=device)
    assert not big and clock.peak_memory() - held <= 2 * small.nbytes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_hidden_time_on_a_gpu() -> None:
    """An exchange that ends at once, and a second before it is waited for."""
    device = torch.device("cuda")
    clock, end = CudaClock(device), torch.cuda.Event(enable_timing=True)
    clock.begin_epoch()
    begun = clock.mark()
    end.record(torch.cuda.Stream(device))
    clock.end_epoch()
    time.sleep(1)
    clock.begin_epoch()
    clock.overlapped(begun, end)
    assert clock.end_epoch()["hidden"] < 0.5
