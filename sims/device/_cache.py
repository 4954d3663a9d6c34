"""How many of the rows that a neighbour sum reads come from a GPU's second-level cache instead of its memory.

A cache that replaces the rows not read for longest keeps, by Che's approximation, a row that is read at rate g with
probability 1 - exp(-g t), t being such that as many rows are kept as fit. Reads are taken as independent of each other:
neighbours that share neighbours are not known to a model that counts edges, and would be found more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.kernels.work import Work
from sims.records import dimensioned, key
from sims.units import Quantity

TURN = 128  # that a kernel sums at a time, four in each lane of a warp; it reads wider rows in turns
HALVINGS = 80  # of the interval of log t


class Popularity(Protocol):
    """How often the rows of a matrix are read, in comparison to each other."""

    def missed(self, kept: float) -> float:
        """Share of the reads that miss a cache which holds this share of the rows."""
        ...


@dataclass(frozen=True)
class GammaRates:
    """Rates with a gamma distribution, as of the degrees of a negative binomial one; `skew` is their coefficient of
    variation. Che's sums have a closed form for it."""

    skew: float = 0.0

    def missed(self, kept: float) -> float:
        """Share of the reads that miss a cache which holds this share of the rows."""
        return float((1 - min(kept, 1.0)) ** (1 + self.skew**2))


class CountedRates:
    """Rates as they are.

    Args:
        rates, counts: a rate of reads, and how many rows have it.
    """

    def __init__(self, rates: Sequence[float], counts: Sequence[float]) -> None:
        self._rates, self._counts = np.asarray(rates, float), np.asarray(counts, float)
        self._counts /= self._counts.sum()
        self._rates /= self._rates @ self._counts

    def missed(self, kept: float) -> float:
        """Share of the reads that miss a cache which holds this share of the rows."""
        if kept >= 1:
            return 0.0
        low, high = -50.0, 50.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            fewer = self._counts @ -np.expm1(-self._rates * np.exp(middle)) < kept
            low, high = (middle, high) if fewer else (low, middle)
        return float((self._counts * self._rates) @ np.exp(-self._rates * np.exp(low)))


EVEN = GammaRates()


@dataclass(frozen=True, kw_only=True)
class RowCache:
    """The cache that rows of neighbour sums go through. The fields are the keys of `[cache]` in a device file."""

    size: Quantity = key("bytes that every multiprocessor finds in it", dimensioned("size"))
    bandwidth: Quantity = key("bytes/s of rows that a neighbour sum reads from it", dimensioned("bandwidth"))
    entry: Quantity = key(
        "seconds of every stored entry whose row is in the cache, beside those of its bytes", dimensioned("time")
    )

    def row_cost(self, work: Work) -> float:
        """Seconds per stored entry and column of rows from the cache."""
        width = max(work.width, 1)
        return self.entry.value / min(width, TURN) + work.row_bytes / width / self.bandwidth.value

    def missed(self, work: Work, popularity: Popularity) -> float:
        """Share of the rows read that come from memory: at least the first read of every row."""
        width = max(work.width, 1)
        turn = work.row_bytes * min(1.0, TURN / width)
        first = work.rows * width / max(work.entries, 1)
        return min(1.0, max(popularity.missed(self.size.value / max(work.rows * turn, 1.0)), first))
