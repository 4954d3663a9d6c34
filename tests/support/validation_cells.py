"""Cells of `haloscope validate` with known times, and a calibration and runs that take none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig
from harness.running.results import Result
from harness.running.validation import VALIDATED_COMPONENTS, over_runs, validation_record
from tests.real.measure.test_calibrate import MEASURED, files

COMMAND = ["validate", "--datasets", "synthetic:nodes=400,degree=6,classes=4,features=8", "--hidden", "8", "--quiet"]


def made(method: str, predicted: float, measured: float, cluster: str = "local", load: float = 0.0) -> dict[str, Any]:
    """A record of one cell."""
    config = RunConfig.of(method=method, cluster=cluster, epochs=25)
    times = dict.fromkeys(VALIDATED_COMPONENTS, measured / 4) | {
        "epoch": measured,
        "spread": 1e-3,
        "foreign_load": load,
        "reference": 1.0,
    }
    return validation_record(
        config, over_runs([times]), dict.fromkeys(VALIDATED_COMPONENTS, predicted / 4) | {"epoch": predicted}, same=True
    )


def epochs(*seconds: float, wait: float = 0.0) -> list[dict[str, Any]]:
    """Epochs as a result file holds them; `wait`: by how much the longest of a rank is longer than their mean."""
    return [
        {
            "seconds": dict.fromkeys(VALIDATED_COMPONENTS, s / 4) | {"epoch": s + wait, "wait": wait},
            "bytes": {"forward": [1, 2], "backward": [3], "reduce": 4, "other": 0, "tiers": {"loopback": 9, "nic": 0}},
        }
        for s in seconds
    ]


def calibration_in(folder: Path) -> Path:
    """A calibration of made-up measurements in a new folder under `folder`."""
    calibration = folder / "calibration"
    calibration.mkdir()
    files(calibration, MEASURED)
    return calibration


def replace_runs(monkeypatch: pytest.MonkeyPatch, run: Callable[[RunConfig], Result]) -> None:
    """Have `run` make the results of all runs, real and simulated; the machine keeps its pace."""
    monkeypatch.setattr("harness.running.run", run)
    monkeypatch.setattr("harness.running.run_opened", lambda opened: run(opened.config))
    monkeypatch.setattr("harness.commands.validation.cells.reference_seconds", lambda: 1.0)
