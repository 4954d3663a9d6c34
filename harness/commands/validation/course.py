"""The order in which `haloscope validate` measures and predicts cells, within a budget of time, and its progress."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from harness.commands.validation.cells import CellFailed, Validator
from harness.config import RunConfig
from harness.console import show, stderr
from harness.numbers import duration, significant, time_unit
from harness.running import validation


class Course:
    """Goes through rounds of cells: measures all cells of a round once, then all of them again, as often as the
    validator has runs, so that those of a cell are minutes apart; and predicts them.

    Attributes:
        records: of the cells, in order.
        failed: messages of the cells that failed.
        late: cells that were not begun, since they would have ended after the budget.
    """

    def __init__(self, validator: Validator, rounds: Sequence[Sequence[RunConfig]], budget: float) -> None:
        """`budget`: seconds, calibrations not counted. Cells all of whose runs are kept are always shown."""
        self.validator, self.rounds, self.budget = validator, rounds, budget
        self.records: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.late: list[str] = []
        self._cells = [config for cells in rounds for config in cells]
        self._done = set[tuple[RunConfig, int]]()  # runs of this call
        self._ran: list[tuple[RunConfig, float]] = []  # and what they took
        self._predicted: list[tuple[RunConfig, float]] = []
        self._begin = self._calibrating = 0.0

    def run(self) -> None:
        """Measure and predict all cells, with a line of progress after each step."""
        self._begin = time.monotonic()
        runs = f", {self.validator.runs} runs each" if self.validator.runs > 1 else ""
        left = duration(self._seconds_of(self._cells))
        self._say(f"{len(self._cells)} cells{runs}: about {left} after calibrating, of at most {duration(self.budget)}")
        for cells in self.rounds:
            for config, found in self._measured(cells).items():
                self._judge(config, found)

    def _measured(self, cells: Sequence[RunConfig]) -> dict[RunConfig, list[dict[str, Any]]]:
        """The runs of a round's cells that were begun and did not fail."""
        found = dict[RunConfig, list[dict[str, Any]]]()
        for config in cells:
            if self._ahead(config) and self._seconds_of([*found, config]) > self._budget_left():
                self.late.append(words(config))
            else:
                self._run_again(config, found)
        for _ in range(1, self.validator.runs):
            for config in list(found):
                self._run_again(config, found)
        return found

    def _run_again(self, config: RunConfig, found: dict[RunConfig, list[dict[str, Any]]]) -> None:
        """Add the next run of a cell, or leave the cell out if that fails."""
        runs = found.setdefault(config, [])
        asked = time.monotonic()
        self.validator.calibration(config)  # which serves many cells, so that its time is none of this one
        start = time.monotonic()
        self._calibrating += start - asked
        ahead = len(runs) in self._ahead(config)
        try:
            runs.append(self.validator.measured(config, len(runs)))
        except CellFailed as error:
            del found[config]
            self._fail(config, error)
            return
        self._done.add((config, len(runs) - 1))
        if ahead:
            self._ran.append((config, time.monotonic() - start))
            factor, unit = time_unit([runs[-1]["epoch"]])
            self._say(
                f"{words(config)}: measured {significant(runs[-1]['epoch'] * factor)} {unit}, "
                f"run {len(runs)} of {self.validator.runs}{self._left()}"
            )

    def _judge(self, config: RunConfig, runs: Sequence[dict[str, Any]]) -> None:
        """Add the record of a cell."""
        start = time.monotonic()
        try:
            self.records.append(self.validator.record(config, runs))
        except CellFailed as error:
            self._fail(config, error)
            return
        self._predicted.append((config, time.monotonic() - start))
        record, at = self.records[-1], f"[{self._cells.index(config) + 1}/{len(self._cells)}]"
        factor, unit = time_unit([record[side]["epoch"] for side in ("predicted", "measured")])
        predicted, measured = (significant(record[side]["epoch"] * factor) for side in ("predicted", "measured"))
        off = f"{100 * record['error']:+.0f} %"
        self._say(f"{at} {words(config)}: predicted {predicted}, measured {measured} {unit} ({off}){self._left()}")

    def _fail(self, config: RunConfig, error: CellFailed) -> None:
        self.failed.append(str(error))
        show([f"[{self._cells.index(config) + 1}/{len(self._cells)}] {error}"], stderr())

    def _ahead(self, config: RunConfig) -> list[int]:
        """The runs of a cell that are neither kept nor done."""
        return [
            number
            for number in range(self.validator.runs)
            if (config, number) not in self._done and not self.validator.is_kept(config, number)
        ]

    def _seconds_of(self, cells: Iterable[RunConfig]) -> float:
        """Expected seconds of what is still to be done for these cells."""
        settled = {config for config, _ in self._predicted}
        rest = [config for config in cells if config not in settled]
        runs = [config for config in rest for _ in self._ahead(config)]
        first = validation.RUN_S * self._cells[0].training.epochs / 25
        return validation.seconds_left(self._ran, runs, first) + validation.seconds_left(
            self._predicted, rest, validation.PREDICTION_S
        )

    def _budget_left(self) -> float:
        return self.budget - (time.monotonic() - self._begin - self._calibrating)

    def _left(self) -> str:
        seconds = min(self._seconds_of(self._cells), max(self._budget_left(), 0.0))
        return f"; about {duration(seconds)} left" if seconds else ""

    def _say(self, line: str) -> None:
        if not self.validator.quiet:
            show([line], stderr())


def words(config: RunConfig) -> str:
    """Such as "vanilla on heavy, lab:2x1gbit"."""
    return f"{config.training.method} on {validation.workload_of(config.data.dataset)}, {config.cluster.name}"
