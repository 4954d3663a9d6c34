"""Which orderings of predicted times could have come out otherwise: the item again with each input of the model off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from harness.errors import InputError
from harness.machine import run_folder
from reports.core.context import Context
from reports.core.inputs import SET_OFF
from reports.core.table import Item, Ordering
from reports.whole.papers import Make


def with_flips(item: Item, make: Make, context: Context) -> Item:
    """The item with `Ordering.perturbed` of every ordering that can still count.

    The item is made again for each of `SET_OFF`, with the same fitted constants; a variant that the testbed cannot run
    (more boundary nodes than there are) is left out. Its figures are drawn into a folder that is removed.
    """
    open_ones = [
        ordering for ordering in item.orderings if not ordering.theory and ordering.verdict in ("right", "wrong")
    ]
    if not open_ones:
        return item
    others: list[dict[str, Ordering]] = []
    with run_folder() as folder:
        for inputs in SET_OFF:
            if all(_perturbed(ordering, _found(ordering, others)) == "flips" for ordering in open_ones):
                break  # no further variant can change a verdict
            changed = replace(context, out=folder, inputs=inputs, quiet=True, commands={}, fits={}, modelled={})
            try:
                again = make(changed)
            except InputError:
                continue
            others.append({ordering.text: ordering for ordering in again.orderings})
    judged = tuple(
        replace(
            ordering,
            perturbed=_perturbed(ordering, [found[ordering.text] for found in others if ordering.text in found]),
        )
        for ordering in item.orderings
    )
    return replace(item, orderings=judged)


def _found(ordering: Ordering, others: Sequence[Mapping[str, Ordering]]) -> list[Ordering]:
    """The same ordering of other variants."""
    return [named[ordering.text] for named in others if ordering.text in named]


def _perturbed(ordering: Ordering, others: Sequence[Ordering]) -> Literal["", "flips", "never flips"]:
    """Whether one of the others has another verdict; "" where none has other values."""
    if all(other.ours == ordering.ours for other in others):
        return ""
    return "flips" if any(other.verdict != ordering.verdict for other in others) else "never flips"
