"""VR-GCN: one or two sampled neighbours, and histories of all others' rows that take away their variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.mini_batch import (
    BatchState,
    MiniBatch,
    fan_outs,
    fan_outs_by_layer,
    first_layer,
    precompute_input,
    total_observed,
)
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import (
    EVERYTHING,
    SampledBatch,
    SampledLayer,
    needs_degrees,
    neighbour_weights,
    no_edges,
    node_of,
)


@dataclass(frozen=True, eq=False)
class HistoryState(BatchState):
    """`z0`: [n_own, F], aggregated input features; None where the first layer reads no neighbours."""

    z0: Tensor | None = None


@dataclass(frozen=True, eq=False)
class HistoryTerm:
    """What histories add to a layer.

    Attributes:
        whole: the layer with all neighbours. Its sources are those of the sampled layer, and then the others.
        held: [sources of `whole`, d], their histories.
    """

    whole: SampledLayer
    held: Tensor

    def estimate(self, layer: SampledLayer, rows: Tensor) -> Tensor:
        """CV: z [n, d] from the sampled layer's `rows`, less their histories, and all neighbours' histories."""
        return layer.aggregate(rows - self.held[: rows.shape[0]]) + self.whole.aggregate(self.held)

    def noise(self, layer: SampledLayer, rows: Tensor) -> Tensor:
        """CVD's first term: `rows` (their means taken away) with weights P_vu sqrt(d_v / k_v)."""
        assert layer.weight is not None
        drawn, all_ = (block.indptr.diff().to(rows.dtype) for block in (layer.block, self.whole.block))
        share = (drawn / all_.clamp(min=1)).sqrt()
        weight = layer.weight * torch.repeat_interleave(
            share, layer.block.indptr.diff().long(), output_size=layer.block.nnz
        )
        return replace(layer, weight=weight).aggregate(rows)


