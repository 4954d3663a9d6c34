"""What methods share that draw one set of nodes for all destinations of a layer: FastGCN, LADIES, AS-GCN."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from harness.errors import InputError
from harness.graphs import Part, Totals
from harness.kernels.importance import Draw
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.mini_batch import BatchState, MiniBatch, total_observed
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import (
    EVERYTHING,
    MatrixRows,
    Normalise,
    SampledBatch,
    SampledLayer,
    gather_by_number,
    needs_degrees,
    node_of,
)

Norm = Literal["square", "root"]
EVERY_NODE = 10**9
"""More nodes than any graph here has: all candidates are drawn, if draws are without replacement."""


@dataclass(frozen=True, eq=False)
class LayerWiseState(BatchState):
    """`BatchState`, and what weighs columns.

    Attributes:
        degrees: int32 [N] in-degrees of all nodes by number, on the host; None where the model's layers do not weigh
            neighbours by them.
    """

    degrees: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class LayerWise(MiniBatch):
    """Base of the methods that draw nodes for a whole layer, by importance.

    A drawn node u weighs P_vu times a factor in every row v, P the model's matrix with full degrees, such that the sum
    over drawn nodes is unbiased for all draws but `authors`. The self loop of a gcn is a column like others.

    Options:
        nodes: drawn for each layer, on each rank.
        sampling: replace (independent draws), poisson (every node alone, so many in the mean), ordered (without
            replacement, with the weights of Des Raj), authors (without replacement, weighted as if with; biased).
    """

    batch: int = 512
    nodes: int = 512
    sampling: Draw = "replace"

    def validate(self) -> None:
        super().validate()
        if self.nodes < 1:
            raise InputError(f"{self.name}: nodes must be 1 or more, not {self.nodes}")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
            raise InputError(f"{self.name} samples sums over neighbours, which attention has not: use gcn or sage")

    def promises(self) -> Facts:
        """Draws of the authors' code are biased."""
        facts = super().promises()
        return facts if facts.exact else replace(facts, unbiased=self.sampling != "authors")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> LayerWiseState:
        state, degrees = await super().setup(rank, part, model), None
        if needs_degrees(model):
            _, degrees = await gather_by_number(rank, part, [state.degree], label="degrees")
        return LayerWiseState(**vars(state), degrees=degrees)

    def list_bytes(self, model: GNN, ranks: Sequence[Seen]) -> WireBytes:
        """Bytes of an epoch in which every layer but the last asks owners for whole lists, and the input for rows."""
        found, pairs = self.reduce_bytes(model, ranks), len(ranks) * (len(ranks) - 1) * ranks[0].state.steps
        for l in [l for l in range(model.depth) if model.exchanges(l)][:-1]:
            lists = 12 * total_observed(ranks, f"remote_nodes/{l}") + 8 * total_observed(ranks, f"remote_edges/{l}")
            found["other"][l] = lists + 16 * pairs
        found["forward"][0] = (8 + 4 * model.widths[0]) * total_observed(ranks, "remote_x/0") + 8 * pairs
        return found


Choice = Callable[[MatrixRows, int], Awaitable[tuple[Tensor, Tensor]]]
"""Rows of a layer, and its number -> positions of the drawn columns and their factors."""


async def draw_near(
    rank: Rank, part: Part, model: GNN, state: LayerWiseState, seeds: Tensor, choose: Choice, normalise: Normalise
) -> SampledBatch:
    """The layers of a batch, from the last down: each draws among the neighbours of its destinations.

    What is drawn, and the destinations themselves where the layer reads their rows, are the destinations of the layer
    below. All ranks call this together.
    """
    assert part.x is not None and part.y is not None
    neighbours, ids = state.neighbours, seeds
    layers, entering = list[SampledLayer | None](), list[Tensor]()
    for l in reversed(range(model.depth)):
        layer, aggregation = None, model.aggregation(l)
        if aggregation is not None:
            if ids is seeds:
                lists = neighbours.own_lists(rank, ids, EVERYTHING, 0, l)
            else:
                lists = await neighbours.lists(rank, ids, EVERYTHING, 0, l)
            rows = MatrixRows.of(rank, aggregation, lists, ids, neighbours.num_nodes, state.degrees, part.x, l)
            places, factors = await choose(rows, l)
            layer, ids = rows.keep(rank, places, factors, l, keeps_own=model.reads_own(l), normalise=normalise)
        layers.append(layer)
        entering.append(ids)
    (x,) = await neighbours.fetch(rank, ids, [part.x], label="x")
    y = part.y.index_select(0, neighbours.local(seeds).to(part.y.device))
    nodes = tuple(node_of(each).to(rank.device) for each in reversed(entering))
    return SampledBatch(tuple(reversed(layers)), nodes, x, y)
