"""Elements of a report: rows that put a number beside the published one, orderings, tables and plots.

Every row states how it is judged: by its error, only by its place in an ordering, or not at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from harness.console import DASH, significant

How = Literal[
    "simulated", "measured", "trained", "closed form", "partitioned", "fitted", "needs data", "not built", "quoted"
]
CLOSE = 0.15  # relative error up to which a prediction counts as right
POINTS = 1.0  # difference up to which a score in per cent counts as right
DECIDED: dict[str, str] = {"needs data": "needs data", "not built": "not built", "quoted": "input", "fitted": "fitted"}
COLUMNS = ("row", "quantity", "unit", "published", "ours", "error", "how", "verdict", "data", "conflict", "note")


def finite(value: float | None) -> float | None:
    """The value, or None where it is None or nan."""
    return None if value is None or math.isnan(value) else float(value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published number and ours.

    Attributes:
        label: its subject, e.g. "Reddit, Sylvie-S (1 bit)".
        quantity, unit: e.g. "epoch time" in "s"; both values are in this unit. Ratios have "x".
        published, ours: None where there is no number.
        how: the origin of ours; "fitted" is a baseline row that a constant was fitted on, "quoted" an input.
        data: the graph that was trained or partitioned, where it is not the paper's.
        conflict: id in `published/CONSISTENCY.md` where the paper contradicts itself; its error is then not counted.
        judge: whether the relative error counts, the difference in points (a score on the paper's own graph; never
            part of a median), only orderings do, or nothing does (an identity, an input, a number judged elsewhere).
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
    judge: Literal["error", "points", "order", "none"] = "error"

    @property
    def of_time(self) -> bool:
        """Whether it is a time or a speed-up, to which the aim of 15 % applies."""
        return self.unit in ("s", "ms", "x")

    @property
    def error(self) -> float | None:
        """Relative error (ours / published - 1); None where either is missing or the published one is zero."""
        printed, ours = finite(self.published), finite(self.ours)
        if printed is None or ours is None or not printed:
            return None
        return ours / printed - 1

    @property
    def counts(self) -> bool:
        """Whether the error counts for the table: of a prediction that is neither fitted nor an input."""
        return self.judge == "error" and self.how not in DECIDED and not self.conflict and self.error is not None

    @property
    def points(self) -> float | None:
        """Our score minus the published one, of a row judged by points; None for others and where either is missing."""
        printed, ours = finite(self.published), finite(self.ours)
        if self.judge != "points" or self.how in DECIDED or self.conflict or printed is None or ours is None:
            return None
        return ours - printed

    @property
    def verdict(self) -> str:
        """One short phrase, with the contradiction of the paper if there is one."""
        return self._said() + contradiction(self.conflict)

    def _said(self) -> str:
        if self.how in DECIDED:
            return DECIDED[self.how]
        printed, ours = finite(self.published), finite(self.ours)
        if ours is None:
            return "no result"
        if printed is None:
            return "not published"
        if self.judge == "points":
            gap = ours - printed
            return f"within {POINTS:g} point" if abs(gap) <= POINTS else f"off by {gap:+.1f} points"
        if self.judge != "error":
            return "order only" if self.judge == "order" else "not judged"
        error = self.error
        text = "published 0" if error is None else f"{100 * error:+.0f} %"
        return f"within {100 * CLOSE:.0f} %" if error is not None and abs(error) <= CLOSE else f"off by {text}"


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """A published ordering, and our values in that order; None or nan where there is none.

    Attributes:
        expected: labels, largest value first.
        tolerance: absolute; values less than that apart tie. With 0 nothing ties, and equal values are wrong.
        ties: what a tied pair is: "not judged" for a claim that one is ahead (other pairs decide), "right" for a claim
            that one is no worse, "demanded" for a claim that all are level: then every pair has to tie.
        floor: if no value exceeds it (the share of the majority class) nothing was learnt, and nothing is judged.
        basis: "theory" where it follows from inputs, a fit or a formula and cannot fail; it is then not counted.
        conflict: id in `published/CONSISTENCY.md` where the paper contradicts itself; it is then not counted.
        runs: identity of the runs behind it; equal values of equal runs (a shared stand-in) count once.
    """

    text: str
    expected: tuple[str, ...]
    ours: tuple[float | None, ...]
    tolerance: float = 0.0
    ties: Literal["right", "not judged", "demanded"] = "right"
    floor: float | None = None
    basis: Literal["run", "theory"] = "run"
    conflict: str = ""
    runs: str = ""

    @property
    def verdict(self) -> Literal["right", "wrong", "not judged"]:
        """Judged on the values present; "not judged" with fewer than two, or where `ties` or `floor` leave no pair."""
        there = [value for value in map(finite, self.ours) if value is not None]
        if self.floor is not None and all(value <= self.floor for value in there):
            return "not judged"
        gaps = [first - later for at, first in enumerate(there) for later in there[at + 1 :]]
        if self.ties == "not judged" and self.tolerance:
            gaps = [gap for gap in gaps if abs(gap) >= self.tolerance]
        if not gaps:
            return "not judged"
        return "right" if all(self._holds(gap) for gap in gaps) else "wrong"

    def _holds(self, gap: float) -> bool:
        if self.ties == "demanded":
            return abs(gap) < self.tolerance
        return gap > 0 or -gap < self.tolerance

    @property
    def counts(self) -> bool:
        """Whether it counts in the summary: judged, based on runs, on a claim that the paper does not contradict."""
        return self.basis == "run" and not self.conflict and self.verdict != "not judged"

    def line(self) -> str:
        """The ordering with our values and the verdict."""
        values = ", ".join(
            f"{name} {significant(finite(value))}" for name, value in zip(self.expected, self.ours, strict=True)
        )
        theory = "; theory, not counted" if self.basis == "theory" else ""
        return f"{self.text}: {self.verdict}{theory}{contradiction(self.conflict)} ({values})"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Base of tables and figures.

    Attributes:
        key: "sylvie/table3".
        rows: printed numbers beside ours; of a figure those that its text or another table prints.
        assumptions: fitted constants with the row they came from, stand-ins, what the paper does not print.
        commands: `haloscope` commands that produce the runs behind it.
    """

    key: str
    title: str
    rows: tuple[Row, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    assumptions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def errors(self, of_time: bool | None = None) -> list[float]:
        """Absolute relative errors of the rows whose error counts: all, or only (not) those of times."""
        rows = [row for row in self.rows if row.counts and of_time in (None, row.of_time)]
        return [abs(row.error) for row in rows if row.error is not None]

    def median_error(self, of_time: bool | None = None) -> float | None:
        """Median of `errors`; None without any."""
        errors = self.errors(of_time)
        return statistics.median(errors) if errors else None

    def frame(self) -> pd.DataFrame:
        """A line per row, columns `COLUMNS`; errors as fractions."""
        lines = [
            (r.label, r.quantity, r.unit, finite(r.published), finite(r.ours), r.error)
            + (r.how, r.verdict, r.data, r.conflict, r.note)
            for r in self.rows
        ]
        return pd.DataFrame(lines, columns=list(COLUMNS))

    def shown(self) -> pd.DataFrame:
        """The frame as text: numbers to four digits, errors in per cent, columns without content left out."""
        frame = self.frame()
        for column in ("published", "ours"):
            frame[column] = [shown_number(finite(value)) for value in frame[column]]
        frame["error"] = [DASH if math.isnan(v) else f"{100 * v:+.0f} %" for v in frame["error"].astype(float)]
        empty = [name for name in ("data", "conflict", "note") if not frame[name].any()]
        return frame.drop(columns=empty)


@dataclass(frozen=True, kw_only=True)
class PaperTable(Judged):
    """A published table beside ours."""

    def csv(self) -> str:
        """Comma-separated, full precision."""
        return str(self.frame().to_csv(index=False))

    def latex(self) -> str:
        """A `tabular` of the shown columns, escaped; no longer notes, which are in the other formats."""
        frame = self.shown()
        text: str = (
            frame.drop(columns=[name for name in ("note", "data", "conflict") if name in frame])
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
class Plot(Judged):
    """A figure drawn to `paths` (png and svg), with its caption, rows and assumptions."""

    caption: str
    paths: tuple[Path, ...]


Item = PaperTable | Plot


def verdict_line(item: Item) -> str:
    """The verdict on one table or figure, in one line."""
    phrases = [f"{len(item.rows)} rows"] if item.rows else []
    for of_time, what in ((True, "times and speed-ups"), (False, "other numbers")):
        error = item.median_error(of_time)
        if error is not None:
            phrases.append(f"median error of {what} {100 * error:.1f} % over {len(item.errors(of_time))}")
    right, judged = orderings_right([item])
    if judged:
        phrases.append(f"orderings right {right} of {judged}")
    return ", ".join(phrases) or "drawn"


def orderings_right(items: list[Item]) -> tuple[int, int]:
    """(right, judged) over all orderings of all items that count, those of the same runs once."""
    counting = [ordering for item in items for ordering in item.orderings if ordering.counts]
    distinct = {(o.runs, o.ours) if o.runs else at: o for at, o in enumerate(counting)}
    return sum(o.verdict == "right" for o in distinct.values()), len(distinct)


def judged_errors(items: list[Item]) -> Iterator[tuple[float, Item, Row]]:
    """(relative error, table or figure, row) of every row whose error counts."""
    for item in items:
        yield from ((row.error, item, row) for row in item.rows if row.counts and row.error is not None)


STANDS_IN = " stands in for "
"""Between the graph that was trained and the published one, in a row's `data`."""


def shared_stand_ins(rows: Iterable[Row]) -> tuple[str, ...]:
    """A line for every graph that stands in for several published ones: their rows are of the same runs."""
    graphs: dict[str, dict[str, None]] = {}
    for row in rows:
        graph, stands_in, published = row.data.partition(STANDS_IN)
        if stands_in:
            graphs.setdefault(graph, {})[published] = None
    return tuple(
        f"{graph} stands in for {' and '.join(published)}: where their settings are equal their rows are of the same "
        "runs, and not independent"
        for graph, published in graphs.items()
        if len(published) > 1
    )


def contradiction(conflict: str) -> str:
    """Note of a verdict on a published number with an id in CONSISTENCY.md; "" without one."""
    return f"; paper contradicts itself ({conflict})" if conflict else ""


def shown_number(value: float | None) -> str:
    """Four significant digits; counts keep all their digits."""
    if value is None:
        return DASH
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    shown = significant(value, 4)
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _cell(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
