"""How many of the rows that a neighbour sum reads come from a GPU's second-level cache instead of its memory."""

from __future__ import annotations

from dataclasses import dataclass

from harness.kernels.work import Work
from sims.records import dimensioned, key
from sims.units import Quantity

COLUMNS = 128  # that a kernel sums at a time, four in each lane of a warp; it reads wider rows in turns


@dataclass(frozen=True, kw_only=True)
class RowCache:
    """The cache that rows of neighbour sums go through. The fields are the keys of `[cache]` in a device file."""

    size: Quantity = key("bytes that every multiprocessor finds in it", dimensioned("size"))
    bandwidth: Quantity = key("bytes/s of rows that a neighbour sum reads from it", dimensioned("bandwidth"))

    def missed(self, work: Work, skew: float) -> float:
        """Share of the rows read that come from memory, 1 where nothing is known of the rows.

        Args:
            skew: coefficient of variation of how often rows are read, that of the degrees.
        """
        if not work.rows or not work.entries:
            return 1.0
        width = max(work.width, 1)
        turn = work.row_bytes * min(1.0, COLUMNS / width)
        return missed_reads(work.rows, work.entries / width, self.size.value / turn, skew)


def missed_reads(rows: float, reads: float, kept: float, skew: float) -> float:
    """Share of reads that miss a least-recently-used cache, if reads are independent of each other.

    By Che's approximation a row that is read at rate g stays cached with probability 1 - exp(-g t), where t is such that
    `kept` rows are. For rates with a gamma distribution, as of the degrees of a negative binomial one, both sums have a
    closed form: with a share c of the rows cached, (1 - c) ^ (1 + skew ^ 2) of the reads miss. The first read of every
    row misses always.

    Args:
        rows: rows among which the reads choose.
        kept: rows that fit into the cache.
        skew: coefficient of variation of the rates.
    """
    cached = min(1.0, kept / rows)
    return min(1.0, max((1 - cached) ** (1 + skew**2), rows / reads))
