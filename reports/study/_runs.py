"""Runs cells in worker processes within a budget, keeps their lines, and says how far it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.machine import Died, cache_root, run_folder
from harness.numbers import duration
from harness.running.engines import CellEngine, LocalProcesses
from reports.study._cells import RunLine, Store, StudyCell, train_cell
from reports.study._forecast import Forecast, free_memory

Say = Callable[[str], None]
BUDGET_SPENT = "the budget is spent"


@dataclass
class Runs:
    """What runs cells.

    Attributes:
        jobs: runs at a time.
        deadline: of `time.monotonic`; no cell is begun that is expected to end later.
        failures: title of a cell -> why it has no line.
        engine: where runs are made; by default in `jobs` processes of this machine.
    """

    store: Store
    jobs: int
    deadline: float = float("inf")
    say: Say = lambda _: None
    forecast: Forecast = field(default_factory=Forecast)
    failures: dict[str, str] = field(default_factory=dict)
    engine: CellEngine | None = None

    def __post_init__(self) -> None:
        self.known: dict[str, StudyCell] = {}

    def know(self, cells: Sequence[StudyCell]) -> None:
        """Learn the cost of those of the cells that are finished."""
        for cell in cells:
            line = self.store.finished(cell)
            if line is not None and cell.key not in self.known:
                self.known[cell.key] = cell
                self.forecast.finished.append((cell, line))

    def make(self, cells: Sequence[StudyCell], again: bool = False) -> bool:
        """Run the cells that have no line yet, all of them with `again`; returns whether all have one now."""
        distinct = list({cell.key: cell for cell in cells}.values())
        self.know(distinct)
        todo = [cell for cell in distinct if again or self.store.finished(cell) is None]
        self.failures = {title: why for title, why in self.failures.items() if title not in {c.title for c in todo}}
        waiting = {cell.key: cell for cell in todo}
        for done, (cell, line) in enumerate(self._lines(todo), 1):
            del waiting[cell.key]
            if "failure" in line:
                self.failures[cell.title] = line["failure"]
            else:
                self.store.keep(line)
                self.know([cell])
            left = duration(self.forecast.left(waiting.values(), self.jobs)) if waiting else "nothing"
            said = line.get("failure") or f"{float(line['test'] or 0):.2f} % in {float(line['seconds']):.0f} s"
            self.say(f"[{done}/{len(todo)}] {cell.title}: {said}; {left} left")
        return all(self.store.finished(cell) is not None for cell in distinct)

    def _lines(self, todo: Sequence[StudyCell]) -> Iterator[tuple[StudyCell, RunLine]]:
        """The line of every cell that may begin, as they end; with one job here they run in this process."""
        engine = self.engine or LocalProcesses(self.jobs, one_here=False)
        for cell, answer in engine.map(train_cell, todo, self._go_on):
            yield cell, {"failure": answer.why} if isinstance(answer, Died) else answer

    def _go_on(self, cell: StudyCell) -> bool:
        """Whether a cell may begin now; says why not."""
        if time.monotonic() + self.forecast.seconds(cell) > self.deadline:
            self.failures.setdefault(cell.title, BUDGET_SPENT)
            return False
        need, have = self.forecast.memory(cell), free_memory()
        if need > have and (self.engine is None or self.engine.here):
            self.failures[cell.title] = f"needs about {need:.0f} MB, {have:.0f} are free"
            return False
        return True


@contextmanager
def passing_cache() -> Iterator[Path]:
    """A cache folder that is removed at the end: graphs that are tried once and never again are not kept."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    before = os.environ.get("HALOSCOPE_CACHE")
    with run_folder(root) as folder:
        os.environ["HALOSCOPE_CACHE"] = str(folder)
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["HALOSCOPE_CACHE"]
            else:
                os.environ["HALOSCOPE_CACHE"] = before
