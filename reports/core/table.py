"""Elements of a report: rows that put a number beside the published one, orderings, tables and plots.

Every row states how it is judged: by its error, by the span of readings of what is not printed, by a difference and
its interval, only by its place in an ordering, or not at all. What a reader takes from the paper, a number or an
ordering, is a claim; each has one of five outcomes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.numbers import significant
from reports.core.null_models import NULLS, Null, Skill
from reports.statistics import estimate

How = Literal["simulated", "measured", "trained", "closed form", "partitioned", "fitted", "needs data", "quoted"]
JudgedBy = Literal["error", "bound", "readings", "points", "difference", "order", "none"]
Outcome = Literal["reproduced", "contradicted", "undecided", "theory", "cannot be judged"]
OUTCOMES: tuple[Outcome, ...] = ("reproduced", "contradicted", "undecided", "theory", "cannot be judged")
CLOSE = 0.15  # relative error up to which a prediction counts as right
POINTS = 1.0  # difference up to which a score in per cent counts as right
ENOUGH = 5  # seeds from which trained scores are judged
FEW: Literal["not enough runs"] = "not enough runs"
LEVEL = 0.5, 0.25  # a difference of scores counts as equal within so many points, or this share of the printed one
FAR, FAR_FROM_ONE = 5.0, "far from 1: it stands for more than its name, for what the model leaves out of this testbed"
DECIDED: dict[str, str] = {"needs data": "needs data", "quoted": "input", "fitted": "fitted"}
COLUMNS = ("row", "quantity", "unit", "published", "ours", "error", "how", "verdict", "data", "conflict", "note",
           "low", "high")  # fmt: skip


def finite(value: float | None) -> float | None:
    """The value, or None where it is None or nan."""
    return None if value is None or math.isnan(value) else float(value)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A constant that was fitted: on which testbed, what it is, its value, and the printed row it was fitted on.

    A value without a `unit` is a factor.
    """

    testbed: str
    constant: str
    value: float
    row: str
    unit: str = ""

    @property
    def amount(self) -> str:
        """Its value as printed, such as "x 1.25" or "12 ms"."""
        return f"{self.value:.3g} {self.unit}" if self.unit else f"x {self.value:.3g}"

    @property
    def remark(self) -> str:
        """What a factor of more than FAR either way says of itself; "" for others."""
        return "" if self.unit or 1 / FAR <= self.value <= FAR else FAR_FROM_ONE

    def text(self) -> str:
        """One line of the list of constants."""
        remark = f" ({self.remark})" if self.remark else ""
        return f"{self.testbed}: {self.constant} {self.amount}, fitted on {self.row}{remark}"


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
        judge: whether the relative error counts, the distance in points (a score on the paper's own graph; never
            part of a median), a printed difference of scores with our interval, only orderings do, or nothing does (an
            identity, an input, a number judged elsewhere). "bound": ours leaves out a cost that the printed number
            holds and of which nothing is printed, so that it can only be too high; its error does not count.
            "readings": the number depends on what no source prints, settings or which part a logged rank has; it is
            contradicted where the printed one lies outside of what all `readings` and ours span, and undecided within.
        readings: our values with other settings, or of other ranks; None where a reading gave no value.
        interval: half width of the 95 % confidence interval of ours.
        null: what would be predicted without a model.
        at: row and column header of its cell in the paper's own layout.
        claim: identity of a claim that the paper repeats elsewhere; it counts once.
        decided: the verdict on a difference that a study of many seeds has reached (`reports.study`).
        seeds: trainings behind a score or a difference; fewer than `ENOUGH` judge nothing. None for other numbers.
        low, high: ends of the 90 % range of a predicted time, where it was made (`reports.whole.flips`).
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
    judge: JudgedBy = "error"
    readings: tuple[float | None, ...] = ()
    interval: float | None = None
    null: Null | None = None
    at: tuple[str, str] | None = None
    claim: str = ""
    decided: Outcome | None = None
    seeds: int | None = None
    low: float | None = None
    high: float | None = None

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
    def few(self) -> bool:
        """Whether it is of scores of too few seeds to be judged."""
        return self.judge in ("points", "difference") and self.seeds is not None and self.seeds < ENOUGH

    @property
    def points(self) -> float | None:
        """Our score minus the published one, of a row judged by points; None for others and where either is missing."""
        printed, ours = finite(self.published), finite(self.ours)
        if (
            self.judge != "points"
            or self.few
            or self.how in DECIDED
            or self.conflict
            or printed is None
            or ours is None
        ):
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
        if self.decided is not None:
            return self.decided
        if printed is None:
            return "not published"
        if self.few:
            return FEW
        if self.judge == "points":
            gap = ours - printed
            return f"within {POINTS:g} point" if abs(gap) <= POINTS else f"off by {gap:+.1f} points"
        if self.judge == "difference":
            return self._level(printed, ours)
        if self.judge in ("order", "none"):
            return "order only" if self.judge == "order" else "not judged"
        if self.judge == "readings":
            low, high = self._span(ours)
            if low == high:
                return "one reading only"
            inside = low <= (printed or 0.0) <= high
            where = "within" if inside else "near" if self._read(ours) else "outside of"
            return f"{where} readings, {significant(low)} to {significant(high)}"
        error = self.error
        if self.judge == "bound" and (error is None or error <= CLOSE):
            return "a lower bound"
        text = "published 0" if error is None else f"{100 * error:+.0f} %"
        return f"within {100 * CLOSE:.0f} %" if error is not None and abs(error) <= CLOSE else f"off by {text}"

    def _level(self, printed: float, ours: float) -> Outcome:
        """Whether our interval lies within what counts as equal to the printed difference, outside, or on its edge."""
        if self.interval is None:
            return "cannot be judged"
        near, gap = max(LEVEL[0], LEVEL[1] * abs(printed)), abs(ours - printed)
        if gap + self.interval <= near:
            return "reproduced"
        return "contradicted" if gap - self.interval > near else "undecided"

    def _span(self, ours: float) -> tuple[float, float]:
        """The least and the most of all readings."""
        found = [ours, *(value for value in map(finite, self.readings) if value is not None)]
        return min(found), max(found)

    def _read(self, ours: float) -> bool:
        """Whether the printed number lies between readings, or within `CLOSE` of one end."""
        (low, high), printed = self._span(ours), finite(self.published) or 0.0
        return (1 - CLOSE) * printed <= high and low <= (1 + CLOSE) * printed

    @property
    def outcome(self) -> Outcome | None:
        """What became of the printed number as a claim; None for an input, and for what only orderings judge."""
        if self.decided is not None:
            return self.decided
        if self.how in ("fitted", "quoted") or finite(self.published) is None or self.judge in ("order", "none"):
            return None
        ours = finite(self.ours)
        if self.how in DECIDED or self.conflict or ours is None:
            return "cannot be judged"
        if self.few:
            return "undecided"
        if self.judge == "difference":
            return self._level(float(self.published or 0.0), ours)
        if self.judge == "points":
            return "reproduced" if abs(self.points or 0.0) <= POINTS else "contradicted"
        if self.judge == "readings":
            low, high = self._span(ours)
            return "cannot be judged" if low == high else "undecided" if self._read(ours) else "contradicted"
        if self.judge == "bound":
            return "contradicted" if (self.error or 0.0) > CLOSE else "cannot be judged"
        return (
            "cannot be judged" if self.error is None else "reproduced" if abs(self.error) <= CLOSE else "contradicted"
        )


