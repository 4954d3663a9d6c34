"""The mean of paired differences with Student's interval.

Runs of one seed share the graph, its split, initial weights and random keys, so that differences are taken seed by
seed; what seeds have in common cancels.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean of independent values.

    Attributes:
        deviation: sample standard deviation of the values; with one value it is unknown, and nan.
    """

    mean: float
    deviation: float
    count: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.count)

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Of the interval; infinite with fewer than two values."""
        if self.count < 2:
            return math.inf
        return float(stats.t.ppf(0.5 + confidence / 2, self.count - 1)) * self.error

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Both ends."""
        half = self.half_width(confidence)
        return self.mean - half, self.mean + half


def estimate(values: Sequence[float], resolution: float = 0.0) -> Estimate:
    """The estimate of some values.

    Args:
        values: at least one.
        resolution: the step in which values can differ at all, such as 100 / test nodes for an accuracy in per cent.
            Values that agree by rounding are not known better than that: the deviation is at least that of a rounding
            error, uniform over one step.
    """
    count = len(values)
    deviation = statistics.stdev(values) if count > 1 else math.nan
    if count > 1:
        deviation = max(deviation, resolution / math.sqrt(12))
    return Estimate(statistics.fmean(values), deviation, count)
