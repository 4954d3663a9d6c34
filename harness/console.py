"""Output of the command line: consoles and the progress bar."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.numbers import duration

if TYPE_CHECKING:
    from harness.running.results import RankEpoch

FILE_WIDTH = 140  # columns when the output is not a terminal and COLUMNS does not say
LINE_EVERY_S = 30.0  # seconds between lines of progress where the output is not a terminal


def stdout() -> Console:
    """The console of results."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console of all output other than results."""
    return _console(stderr=True)


def show(items: Sequence[RenderableType], console: Console) -> None:
    """Print each item; plain text is neither marked up nor wrapped."""
    for item in items:
        if isinstance(item, str):
            console.print(item, markup=False, highlight=False, soft_wrap=True)
        else:
            console.print(item)


@contextmanager
def progress_of(title: str, epochs: int, quiet: bool = False) -> Iterator[Callable[[RankEpoch], None] | None]:
    """Shows a bar with epoch, loss and time left on stderr; yields a function to be called after every epoch.

    Where stderr is not a terminal, prints a line after the first epoch and one every half minute. `quiet` shows nothing
    and yields None.
    """
    console = stderr()
    if quiet:
        yield None
    elif console.is_terminal:
        with _bar(title, epochs, console) as epoch_done:
            yield epoch_done
    else:
        yield _lines(title, epochs, console)


@contextmanager
def count_progress(title: str, total: int, quiet: bool = False) -> Iterator[Callable[[], None] | None]:
    """As `progress_of` for other things than epochs: yields a function to be called after each of `total`.

    Where stderr is not a terminal, prints a line every half minute, from the first half minute on.
    """
    console, done = stderr(), 0
    if quiet:
        yield None
    elif console.is_terminal:
        with Progress(*_columns(), console=console, transient=True, refresh_per_second=4) as bar:
            task = bar.add_task(title, total=total, loss="")
            yield lambda: bar.advance(task)
    else:
        spoken = begin = time.monotonic()

        def one_done() -> None:
            nonlocal done, spoken
            done, now = done + 1, time.monotonic()
            if now - spoken >= LINE_EVERY_S:
                left = duration((now - begin) / done * max(total - done, 0))
                show([f"{title}: {done} of {total}, about {left} left"], console)
                spoken = now

        yield one_done


def _lines(title: str, epochs: int, console: Console) -> Callable[[RankEpoch], None]:
    """The time left is that of the epochs since the first one reported: before it the graph is loaded and cut, and a
    run that goes on from a checkpoint has its earlier epochs already."""
    first, begin, spoken = -1, 0.0, -math.inf

    def epoch_done(record: RankEpoch) -> None:
        nonlocal first, begin, spoken
        now = time.monotonic()
        if first < 0:
            first, begin = record.epoch, now
        if now - spoken < LINE_EVERY_S:
            return
        done, timed = record.epoch + 1, record.epoch - first
        left = f", about {duration((now - begin) / timed * (epochs - done))} left" if timed else ""
        show([f"{title}: epoch {done} of {epochs}, {_loss(record)}{left}"], console)
        spoken = now

    return epoch_done


@contextmanager
def _bar(title: str, epochs: int, console: Console) -> Iterator[Callable[[RankEpoch], None]]:
    with Progress(*_columns(), console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(title, total=epochs, loss="preparing")

        def epoch_done(record: RankEpoch) -> None:
            bar.update(task, completed=record.epoch + 1, loss=_loss(record))

        yield epoch_done


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )


class StepLines:
    """Lines on stderr of a command of several steps: which one begins, what it has taken so far, about what is left.

    Args:
        steps: the lengths of all, relative to each other, so that the time left is that of the steps so far in
            proportion; or how many there are, where nothing is known of their lengths.
        quiet: no lines.
    """

    def __init__(self, steps: Sequence[float] | int, quiet: bool = False) -> None:
        self._foretold = not isinstance(steps, int)
        self._lengths, self._quiet = [1.0] * steps if isinstance(steps, int) else list(steps), quiet
        self._begun, self._at = time.monotonic(), 0

    def begin(self, what: str) -> None:
        """Say that the next step begins."""
        done, left = sum(self._lengths[: self._at]), sum(self._lengths[self._at :])
        self._at += 1
        if self._quiet:
            return
        spent = time.monotonic() - self._begun
        rest = f"; {duration(spent)} so far" if done else ""
        rest += f", about {duration(spent / done * left)} left" if done and self._foretold else ""
        show([f"[{self._at}/{len(self._lengths)}] {what}{rest}"], stderr())


def _loss(record: RankEpoch) -> str:
    return "no loss (shapes only)" if record.loss is None else f"loss {record.loss:.4f}"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which `harness.cli` handles without a message."""
        raise BrokenPipeError


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    piped = int(columns) if columns.isdecimal() and int(columns) > 0 else FILE_WIDTH
    return _Console(file=stream, width=None if stream.isatty() else piped)
