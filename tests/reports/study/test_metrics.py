"""What of two runs a claim compares: scores, bytes, epochs to a score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from reports.study import StudyCell
from reports.study._metrics import METRICS, check_metric, gap_of, reaches, resolution_of
from tests.support.studies import GRAPH, line_of

CELL = StudyCell({"dataset": GRAPH, "method": "vanilla", "seed": 0})
SLOW: dict[str, Any] = line_of(CELL, 50.0, curve="5: 20 40 60 70 / 20", epochs=20, megabytes=1.0)
FAST: dict[str, Any] = line_of(CELL, 50.0, curve="5: 60 70.5 70 69 / 20", epochs=20, megabytes=3.0)


def test_epochs_are_compared_by_their_ratio() -> None:
    assert gap_of("epochs to best", SLOW, FAST) == pytest.approx(100 * math.log(20 / 10))
    assert gap_of("epochs to target", SLOW, FAST, below=0.5) == pytest.approx(100 * math.log(20 / 10))
    assert gap_of("epochs to target", SLOW, FAST, below=10.5) == pytest.approx(100 * math.log(15 / 5))
    assert gap_of("megabytes to target", SLOW, FAST, below=10.5) == pytest.approx(0.0, abs=1e-9)


def test_a_run_that_never_reaches_the_target_counts_with_its_last_epoch() -> None:
    assert not reaches(SLOW, FAST, 0.0) and reaches(SLOW, FAST, 0.5)
    assert gap_of("epochs to target", SLOW, FAST, below=0.0) == pytest.approx(100 * math.log(20 / 10))


def test_drop_and_oscillation_are_points() -> None:
    assert gap_of("drop", FAST, SLOW) == pytest.approx(1.5)
    assert gap_of("oscillation", SLOW, FAST) == pytest.approx(9.0)


def test_epochs_are_known_to_the_time_between_two_evaluations() -> None:
    assert resolution_of("epochs to target", SLOW, FAST, 10.5) == pytest.approx(100 * 5 / 5)
    assert resolution_of("epochs to best", SLOW, FAST) == pytest.approx(100 * 5 / 10)
    assert resolution_of("test", SLOW, FAST) == float(SLOW["step"]) and resolution_of("megabytes", SLOW, FAST) == 0


def test_a_target_goes_with_what_needs_one() -> None:
    for metric in METRICS:
        needs = "target" in metric
        assert (check_metric(metric, 1.0) is None) == needs and (check_metric(metric, None) is None) != needs
