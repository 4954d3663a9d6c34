"""Lines through what collectives of several sizes took: alpha, the cost without bytes, and beta, that of a byte."""

from __future__ import annotations

import msgspec
import numpy as np

FEWEST_TIMED = 15
"""Repetitions of a collective of one size."""

CERTAIN = 0.05
"""Relative error of a point that the spread of its repetitions does not show: caches, and how ranks meet."""


NORMAL_90 = 1.645
"""Standard deviations on either side of the mean that hold 90 % of a normal distribution."""


LinePoint = tuple[float, float, float]
"""Bytes that a rank sends, typical seconds, and their spread: the interquartile range."""


class Line(msgspec.Struct, frozen=True):
    """Fitted cost of one kind of collective among a number of ranks.

    Attributes:
        alpha: seconds without bytes.
        beta: seconds per byte that a rank sends.
        error: relative error of the fit, the largest of all sizes.
        points: (bytes that a rank sends, typical seconds, spread: interquartile range in seconds).
        beta_error: relative half width of the 90 % interval of `beta`.
    """

    alpha: float
    beta: float
    error: float
    points: list[LinePoint]
    beta_error: float = 0.0

    def times(self, pace: float) -> Line:
        """The line of a machine that takes `pace` times as long; its points are as they were measured."""
        return msgspec.structs.replace(self, alpha=self.alpha * pace, beta=self.beta * pace)


UNKNOWN = 9.0
"""Largest relative error of the cost of a byte: a factor of ten either way. Where noise hides the cost of large
messages, the fitted one is none, and any error would be a large multiple of it."""


def fit_line(points: list[LinePoint]) -> Line:
    """The line through points (bytes, seconds, spread), neither cost negative: least squares, weighted by certainty.

    A point is as certain as the mean of its repetitions: where some of them wait milliseconds for a core, the time of a
    small message is uncertain, and that of a large one hardly.
    """
    from scipy.optimize import nnls  # slow to import, and only calibration fits

    nbytes, seconds, spread = np.asarray(points, np.float64).T
    off = np.hypot(CERTAIN * seconds, spread / (1.349 * FEWEST_TIMED**0.5))  # 1.349: interquartile range of a normal
    design = np.stack([np.ones_like(nbytes), nbytes], axis=1) / off[:, None]
    scale = design.max(0)
    (alpha, beta), residual = nnls(design / scale, seconds / off)
    alpha, beta = np.asarray([alpha, beta]) / scale
    alpha, beta = max(float(alpha), 1e-7), max(float(beta), 1e-15)
    error = float(np.abs((alpha + beta * nbytes) / seconds - 1).max())
    variance = np.linalg.pinv((design / scale).T @ (design / scale))[1, 1] / scale[1] ** 2
    apart = residual**2 / max(len(points) - 2, 1)  # above 1: further from a line than their certainty explains
    uncertain = float(NORMAL_90 * (variance * max(apart, 1.0)) ** 0.5 / beta)
    return Line(alpha, beta, error, points, min(uncertain, UNKNOWN))


def lines(points_by_kind: dict[str, list[LinePoint]], pace: float = 1.0) -> dict[str, Line]:
    """The fitted lines by kind, of a machine that takes `pace` times as long."""
    return {kind: fit_line(points).times(pace) for kind, points in points_by_kind.items()}


def copying_rates(
    by_ranks: dict[int, dict[str, Line]], cores_by_ranks: dict[int, dict[str, Line]], cores: int
) -> tuple[float, float]:
    """Bytes/s that one process moves when the fewest talk, and that all together move at most.

    Args:
        by_ranks, cores_by_ranks: lines of seconds, and of seconds of cores, by number of ranks.
        cores: of the machine. Ranks that outnumber them wait for each other's; these are then the rates of cores that
            nobody waits for.
    """
    rates = {ranks: 1 / (cores_by_ranks if ranks > cores else by_ranks)[ranks]["all_to_all"].beta for ranks in by_ranks}
    return rates[min(rates)], max(ranks * rate for ranks, rate in rates.items())
