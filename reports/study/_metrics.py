"""What of two runs a claim compares: scores, bytes, and what is read from their score curves.

Scores differ by points. Bytes and epochs differ by 100 times the logarithm of their ratio, which is about the
difference in per cent and has the same size both ways.
"""

from __future__ import annotations

import math
from typing import Any

from reports.study._cells import RunLine, line_score
from reports.study._curves import ScoreCurve, best_score, curve_of, drop, epochs_until, oscillation

SCORES = ("test", "best", "last")
BYTES, TO_BEST, TO_TARGET, BYTES_TO_TARGET = "megabytes", "epochs to best", "epochs to target", "megabytes to target"
DROP, OSCILLATION = "drop", "oscillation"
RATIOS = (BYTES, TO_BEST, TO_TARGET, BYTES_TO_TARGET)
TARGETS = (TO_TARGET, BYTES_TO_TARGET)
METRICS = (*SCORES, *RATIOS, DROP, OSCILLATION)
SMALLEST = 1e-9  # of a ratio's terms


def gap_of(metric: str, first: RunLine, second: RunLine, below: float = 0.0) -> float:
    """First minus second.

    Args:
        metric: one of `METRICS`.
        below: points below the best score of `second` that make the target of both.
    """
    one, other = (value_of(metric, line, second, below) for line in (first, second))
    return log_ratio(one, other) if metric in RATIOS else one - other


def log_ratio(one: float, other: float) -> float:
    """100 times the difference of the logarithms: about per cent."""
    return 100 * math.log(max(one, SMALLEST) / max(other, SMALLEST))


def value_of(metric: str, line: RunLine, reference: RunLine, below: float = 0.0) -> float:
    """One run's number; a run that never reaches the target has the number of its epochs, which is too few."""
    if metric in (*SCORES, BYTES):
        return line_score(line, metric)
    curve = curve_of(line["curve"])
    if metric == DROP:
        return drop(curve)
    if metric == OSCILLATION:
        return oscillation(curve)
    if metric == TO_BEST:
        return epochs_until(curve, best_score(curve)) or float(line["epochs"])
    epochs = epochs_until(curve, _target(reference, below)) or float(line["epochs"])
    return epochs * (line_score(line, BYTES) if metric == BYTES_TO_TARGET else 1.0)


def reaches(line: RunLine, reference: RunLine, below: float) -> bool:
    """Whether a run reaches the target."""
    return epochs_until(curve_of(line["curve"]), _target(reference, below)) is not None


def resolution_of(metric: str, first: RunLine, second: RunLine, below: float = 0.0) -> float:
    """The step in which the difference can change: one test node, or the epochs between two evaluations."""
    if metric in SCORES or metric in (DROP, OSCILLATION):
        return max(float(line["step"] or 0) for line in (first, second))
    if metric == BYTES:
        return 0.0
    plain = TO_TARGET if metric == BYTES_TO_TARGET else metric
    steps = [_spacing(curve_of(line["curve"])) / value_of(plain, line, second, below) for line in (first, second)]
    return 100 * max(steps)


def shown_score(metric: str, line: RunLine, reference: RunLine, below: float) -> float:
    """The number of one side that a table shows: a test score beside bytes, else the number that is compared."""
    return float(line["test"] or 0.0) if metric == BYTES else value_of(metric, line, reference, below)


def _target(reference: RunLine, below: float) -> float:
    return best_score(curve_of(reference["curve"])) - below


def _spacing(curve: ScoreCurve) -> float:
    return float(curve[0][0]) if curve else 0.0


def check_metric(metric: str, target: Any) -> str | None:
    """Why a claim's metric and target do not go together; None where they do."""
    if metric in TARGETS and target is None:
        return f"{metric} needs target_below: points below the best score of the second"
    if metric not in TARGETS and target is not None:
        return f"target_below goes with {' and '.join(TARGETS)}"
    return None
