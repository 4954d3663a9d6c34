"""Progress on a stream that is no terminal: which lines, and what time they say is left."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness import console
from harness.console import StepLines, count_progress, progress_of
from harness.steps import FEW_EDGES, begin_step, steps_told


class Clock:
    """Seconds that only pass when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(console.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def epoch(number: int) -> Any:
    return SimpleNamespace(epoch=number, loss=0.5)


@pytest.mark.parametrize(("before", "first"), [(500.0, 0), (0.0, 0), (500.0, 60)])
def test_time_left_counts_from_the_first_epoch_reported(
    before: float, first: int, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither loading and cutting the graph nor the epochs of a checkpoint count."""
    with progress_of("run", 100) as done:
        assert done is not None
        clock.now += before
        for number in range(first, first + 5):
            done(epoch(number))
            clock.now += 10.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"run: epoch {first + 1} of 100, loss 0.5000"
    left = 10.0 * (100 - (first + 4))
    assert lines[1] == f"run: epoch {first + 4} of 100, loss 0.5000, about {console.duration(left)} left"
    assert len(lines) == 2


def test_steps_say_what_is_left_in_proportion(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    steps = StepLines([1.0, 3.0, 4.0])
    for seconds, what in ((10.0, "first"), (30.0, "second"), (0.0, "third")):
        steps.begin(what)
        clock.now += seconds
    assert capsys.readouterr().err.splitlines() == [
        "[1/3] first",
        "[2/3] second; 10 s so far, about 1 min 10 s left",
        "[3/3] third; 40 s so far, about 40 s left",
    ]
    unknown = StepLines(2)
    unknown.begin("first")
    clock.now += 5.0
    unknown.begin("second")
    assert capsys.readouterr().err.splitlines() == ["[1/2] first", "[2/2] second; 5.0 s so far"]
    StepLines(2, quiet=True).begin("nothing")
    assert capsys.readouterr().err == ""


def test_counts_get_a_line_every_half_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with count_progress("replays", 10) as done:
        assert done is not None
        for _ in range(10):
            clock.now += 16.0
            done()
    assert capsys.readouterr().err.splitlines()[0] == "replays: 2 of 10, about 2 min 8 s left"
    with count_progress("replays", 10, quiet=True) as silent:
        assert silent is None


def test_a_bar_counts_to_its_total(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console, "stderr", lambda: Console(file=stream, force_terminal=True, width=100))
    with count_progress("replays", 3) as done:
        assert done is not None
        for _ in range(3):
            done()
    assert "3/3" in stream.getvalue()


def test_steps_of_large_graphs_are_told_to_who_listens() -> None:
    told: list[str] = []
    begin_step("unheard", FEW_EDGES)
    with steps_told(told.append):
        begin_step("small", FEW_EDGES - 1)
        begin_step("large", FEW_EDGES)
    begin_step("late", FEW_EDGES)
    assert told == ["large"]
