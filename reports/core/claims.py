"""What became of the claims of tables and figures: each claim once, the errors that count, one line for an item.

What a claim is and how one is judged is in `table`.
"""

from __future__ import annotations

from collections.abc import Iterable

from reports.core.table import Item, Ordering, Outcome, Row


def verdict_line(item: Item) -> str:
    """The verdict on one table or figure, in one line."""
    phrases = [f"{len(item.rows)} rows"] if item.rows else []
    for of_time, what in ((True, "times and speed-ups"), (False, "other numbers")):
        error = item.median_error(of_time)
        if error is not None:
            phrases.append(f"median error of {what} {100 * error:.1f} % over {len(item.errors(of_time))}")
    hardest = min(item.skills(), key=lambda skill: skill.theirs, default=None)
    if hardest:
        phrases.append(hardest.text())
    if item.fits:
        predicted = sum(row.counts and row.of_time for row in item.rows)
        phrases.append(f"{len(item.fits)} constants fitted to predict {predicted} times")
    right, judged = orderings_right([item])
    if judged:
        phrases.append(f"orderings right {right} of {judged}")
    return ", ".join(phrases) or "drawn"


ClaimPlace = tuple[str, Row | Ordering]
"""Where a claim stands: the key of the table or figure, and the row or ordering."""


def distinct_claims(items: Iterable[Item]) -> list[tuple[Outcome, ClaimPlace]]:
    """Every claim of the items once, in their order.

    A claim with a `claim` of its own, or orderings of equal runs and values, may stand in several places: it has the
    outcome that speaks most against it, and the place that has that outcome first.
    """
    order: tuple[Outcome, ...] = ("contradicted", "undecided", "reproduced", "theory", "cannot be judged")
    found: dict[object, tuple[Outcome, ClaimPlace]] = {}
    for item in items:
        for outcome, claim in item.outcomes():
            same = (claim.runs, claim.ours) if isinstance(claim, Ordering) and claim.runs else (item.key, id(claim))
            name = claim.claim or same
            if name not in found or order.index(outcome) < order.index(found[name][0]):
                found[name] = outcome, (item.key, claim)
    return list(found.values())


def orderings_right(items: Iterable[Item]) -> tuple[int, int]:
    """(right, judged) over the orderings of all items that count, each claim once."""
    outcomes = [outcome for outcome, (_, claim) in distinct_claims(items) if isinstance(claim, Ordering)]
    return outcomes.count("reproduced"), outcomes.count("reproduced") + outcomes.count("contradicted")


def judged_errors(items: Iterable[Item]) -> list[tuple[float, Item, Row]]:
    """(relative error, table or figure, row) of every row whose error counts, in their order.

    A number with a `claim` of its own may stand in several places: it counts once, with its largest error.
    """
    found: dict[object, tuple[float, Item, Row]] = {}
    for item in items:
        for row in item.rows:
            name = row.claim or (item.key, id(row))
            if row.counts and row.error is not None and (name not in found or abs(row.error) > abs(found[name][0])):
                found[name] = row.error, item, row
    return list(found.values())
