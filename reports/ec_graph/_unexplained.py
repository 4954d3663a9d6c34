"""What EC-Graph's epochs of ogbn-papers100M lack, and the costs paid once an epoch that other rows exclude."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.core.table import Row
from reports.ec_graph._times import DATASETS, LAYERS, PARTS, gcn, timed_counts

LARGEST = "ogbn-papers100m"
SYSTEMS = ("EC-Graph", "EC-Graph-S")
FAR = 1.15
"""A row contradicts a cost that would make it longer than printed by this factor."""

Amount = Callable[[Mapping[str, Any]], float]
COSTS: dict[str, Amount] = {
    "per own node": lambda c: c["vertices"],
    "per edge": lambda c: c["edges"],
    "per feature of own nodes": lambda c: c["vertices"] * c["features"],
    "per edge and feature": lambda c: c["edges"] * c["features"],
    "per class of own nodes": lambda c: c["vertices"] * c["classes"],
    "per class of training nodes (the gradient of the loss, a loop in Python in python/ecgraph/BackWard.py, which "
    "their program leaves out of `epoch_iter_time`)": lambda c: c["train"] * c["classes"],
    "per parameter": lambda c: PARTS * c["hidden"] * (c["features"] + c["classes"]),
}
"""Costs of an epoch that do not depend on depth, and their amount on all machines. A rate in seconds is fitted on
ogbn-papers100M, so that only proportions matter."""
WITHOUT_EDGES = tuple(COSTS)[-2:]
"""Costs that a sample of edges and of the nodes that they reach leaves as they are: EC-Graph-S has them too."""


def unexplained(rows: Sequence[Row]) -> tuple[str, ...]:
    """A sentence on what is missing, and on each cost that some row excludes."""
    found = {row.label: row for row in rows if row.ours is not None and row.published is not None}
    label = f"{DATASETS[LARGEST]}, {LAYERS[0]} layers, {SYSTEMS[0]}"
    if label not in found:
        return ()
    missing = _missing(found[label])
    deeper = [f"{DATASETS[LARGEST]}, {layers} layers, {SYSTEMS[0]}" for layers in LAYERS[1:]]
    more = ", ".join(f"{_missing(found[name]):.3g}" for name in deeper if name in found)
    sentences = [
        f"{label}: {missing:.3g} s of the printed epoch have no price ({more} s with more layers), so that they are "
        "paid once an epoch. A cost at a rate that closes this gap would make another row too long: "
        + "; ".join(_contradiction(found, missing, name) for name in COSTS)
    ]
    return tuple(sentences)


def _missing(row: Row) -> float:
    return (row.published or 0.0) - (row.ours or 0.0)


def in_numbers(dataset: str) -> dict[str, Any]:
    """What the costs are in proportion to."""
    return {**timed_counts(dataset), "hidden": gcn(dataset, LAYERS[0])["hidden"]}


def _contradiction(found: Mapping[str, Row], missing: float, cost: str) -> str:
    """The row of two layers that a cost makes too long by the largest factor."""
    amount = COSTS[cost]
    rate, worst, said = missing / amount(in_numbers(LARGEST)), FAR, "no row speaks against it"
    for dataset, name in DATASETS.items():
        for system in SYSTEMS if cost in WITHOUT_EDGES else SYSTEMS[:1]:
            row = found.get(f"{name}, {LAYERS[0]} layers, {system}")
            if row is None or row.ours is None or not row.published:
                continue
            added = rate * amount(in_numbers(dataset))
            if (row.ours + added) / row.published > worst:
                worst = (row.ours + added) / row.published
                said = f"{added:.2g} s more in {name}, {system} (printed {row.published:.3g} s, ours {row.ours:.2g} s)"
    return f"{cost}, {said}"
