"""How far predicted times, and their orderings, depend on uncertain inputs: the item again with each of them off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from harness.errors import InputError
from harness.machine import run_folder
from reports.core.context import Context
from reports.core.inputs import FACTOR, SET_OFF, Inputs
from reports.core.table import Item, Ordering, Row, finite
from reports.whole.papers import Make

RANGES = (
    f"Ranges in brackets hold 90 %: bandwidths, device speed and boundary nodes are each off by {FACTOR:g} either way, "
    "the range of assumed numbers, and fitted constants are as fitted"
)


def with_flips(item: Item, make: Make, context: Context) -> Item:
    """The item with `Ordering.perturbed` of every ordering that can still count, and the ranges of predicted times.

    The item is made again for each of `SET_OFF`, with the same fitted constants; a variant that the testbed cannot run
    (more boundary nodes than there are) is left out. Its figures are drawn into a folder that is removed.
    """
    open_ones = [o for o in item.orderings if not o.theory and o.verdict in ("right", "wrong")]
    predicted = any(_is_predicted(row) for row in item.rows)
    if not open_ones and not predicted:
        return item
    others: list[dict[str, Ordering]] = []
    rows: dict[Inputs, dict[tuple[str, ...], float | None]] = {}
    with run_folder() as folder:
        for inputs in SET_OFF:
            flipped = all(_perturbed(ordering, _found(ordering, others)) == "flips" for ordering in open_ones)
            if flipped and not predicted:
                break  # no further variant can change a verdict
            changed = replace(context, out=folder, inputs=inputs, quiet=True, commands={}, fits={}, modelled={})
            try:
                again = make(changed)
            except InputError:
                continue
            others.append({ordering.text: ordering for ordering in again.orderings})
            rows[inputs] = {_key(row): finite(row.ours) for row in again.rows}
    judged = tuple(
        replace(
            ordering,
            perturbed=_perturbed(ordering, [found[ordering.text] for found in others if ordering.text in found]),
        )
        for ordering in item.orderings
    )
    ranged = tuple(_with_range(row, rows) for row in item.rows)
    said = (RANGES,) if ranged != item.rows else ()
    return replace(item, orderings=judged, rows=ranged, assumptions=(*item.assumptions, *said))


def _is_predicted(row: Row) -> bool:
    return row.how == "simulated" and row.of_time and finite(row.ours) is not None


def _key(row: Row) -> tuple[str, ...]:
    return row.label, row.quantity, row.unit, *(row.at or ())


def _with_range(row: Row, variants: Mapping[Inputs, Mapping[tuple[str, ...], float | None]]) -> Row:
    """The row with its range; unchanged where it is no predicted time or does not depend on the inputs.

    Factors on the row, one input off at a time, are independent: the squares of their logarithms add up.
    """
    ours = finite(row.ours)
    if not _is_predicted(row) or not ours or ours < 0:
        return row
    up: dict[str, float] = {}
    down: dict[str, float] = {}
    for inputs, values in variants.items():
        other = values.get(_key(row))
        if other is not None and other > 0:
            change = math.log(other / ours)
            up[inputs.which] = max(up.get(inputs.which, 0.0), change)
            down[inputs.which] = min(down.get(inputs.which, 0.0), change)
    low, high = (ours * math.exp(sign * math.hypot(*side.values())) for sign, side in ((-1, down), (1, up)))
    return row if low == high else replace(row, low=low, high=high)


def _found(ordering: Ordering, others: Sequence[Mapping[str, Ordering]]) -> list[Ordering]:
    """The same ordering of other variants."""
    return [named[ordering.text] for named in others if ordering.text in named]


def _perturbed(ordering: Ordering, others: Sequence[Ordering]) -> Literal["", "flips", "never flips"]:
    """Whether one of the others has another verdict; "" where none has other values."""
    if all(other.ours == ordering.ours for other in others):
        return ""
    return "flips" if any(other.verdict != ordering.verdict for other in others) else "never flips"
