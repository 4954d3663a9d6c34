"""The order of a study's runs, its budget, and cells that fail."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import main
from harness.commands.validation import cells as cells_module
from harness.commands.validation import course as course_module
from harness.config import RunConfig
from harness.running import validation
from harness.running.results import Result
from tests.support.validation_cells import COMMAND, calibration_in, epochs, made, replace_runs


def test_cells_that_would_end_after_the_budget_are_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cell takes all the time there is; kept ones take none, so that a later call goes on."""
    began: list[str] = []

    def run(config: RunConfig) -> Result:
        began.append(f"{config.training.method} {config.run.mode}")
        monkeypatch.setattr(validation, "seconds_left", lambda done, rest, first: 1e6 * len(rest))
        return Result(config, "done", epochs(*[0.01] * config.training.epochs), {})

    calibration = calibration_in(tmp_path)
    replace_runs(monkeypatch, run)
    command = [*COMMAND[:-1], "--epochs", "7", "--calibration", str(calibration), "--out", str(tmp_path / "out")]
    command += ["--methods", "vanilla,sylvie-s", "--budget", "10m", "--runs", "1"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert began == ["vanilla real", "vanilla sim"]
    late = f"not begun, since they would end after the budget of 10 min 0 s: sylvie-s on {COMMAND[2]}, local; the same"
    assert late in " ".join(said.out.split())
    expected = 2 * (validation.RUN_S * 7 / 25 + validation.PREDICTION_S)
    assert f"2 cells: about {expected:.0f} s after calibrating, of at most 10 min 0 s" in " ".join(said.err.split())
    monkeypatch.setattr(validation, "seconds_left", lambda done, rest, first: 1.0 * len(rest))
    assert main(command) == 0
    assert began == ["vanilla real", "vanilla sim", "sylvie-s real", "sylvie-s sim"]
    capsys.readouterr()
    hours = count(step=3600.0)
    monkeypatch.setattr(course_module, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    assert main(command) == 0, "cells that are measured are shown, however long predicting them takes"
    assert "not begun" not in (said := capsys.readouterr().out) and said.count("sylvie-s") and len(began) == 4


def test_what_a_calibration_takes_is_no_time_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves many cells; counted as one's, or in the budget, that would end after the first."""
    now, known = [0.0], list[list[float]]()

    def calibrated(self: cells_module.Validator, config: RunConfig) -> cells_module.Calibration:
        now[0] += 600.0
        return cells_module.Calibration(tmp_path, tmp_path)

    def measured(self: cells_module.Validator, config: RunConfig, number: int) -> dict[str, Any]:
        now[0] += 10.0
        return {"epoch": 1.0}

    def recorded(self: cells_module.Validator, config: RunConfig, runs: list[Any]) -> dict[str, Any]:
        now[0] += 3.0
        return made("vanilla", 1.0, 1.0)

    monkeypatch.setattr(cells_module.Validator, "calibration", calibrated)
    monkeypatch.setattr(cells_module.Validator, "measured", measured)
    monkeypatch.setattr(cells_module.Validator, "record", recorded)
    left = lambda done, rest, first: known.append([s for _, s in done]) or 0.0  # noqa: E731
    monkeypatch.setattr(validation, "seconds_left", left)
    monkeypatch.setattr(course_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cells = [RunConfig.of(dataset=COMMAND[2], seed=seed) for seed in (1, 2)]
    course = course_module.Course(cells_module.Validator(tmp_path, runs=2), [cells], 25.0)
    course.run()
    assert known[-2:] == [[10.0] * 4, [3.0] * 2], "of runs, and of predictions"
    assert len(course.records) == 2 and not course.late, "the budget is one of cells"


def test_a_run_that_fails_leaves_its_cell_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one after the first: what is left of a cell says nothing of it."""
    tried: list[int] = []

    def measured(self: cells_module.Validator, config: RunConfig, number: int) -> dict[str, Any]:
        tried.append(config.training.seed)
        if config.training.seed == 1 and number == 1:
            raise cells_module.CellFailed("a rank was killed")
        return {"epoch": 1.0}

    monkeypatch.setattr(cells_module.Validator, "calibration", lambda self, config: None)
    monkeypatch.setattr(cells_module.Validator, "measured", measured)
    monkeypatch.setattr(cells_module.Validator, "record", lambda self, config, runs: made("vanilla", 1.0, len(runs)))
    cells = [RunConfig.of(dataset=COMMAND[2], seed=seed) for seed in (1, 2)]
    course = course_module.Course(cells_module.Validator(tmp_path, runs=3, quiet=True), [cells], 1e9)
    course.run()
    assert tried == [1, 2, 1, 2, 2] and course.failed == ["a rank was killed"]
    assert [record["measured"]["epoch"] for record in course.records] == [3.0], "of three runs"


def test_what_serves_many_cells_is_made_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--force` too: a calibration takes minutes, and every run of every cell asks for it."""
    made_in: list[Path] = []

    def measure(folder: Path, **_: Any) -> None:
        made_in.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / cells_module.REFERENCE).write_text('{"seconds": 1.0}')

    monkeypatch.setattr(cells_module, "measure", measure)
    config = RunConfig.of(dataset=COMMAND[2], cluster="local", parts=2, threads=1)
    for force, times in ((False, 1), (False, 1), (True, 2)):
        validator = cells_module.Validator(tmp_path, force=force, quiet=True)
        for _ in range(3):
            validator.calibration(config)
        assert len(made_in) == times
