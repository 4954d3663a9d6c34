"""Bands of curves: where intervals allow to say which of two predicted curves is lower.

A band is made of draws of uncertain inputs (`sims.uncertainty`), the same for all curves, so that two curves are
compared draw by draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.running.intervals import LEFT_OPEN, LeftOpen, ratio_ends

Drawn = Callable[[float], np.ndarray]
"""Seconds of a curve at a value of the knob in every draw, float64 [draws]."""


def interpolated(places: Sequence[float], factors: np.ndarray) -> Drawn:
    """Factors on a curve, float64 [places, draws], between their places: linear in the logarithms of both."""
    at, table = np.log(places), np.log(factors)

    def drawn(x: float) -> np.ndarray:
        found: np.ndarray = np.exp([np.interp(math.log(x), at, column) for column in table.T])
        return found

    return drawn


def undecided_ranges(
    first: Drawn, second: Drawn, xs: Sequence[float], more: LeftOpen = LEFT_OPEN
) -> list[tuple[float, float]]:
    """Ranges of the knob in which intervals do not say which curve is lower; their ends are interpolated.

    `more`: what predictions leave open beside the draws.
    """
    found: list[tuple[float, float]] = []
    spans = [tuple(math.log(end) for end in ratio_ends(second(x) / first(x), more)) for x in xs]
    start = None
    for at, (low, high) in enumerate(spans):
        if low <= 0 <= high and not low == high == 0:
            if start is None:
                start = xs[0] if at == 0 else _meets(xs, spans, at - 1)
            if at == len(xs) - 1:
                found.append((start, xs[-1]))
        elif start is not None:
            found.append((start, _meets(xs, spans, at - 1)))
            start = None
    return found


def _meets(xs: Sequence[float], spans: Sequence[tuple[float, ...]], at: int) -> float:
    """Where, between two neighbouring points, the end of the interval that is nearer to 0 passes it."""
    for end in (0, 1):
        here, there = spans[at][end], spans[at + 1][end]
        if here * there < 0:
            share = here / (here - there)
            return math.exp(math.log(xs[at]) * (1 - share) + math.log(xs[at + 1]) * share)
    return math.sqrt(xs[at] * xs[at + 1])


def range_around(x: float, ranges: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The range that holds a value, None without."""
    return next(((low, high) for low, high in ranges if low * (1 - 1e-6) <= x <= high * (1 + 1e-6)), None)


def fastest_possible(
    curves: Mapping[str, Callable[[float], float]],
    drawn: Mapping[str, Drawn],
    xs: Sequence[float],
    more: LeftOpen = LEFT_OPEN,
) -> list[tuple[tuple[str, ...], float, float]]:
    """By range of the knob, the curves of which intervals allow that they are the lowest, the lowest one first.

    `more`: what predictions leave open beside the draws.
    """
    found: list[tuple[tuple[str, ...], float, float]] = []
    for x in xs:
        best = min(curves, key=lambda name: curves[name](x))
        rest = [name for name in curves if name != best and ratio_ends(drawn[name](x) / drawn[best](x), more)[0] <= 1]
        names = (best, *rest)
        if found and set(found[-1][0]) == set(names):
            found[-1] = (found[-1][0], found[-1][1], x)
        else:
            start = math.sqrt(found[-1][2] * x) if found else x
            if found:
                found[-1] = (found[-1][0], found[-1][1], start)
            found.append((names, start, x))
    return found
