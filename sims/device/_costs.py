"""The cost of one operator on a machine where it was timed: seconds per call, per byte and per unit of work.

`fit_cost` fits the costs to timed calls, `OperatorCost` predicts further ones. Operators that were not timed use the
rooflines by class in `_profile`.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.kernels.work import Work
from sims.records import dimensioned, factor, key, numbered
from sims.units import Quantity, fitted

STEPS = (1, 1 << 18, 1 << 22)
"""Steps in bytes above which each further byte may have another cost: cache sizes, up to memory."""

APART = 1.4
"""Widths at which the cost of an entry, a flop or a row is fitted are at least this factor apart; between them it is
interpolated in log(width)."""


ROUNDS, LEAST = 8, 1e-3
"""Rounds in which the weights of a fit settle, and the share of measured seconds that they take fitted ones to be."""


@dataclass(frozen=True)
class OperatorCost:
    """One operator by name: seconds = call + bytes beyond each step x its cost + amount x cost at the width.

    The fields are the keys of `[operators.NAME]` in a device file.
    """

    call: Quantity = key("seconds of a call without work", dimensioned("time"))
    bytes: dict[int, Quantity] = key(
        "seconds of each byte from there on, above what the steps before it cost", numbered("time", "BYTES")
    )
    work: dict[int, Quantity] = key(
        "seconds per flop (products), per stored entry and column (neighbour sums), or per row (gathers, reductions, "
        "codecs), at this width",
        numbered("time", "COLUMNS"),
    )
    error: Quantity = key("relative error of the fit, median over the timed calls", factor())
    host: Quantity = key(
        "host seconds of a call beyond `launch`: kernels that Python launches take longer (gpu)",
        dimensioned("time", zero=True), default=Quantity(0.0),
    )  # fmt: skip

    def seconds(self, work: Work) -> float:
        """Seconds of one call."""
        total = self.call.value
        for step, cost in self.bytes.items():
            total += max(0, work.nbytes - step + 1) * cost.value
        if self.work:
            share = _hats(work.width, tuple(self.work))
            total += amount(work) * sum(s * cost.value for s, cost in zip(share, self.work.values(), strict=True))
        return total


def amount(work: Work) -> int:
    """The amount of work that costs something by width: flops, entries x columns, or rows."""
    return work.flops or work.entries or work.lines


def fit_cost(samples: Mapping[Work, Sequence[float]]) -> OperatorCost:
    """Fit the costs of one operator to its timed calls: non-negative least squares of the relative error.

    The median of equal calls counts once. Costs that no sample determines (a step that none reached) are zero. Errors
    are relative to a mean of measured and fitted seconds for which log-normal scatter leaves the fit at its median;
    relative to the measured ones alone, scattered calls are fitted too low.
    """
    works = list(samples)
    seconds = np.asarray([np.median(samples[work]) for work in works])
    reached = [step for step in STEPS if any(work.nbytes > step for work in works)]
    widths = _widths(samples)
    columns = [np.ones(len(works))]
    columns += [np.asarray([max(0, work.nbytes - step + 1) for work in works], np.float64) for step in reached]
    if widths:
        hats = np.asarray([_hats(work.width, widths) for work in works])
        columns += list((hats * np.asarray([amount(work) for work in works], np.float64)[:, None]).T)
    terms, seconds = np.stack(columns, axis=1), np.maximum(seconds, 1e-9)
    from scipy.optimize import nnls  # slow to import, and only calibration fits

    made = seconds
    for _ in range(ROUNDS):
        mean = seconds**0.25 * np.maximum(made, LEAST * seconds) ** 0.75
        design = terms / mean[:, None]
        scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
        found = nnls(design / scale, seconds / mean)[0] / scale
        made = terms @ found
    error = float(np.median(np.abs(made / seconds - 1)))
    values = [fitted(float(value)) for value in found]
    at = 1 + len(reached)
    return OperatorCost(
        values[0],
        dict(zip(reached, values[1:at], strict=True)),
        dict(zip(widths, values[at:], strict=True)),
        Quantity(max(round(error, 4), 1e-4), "measured"),
    )


def _widths(samples: Mapping[Work, Sequence[float]]) -> tuple[int, ...]:
    """Timed widths that are APART, those with most calls first: between them every cost is determined by samples."""
    calls = Counter[int]()
    for work, times in samples.items():
        if amount(work):
            calls[max(work.width, 1)] += len(times)
    chosen = list[int]()
    for width, _ in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        if all(max(width, other) >= APART * min(width, other) for other in chosen):
            chosen.append(width)
    return tuple(sorted(chosen))


def _hats(width: int, nodes: tuple[int, ...]) -> list[float]:
    """Interpolation weights of the nodes for a width: of two neighbours by log(width), or of the nearest at the
    ends."""
    at = bisect.bisect_left(nodes, width)
    shares = [0.0] * len(nodes)
    if at == 0 or at == len(nodes):
        shares[min(at, len(nodes) - 1)] = 1.0
        return shares
    low, high = nodes[at - 1], nodes[at]
    shares[at] = math.log(width / low) / math.log(high / low)
    shares[at - 1] = 1.0 - shares[at]
    return shares