@dataclass(frozen=True, eq=False)
class HistoryBatch(SampledBatch):
    """A batch with histories.

    Attributes:
        terms: of every sampled layer.
        ids: of every sampled layer, addresses of its sources, on the host.
        computed: of every sampled layer, the new histories of its sources; filled in by the forward pass.
    """

    terms: Mapping[int, HistoryTerm] = field(default_factory=dict)
    ids: Mapping[int, Tensor] = field(default_factory=dict)
    computed: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VRGCN(MiniBatch):
    """Control variates for sampled neighbours (Chen, Zhu and Song), data-parallel over an edge cut.

    Every rank keeps, for its own nodes and each layer but the first, the row that last entered the layer, its history;
    zero at first. With h the rows of this batch, H histories, P the model's matrix, d_v and k_v the numbers of
    neighbours and of drawn ones: z_v = (d_v / k_v) sum over drawn u of P_vu (h_u - H_u) + sum over all u of P_vu H_u
    (CV). It is unbiased, and its variance is that of h - H, which vanishes as weights come to rest. With dropout, CVD
    splits h into its mean m (the same layers without dropout, no gradient) and the rest, and keeps histories of m:
    z_v = sqrt(d_v / k_v) sum over drawn of P_vu (h_u - m_u) + (d_v / k_v) sum over drawn of P_vu (m_u - H_u) + sum over
    all of P_vu H_u, so that dropout adds the variance of the exact layer. Gradients flow through h only, along drawn
    edges; those of CV are unbiased, those of CVD carry the root.

    The first layer is precomputed from all neighbours. After an optimizer step, every node whose row was computed gets
    it as its new history at its owner; where ranks computed the same one, the owner's row counts, else the highest
    rank's. Rows are aggregated before the linear map, whatever the model's order; attention cannot run. Memory: 4 n
    (d_1 + ... + d_(L-1)) bytes of histories over all ranks, for layers of input width d_l.

    Bytes per step over P ranks: for each layer l >= 1, lists of the T_l remote nodes, with E_l entries, 12 T_l + 8 E_l
    + 16 P (P - 1), but none for the last layer, whose nodes are own ones; histories of the H_l remote sources,
    neighbours drawn or not, (8 + 4 d_l) H_l + 8 P (P - 1), with 4 H_l more for degrees where the model is a gcn; and
    new histories of C_l remote nodes, (8 + 4 d_l) C_l + 16 P (P - 1). Then (8 + 4 F) U + 8 P (P - 1) for the U remote
    rows that enter the network, 4 F U more where the first layer reads own features beside aggregated ones; and the
    all-reduce, 8 (P - 1) (parameters + 2). Lists are fetched in every step.

    In brief:
        travels: whole lists of remote nodes, their histories, new histories to their owners, and input rows
        bytes: a step: 12 T + 8 E a layer for lists, (8 + 4 d) a history read or new, (8 + 4 F) U for input rows, 8 or
            16 P (P - 1) each, and 8 (P - 1) (parameters + 2)
        memory: 4 n d bytes of histories a layer but the first, over all ranks; the rows of one batch and all its
            neighbours
        staleness: histories are as old as the last batch that computed the node; what is returned is unbiased all the
            same

    Options:
        batch: training nodes of a rank in a step; 0 for all of them, one step an epoch. The recipes: 512.
        fanout: neighbours drawn per node and layer, as in graphsage-ns; the authors' recipes draw 1.
        estimator: cv, or cvd for dropout.
    """

    batch: int = 512
    fanout: str = "1"
    estimator: Literal["cv", "cvd"] = "cv"

    name = "vr-gcn"
    facts = Facts(
        cut="edge", exact=False, lossy=True, unbiased=True, exact_when={"fanout": "full", "batch": 0},
        vanishes_with={"fanout": "full", "batch": 0}, paper="VR-GCN, compared in BNS-GCN",
    )  # fmt: skip

    def promises(self) -> Facts:
        """The gradients of CVD are not unbiased."""
        facts = super().promises()
        if self.estimator == "cv" or facts.exact:
            return facts
        return replace(facts, unbiased=False)

    def validate(self) -> None:
        super().validate()
        fan_outs(self.name, self.fanout)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        fan_outs_by_layer(self.name, self.fanout, model)
        if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
            raise InputError("vr-gcn: histories need layers whose aggregation is linear (gcn, sage)")

    def maps_first(self, model: GNN, l: int) -> bool:
        return False

    def treats_input(self, model: GNN) -> str:
        """The input is aggregated once, unless the first layer reads no neighbours."""
        return "precompute" if model.exchanges(0) else "exchange"

    async def setup(self, rank: Rank, part: Part, model: GNN) -> HistoryState:
        state = await super().setup(rank, part, model)
        z0 = await precompute_input(rank, part, model) if model.exchanges(0) else None
        return HistoryState(**{**vars(state), "layer0": self.treats_input(model)}, z0=z0)

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        assert part.x is not None
        rows = len(part.nodes)
        return {f"h{l}": part.x.new_zeros(rows, model.widths[l]) for l in sampled_in(model)}

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> HistoryBatch:
        assert part.x is not None and part.y is not None
        fanouts, neighbours, ids = fan_outs_by_layer(self.name, self.fanout, model), state.neighbours, seeds
        layers: dict[int, SampledLayer] = {}
        terms: dict[int, HistoryTerm] = {}
        sources: dict[int, Tensor] = {}
        for l in reversed(sampled_in(model)):
            key, fanout = rank.key(f"neighbours/{step}", l, per_rank=False), fanouts[l]
            assert fanout is not None
            if ids is seeds:
                lists = neighbours.own_lists(rank, ids, EVERYTHING, key, l)
            else:
                lists = await neighbours.lists(rank, ids, EVERYTHING, key, l)
            block, new = lists.draw(rank, ids, fanout, key, l).block(rank, ids, neighbours.num_nodes, l)
            ids = torch.cat([ids, new])
            whole, others = lists.block(rank, ids, neighbours.num_nodes, l, "history_rows")
            tables = [memory[f"h{l}"], state.degree] if needs_degrees(model) else [memory[f"h{l}"]]
            held, *degree = await neighbours.fetch(rank, torch.cat([ids, others]), tables, label=f"h{l}", layer=l)
            aggregation, degrees = model.aggregation(l), degree[0] if degree else None
            assert aggregation is not None
            narrow = None if degrees is None else degrees[: len(ids)]
            layers[l] = SampledLayer(block, *neighbour_weights(aggregation, block, narrow, held))
            terms[l] = HistoryTerm(SampledLayer(whole, *neighbour_weights(aggregation, whole, degrees, held)), held)
            sources[l] = ids
        x, z0 = await self._inputs(rank, part, model, state, ids)
        y = part.y.index_select(0, neighbours.local(seeds).to(part.y.device))
        nodes = node_of(ids).to(rank.device)
        entering = [len(ids)]  # rows that enter every layer
        for l in range(model.depth - 1):
            entering.append(layers[l].block.num_rows if l in layers else entering[-1])
        made = tuple(layers.get(l) for l in range(model.depth))
        return HistoryBatch(made, tuple(nodes[:count] for count in entering), x, y, z0, terms=terms, ids=sources)

    async def _inputs(
        self, rank: Rank, part: Part, model: GNN, state: HistoryState, ids: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Features and aggregated features of the nodes that enter the network."""
        assert part.x is not None
        if state.z0 is None:
            (x,) = await state.neighbours.fetch(rank, ids, [part.x], label="x")
            return x, None
        tables = [state.z0, part.x] if model.reads_own(0) else [state.z0]
        found = await state.neighbours.fetch(rank, ids, tables, label="x")
        return found[-1], found[0]

    def logits(self, rank: Rank, model: GNN, batch: SampledBatch, step: int) -> Tensor:
        """As `Batched.logits`, with histories; `computed` of the batch gets the new ones."""
        assert isinstance(batch, HistoryBatch)
        split, h = self.estimator == "cvd", batch.x
        mean = h
        for l, layer in enumerate(batch.layers):
            if l == 0 and batch.z0 is not None:
                h = first_layer(rank, model, batch, step)
                with torch.no_grad():
                    mean = model.combine(0, batch.x, batch.z0, transformed=False) if split else h
                continue
            h = model.drop(h, batch.nodes[l], rank.key(f"dropout/{step}", l, per_rank=False))
            if layer is None:
                h = model.update(l, no_edges(h), h, h, h[:0])
                with torch.no_grad():
                    mean = model.update(l, no_edges(mean), mean, mean, mean[:0]) if split else h
                continue
            term, count = batch.terms[l], layer.block.num_rows
            batch.computed[l] = (mean if split else h).detach()
            if not split:
                h = model.combine(l, h[:count], term.estimate(layer, h), transformed=False)
                continue
            with torch.no_grad():
                z = term.estimate(layer, mean)
            h = model.combine(l, h[:count], z + term.noise(layer, h - mean), transformed=False)
            with torch.no_grad():
                mean = model.combine(l, mean[:count], z, transformed=False)
        return h

    async def after_step(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, batch: SampledBatch
    ) -> None:
        """Send every computed row to its owner as the node's new history."""
        assert isinstance(batch, HistoryBatch)
        for l in sampled_in(model):
            table = memory[f"h{l}"]
            rows = batch.computed.get(l, table[:0])
            await state.neighbours.store(rank, batch.ids[l], rows, table, label=f"new h{l}", layer=l)

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """As `Batched.epoch`; histories are written in a copy, because the memory's tensors may be shared."""
        held = {name: table.clone() for name, table in memory.items()}
        loss = await super().epoch(rank, part, model, state, held, optimizer)
        memory.update(held)
        return loss

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes and entries that were drawn."""
        found, pairs = self.reduce_bytes(model, ranks), len(ranks) * (len(ranks) - 1) * ranks[0].state.steps
        layers, degrees = sampled_in(model), 4 * needs_degrees(model)
        for l in layers:
            row = 8 + 4 * model.widths[l]
            found["forward"][l] = (row + degrees) * total_observed(ranks, f"remote_h{l}/{l}") + 8 * pairs
            found["other"][l] = row * total_observed(ranks, f"remote_new h{l}/{l}") + 16 * pairs
            if l != layers[-1]:
                lists = 12 * total_observed(ranks, f"remote_nodes/{l}") + 8 * total_observed(ranks, f"remote_edges/{l}")
                found["other"][l] += lists + 16 * pairs
        rows = 2 if ranks[0].state.z0 is not None and model.reads_own(0) else 1
        found["forward"][0] = (8 + 4 * model.widths[0] * rows) * total_observed(ranks, "remote_x/0") + 8 * pairs
        return found


def sampled_in(model: GNN) -> list[int]:
    """The layers that draw neighbours: all that read any but the first layer, which is precomputed."""
    return [l for l in range(1, model.depth) if model.exchanges(l)]
