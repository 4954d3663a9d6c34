"""The machine's pace beside the runs of a study: by trainings that follow every run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.commands.validation import cells as cells_module
from harness.commands.validation.cells import Calibration, Validator
from harness.commands.validation.pace import PaceTraining, in_turn, pace_of, trained_now, usual_seconds
from harness.config import RunConfig
from harness.running.results import Result
from sims.study import real_runs
from tests.support.validation_cells import COMMAND, epochs, replace_runs

USUAL = [0.1, 0.2, 0.4]


def slower(at: float, which: int, pace: float) -> PaceTraining:
    return PaceTraining(at, which, pace * USUAL[which])


@given(paces=st.lists(st.floats(0.5, 2.0), min_size=9, max_size=9))
def test_a_run_has_the_pace_of_the_trainings_around_it(paces: list[float]) -> None:
    known = [slower(10.0 * at, at % 3, pace) for at, pace in enumerate(paces)]
    assert pace_of([known[4]], known, USUAL) == pytest.approx(math.prod(paces[3:6]) ** (1 / 3))
    assert pace_of([known[1], known[7]], known, USUAL) == pytest.approx(math.prod(paces[:3] + paces[6:]) ** (1 / 6))


def test_each_training_has_its_turn() -> None:
    turns = in_turn()
    assert [next(turns) for _ in range(len(real_runs.ACCOMPANIED) + 1)] == [*range(len(real_runs.ACCOMPANIED)), 0]


def test_usual_seconds_are_kept_beside_the_device(tmp_path: Path) -> None:
    assert usual_seconds(tmp_path) == []
    (tmp_path / real_runs.TRAINED).write_bytes(msgspec.json.encode(USUAL))
    assert usual_seconds(tmp_path) == USUAL


def test_a_training_is_one_that_calibrations_are_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RunConfig] = []

    def run(config: RunConfig) -> Result:
        asked.append(config)
        return Result(config, "done", epochs(*[0.4] * config.training.epochs), {})

    monkeypatch.setattr(real_runs.running, "run", run)
    found = trained_now(4, threads=1)
    assert (found.which, found.seconds) == (4, 0.1), "of compute, a quarter of these epochs"
    method, graph = real_runs.ACCOMPANIED[4]
    (config,) = asked
    assert (config.run.mode, config.cut.parts, config.training.method) == ("real", 2, method)
    assert f"nodes={graph.nodes}" in config.data.dataset


@pytest.mark.parametrize("usual", [USUAL, []])
def test_records_are_at_the_pace_of_trainings_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: list[float]
) -> None:
    """Half as fast as when the calibration was made; without trainings the reference work counts, here 1.25."""
    now = iter(range(100))

    def trained(which: int, threads: int) -> PaceTraining:
        return slower(float(next(now)), which % 3, 2.0)

    monkeypatch.setattr(cells_module, "trained_now", trained)
    predicted: dict[str, Any] = dict.fromkeys(("compute", "codec", "halo", "reduce"), 0.1) | {"epoch": 0.4}
    paces = {str(pace): {name: pace * seconds for name, seconds in predicted.items()} for pace in (0.5, 1.0, 3.0)}
    foretold = {**predicted, "paces": paces, "without": {}, "interval": {}}
    replace_runs(monkeypatch, lambda config: Result(config, "done", epochs(*[0.4] * config.training.epochs), {}))
    monkeypatch.setattr(cells_module, "reference_seconds", lambda: 1.25)
    calibration = Calibration(tmp_path / "device.toml", tmp_path / "cluster.toml", 1.0, usual)
    monkeypatch.setattr(Validator, "calibration", lambda self, config: calibration)
    monkeypatch.setattr(Validator, "_predicted", lambda self, config, found: {**foretold, "traffic": []})
    validator = Validator(tmp_path, paced=True, runs=2)
    config = RunConfig.of(dataset=COMMAND[2], cluster="local", parts=2, threads=1, epochs=7)
    runs = [validator.measured(config, number) for number in range(2)]
    assert all("trained" in run for run in runs)
    record = validator.record(config, runs)
    assert record["pace"] == pytest.approx(2.0 if usual else 1.25)
    assert record["at_pace"]["epoch"] == pytest.approx(record["pace"] * 0.4)
    assert "trained" not in Validator(tmp_path, given=tmp_path, paced=True, force=True).measured(config, 0)
