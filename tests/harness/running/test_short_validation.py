"""A short validation: two methods are calibrated for, predicted and measured here, and the prediction's 90 % interval
must hold the measurement but for what noise explains."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.running.validation import departure
from real.measure.calibrate import calibrate_to
from sims.study.calibrated import add_operators

METHODS = ("vanilla", "sylvie-s")
GRAPH = "synthetic:nodes=12000,degree=16,classes=8,features=64,signal=0.7"
COMMAND = ["validate", "--datasets", GRAPH, "--hidden", "64", "--layers", "2", "--epochs", "25", "--quiet"]


def reference_seconds() -> float:
    """The fastest of some passes of products and sums over memory: how fast the machine is now."""
    a, b = torch.randn(2_000, 256), torch.randn(256, 256)
    big, found = torch.ones(4 << 20), []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(4):
            a @ b
            big.mul_(1.0)
        found.append(time.perf_counter() - begin)
    return sorted(found)[len(found) // 2]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], float]:
    """The records of the cells, and how much faster or slower the machine was in them than in the calibration."""
    folder = tmp_path_factory.mktemp("short")
    speeds = [reference_seconds()]
    calibrate_to(folder / "here", quick=True, threads=1, ranks=(2,))
    add_operators(folder / "here" / "device.toml", threads=1, only=METHODS)
    speeds.append(reference_seconds())
    places = ["--calibration", str(folder / "here"), "--out", str(folder / "out"), "--json", str(folder / "found.json")]
    assert main([*COMMAND, "--methods", ",".join(METHODS), *places]) == 0
    speeds.append(reference_seconds())
    return json.loads(Path(folder / "found.json").read_bytes()), max(speeds) / min(speeds)


@pytest.mark.alone
@pytest.mark.processes
def test_measured_epochs_lie_in_the_intervals_of_their_predictions(judged: tuple[list[dict[str, Any]], float]) -> None:
    records, noise = judged
    assert [record["method"] for record in records] == list(METHODS) and all(r["bytes_equal"] for r in records)
    for record in records:
        about = {name: record[name] for name in ("method", "predicted", "measured", "interval", "foreign_load")}
        assert departure(record, noise) <= 1, f"{about}; the machine's speed changed by {noise:.2f}"


@pytest.mark.alone
@pytest.mark.processes
def test_a_prediction_that_is_off_by_three_is_refused(judged: tuple[list[dict[str, Any]], float]) -> None:
    """The check above can fail: the same cells with every prediction three times as long, and a third."""
    records, noise = judged
    for record in records:
        for factor in (1 / 3, 3):
            ends = {name: [factor * end for end in pair] for name, pair in record["interval"].items()}
            assert departure({**record, "interval": ends}, min(noise, 1.5)) > 1