UNMOVED = "the same with bandwidths, device speed and boundary nodes off by 2 either way"


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """A published ordering, and our values in that order; None or nan where there is none.

    Attributes:
        expected: labels, largest value first.
        tolerance: absolute; values less than that apart tie. With 0 nothing ties, and equal values are wrong.
        ties: what a tied pair is: "not judged" for a claim that one is ahead (other pairs decide), "right" for a claim
            that one is no worse, "demanded" for a claim that all are level: then every pair has to tie.
        each: of trained scores, in place of bands: what every seed has, in the order of `expected`; `ours` are the
            means. A pair is judged by the 95 % interval of its differences, seed by seed: all of it has to lie above
            zero for a claim that one is ahead, above -`tolerance` for one that it is no worse, within `tolerance` for
            one that both are level. Fewer than `ENOUGH` seeds judge nothing.
        floor: if no value exceeds it (the share of the majority class) nothing was learnt, and nothing is judged.
        theory: why it cannot come out otherwise: it follows from printed inputs, a fit or a formula. Not counted then.
        perturbed: whether it flips in any of the variants of the model's inputs (`reports.core.inputs`); "" where no
            value depends on them. What is right and never flips is theory too; what is wrong in all of them is wrong.
        conflict: id in `published/CONSISTENCY.md` where the paper contradicts itself; it is then not counted.
        runs: identity of the runs behind it; equal values of equal runs (a shared stand-in) count once.
        claim: identity of a claim that the paper repeats elsewhere; it counts once.
    """

    text: str
    expected: tuple[str, ...]
    ours: tuple[float | None, ...]
    tolerance: float = 0.0
    ties: Literal["right", "not judged", "demanded"] = "right"
    each: tuple[tuple[float, ...], ...] = ()
    floor: float | None = None
    theory: str = ""
    perturbed: Literal["", "flips", "never flips"] = ""
    conflict: str = ""
    runs: str = ""
    claim: str = ""

    @classmethod
    def of_seeds(cls, text: str, expected: tuple[str, ...], each: Sequence[Sequence[float]], **more: Any) -> Ordering:
        """A claim that each label is ahead of the next, of values that every seed has (`each`, by label)."""
        means = tuple(statistics.fmean(values) if values else None for values in each)
        there = tuple(tuple(values) for values in each if values)
        return cls(text=text, expected=expected, ours=means, each=there, **{"ties": "not judged", **more})

    @property
    def verdict(self) -> Literal["right", "wrong", "undecided", "not judged", "not enough runs"]:
        """Judged on the values present; "not judged" with fewer than two, or where `ties` or `floor` leave no pair.

        "undecided" where an interval holds both, "not enough runs" where there are too few seeds for one.
        """
        if self.each and min(map(len, self.each)) < ENOUGH:
            return FEW
        there = [value for value in map(finite, self.ours) if value is not None]
        if self.floor is not None and all(value <= self.floor for value in there):
            return "not judged"
        if len(self.each) > 1:
            return self._by_seeds()
        gaps = [first - later for at, first in enumerate(there) for later in there[at + 1 :]]
        if self.ties == "not judged" and self.tolerance:
            gaps = [gap for gap in gaps if abs(gap) >= self.tolerance]
        if not gaps:
            return "not judged"
        return "right" if all(self._holds(gap) for gap in gaps) else "wrong"

    def _by_seeds(self) -> Literal["right", "wrong", "undecided"]:
        pairs = [(first, later) for at, first in enumerate(self.each) for later in self.each[at + 1 :]]
        found = [self._pair([a - b for a, b in zip(*pair, strict=False)]) for pair in pairs]
        return "wrong" if "wrong" in found else "undecided" if "undecided" in found else "right"

    def _pair(self, gaps: Sequence[float]) -> Literal["right", "wrong", "undecided"]:
        """What the differences of one pair say, by their interval."""
        low, high = estimate(gaps).interval()
        if self.ties == "demanded":
            low, high = (-high, -low) if low + high < 0 else (low, high)  # either may be ahead: the mean's size counts
            return "right" if high < self.tolerance else "wrong" if low > self.tolerance else "undecided"
        least = -self.tolerance if self.ties == "right" else 0.0
        return "right" if low > least else "wrong" if high < least else "undecided"

    def _holds(self, gap: float) -> bool:
        if self.ties == "demanded":
            return abs(gap) < self.tolerance
        return gap > 0 or -gap < self.tolerance

    @property
    def implied(self) -> bool:
        """Whether it is theory: said so, or right whatever the uncertain inputs of the model are."""
        return bool(self.theory) or (self.perturbed == "never flips" and self.verdict == "right")

    @property
    def outcome(self) -> Outcome:
        """What became of the claim."""
        if self.conflict or sum(finite(value) is not None for value in self.ours) < 2:
            return "cannot be judged"
        if self.verdict == "wrong" and not self.theory:
            return "contradicted"
        if self.implied:
            return "theory"
        return "reproduced" if self.verdict == "right" else "undecided"

    @property
    def counts(self) -> bool:
        """Whether it counts in the summary: judged, based on runs, on a claim that the paper does not contradict."""
        return self.outcome in ("reproduced", "contradicted")

    def line(self) -> str:
        """The ordering with our values and the verdict."""
        values = ", ".join(
            f"{name} {significant(finite(value))}" for name, value in zip(self.expected, self.ours, strict=True)
        )
        theory = f"; theory, not counted: {self.theory or UNMOVED}" if self.implied else ""
        if self.perturbed == "never flips" and self.verdict == "wrong":
            theory = f"; {UNMOVED}"
        return f"{self.text}: {self.verdict}{theory}{contradiction(self.conflict)} ({values})"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Base of tables and figures.

    Attributes:
        key: "sylvie/table3".
        rows: printed numbers beside ours; of a figure those that its text or another table prints.
        assumptions: fitted constants with the row they came from, stand-ins, what the paper does not print.
        commands: `haloscope` commands that produce the runs behind it.
        fits: the constants that were fitted for it.
    """

    key: str
    title: str
    rows: tuple[Row, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    assumptions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    fits: tuple[Fitted, ...] = ()

    def errors(self, of_time: bool | None = None) -> list[float]:
        """Absolute relative errors of the rows whose error counts: all, or only (not) those of times."""
        rows = [row for row in self.rows if row.counts and of_time in (None, row.of_time)]
        return [abs(row.error) for row in rows if row.error is not None]

    def median_error(self, of_time: bool | None = None) -> float | None:
        """Median of `errors`; None without any."""
        errors = self.errors(of_time)
        return statistics.median(errors) if errors else None

    def skills(self) -> tuple[Skill, ...]:
        """Our median error against that of every null model, over the predicted times that have that null."""
        found = []
        for name, text in NULLS.items():
            pairs = [
                (abs(row.error), abs(null / row.published - 1))
                for row in self.rows
                if row.counts and row.of_time and row.error is not None and row.published and row.null
                and (null := getattr(row.null, name)) is not None
            ]  # fmt: skip
            if pairs:
                ours, theirs = map(statistics.median, zip(*pairs, strict=True))
                found.append(Skill(text, len(pairs), ours, theirs))
        return tuple(found)

    def outcomes(self) -> Iterator[tuple[Outcome, Row | Ordering]]:
        """Every claim of it with what became of it."""
        yield from ((row.outcome, row) for row in self.rows if row.outcome is not None)
        yield from ((ordering.outcome, ordering) for ordering in self.orderings)


@dataclass(frozen=True, kw_only=True)
class PaperTable(Judged):
    """A published table beside ours."""


@dataclass(frozen=True, kw_only=True)
class Plot(Judged):
    """A figure drawn to `paths` (png and svg), with its caption, rows and assumptions."""

    caption: str
    paths: tuple[Path, ...]


Item = PaperTable | Plot


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
