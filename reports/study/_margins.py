"""How far a printed difference may be off by its own paper: no claim is judged more sharply than that.

A band of half the printed difference, or of the largest loss that a paper calls none, can be narrower than what the
paper itself knows. Where it prints how far its scores scatter, the band is at least as wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import keys
from reports.statistics import Band
from reports.study._printed import ROUNDING, printed_runs, printed_spread, uncertainty

PrintedRow = tuple[str, Mapping[str, Any]]
"""A table, and the columns and values of its row."""


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Two rows that print how far the scores of a graph scatter, for claims whose own rows print that of none."""

    table: str = keys.key("the published table")
    first: dict[str, Any] = keys.key("column -> value of the first row")
    second: dict[str, Any] = keys.key("column -> value of the second row")


@dataclass(frozen=True)
class Margin:
    """Points, and where they come from."""

    points: float
    source: str

    def or_wider(self, other: Margin | None) -> Margin:
        """The wider of two margins."""
        return self if other is None or other.points <= self.points else other


def printed_margin(paper: str, rows: tuple[PrintedRow, PrintedRow], scatter: Scatter | None = None) -> Margin:
    """The uncertainty of the difference of two printed scores.

    From the +- that their rows print, else from those of `scatter`, else their rounding, which is less than it is.
    """
    spreads, where = [printed_spread(*row) for row in rows], "printed"
    if None in spreads and scatter is not None:
        spreads = [printed_spread(scatter.table, row) for row in (scatter.first, scatter.second)]
        where = f"in {scatter.table}"
    first, second = spreads
    if first is None or second is None:
        return Margin(ROUNDING, "rounding of the printed scores")
    runs = printed_runs(paper)
    points = round(max(ROUNDING, uncertainty(first, second, runs)), 4)
    how = f"95 % for means of {runs} runs" if runs else "in quadrature, since the number of runs is not"
    return Margin(points, f"± {first:g} and {second:g} {where}, {how}")


def band_text(band: Band) -> str:
    """Where a claim holds, in short: "> -0.5", "0.2 to 0.6", "> 0 (counts from 0.5)"."""
    if math.isinf(band.high):
        counts = f" (counts from {band.least:.3g})" if band.least is not None else ""
        return f"> {band.low:.4g}{counts}"
    return f"< {band.high:.4g}" if math.isinf(band.low) else f"{band.low:.4g} to {band.high:.4g}"
