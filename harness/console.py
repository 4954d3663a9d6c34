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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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


def _lines(title: str, epochs: int, console: Console) -> Callable[[RankEpoch], None]:
    begin, spoken = time.monotonic(), -math.inf

    def epoch_done(record: RankEpoch) -> None:
        nonlocal spoken
        now = time.monotonic()
        if now - spoken < LINE_EVERY_S:
            return
        done = record.epoch + 1
        left = f", about {(now - begin) / done * (epochs - done):.0f} s left" if record.epoch else ""
        show([f"{title}: epoch {done} of {epochs}, {_loss(record)}{left}"], console)
        spoken = now

    return epoch_done


@contextmanager
def _bar(title: str, epochs: int, console: Console) -> Iterator[Callable[[RankEpoch], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(title, total=epochs, loss="preparing")

        def epoch_done(record: RankEpoch) -> None:
            bar.update(task, completed=record.epoch + 1, loss=_loss(record))

        yield epoch_done


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
