"""What a report is made of: rows that put a number beside the published one, orderings, tables and plots.

Judges nothing but what a row says of itself: whether its error counts, only its place, or neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from harness.console import DASH, significant

How = Literal[
    "simulated", "measured", "trained", "closed form", "partitioned", "fitted", "needs data", "not built", "quoted"
]
CLOSE = 0.15  # relative error up to which a prediction is said to be right
DECIDED: dict[str, str] = {"needs data": "needs data", "not built": "not built", "quoted": "input", "fitted": "fitted"}
COLUMNS = ("row", "quantity", "unit", "published", "ours", "error", "how", "verdict", "data", "note")


def finite(value: float | None) -> float | None:
    """The value, or None where there is none: nan says the same."""
    return None if value is None or math.isnan(value) else float(value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published number and ours.

    Attributes:
        label: what it is of, e.g. "Reddit, Sylvie-S (1 bit)".
        quantity, unit: e.g. "epoch time" in "s"; both values are in this unit. Ratios have "x".
        published, ours: None where there is no number.
        how: where ours comes from; "fitted" is a baseline row that a constant was fitted on, "quoted" an input.
        data: the graph that was trained or partitioned, where it is not the paper's.
        conflict: id in `published/CONSISTENCY.md` where the paper contradicts itself; its error then counts nowhere.
        judge: whether the relative error counts, only orderings do, or nothing does.
    """

    label: str
    quantity: str
    unit: str
    published: float | None
    ours: float | None
    how: How
    data: str = ""
    conflict: str = ""
    note: str = ""
    judge: Literal["error", "order", "none"] = "error"

    @property
    def error(self) -> float | None:
        """Relative error (ours / published - 1); None where either is missing or the published one is zero."""
        printed, ours = finite(self.published), finite(self.ours)
        if printed is None or ours is None or not printed:
            return None
        return ours / printed - 1

    @property
    def counts(self) -> bool:
        """Whether the error is one of the table's: a prediction that nothing was fitted on, of a number that can be."""
        return self.judge == "error" and self.how not in DECIDED and not self.conflict and self.error is not None

    @property
    def verdict(self) -> str:
        """One short phrase."""
        if self.how in DECIDED:
            return DECIDED[self.how]
        if finite(self.ours) is None:
            return "no result"
        if finite(self.published) is None:
            return "not published"
        error = self.error
        said = "published 0" if error is None else f"{100 * error:+.0f} %"
        if self.conflict:
            return f"paper contradicts itself ({self.conflict}): {said}"
        if self.judge != "error":
            return "order only" if self.judge == "order" else "not judged"
        return f"within {100 * CLOSE:.0f} %" if error is not None and abs(error) <= CLOSE else f"off by {said}"


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """Who is ahead of whom, as published, and our values in that order; None or nan where there is none.

    `expected` holds the labels, largest value first. A later value may exceed an earlier one by `tolerance`
    (absolute); with a tolerance of 0 equal values are wrong. Where a tie of all says nothing (a stand-in that shows no
    difference), `ties` is "not judged".
    """

    text: str
    expected: tuple[str, ...]
    ours: tuple[float | None, ...]
    tolerance: float = 0.0
    ties: Literal["right", "not judged"] = "right"

    @property
    def verdict(self) -> Literal["right", "wrong", "not judged"]:
        """Over the values there are; "not judged" with fewer than two, or where all tie and `ties` says so."""
        there = [value for value in map(finite, self.ours) if value is not None]
        if len(there) < 2 or (self.ties == "not judged" and max(there) - min(there) < self.tolerance):
            return "not judged"
        pairs = ((first, later) for at, first in enumerate(there) for later in there[at + 1 :])
        return "right" if all(self._ahead(*pair) for pair in pairs) else "wrong"

    def _ahead(self, first: float, later: float) -> bool:
        return first > later or later - first < self.tolerance

    def line(self) -> str:
        """The ordering with our values and the verdict."""
        values = ", ".join(
            f"{name} {significant(finite(value))}" for name, value in zip(self.expected, self.ours, strict=True)
        )
        return f"{self.text}: {self.verdict} ({values})"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A published table beside ours.

    Attributes:
        key: "sylvie/table3".
        assumptions: fitted constants with the row they came from, stand-ins, what the paper does not print.
        commands: `haloscope` commands that produce the runs behind it.
    """

    key: str
    title: str
    rows: tuple[Row, ...]
    orderings: tuple[Ordering, ...] = ()
    assumptions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def errors(self) -> list[float]:
        """Absolute relative errors of the rows whose error counts."""
        return [abs(row.error) for row in self.rows if row.counts and row.error is not None]

    def median_error(self) -> float | None:
        """Median of `errors`; None without any."""
        errors = self.errors()
        return statistics.median(errors) if errors else None

    def frame(self) -> pd.DataFrame:
        """A line per row, columns `COLUMNS`; errors as fractions."""
        lines = [
            (
                r.label,
                r.quantity,
                r.unit,
                finite(r.published),
                finite(r.ours),
                r.error,
                r.how,
                r.verdict,
                r.data,
                r.note,
            )
            for r in self.rows
        ]
        return pd.DataFrame(lines, columns=list(COLUMNS))

    def shown(self) -> pd.DataFrame:
        """The frame as text: numbers to three digits, errors in per cent, columns without content left out."""
        frame = self.frame()
        for column in ("published", "ours"):
            frame[column] = [shown_number(finite(value)) for value in frame[column]]
        frame["error"] = [DASH if math.isnan(v) else f"{100 * v:+.0f} %" for v in frame["error"].astype(float)]
        empty = [name for name in ("data", "note") if not frame[name].any()]
        return frame.drop(columns=empty)

    def csv(self) -> str:
        """Comma-separated, full precision."""
        return str(self.frame().to_csv(index=False))

    def latex(self) -> str:
        """A `tabular` of the shown columns, escaped; no longer notes, which are in the other formats."""
        frame = self.shown()
        text: str = (
            frame.drop(columns=[name for name in ("note", "data") if name in frame])
            .style.hide(axis="index")
            .format(escape="latex")
            .to_latex(hrules=True)
        )
        return text

    def markdown(self) -> str:
        """Title, table, orderings, assumptions and commands."""
        frame = self.shown()
        head = ["| " + " | ".join(frame.columns) + " |", "|" + "---|" * len(frame.columns)]
        body = ["| " + " | ".join(_cell(value) for value in line) + " |" for line in frame.itertuples(index=False)]
        parts = [f"# {_cell(self.title)}", "\n".join([*head, *body])]
        lists = (("Orderings", [o.line() for o in self.orderings]), ("Assumptions", self.assumptions))
        parts += [f"## {name}\n\n" + "\n".join(f"* {_cell(line)}" for line in lines) for name, lines in lists if lines]
        if self.commands:
            parts.append("## Commands\n\n" + "\n".join(f"    {command}" for command in self.commands))
        return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure drawn to `paths` (png and svg), with what it shows and rests on."""

    key: str
    title: str
    caption: str
    paths: tuple[Path, ...]
    orderings: tuple[Ordering, ...] = ()
    assumptions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


Item = Table | Plot


def verdict_line(item: Item) -> str:
    """What became of one table or figure, in one line."""
    said = []
    if isinstance(item, Table):
        said.append(f"{len(item.rows)} rows")
        error = item.median_error()
        if error is not None:
            said.append(f"median error {100 * error:.1f} % over {len(item.errors())}")
    right, judged = orderings_right([item])
    if judged:
        said.append(f"orderings right {right} of {judged}")
    return ", ".join(said) or "drawn"


def orderings_right(items: list[Item]) -> tuple[int, int]:
    """(right, judged) over all orderings of all items."""
    verdicts = [ordering.verdict for item in items for ordering in item.orderings]
    return verdicts.count("right"), sum(verdict != "not judged" for verdict in verdicts)


def judged_errors(items: list[Item]) -> Iterator[tuple[float, Table, Row]]:
    """(relative error, table, row) of every row whose error counts."""
    for item in items:
        if isinstance(item, Table):
            yield from ((row.error, item, row) for row in item.rows if row.counts and row.error is not None)


def shown_number(value: float | None) -> str:
    """Four significant digits; counts are not rounded away."""
    if value is None:
        return DASH
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    shown = significant(value, 4)
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _cell(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
