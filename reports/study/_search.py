"""Finds the two parameters of a stand-in at which two scores come out, in few evaluations.

Every evaluation is a handful of trainings, so derivatives are not available and points are dear. Close to the best
point so far both scores, on the logit scale, are taken as linear in the parameters; weighted least squares over all
points gives the slopes, and Newton's step, no longer than a part of the range, the next point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOGARITHMIC = ("signal", "degree", "communities")  # parameters whose ratios count
FIRST_STEP, LONGEST_STEP, SAME = 0.12, 0.3, 0.004  # shares of a parameter's range
NEAR = 0.15  # distance, as a share of the range, at which a point's weight is half: wide, since scores are noisy
RIDGE = 1e-3  # keeps slopes finite where all points lie on a line
EDGE = 3e-3  # shares are kept so far from 0 and 1, where a few nodes would move the logit by much


@dataclass(frozen=True)
class FreeParameter:
    """A parameter that is searched: where it may lie, and where the search begins."""

    name: str
    low: float
    start: float
    high: float

    def place(self, value: float) -> float:
        """0 at the low end of the range, 1 at the high one."""
        scale = math.log if self.name in LOGARITHMIC else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))

    def value(self, place: float) -> float:
        """The value at a place, with four significant digits: what is written down is what was trained."""
        if self.name in LOGARITHMIC:
            found = self.low * (self.high / self.low) ** place
        else:
            found = self.low + place * (self.high - self.low)
        return float(f"{found:.4g}")


@dataclass(frozen=True)
class Point:
    """A pair of values of the knobs, and the two scores (per cent) found there."""

    values: tuple[float, float]
    scores: tuple[float, float]


@dataclass(frozen=True)
class Goal:
    """Two scores (per cent): that of exact training and the isolated one, and how close both have to be (points).

    Attributes:
        close: of the first score.
        close_gap: of the difference of the two; its standard error with five seeds is 0.1 to 0.2 on 10,000 nodes.
    """

    scores: tuple[float, float]
    close: float = 0.25
    close_gap: float = 0.2

    def distance(self, scores: tuple[float, float]) -> float:
        """1 where the worse of both is just close enough."""
        full, gap = (s[0] for s in (scores, self.scores)), [s[0] - s[1] for s in (scores, self.scores)]
        first, wanted = full
        return max(abs(first - wanted) / self.close, abs(gap[0] - gap[1]) / self.gap_tolerance)

    @property
    def gap_tolerance(self) -> float:
        """A quarter of the printed difference, but no less than `close_gap`."""
        return max(self.close_gap, abs(self.scores[0] - self.scores[1]) / 4)


def nearest_point(points: Sequence[Point], goal: Goal) -> Point:
    """The point closest to the goal."""
    return min(points, key=lambda point: goal.distance(point.scores))


def proposed(
    points: Sequence[Point], knobs: tuple[FreeParameter, FreeParameter], goal: Goal
) -> tuple[float, float] | None:
    """Values of the knobs to evaluate next; None where nothing new would be tried."""
    if len(points) < 3:
        return _first(len(points), knobs)
    places = np.array([[knob.place(v) for knob, v in zip(knobs, point.values, strict=True)] for point in points])
    scores = np.array([[_logit(s) for s in point.scores] for point in points])
    centre_point = nearest_point(points, goal)
    centre = np.array([knob.place(v) for knob, v in zip(knobs, centre_point.values, strict=True)])
    here = np.array([_logit(s) for s in centre_point.scores])
    slopes = _slopes(places - centre, scores - here)
    wanted = np.array([_logit(s) for s in goal.scores]) - here
    step = np.linalg.lstsq(slopes, wanted, rcond=1e-3)[0]
    for length in (LONGEST_STEP, LONGEST_STEP / 2, LONGEST_STEP / 4):
        short = step * min(1.0, length / max(np.abs(step).max(), 1e-12))
        place = np.clip(centre + short, 0.0, 1.0)
        if np.abs(places - place).max(axis=1).min() > SAME:
            return _values(place, knobs)
    return _halfway(places, centre, knobs)


def _first(have: int, knobs: tuple[FreeParameter, FreeParameter]) -> tuple[float, float]:
    """The start, then a step along either knob."""
    places = np.array([knob.place(knob.start) for knob in knobs])
    if have:
        at = have - 1
        places[at] += FIRST_STEP if places[at] + FIRST_STEP <= 1 else -FIRST_STEP
    return _values(places, knobs)


def _slopes(moved: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """d score / d place, [2 scores, 2 knobs], by ridge regression through the centre; near points weigh more."""
    weights = 1 / (1 + (np.linalg.norm(moved, axis=1) / NEAR) ** 2)
    gram = (moved * weights[:, None]).T @ moved
    gram += RIDGE * np.trace(gram) * np.eye(2)
    found: np.ndarray = np.linalg.solve(gram, (moved * weights[:, None]).T @ changed).T
    return found


def _halfway(
    places: np.ndarray, centre: np.ndarray, knobs: tuple[FreeParameter, FreeParameter]
) -> tuple[float, float] | None:
    """Between the centre and its nearest neighbour; None where these are the same already."""
    apart = np.abs(places - centre).max(axis=1)
    others = places[apart > 0]
    if not len(others):
        return None
    place = (centre + others[apart[apart > 0].argmin()]) / 2
    return _values(place, knobs) if np.abs(places - place).max(axis=1).min() > SAME / 4 else None


def _values(places: np.ndarray, knobs: tuple[FreeParameter, FreeParameter]) -> tuple[float, float]:
    first, second = (knob.value(float(place)) for knob, place in zip(knobs, places, strict=True))
    return first, second


def _logit(score: float) -> float:
    share = min(max(score / 100, EDGE), 1 - EDGE)
    return math.log(share / (1 - share))
