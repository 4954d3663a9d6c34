"""GraphSAINT: batches are sampled subgraphs, weighed so that aggregation and loss are unbiased."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Block, Part, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.self_weighted import refuse_attention
from harness.methods.bases.subgraph_batches import OwnPartState, SubgraphBatches, global_ids, uniform_layers
from harness.nn import GNN
from harness.rank import Rank, random_key
from harness.sampling import (
    Induced,
    SaintKind,
    SampledBatch,
    SampledLayer,
    SubgraphSampler,
    neighbour_weights,
    pre_sample,
)

REDDIT: dict[SaintKind, int] = {"node": 8000, "edge": 6000, "rw": 2000, "mrw": 8000}
"""Sizes in the authors' configurations for Reddit."""


@dataclass(frozen=True, eq=False)
class SaintState(OwnPartState):
    """Besides, what a subgraph takes its weights from; all on the rank's device.

    Attributes:
        own_steps: steps of an epoch in which this rank draws; it adds nothing in later ones.
        layers: by layer of the model, over all own edges; None where it reads no neighbours. Empty without norms.
        loss: [n_own], factors on the losses; None without norms.
    """

    own_steps: int
    layers: tuple[SampledLayer | None, ...]
    loss: Tensor | None


@dataclass(frozen=True, kw_only=True)
class GraphSAINT(SubgraphBatches):
    """Mini-batches on sampled subgraphs with normalisers (Zeng et al., ICLR 2020).

    Every step draws a set of a rank's own nodes and trains on the subgraph induced on them. Before training, subgraphs
    are drawn until they hold more than `coverage` times the rank's training nodes, and counted: C_v hold node v, C_vu
    edge u -> v, of N. In a batch u weighs P_vu C_v / C_vu in v's sum and the loss of v N / C_v, so that, given that v
    was drawn, its sum is that over all own neighbours in expectation, and so is the loss that over all training nodes
    that can be drawn (node and edge never draw a node without edges). P is the model's matrix by degrees of the own
    part: edges between ranks are never seen. As in the authors' code a ratio is 10^4 at most and 0.1 where both counts
    are zero, a count of zero is 0.1 in the loss, and the subgraphs that were counted are those trained on first.

    An epoch has training nodes / budget steps, rounded up, where the budget is the size of a draw as if no node were
    drawn twice; so an epoch visits fewer distinct nodes than there are. The loss that is reported is the weighted one.

    Bytes over P ranks: the all-reduce of every step, 8 (P - 1) (parameters + 2); no row travels. Memory: a weight for
    every own edge and node. Pre-sampling is part of the set-up.

    In brief:
        travels: parameters' gradients alone
        bytes: 8 (P - 1) (parameters + 2) a step
        memory: own nodes' features, a weight for every own edge and node; the rows of one subgraph

    Options:
        sampler: node (in proportion to degrees), edge (to 1/d_u + 1/d_v), rw (random walks from uniform roots) or mrw
            (a frontier whose nodes are replaced by neighbours, in proportion to degrees).
        size: nodes drawn with node and mrw, edges with edge, roots with rw, on every rank; 0 for the authors' on
            Reddit: 8000, 6000, 2000, 8000.
        depth: steps of a walk. Authors: Reddit 4, Yelp and Amazon 2; OGB's products script 3.
        frontier: nodes of mrw's frontier. Reddit and Yelp 1000, Amazon 1500.
        clip: largest degree that counts in the frontier; 0 for none. Yelp 100.
        coverage: 0 trains without normalisers, with the mean loss and the degrees of the batch, as OGB's script does.
    """

    sampler: SaintKind = "node"
    size: int = 0
    depth: int = 4
    frontier: int = 1000
    clip: int = 0
    coverage: float = 50.0

    name = "graphsaint"
    facts = Facts(
        cut="edge", exact=False, lossy=True, severed_with={"sampler": "rw", "size": 2000, "coverage": 1.0},
        paper="GraphSAINT, Alg. 1-4, compared in BNS-GCN",
    )  # fmt: skip

    def validate(self) -> None:
        if self.size < 0 or self.clip < 0 or self.depth < 1 or self.frontier < 1:
            raise InputError("graphsaint: size and clip must be 0 or more, depth and frontier 1 or more")
        if self.coverage < 0:
            raise InputError(f"graphsaint: coverage must be 0 (no normalisers) or more, not {self.coverage:g}")

    def idle(self) -> dict[str, str]:
        used = {"rw": ("depth",), "mrw": ("frontier", "clip")}.get(self.sampler, ())
        return {name: f"sampler={self.sampler}" for name in ("depth", "frontier", "clip") if name not in used}

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.coverage:
            refuse_attention("graphsaint: coverage above 0", model)

    @property
    def draws(self) -> SubgraphSampler:
        """The sampler with its sizes."""
        return SubgraphSampler(self.sampler, self.size or REDDIT[self.sampler], self.depth, self.frontier, self.clip)

    def own_steps(self, part: Part) -> int:
        return -(-len(part.train) // self.draws.budget)

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SaintState:
        state = await super().setup(rank, part, model)
        layers, loss = list[SampledLayer | None](), None
        if self.coverage:
            ratios, loss = self._normalisers(rank, part, state)
            layers = _weighted(model, part.graph.own, ratios)
        return SaintState(**vars(state), own_steps=self.own_steps(part), layers=tuple(layers), loss=loss)

    def _normalisers(self, rank: Rank, part: Part, state: OwnPartState) -> tuple[Tensor, Tensor]:
        """The factor of every own edge, [nnz], and of every own node's loss, [n_own], in the features' type."""
        assert part.x is not None
        if rank.shapes_only:
            return part.x.new_empty(state.block.nnz), part.x.new_empty(state.block.num_rows)
        indptr, indices = state.block.indptr.numpy(), state.block.indices.numpy()
        counts = pre_sample(self.draws, indptr, indices, partial(_key, rank), self.coverage * len(part.train))
        made = (counts.edge_ratios(indptr), counts.loss_weights())
        ratios, loss = (torch.from_numpy(values).to(rank.device, part.x.dtype) for values in made)
        return ratios, loss

    def batches(self, rank: Rank, state: Any) -> list[Tensor]:
        """The number of every step's subgraph, counted from the beginning of training; none in further steps."""
        first = torch.arange(state.own_steps, device=state.trains.device) + rank.epoch * state.own_steps
        mine = first.split(1)[: state.own_steps]  # an empty tensor is split into one piece
        return [*mine, *[first[:0]] * (state.steps - state.own_steps)]

    def chosen(self, rank: Rank, part: Part, state: Any, draw: Tensor) -> tuple[Tensor, int, int]:
        block, sampler = state.block, self.draws
        if not len(draw):
            return draw, 0, 0
        if not rank.shapes_only:
            return sampler.draw(block.indptr, block.indices, _key(rank, int(draw)), 0), 0, 0
        nodes = min(round(rank.rate("subgraph_nodes") * sampler.budget), block.num_rows)
        rows = sampler.draw(block.indptr, block.indices, 0, nodes)
        edges = rank.rate("subgraph_edges") * block.nnz * nodes / max(block.num_rows, 1)
        return rows, round(edges), round(rank.rate("subgraph_train") * nodes)

    def weigh(self, model: GNN, part: Part, state: Any, rows: Tensor, found: Induced, x: Tensor) -> SampledBatch:
        assert part.y is not None
        y, nodes = part.y.index_select(0, rows), global_ids(part, rows, model.depth)
        if state.loss is None:
            return SampledBatch(uniform_layers(model, found.block, None), nodes, x, y)
        layers = tuple(None if layer is None else _selected(layer, found, rows) for layer in state.layers)
        count = float(len(part.train)) if len(rows) else 0.0
        return SampledBatch(layers, nodes, x, y, weight=state.loss.index_select(0, rows), count=count)

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """A step's subgraph. Records its nodes (of the budget), edges (of the share of own edges that its share of own
        nodes would have), and training nodes (of its nodes)."""
        batch = await super().draw(rank, part, model, state, memory, seeds, step)
        count = len(batch.x)
        if count and not rank.shapes_only:
            edges = next(layer.block.nnz for layer in batch.layers if layer is not None)
            rank.observe("subgraph_nodes", count, self.draws.budget)
            rank.observe("subgraph_edges", edges, state.block.nnz * count / state.block.num_rows)
            rank.observe("subgraph_train", len(batch.y), count)
        return batch


def _key(rank: Rank, number: int) -> int:
    """The key of a subgraph by its number in training, whatever the epoch: those counted are those trained on first."""
    return random_key(rank.seed, rank.index, -1, -1, f"subgraph/{number}")


def _weighted(model: GNN, block: Block, ratios: Tensor) -> list[SampledLayer | None]:
    """The layers of all own edges: the model's matrix by the block's degrees, times the edges' factors."""
    block, degree = block.with_edge_map(), block.indptr.diff()
    made = dict[str, SampledLayer]()
    layers = list[SampledLayer | None]()
    for l in range(model.depth):
        aggregation = model.aggregation(l)
        if not model.exchanges(l) or aggregation is None:
            layers.append(None)
            continue
        if aggregation.kind not in made:
            weight, own = neighbour_weights(aggregation, block, degree, ratios)
            made[aggregation.kind] = SampledLayer(block, weight * ratios, own)
        layers.append(made[aggregation.kind])
    return layers


def _selected(layer: SampledLayer, found: Induced, rows: Tensor) -> SampledLayer:
    """The weights of a subgraph's edges and rows."""
    assert layer.weight is not None
    own = None if layer.own_weight is None else layer.own_weight.index_select(0, rows)
    return replace(layer, block=found.block, weight=layer.weight.index_select(0, found.edges), own_weight=own)
