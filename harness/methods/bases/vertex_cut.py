"""The bases of vertex-cut methods: local partial sums, totals over replicas in every layer, dense layers in between.

A method of `VertexCut` defines its layers, one of `SyncedVertexCut` only how partial sums become totals (its `sync`).
Everything after a total (the node's own term, bias, norm, activation) is computed on every replica: gradients of
replicas are partial sums too, so nothing is counted twice.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import InputError
from harness.exchanges import Leg, Memory, PlainSync, Replicas, ReplicaSum, ReplicaSync, replica_maximum
from harness.graphs import Block, Totals, VertexPart
from harness.methods.bases.base import Method
from harness.nn import (
    GNN,
    LEAKY_SLOPE,
    Aggregation,
    Conv,
    Dense,
    GATConv,
    aggregate,
    aggregate_weighted,
    at_sources,
    edge_rows,
)
from harness.rank import Rank
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class VertexState:
    """The result of `setup`: the rank's edges, the replicas of its rows, and the aggregated input."""

    block: Block
    replicas: Replicas
    layer0: str
    z0: Tensor | None  # [n, F] aggregated input with the own term, layer0 = precompute


@dataclass(frozen=True, kw_only=True)
class VertexCut(Method):
    """Layer by layer: sum over the rank's own edges, sum over replicas, then compute on all replicas.

    Options:
        layer0: exchange sums the input layer over replicas every epoch (auto); precompute sums the raw input once.
    """

    layer0: Literal["auto", "exchange", "precompute"] = "auto"

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not all(isinstance(layer, Conv) for layer in model.layers):
            raise InputError(f"{self.name} needs layers of haloscope (gcn, sage, gat)")
        if self.layer0 == "precompute" and not self._precomputes(model):
            raise InputError(
                "layer0=precompute needs a first layer that aggregates raw input: gcn or sage, aggregation first; "
                "use layer0=exchange"
            )

    def _precomputes(self, model: GNN) -> bool:
        return model.aggregation(0) is not None and (model.order == "auto" or not model.linear_first(0))

    def treats_input(self, model: GNN) -> str:
        """The resolved `layer0`."""
        return "precompute" if self.layer0 == "precompute" else "exchange"

    async def setup(self, rank: Rank, part: Any, model: GNN) -> VertexState:
        """Sum the raw input once if the input layer needs it."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        assert isinstance(part, VertexPart) and part.x is not None
        if self.layer0 == "precompute":
            model.aggregate_first([0])
        attends = any(isinstance(layer, GATConv) for layer in model.layers)
        block = part.block.with_edge_map() if attends else part.block
        replicas, z0 = Replicas.of(part), None
        layer0 = self.treats_input(model)
        if layer0 == "precompute":
            aggregation = model.aggregation(0)
            assert aggregation is not None
            partial = partial_sum(aggregation, block, part.degree, part.x)
            total = await PlainSync(replicas).total(rank, partial, Leg("x", -1, "forward"))
            z0 = _with_own(aggregation, part.degree, total, part.x)
        return VertexState(block, replicas, layer0, z0)

    def begin(self, rank: Rank, state: VertexState, memory: Memory) -> Any:
        """Per-epoch data, which is passed to `layer`."""
        return None

    @abstractmethod
    async def layer(
        self, rank: Rank, l: int, part: VertexPart, model: GNN, state: Any, plan: Any, tape: Tape, h: Tensor
    ) -> Tensor:
        """Output rows of layer l, which reads neighbours, on every replica: h [n, in] -> [n, out]."""

    async def forward(
        self, rank: Rank, part: Any, model: GNN, state: VertexState, memory: Memory, tape: Tape
    ) -> Tensor:
        assert isinstance(part, VertexPart) and part.x is not None
        plan, h = self.begin(rank, state, memory), part.x
        for l in range(model.depth):
            h = model.drop(h, part.nodes, rank.key("dropout", l, per_rank=False))
            layer = model.layers[l]
            if l == 0 and state.z0 is not None:
                z0 = model.drop(state.z0, part.nodes, rank.key("dropout/z", 0, per_rank=False))
                h = model.combine(0, h, z0, transformed=False)
            elif model.exchanges(l):
                h = await self.layer(rank, l, part, model, state, plan, tape, h)
            else:
                assert isinstance(layer, Dense)
                h = model.combine(l, h, layer.transform(h), transformed=True)
        return h


@dataclass(frozen=True, kw_only=True)
class SyncedVertexCut(VertexCut):
    """Totals of all replicas in every layer, in both directions, as the method's `sync` makes them.

    Options:
        last: full sums the last layer for all replicas in both directions; half gathers forwards and scatters
            backwards only, which is sufficient for a loss on masters.
        loop: after adds a node's self loop (GCN, attention) to the sum, on every replica; edge makes it an edge of the
            master's rank, so that it is part of the master's partial row.
    """

    last: Literal["full", "half"] = "full"
    loop: Literal["after", "edge"] = "after"

    @abstractmethod
    def sync(self, rank: Rank, state: VertexState, memory: Memory) -> ReplicaSync:
        """The synchronisation of replicas in this epoch."""

    def begin(self, rank: Rank, state: VertexState, memory: Memory) -> ReplicaSync:
        return self.sync(rank, state, memory)

    async def layer(
        self,
        rank: Rank,
        l: int,
        part: VertexPart,
        model: GNN,
        state: VertexState,
        plan: ReplicaSync,
        tape: Tape,
        h: Tensor,
    ) -> Tensor:
        if isinstance(model.layers[l], GATConv):
            return await self._attend(rank, l, part, model, state, plan, tape, h)
        return await self._convolve(l, part, model, state, plan, tape, h)

    def _sum(self, l: int, model: GNN, sync: ReplicaSync) -> ReplicaSum:
        return ReplicaSum(sync, l, half=self.halved(l, model), last=_last(l, model))

    def halved(self, l: int, model: GNN) -> bool:
        """Whether layer l is summed on masters only."""
        return self.last == "half" and _last(l, model)

    def _as_edges(self, part: VertexPart, partial: Tensor, own: Tensor) -> Tensor:
        """Partial rows with the nodes' own terms as edges of their masters' ranks, [n, d]."""
        masters = part.num_masters
        return torch.cat([partial[:masters] + own[:masters], partial[masters:]])

    async def _convolve(
        self, l: int, part: VertexPart, model: GNN, state: VertexState, sync: ReplicaSync, tape: Tape, h: Tensor
    ) -> Tensor:
        """A layer whose aggregation is linear in rows (gcn, sage)."""
        aggregation, message = model.aggregation(l), model.message(l, h)
        assert aggregation is not None
        partial = partial_sum(aggregation, state.block, part.degree, message)
        if aggregation.kind == "gcn" and self.loop == "edge":
            own = message * aggregation.scale(part.degree, message).square()
            z, h = await tape.apply(self._sum(l, model, sync), self._as_edges(part, partial, own), h)
            return model.combine(l, h, z, transformed=model.linear_first(l))
        if aggregation.kind == "gcn":
            z, message = await tape.apply(self._sum(l, model, sync), partial, message)
        else:
            z, h = await tape.apply(self._sum(l, model, sync), partial, h)
        z = _with_own(aggregation, part.degree, z, message)
        return model.combine(l, h, z, transformed=model.linear_first(l))

    async def _attend(
        self,
        rank: Rank,
        l: int,
        part: VertexPart,
        model: GNN,
        state: VertexState,
        sync: ReplicaSync,
        tape: Tape,
        h: Tensor,
    ) -> Tensor:
        """Attention: maximum and denominator of the softmax are combined exactly over replicas, before the rows.

        Rows are weighted by the final attention, so they sum over replicas as in any other layer.
        """
        layer, block, n = model.layers[l], state.block, part.num_local
        assert isinstance(layer, GATConv)
        flat = layer.transform(h)
        heads = flat.view(n, layer.heads, layer.width)
        source, target, rows = (heads * layer.source).sum(-1), (heads * layer.target).sum(-1), edge_rows(block)
        score = _leaky(at_sources(source, block) + target.index_select(0, rows))
        alone = _leaky(source + target)
        top = await self._top(rank, l, state, score.detach(), alone.detach(), rows)
        weight = (score - top.index_select(0, rows)).exp()
        alone = (alone - top).exp() * ~part.looped[:, None]  # i -> i, unless a rank has it among its edges
        partial = weight.new_zeros(n, layer.heads).index_add(0, rows, weight)
        exact = ReplicaSum(PlainSync(state.replicas), l, name="denominator")
        total, weight, alone, flat = await tape.apply(exact, partial, weight, alone, flat)
        total, heads = total + alone, flat.view(n, layer.heads, layer.width)
        mixed = aggregate_weighted(block, weight / total.index_select(0, rows), heads).flatten(1)
        own = (heads * (alone / total)[:, :, None]).flatten(1)
        if self.loop == "edge":
            (z,) = await tape.apply(self._sum(l, model, sync), self._as_edges(part, mixed, own))
        else:
            z, own = await tape.apply(self._sum(l, model, sync), mixed, own)
            z = z + own
        return model.combine(l, h, layer.pulled(z), transformed=True)

    async def _top(self, rank: Rank, l: int, state: VertexState, score: Tensor, alone: Tensor, rows: Tensor) -> Tensor:
        """The largest score of every row over all its edges and itself, [n, H]."""
        local = alone.scatter_reduce(0, rows[:, None].expand_as(score), score, "amax")
        return await replica_maximum(rank, state.replicas, local, l)


def _last(l: int, model: GNN) -> bool:
    """Whether no layer after layer l reads neighbours."""
    return not any(model.exchanges(k) for k in range(l + 1, model.depth))


def partial_sum(aggregation: Aggregation, block: Block, degree: Tensor, x: Tensor) -> Tensor:
    """This rank's share of an aggregation without the node's own term: x [n, d] -> [n, d]."""
    scale = aggregation.scale(degree, x)
    return aggregate(block, x if aggregation.kind == "mean" else x * scale).mul_(scale)


def _with_own(aggregation: Aggregation, degree: Tensor, z: Tensor, x: Tensor) -> Tensor:
    """z with the own term of a node, from its message x: GCN's self loop."""
    if aggregation.kind != "gcn":
        return z
    return torch.addcmul(z, x, aggregation.scale(degree, x).square())


def _leaky(score: Tensor) -> Tensor:
    return functional.leaky_relu(score, LEAKY_SLOPE)
