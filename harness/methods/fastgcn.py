"""FastGCN: nodes drawn from the whole graph, independently of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.exchanges import Memory
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.layer_wise import EVERY_NODE, LayerWise, Norm
from harness.methods.bases.mini_batch import BatchState, MiniBatch, total_observed
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import (
    SampledBatch,
    SampledLayer,
    SharedNodes,
    SharedTargets,
    column_norms,
    node_of,
    shared_rows,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FastGCNState(BatchState):
    """`BatchState`, and owners, degrees and probabilities of all nodes."""

    table: SharedNodes


@dataclass(frozen=True, kw_only=True)
class FastGCN(LayerWise):
    """Layer-wise importance sampling (Chen, Ma and Xiao), data-parallel over an edge cut.

    Every layer draws nodes of the whole graph, independently of the batch and of other layers, with q_u in proportion
    to |P_u|^2, and weighs column u by 1 / (nodes q_u) for every time it was drawn: the aggregation is unbiased. A
    destination with no drawn neighbour gets 0; on sparse graphs most do, and their share is recorded. The draws are the
    same on all ranks, so no node is asked for: owners send, of the drawn nodes, lists among the next layer's draws, and
    features. Where layers read their own rows (sage), drawn nodes stay sources of the layers below. Left out of the
    authors' code: candidates restricted to the batch's neighbours with probabilities of the whole graph, and a
    precomputed lower layer.

    Column norms are computed once, by the rows' owners; 20 bytes of each node lie on every rank.

    Bytes per step over P ranks: for layer l, with D_l shared destinations (what upper layers drew) and E_l entries of
    their lists among its own draw, (P - 1) (4 D_l + 8 E_l) + 8 P (P - 1); for the last layer nothing. Then, for the U
    shared input rows, (P - 1) 4 F U forward at layer 0, and the all-reduce, 8 (P - 1) (parameters + 2).

    Observed: `empty_rows`, the share of destinations without any drawn neighbour, by layer.

    In brief:
        travels: lists of shared destinations among the nodes drawn, and the drawn nodes' features, to all ranks
        bytes: a step: (P - 1) (4 D + 8 E) a layer for D destinations and E entries, (P - 1) 4 F U for U input rows, 8 P
            (P - 1) each, and 8 (P - 1) (parameters + 2)
        memory: 20 bytes of every node of the graph on each rank; the drawn rows of one batch

    Options:
        nodes: drawn for each layer. The paper's Reddit table has 400; the authors' script draws 100, from candidates
            near the batch.
        norm: square (the paper), or root: q in proportion to the norm itself, as in the authors' Reddit script.
    """

    norm: Norm = "square"

    name = "fastgcn"
    facts = Facts(
        cut="edge", exact=False, lossy=True, unbiased=True,
        exact_when={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        vanishes_with={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        paper="FastGCN, Sec. 3, compared in BNS-GCN",
    )  # fmt: skip

    async def setup(self, rank: Rank, part: Part, model: GNN) -> FastGCNState:  # type: ignore[override]
        state = await MiniBatch.setup(self, rank, part, model)
        aggregation = next(a for a in map(model.aggregation, range(model.depth)) if a is not None)
        q = await column_norms(rank, part, aggregation)
        q = q if self.norm == "square" else q.sqrt()
        return FastGCNState(**vars(state), table=await SharedNodes.of(rank, part, state.degree, q))

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: BatchState, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        assert part.x is not None and part.y is not None and isinstance(state, FastGCNState)
        targets, neighbours, table = SharedTargets.of(seeds), state.neighbours, state.table
        layers, found = list[SampledLayer | None](), list[Tensor]()
        for l in reversed(range(model.depth)):
            layer, aggregation = None, model.aggregation(l)
            if aggregation is not None:
                drawn = table.draw(rank, self.nodes, self.sampling, step, l)
                lists = await targets.lists(rank, neighbours, drawn[0], aggregation.kind == "gcn", l)
                ids, targets = targets.ids, targets.with_drawn(rank, drawn[0], model.reads_own(l), l)
                layer = table.layer(rank, aggregation, lists, ids, targets.ids, drawn, part.x, l)
            layers.append(layer)
            found.append(targets.ids)
        own = part.x.index_select(0, neighbours.local(targets.seeds).to(part.x.device))
        others = await shared_rows(rank, neighbours, targets.shared, part.x, label="x")
        x = torch.cat([own, targets.rows(others)])
        y = part.y.index_select(0, neighbours.local(seeds).to(part.y.device))
        nodes = tuple(node_of(each).to(rank.device) for each in reversed(found))
        return SampledBatch(tuple(reversed(layers)), nodes, x, y)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes that were drawn."""
        found, others = self.reduce_bytes(model, ranks), len(ranks) - 1
        pairs = len(ranks) * others * ranks[0].state.steps
        for l in [l for l in range(model.depth) if model.exchanges(l)][:-1]:
            lists = 4 * total_observed(ranks, f"shared_nodes/{l}") + 8 * total_observed(ranks, f"shared_edges/{l}")
            found["other"][l] = others * lists + 8 * pairs
        found["forward"][0] = others * 4 * model.widths[0] * total_observed(ranks, "shared_rows")
        return found
