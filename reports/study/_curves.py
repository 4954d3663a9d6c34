"""Score curves of runs: how a line of a study keeps one, and what is read from it.

A curve is the test score (per cent) after every evaluation; epochs are known to the distance of two evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

ScoreCurve = list[tuple[int, float]]
"""(epoch, score in per cent) of every evaluation; epochs count from 1."""


def curve_text(curve: Sequence[tuple[int, float]]) -> str:
    """A curve in short: "5: 12.34 45.6 50.1 / 12" for epochs 5, 10 and 12, the last of the run; "" for none."""
    if not curve:
        return ""
    scores = " ".join(f"{score:.2f}".rstrip("0").rstrip(".") for _, score in curve)
    return f"{curve[0][0]}: {scores} / {curve[-1][0]}"


def curve_of(text: str) -> ScoreCurve:
    """The curve of its text."""
    if not text:
        return []
    every, _, rest = text.partition(": ")
    scores, _, last = rest.partition(" / ")
    values = [float(score) for score in scores.split()]
    epochs = [int(every) * at for at in range(1, len(values))] + [int(last)]
    return list(zip(epochs, values, strict=True))


def best_score(curve: ScoreCurve) -> float:
    """The highest score; 0 without evaluations."""
    return max((score for _, score in curve), default=0.0)


def epochs_until(curve: ScoreCurve, score: float) -> int | None:
    """The first evaluated epoch with at least this score; None where there is none."""
    return next((epoch for epoch, found in curve if found >= score), None)


def drop(curve: ScoreCurve) -> float:
    """The best score minus the last one: what training longer than best costs."""
    return best_score(curve) - curve[-1][1] if curve else 0.0


def oscillation(curve: ScoreCurve) -> float:
    """The mean change, up or down, from one evaluation to the next in the second half of training."""
    scores = [score for _, score in curve[len(curve) // 2 :]]
    return fmean(abs(after - before) for before, after in pairwise(scores)) if len(scores) > 1 else 0.0
