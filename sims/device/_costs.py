"""What one operator costs on a machine where it was timed: seconds of a call, of its bytes and of its work.

`fit` finds the costs from timed calls, `OperatorCost` prices further ones. The class rooflines of `_profile` serve
the operators that nobody timed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from harness.kernels.work import Work
from sims.units import Quantity, Table

STEPS = (1, 1 << 18, 1 << 22)
"""Bytes from which on each further byte may cost more: those that fit the nearest cache, the next, and memory."""

WIDTHS = (8, 32, 128, 512)
"""Columns at which the cost of an entry (or, of products, a multiplication) is known; between them in log(width)."""


@dataclass(frozen=True)
class OperatorCost:
    """One operator by name: seconds = call + bytes beyond each step x its cost + amount x cost at the width.

    Attributes:
        call: seconds of a call without work.
        bytes: step -> seconds of each byte from there on, above what the steps before it cost.
        work: width -> seconds per flop (products), or per stored entry and column (neighbour sums); else empty.
        error: relative error of the fit, median over the timed calls.
    """

    call: Quantity
    bytes: dict[int, Quantity]
    work: dict[int, Quantity]
    error: Quantity

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
    """What grows with the work of a product or neighbour sum: flops, or entries x columns."""
    return work.flops or work.entries


def fit(samples: Mapping[Work, Sequence[float]]) -> OperatorCost:
    """The costs of one operator from its timed calls: least squares of the relative error, no cost below zero.

    The median of equal calls counts once. What no sample tells apart (a step that none reached) costs nothing.
    """
    works = list(samples)
    seconds = np.asarray([np.median(samples[work]) for work in works])
    reached = [step for step in STEPS if any(work.nbytes > step for work in works)]
    widths = _widths(works)
    columns = [np.ones(len(works))]
    columns += [np.asarray([max(0, work.nbytes - step + 1) for work in works], np.float64) for step in reached]
    if widths:
        hats = np.asarray([_hats(work.width, widths) for work in works])
        columns += list((hats * np.asarray([amount(work) for work in works], np.float64)[:, None]).T)
    design = np.stack(columns, axis=1) / np.maximum(seconds, 1e-9)[:, None]
    scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
    found = nnls(design / scale, np.ones(len(works)))[0] / scale
    error = float(np.median(np.abs(design @ found - 1)))
    values = [Quantity(float(f"{value:.4g}"), "measured") for value in found]
    at = 1 + len(reached)
    return OperatorCost(
        values[0],
        dict(zip(reached, values[1:at], strict=True)),
        dict(zip(widths, values[at:], strict=True)),
        Quantity(max(round(error, 4), 1e-4), "measured"),
    )


def read_costs(table: Table | None) -> dict[str, OperatorCost]:
    """`[operators]` of a device file: name -> `call`, `error` and the tables `bytes` and `work`."""
    if table is None:
        return {}
    found = {}
    for name in table.values:
        row = table.needed(name)
        steps, work = row.table("bytes"), row.table("work")
        found[name] = OperatorCost(
            row.quantity("call", "time"),
            steps.numbered("time") if steps is not None else {},
            work.numbered("time") if work is not None else {},
            row.quantity("error", "number"),
        )
        row.close()
    table.close()
    return found


def _widths(works: Sequence[Work]) -> tuple[int, ...]:
    """Nodes of WIDTHS that the samples tell apart: all those beside a width that was timed."""
    seen = sorted({work.width for work in works if amount(work)})
    if not seen:
        return ()
    if len(seen) < len(WIDTHS):
        return tuple(max(width, 1) for width in seen)
    near = {WIDTHS[at] for width in seen for at in np.flatnonzero(_hats(width, WIDTHS)).tolist()}
    return tuple(sorted(near))


def _hats(width: int, nodes: tuple[int, ...]) -> list[float]:
    """Shares of the nodes that stand for a width: two neighbours by log(width), or the nearest at the ends."""
    at = bisect.bisect_left(nodes, width)
    shares = [0.0] * len(nodes)
    if at == 0 or at == len(nodes):
        shares[min(at, len(nodes) - 1)] = 1.0
        return shares
    low, high = nodes[at - 1], nodes[at]
    shares[at] = math.log(width / low) / math.log(high / low)
    shares[at - 1] = 1.0 - shares[at]
    return shares
