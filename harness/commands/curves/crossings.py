"""Finds where curves cross, and describes it in sentences. Curves are arbitrary positive functions of one variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from harness.commands.curves.bands import Drawn, fastest_possible, range_around, undecided_ranges
from harness.running.intervals import LEFT_OPEN, LeftOpen

SAME = 1e-9  # relative difference below which two times are equal
PRECISION = 0.005  # relative width to which a crossing is narrowed
LEVEL = 0.001  # relative difference below which a curve has reached its final level
WELL = 2.0  # factor between the end of the range and the begin of a level from which on the level is reported


class Crossing(NamedTuple):
    """At `x` the first curve falls below the second (`falls`) or rises above it."""

    x: float
    falls: bool


def crossings(first: Callable[[float], float], second: Callable[[float], float], xs: Sequence[float]) -> list[Crossing]:
    """Crossings of two curves between neighbouring `xs` (positive, ascending), by bisection of the logarithm.

    A crossing with an interval of equal values is reported at the end of that interval.
    """
    found, last, before = [], 0, xs[0]
    for x in xs:
        sign = _sign(first(x), second(x))
        if sign and last and sign != last:
            found.append(Crossing(_narrowed(first, second, before, x, last), falls=sign < 0))
        if sign:
            last, before = sign, x
    return found


def _narrowed(
    first: Callable[[float], float], second: Callable[[float], float], low: float, high: float, sign: int
) -> float:
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        if _sign(first(middle), second(middle)) in (sign, 0):
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _sign(a: float, b: float) -> int:
    return 0 if math.isclose(a, b, rel_tol=SAME) else -1 if a < b else 1


def crossover_text(
    names: tuple[str, str],
    curves: tuple[Callable[[float], float], Callable[[float], float]],
    xs: Sequence[float],
    formatted: Callable[[float], str],
    drawn: tuple[Drawn, Drawn] | None = None,
    more: LeftOpen = LEFT_OPEN,
) -> str:
    """One sentence on where the first of two costs is the lower one, and how sure that is.

    Args:
        names: names of the curves; the second is the baseline.
        xs: points of the range, positive and ascending.
        formatted: formats a value of the axis.
        drawn: draws of both curves; a crossing is then a range, and it is said where the curves cannot be told apart.
        more: what predictions leave open beside the draws.
    """
    (name, base), (first, second) = names, curves
    ratios = [second(x) / first(x) for x in xs]
    found = crossings(first, second, xs)
    open_ranges = [] if drawn is None else undecided_ranges(*drawn, xs, more)
    told = "".join(
        f"; cannot be told apart from {formatted(low)} to {formatted(high)} (90 %)"
        for low, high in open_ranges
        if not any(range_around(crossing.x, [(low, high)]) for crossing in found)
    )
    if not found:
        low, high = min(ratios), max(ratios)
        where = f"everywhere from {formatted(xs[0])} to {formatted(xs[-1])}"
        if high < 1 and not math.isclose(high, 1, rel_tol=SAME):
            return f"{name} never pays: {base} is {1 / high:.2f} to {1 / low:.2f} times as fast {where}{told}"
        if math.isclose(high, 1, rel_tol=SAME) and math.isclose(low, 1, rel_tol=SAME):
            return f"{name} takes as long as {base} {where}"
        return f"{name} pays {where}: {low:.2f} to {high:.2f} times as fast as {base}{told}"
    parts = [
        f"{'begins to pay' if crossing.falls else 'stops paying'} above {formatted(crossing.x)}"
        + _span(range_around(crossing.x, open_ranges), xs, formatted)
        for crossing in found
    ]
    best = max(range(len(xs)), key=lambda at: ratios[at])
    return f"{name} {' and '.join(parts)} (against {base}; at most {ratios[best]:.2f}x, at {formatted(xs[best])}){told}"


def _span(ends: tuple[float, float] | None, xs: Sequence[float], formatted: Callable[[float], str]) -> str:
    """The range of a crossing, in brackets; open where it reaches an end of the axis."""
    if ends is None:
        return ""
    low = "below " + formatted(xs[0]) if ends[0] <= xs[0] else formatted(ends[0])
    high = "beyond " + formatted(xs[-1]) if ends[1] >= xs[-1] else formatted(ends[1])
    return f" (90 %: {low} to {high})"


def fastest(curves: dict[str, Callable[[float], float]], xs: Sequence[float]) -> list[tuple[str, float, float]]:
    """The lowest curve by interval: (name, from, to) over the whole range, boundaries narrowed."""
    ranges: list[tuple[str, float, float]] = []
    for x in xs:
        best = min(curves, key=lambda name: curves[name](x))
        if not ranges or _sign(curves[best](x), curves[ranges[-1][0]](x)):
            start = x
            if ranges:
                name, begin, end = ranges[-1]
                change = crossings(curves[best], curves[name], [end, x])
                start = change[0].x if change else math.sqrt(end * x)
                ranges[-1] = (name, begin, start)
            ranges.append((best, start, x))
        else:
            name, begin, _ = ranges[-1]
            ranges[-1] = (name, begin, x)
    return ranges


def level_from(curve: Callable[[float], float], xs: Sequence[float]) -> float:
    """The value nearest to xs[0] from which on the curve stays within LEVEL of its value at xs[-1]."""
    end, reached = curve(xs[-1]), xs[-1]

    def level(x: float) -> bool:
        return abs(curve(x) - end) <= LEVEL * end

    for x in reversed(xs[:-1]):
        if not level(x):
            outside = x
            while max(outside, reached) > min(outside, reached) * (1 + LEVEL):
                middle = math.sqrt(outside * reached)
                outside, reached = (outside, middle) if level(middle) else (middle, reached)
            return reached
        reached = x
    return reached


def levels(curves: dict[str, Callable[[float], float]], xs: Sequence[float]) -> list[tuple[str, float]]:
    """(name, value from which on it is level) of curves that are level well before xs[-1]; one entry "" if all are."""
    found = {name: level_from(curve, xs) for name, curve in curves.items()}
    well = {name: x for name, x in found.items() if max(x, xs[-1]) >= WELL * min(x, xs[-1])}
    if found and len(well) == len(found):
        return [("", min(well.values(), key=lambda x: abs(math.log(x / xs[-1]))))]
    return list(well.items())


def crossover_lines(
    curves: dict[str, Callable[[float], float]],
    xs: Sequence[float],
    formatted: Callable[[float], str],
    drawn: Mapping[str, Drawn] | None = None,
    more: LeftOpen = LEFT_OPEN,
) -> list[str]:
    """A sentence on every curve against the first, then the lowest curve by interval.

    Args:
        drawn: draws of every curve; all that may be the lowest are then named.
        more: what predictions leave open beside the draws.
    """
    (base, first), *others = curves.items()
    said = []
    for name, curve in others:
        draws = None if drawn is None else (drawn[name], drawn[base])
        said.append(crossover_text((name, base), (curve, first), xs, formatted, draws, more))
    if others and drawn is None:
        parts = [f"{name} from {formatted(a)} to {formatted(b)}" for name, a, b in fastest(curves, xs)]
        said.append(f"fastest: {', '.join(parts)}")
    elif others and drawn is not None:
        parts = [
            f"{' or '.join(names)} from {formatted(a)} to {formatted(b)}"
            for names, a, b in fastest_possible(curves, drawn, xs, more)
        ]
        said.append(f"fastest (90 %): {', '.join(parts)}")
    return said
