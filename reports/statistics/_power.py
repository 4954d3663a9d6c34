"""The power of a test: the probability that a claim is reproduced if the true difference is some value."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from reports.statistics._estimate import CONFIDENCE
from reports.statistics._verdict import Band

_POINTS = 400  # quantiles of the sample deviation that the integral is taken over; exact to 1e-3


def power(truth: float, deviation: float, count: int, band: Band, level: float = 1 - CONFIDENCE) -> float:
    """The probability that the interval of `count` values lies inside the band.

    Args:
        truth: mean of the values.
        deviation: their true standard deviation; that of a sample is an estimate of it.
        level: 1 - confidence of the interval.
    """
    if count < 2:
        return 0.0
    if not deviation:
        return float(band.low < truth < band.high)
    freedom, error = count - 1, deviation / math.sqrt(count)
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    half = stats.t.ppf(1 - level / 2, freedom) * error * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    inside = stats.norm.cdf((band.high - half - truth) / error) - stats.norm.cdf((band.low + half - truth) / error)
    return float(np.clip(inside, 0.0, 1.0).mean())
