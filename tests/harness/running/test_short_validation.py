"""A short validation: two methods are calibrated for, predicted and measured here, and the prediction's 90 % interval
must hold the measurement but for what noise explains."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from real.measure.calibrate import calibrate_to
from sims.study.calibrated import add_operators
from sims.study.real_runs import BRIEF_ACCOMPANIED, add_contention

METHODS = ("vanilla", "sylvie-s")
GRAPH = "synthetic:nodes=60000,degree=16,classes=8,features=64,signal=0.7"
"""Its epochs take about 80 ms: a single thread that waits for a core can take the 4 ms of a scheduler's tick."""

COMMAND = f"validate --datasets {GRAPH} --hidden 128 --layers 2 --epochs 25 --runs 3 --quiet".split()


def departure(record: Mapping[str, Any], noise: float = 1.0) -> float:
    """By which factor a measured epoch lies outside of its prediction's interval; at most 1 where noise explains it.

    Args:
        noise: factor by which the machine was faster or slower than when it was calibrated, at least 1. What other
            programs took of its cores, and the quartiles of the measured epochs, count as noise too.
    """
    measured, (low, high) = record["measured"], record["interval"]["epoch"]
    load = 1 - min(record["foreign_load"], 0.9)
    least, most = (measured["epoch"] + side * measured["spread"] for side in (-1, 1))
    return float(max(least * load / (high * noise), low / (most * noise)))


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


ATTEMPTS = 3
"""Shared memory makes a virtual machine slower for minutes, unseen by any reference work: only repetition tells."""


def validate_here(place: Path) -> tuple[list[dict[str, Any]], float]:
    """Records of both cells, and the factor by which the machine's speed changed from calibration to measurement."""
    speeds = [reference_seconds()]
    calibrate_to(place / "here", quick=True, threads=1, ranks=(2,))
    add_operators(place / "here" / "device.toml", threads=1, only=METHODS)
    add_contention(place / "here", threads=1, trained=BRIEF_ACCOMPANIED)
    speeds.append(reference_seconds())
    places = ["--calibration", str(place / "here"), "--out", str(place / "out")]
    assert main([*COMMAND, "--methods", ",".join(METHODS), *places, "--json", str(place / "found.json")]) == 0
    speeds.append(reference_seconds())
    return json.loads((place / "found.json").read_bytes()), max(speeds) / min(speeds)


def unexplained(attempt: Callable[[int], tuple[list[dict[str, Any]], float]]) -> dict[str, list[str]]:
    """Per method whose epochs leave their interval in every attempt, and always on the same side, what was found.

    Each attempt calibrates anew, so an error of the model repeats and a slow quarter of an hour of the machine does
    not. Further attempts are made only while a method is left.
    """
    found: dict[str, list[str]] = {}
    sides: dict[str, set[bool]] = {}
    for number in range(ATTEMPTS):
        records, noise = attempt(number)
        assert [record["method"] for record in records] == list(METHODS) and all(r["bytes_equal"] for r in records)
        for record in records:
            name = record["method"]
            if number and name not in found:
                continue
            sides.setdefault(name, set()).add(record["measured"]["epoch"] > record["interval"]["epoch"][1])
            if departure(record, noise) <= 1 or len(sides[name]) == 2:
                found.pop(name, None)
                continue
            about = {key: record[key] for key in ("predicted", "measured", "interval", "foreign_load")}
            found.setdefault(name, []).append(f"{about}; the machine's speed changed by {noise:.2f}")
        if not found:
            break
    return found


@pytest.mark.alone
@pytest.mark.processes
def test_measured_epochs_lie_in_the_intervals_of_their_predictions(tmp_path: Path) -> None:
    """Noise is what the machine's speed changed by between calibration and cells, others' load, quartiles, and what
    does not repeat."""
    found = unexplained(lambda number: validate_here(tmp_path / str(number)))
    assert not found, found


def cell(measured: float, spread: float = 0.1, load: float = 0.0, method: str = "vanilla") -> dict[str, Any]:
    """A cell of which an epoch of 0.9 to 1.2 s was predicted."""
    about = {"method": method, "bytes_equal": True, "predicted": {"epoch": 1.0}, "foreign_load": load}
    return about | {"measured": {"epoch": measured, "spread": spread}, "interval": {"epoch": [0.9, 1.2]}}


def test_a_departure_that_noise_does_not_explain_is_found() -> None:
    assert all(departure(cell(measured)) <= 1 for measured in (0.85, 1.0, 1.29))
    assert departure(cell(1.6)) == pytest.approx(1.5 / 1.2) and departure(cell(0.5)) == pytest.approx(0.9 / 0.6)
    assert departure(cell(1.6), noise=1.3) <= 1 < departure(cell(1.6), noise=1.2)
    assert departure(cell(0.5), noise=1.6) <= 1 < departure(cell(0.5), noise=1.4)
    assert departure(cell(1.6, load=0.3)) <= 1 < departure(cell(3.0, load=0.3)), "others took a third of the machine"
    assert departure(cell(0.5, load=0.9)) > 1, "nobody makes a machine faster"
    assert departure(cell(1.6, spread=0.5)) <= 1


@pytest.mark.parametrize(
    ("measured", "attempts", "left"),
    [
        ([(1.0, 1.1)], 1, set()),
        ([(1.6, 1.0), (1.0, 1.6)], 2, set()),
        ([(1.6, 1.0), (1.7, 1.0), (1.0, 1.0)], 3, set()),
        ([(1.6, 1.0), (0.5, 1.0)], 2, set()),
        ([(1.6, 1.0), (1.7, 1.0), (1.6, 1.6)], 3, {"vanilla"}),
        ([(0.5, 0.5), (0.5, 1.0), (0.4, 1.6)], 3, {"vanilla"}),
    ],
)
def test_only_departures_that_repeat_count(measured: list[tuple[float, float]], attempts: int, left: set[str]) -> None:
    made = []

    def attempt(number: int) -> tuple[list[dict[str, Any]], float]:
        made.append(number)
        return [cell(seconds, method=name) for seconds, name in zip(measured[number], METHODS, strict=True)], 1.0

    assert set(unexplained(attempt)) == left and len(made) == attempts
