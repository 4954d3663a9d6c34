"""Sums up a whole report: per paper the rows, the median errors, the scores and the orderings that are right.

Times and speed-ups have a median of their own, since the aim of 15 % applies to them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from reports.core.claims import distinct_claims, judged_errors, orderings_right
from reports.core.table import CLOSE, DECIDED, ENOUGH, FEW, OUTCOMES, POINTS, Item, Outcome, PaperTable, finite
from reports.whole.papers import by_paper
from reports.whole.produce import Entry

WORST = 5


def paper_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A line per paper of the report, and one for all: counts, median errors (fractions, or None), orderings."""
    done = {entry.key: entry for entry in entries}
    lines = [_line(paper.title, [done[key] for key in keys]) for paper, keys in by_paper(list(done))]
    return [*lines, _line("all", list(entries))] if len(lines) > 1 else lines


def _line(title: str, entries: Sequence[Entry]) -> dict[str, Any]:
    items = _items(entries)
    tables = [item for item in items if isinstance(item, PaperTable)]
    judged_rows = judged_errors(items)
    errors = {kind: [abs(error) for error, _, row in judged_rows if row.of_time is kind] for kind in (True, False)}
    medians = [error for table in tables if (error := table.median_error(of_time=True)) is not None]
    points = [abs(row.points) for item in items for row in item.rows if row.points is not None]
    right, judged = orderings_right(items)
    return {
        "paper": title,
        "tables": len(tables),
        "figures": len(items) - len(tables),
        "failed": sum(entry.item is None for entry in entries),
        "rows": sum(len(item.rows) for item in items),
        "judged_rows": len(errors[True]) + len(errors[False]),
        "judged_times": len(errors[True]),
        "median_error_of_times": statistics.median(errors[True]) if errors[True] else None,
        "judged_others": len(errors[False]),
        "median_error_of_others": statistics.median(errors[False]) if errors[False] else None,
        "judged_tables": len(medians),
        "close_tables": sum(error <= CLOSE for error in medians),
        "scores": len(points),
        "close_scores": sum(gap <= POINTS for gap in points),
        "orderings": judged,
        "orderings_right": right,
        "fitted_constants": len({fitted for item in items for fitted in item.fits}),
        "claims": claim_counts(entries),
    }


def claim_counts(entries: Sequence[Entry]) -> dict[Outcome, int]:
    """Outcome -> number of claims, each counted once."""
    found = Counter(outcome for outcome, _ in distinct_claims(_items(entries)))
    return {outcome: found[outcome] for outcome in OUTCOMES}


def skill_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A line per table or figure and null model: the median error of both over the same rows, and the skill."""
    return [
        {
            "table": item.key,
            "null model": skill.null,
            "times": skill.rows,
            "its median error": f"{100 * skill.theirs:.1f} %",
            "our median error": f"{100 * skill.ours:.1f} %",
            "skill": "null is exact" if skill.value is None else f"{skill.value:+.2f}",
        }
        for item in _items(entries)
        for skill in item.skills()
    ]


def fitted_constants(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A line per fitted constant, with the tables and figures that use it."""
    users: dict[Any, list[str]] = {}
    for item in _items(entries):
        for fitted in item.fits:
            users.setdefault(fitted, []).append(item.key)
    return [
        {
            "testbed": fitted.testbed,
            "constant": fitted.constant,
            "value": fitted.amount + (f" ({fitted.remark})" if fitted.remark else ""),
            "fitted on": fitted.row,
            "used by": ", ".join(keys),
        }
        for fitted, keys in users.items()
    ]


def worst_rows(entries: Sequence[Entry], count: int = WORST) -> list[dict[str, Any]]:
    """The rows with the largest errors by ratio (half and double are equally far), with their verdicts."""

    def distance(error: float) -> float:
        return max(1 + error, 1 / (1 + error)) if error > -1 else float("inf")

    ranked = sorted(judged_errors(_items(entries)), key=lambda judged: -distance(judged[0]))
    return [
        {
            "key": item.key,
            "row": row.label,
            "quantity": row.quantity,
            "unit": row.unit,
            "published": finite(row.published),
            "ours": finite(row.ours),
            "error": error,
            "note": row.note,
        }
        for error, item, row in ranked[:count]
    ]


def wrong_orderings(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """(key, line) of every ordering that differs from the published one, also of those that do not count."""
    return [(i.key, o.line()) for i in _items(entries) for o in i.orderings if o.verdict == "wrong"]


def uncounted_orderings(entries: Sequence[Entry]) -> dict[str, int]:
    """Reason -> number of orderings that do not count because of it."""
    counts: Counter[str] = Counter()
    for ordering in (ordering for item in _items(entries) for ordering in item.orderings if not ordering.counts):
        if ordering.implied:
            counts["follows from inputs, a fit or a formula"] += 1
        elif ordering.conflict:
            counts["the paper contradicts itself"] += 1
        elif ordering.verdict == FEW:
            counts[f"of fewer than {ENOUGH} seeds"] += 1
        else:
            counts["no difference, nothing learnt, or no values"] += 1
    return dict(counts.most_common())


def unjudged(entries: Sequence[Entry]) -> dict[str, int]:
    """Reason -> number of rows whose error does not count because of it."""
    rows = [row for item in _items(entries) for row in item.rows]
    counts: Counter[str] = Counter()
    for row in rows:
        if row.how in DECIDED:
            counts[DECIDED[row.how]] += 1
        elif row.conflict:
            counts["the paper contradicts itself"] += 1
        elif row.judge == "bound":
            counts["a lower bound: a cost of the printed number is left out"] += 1
        elif row.judge == "readings":
            counts["what it depends on is not printed (settings, or which part a logged rank has)"] += 1
        elif row.judge in ("order", "none"):
            counts["only orderings are judged" if row.judge == "order" else "shown, not judged"] += 1
        elif row.error is None and row.points is None:
            counts[row.verdict] += 1
    return dict(counts.most_common())


def summary(entries: Sequence[Entry]) -> dict[str, Any]:
    """Everything above, ready for JSON."""
    return {
        "papers": paper_rows(entries),
        "worst_rows": worst_rows(entries),
        "wrong_orderings": [{"key": key, "ordering": line} for key, line in wrong_orderings(entries)],
        "skill": skill_rows(entries),
        "fitted_constants": fitted_constants(entries),
        "unjudged": unjudged(entries),
        "uncounted_orderings": uncounted_orderings(entries),
        "failed": [{"key": entry.key, "reason": entry.message} for entry in entries if entry.item is None],
    }


def _items(entries: Sequence[Entry]) -> list[Item]:
    return [entry.item for entry in entries if entry.item is not None]
