"""Layers of a batch as sparse matrices with one weight per edge, and sampled neighbourhoods of several hops.

This is the one form of all sampling methods: they differ in which edges a layer has and how it weighs them. Nothing
here steps an optimizer; independent of methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.graphs import Block, LocalGraph
from harness.nn import GNN, Aggregation, aggregate_weighted, edge_rows
from harness.rank import Rank
from harness.sampling._lists import node_of
from harness.sampling._remote import Neighbours


@dataclass(frozen=True, eq=False)
class SampledLayer:
    """One layer of a batch: z = W h from the rows of its sources to those of its destinations.

    Attributes:
        block: [destinations x sources] with edge map. The destinations are the first sources, in the same order, for
            every model whose layers read their own rows (`GNN.reads_own`); otherwise they need not be.
        weight: [nnz] in the order of `block.indices`, of the rows' type; None where the layer computes its own
            (attention).
        own_weight: [destinations, 1], what a destination's own row is multiplied by; None for 0.
    """

    block: Block
    weight: Tensor | None
    own_weight: Tensor | None = None

    def aggregate(self, rows: Tensor) -> Tensor:
        """z [destinations, d] of rows [sources, d]."""
        assert self.weight is not None
        z = aggregate_weighted(self.block, self.weight, rows)
        return z if self.own_weight is None else z + self.own_weight * rows[: self.block.num_rows]

    def graph(self) -> LocalGraph:
        """The same edges without weights, for a layer that computes its own; degrees are those of the sample."""
        block, count = self.block, self.block.num_rows
        columns = torch.arange(block.num_cols, device=block.indices.device)
        own, halo = block.select_columns(columns[:count]), block.select_columns(columns[count:])
        degree = block.indptr.diff().long()
        return LocalGraph(own, halo, degree, degree.new_zeros(block.num_cols - count))


@dataclass(frozen=True, eq=False)
class SampledBatch:
    """One rank's part of one step: what `harness.methods.bases.mini_batch.MiniBatch` computes on.

    Attributes:
        layers: by layer of the model, the input's first; None where a layer reads no neighbours.
        nodes: int64, by layer, numbers in the whole graph of the nodes whose rows enter it; dropout is keyed by them.
        x: [sources of the first layer, F], their features.
        y: labels of the rows that carry loss.
        z0: [rows of the first layer, F], aggregated features where the input layer is precomputed. `layers[0]` is then
            None, and x are the features of the same nodes; any tensor of as many rows where the layer reads none.
        rows: int64, which of the last layer's rows these are; None for all.
        weight: [len(y)], factors on their losses; None for 1.
        count: what this rank adds to the number that gradients are divided by; None for len(y).
    """

    layers: tuple[SampledLayer | None, ...]
    nodes: tuple[Tensor, ...]
    x: Tensor
    y: Tensor
    z0: Tensor | None = None
    rows: Tensor | None = None
    weight: Tensor | None = None
    count: float | None = None


@dataclass(frozen=True, eq=False)
class Hops:
    """A sampled neighbourhood: every layer's destinations are the first of its sources.

    Attributes:
        blocks: by layer, the input's first; None where a layer reads no neighbours.
        ids: addresses of the rows that enter each layer, and last those of the seeds; each begins with the next.
    """

    blocks: tuple[Block | None, ...]
    ids: tuple[Tensor, ...]

    def nodes(self, device: torch.device) -> tuple[Tensor, ...]:
        """`SampledBatch.nodes`."""
        first = node_of(self.ids[0]).to(device)
        return tuple(first[: ids.shape[0]] for ids in self.ids[:-1])


def no_edges(rows: Tensor) -> LocalGraph:
    """The graph of rows without edges, for layers that read no neighbours."""
    count = rows.shape[0]
    starts = torch.zeros(count + 1, dtype=torch.int32, device=rows.device)
    none, degree = starts[:0], starts[1:].long()
    return LocalGraph(Block(starts, none, starts, none), Block(starts, none, starts[:1], none), degree, degree[:0])


async def draw_hops(
    rank: Rank,
    neighbours: Neighbours,
    fanouts: Sequence[int | None],
    seeds: Tensor,
    step: int,
    *,
    own_seeds: bool = False,
) -> Hops:
    """Every destination of every layer draws neighbours anew, uniformly without replacement, from the seeds downwards.

    `fanouts` by layer, the input's first: EVERYTHING for all neighbours, None for a layer that reads none. `seeds`:
    int64 [n] distinct addresses; with `own_seeds` they are all of this rank, on every rank, and their lists need no
    exchange. What a node draws depends on (seed, epoch, step, layer, node) alone. All ranks call this together;
    `Neighbours.lists` says what is sent and recorded.
    """
    ids, blocks, found = seeds, list[Block | None](), [seeds]
    for l in reversed(range(len(fanouts))):
        fanout, block = fanouts[l], None
        if fanout is not None:
            key = rank.key(f"neighbours/{step}", l, per_rank=False)
            if own_seeds and ids is seeds:
                lists = neighbours.own_lists(rank, ids, fanout, key, l)
            else:
                lists = await neighbours.lists(rank, ids, fanout, key, l)
            block, new = lists.block(rank, ids, neighbours.num_nodes, l)
            ids = torch.cat([ids, new])
        blocks.append(block)
        found.append(ids)
    return Hops(tuple(reversed(blocks)), tuple(reversed(found)))


def needs_degrees(model: GNN) -> bool:
    """Whether a layer weighs a neighbour by its degree, so that batches need the degrees of their sources."""
    kinds = [model.aggregation(l) for l in range(model.depth) if model.exchanges(l)]
    return any(kind is not None and kind.kind != "mean" for kind in kinds)


def neighbour_weights(
    aggregation: Aggregation, block: Block, degree: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """(weight, own weight) of a layer whose rows are uniform samples: P_vu d_v / k_v, unbiased for every v.

    P is the model's propagation matrix with the full in-degrees d (`degree`, of all sources; not needed for the mean),
    k_v the number of entries of row v. The self loop of a gcn is no neighbour, it is never drawn.
    """
    rows, taken = edge_rows(block), block.indptr.diff().to(like.dtype).clamp(min=1)
    if aggregation.kind == "mean":
        return taken.reciprocal().index_select(0, rows), None
    assert degree is not None
    scale, count = aggregation.scale(degree, like)[:, 0], block.num_rows
    stretched = scale[:count] * degree[:count].to(like.dtype) / taken
    weight = stretched.index_select(0, rows) * scale.index_select(0, block.indices)
    return weight, scale[:count].square()[:, None] if aggregation.kind == "gcn" else None


def sampled_layers(
    model: GNN, hops: Hops, degree: Tensor | None, like: Tensor, limits: Sequence[int | None] = ()
) -> tuple[SampledLayer | None, ...]:
    """The layers of a neighbourhood, weighted by `neighbour_weights`; `degree` of the first layer's sources.

    With `limits`, the fan-outs by layer, degrees are those of the sample: a node counts as many neighbours as it may
    draw, and the aggregation of a gcn is that of the sampled graph.
    """
    made = list[SampledLayer | None]()
    for l, block in enumerate(hops.blocks):
        aggregation = model.aggregation(l)
        if block is None:
            made.append(None)
        elif aggregation is None:
            made.append(SampledLayer(block, None))
        else:
            degrees = None if degree is None else degree[: block.num_cols]
            degrees = degrees.long().clamp(max=limits[l]) if degrees is not None and limits else degrees
            made.append(SampledLayer(block, *neighbour_weights(aggregation, block, degrees, like)))
    return tuple(made)
