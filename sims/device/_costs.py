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

STEPS = (1, 1 << 18, 1 << 20, 1 << 22)
"""Steps in bytes above which each further byte may have another cost: cache sizes, up to memory."""

APART = 1.4
"""Widths at which the cost of an entry, a flop or a row is fitted are at least this factor apart; between them it is
interpolated in log(width)."""


ROUNDS, LEAST = 8, 1e-3
"""Rounds in which the weights of a fit settle, and the share of measured seconds that they take fitted ones to be."""

OF_MEASURED = 0.15
"""Errors are relative to measured^this x fitted^(1 - this). Log-normal scatter is fitted at its median by 1/4 where no
call is FAR, by 0 where all are."""

FAR = 0.25
"""Relative error beyond which a call counts by its error instead of the square of it (Huber): of the calls of one size
some find their operands in caches and some do not, and a few take ten times as long as all others."""


UNTESTED = 0.17
"""Relative error, median, of a fit that no call tests: that of an extrapolated number (`sims.units.SPREADS`)."""

LEAST_ERROR = 1e-4
"""What a fit that leaves nothing of many sizes is said to be off."""


@dataclass(frozen=True)
class OperatorCost:
    """One operator by name: seconds = call + bytes beyond each step x its cost + new bytes x theirs + amount x cost at
    the width.

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
    error: Quantity = key(
        "relative error of calls of other sizes, median: by what the fit leaves of those that were timed", factor()
    )
    new: Quantity = key(
        "seconds of each byte of new tensors, beside what any byte costs", dimensioned("time", zero=True),
        default=Quantity(0.0),
    )  # fmt: skip
    host: Quantity = key(
        "host seconds of a call beyond `launch`: kernels that Python launches take longer (gpu)",
        dimensioned("time", zero=True), default=Quantity(0.0),
    )  # fmt: skip

    def seconds(self, work: Work, faster: float = 1.0) -> float:
        """Seconds of one call; `faster`: factor on the speed of its flops or entries."""
        total = self.call.value
        for step, cost in self.bytes.items():
            total += max(0, work.nbytes - step + 1) * cost.value
        total += work.fresh * self.new.value
        if self.work:
            share = _hats(work.width, tuple(self.work))
            each = sum(s * cost.value for s, cost in zip(share, self.work.values(), strict=True))
            total += amount(work) * each / faster
        return total


def amount(work: Work) -> int:
    """The amount of work that costs something by width: flops, entries x columns, or rows."""
    return work.flops or work.entries or work.lines


def fit_cost(samples: Mapping[Work, Sequence[float]]) -> OperatorCost:
    """Fit the costs of one operator to its timed calls: non-negative least squares of the relative error.

    Calls of one size and width, to a factor of two, count together as much as those of any other: small shapes are
    many, large ones take the time. Within a size works count by their calls. Costs that no sample determines (a step
    that none reached) are zero. Errors are relative to a mean of measured and fitted seconds: relative to the
    measured ones alone, scattered calls are fitted too low.
    """
    works = list(samples)
    seconds = np.asarray([np.median(samples[work]) for work in works])
    reached = [step for step in STEPS if any(work.nbytes > step for work in works)]
    widths = _widths(samples)
    anew = [np.asarray([work.fresh for work in works], np.float64)] if any(work.fresh for work in works) else []
    columns = [np.ones(len(works)), *anew]
    columns += [np.asarray([max(0, work.nbytes - step + 1) for work in works], np.float64) for step in reached]
    if widths:
        hats = np.asarray([_hats(work.width, widths) for work in works])
        columns += list((hats * np.asarray([amount(work) for work in works], np.float64)[:, None]).T)
    terms, seconds = np.stack(columns, axis=1), np.maximum(seconds, 1e-9)
    from scipy.optimize import nnls  # slow to import, and only calibration fits

    sizes = _sizes(samples, widths)
    made, share = seconds, _shares(samples, sizes)
    for _ in range(ROUNDS):
        mean = seconds**OF_MEASURED * np.maximum(made, LEAST * seconds) ** (1 - OF_MEASURED)
        weight = np.sqrt(share / np.maximum(1.0, np.abs(seconds - made) / mean / FAR)) / mean
        design = terms * weight[:, None]
        scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
        found = nnls(design / scale, seconds * weight)[0] / scale
        made = terms @ found
    error = _expected_error(np.abs(made / seconds - 1), sizes, int(np.count_nonzero(found)))
    values = [fitted(float(value)) for value in found]
    at = len(columns) - len(widths)
    return OperatorCost(
        values[0],
        dict(zip(reached, values[1 + len(anew) : at], strict=True)),
        dict(zip(widths, values[at:], strict=True)),
        Quantity(round(error, 4), "measured"),
        new=values[1] if anew else Quantity(0.0),
    )


def _expected_error(errors: np.ndarray, sizes: Sequence[tuple[int, int]], terms: int) -> float:
    """The error of calls of other sizes, from those of the timed ones: `terms` numbers were fitted to calls of so many
    sizes, of which they leave the less the more there are (variance over degrees of freedom).

    Calls of as many sizes as terms, or fewer, leave nothing, and say nothing of others: `UNTESTED`.
    """
    count = len(set(sizes))
    found = float(np.median(errors))
    if count <= terms:
        return max(found, UNTESTED)
    return max(found * math.sqrt(count / (count - terms)), LEAST_ERROR)


def _sizes(samples: Mapping[Work, Sequence[float]], widths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of every work its size, to a factor of two, and its nearest fitted width."""
    sizes = []
    for work in samples:
        apart = [abs(math.log(max(work.width, 1) / width)) for width in widths]
        sizes.append((round(math.log2(max(work.nbytes + amount(work), 1))), apart.index(min(apart)) if apart else 0))
    return sizes


def _shares(samples: Mapping[Work, Sequence[float]], sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """The weight of every work: its share of the calls of its size."""
    calls = Counter[tuple[int, int]]()
    for size, times in zip(sizes, samples.values(), strict=True):
        calls[size] += len(times)
    return np.asarray([len(times) / calls[size] for size, times in zip(sizes, samples.values(), strict=True)])


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
