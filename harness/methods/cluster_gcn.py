"""Cluster-GCN: batches are the subgraphs of a few METIS clusters, data-parallel over an edge cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts, Method
from harness.methods.bases.self_weighted import SelfWeighted, refuse_attention
from harness.methods.bases.subgraph_batches import OwnPartState, SubgraphBatches, global_ids, uniform_layers
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import Clusters, Induced, SampledBatch


@dataclass(frozen=True, eq=False)
class ClusterState(OwnPartState):
    """Besides: the number of the rank's clusters, and their nodes; None with shapes only."""

    count: int
    clusters: Clusters | None


@dataclass(frozen=True, kw_only=True)
class ClusterGCN(SubgraphBatches):
    """Mini-batches of clusters (Chiang et al., KDD 2019).

    METIS cuts the edges among a rank's own nodes into clusters once. An epoch takes them in random order, `batch` at a
    time, so that every cluster is in one step. A step trains on the subgraph induced on its clusters, the edges between
    them included, with the mean loss over its training nodes. Edges within a cluster are always there, others in a
    share (batch - 1) / (clusters - 1) of the epochs, and edges between ranks never: aggregation is biased by design.
    With all clusters in one batch it is full-graph training without the edges between ranks.

    A rank cuts its share of the `clusters`, by own nodes, at least one. With R ranks a step has R x `batch` clusters.
    Cutting the parts again is a hierarchical cut of the graph; one METIS call for all clusters would cut fewer edges.

    Bytes over P ranks: the all-reduce of every step, 8 (P - 1) (parameters + 2); no row travels. Memory: one int64 per
    own node for the clusters; features of own nodes only.
    Evaluation is on the whole graph, with the same normalisation by whole degrees.
    Left out: the authors' input aggregated once (`precalc`), validation on groups of clusters.

    In brief:
        travels: parameters' gradients alone
        bytes: 8 (P - 1) (parameters + 2) a step
        memory: own nodes' features and 8 bytes a node; the rows of one batch of clusters

    Options:
        clusters: of the whole graph. Reddit 1500, OGB's products 15000 (batch=32), PPI 50 (batch=1).
        batch: clusters of a rank in a step; 0 for all.
        norm: model sums as its layers do, with the degrees of the batch (PyG, OGB); enhanced is the paper's
            D^-1 (A + I) + diagonal diag(D^-1 (A + I)), D the degrees of the batch with a self loop, for gcn and sage.
        diagonal: lambda of the diagonal enhancement; -1 is D^-1 A without a self loop, as in the authors' code.
            Theirs for Reddit is 1e-4, for PPI 1.
    """

    clusters: int = 1500
    batch: int = 20
    norm: Literal["model", "enhanced"] = "model"
    diagonal: float = 1e-4

    name = "cluster-gcn"
    facts = Facts(
        cut="edge", exact=False, lossy=True, severed_with={"batch": 0, "norm": "model"},
        paper="Cluster-GCN, Alg. 1, compared in BNS-GCN and subgraph approximation",
    )  # fmt: skip

    def validate(self) -> None:
        if self.batch < 0:
            raise InputError(f"cluster-gcn: batch must be 0 (all clusters) or more, not {self.batch}")
        if self.clusters < 1:
            raise InputError(f"cluster-gcn: clusters must be 1 or more, not {self.clusters}")
        if self.diagonal < -1:
            raise InputError(f"cluster-gcn: diagonal must be -1 (no self loop) or more, not {self.diagonal:g}")

    def idle(self) -> dict[str, str]:
        return {} if self.norm == "enhanced" else {"diagonal": "norm=model"}

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.norm == "enhanced":
            refuse_attention("cluster-gcn: norm=enhanced", model)

    def exact(self) -> Method | None:
        return self._enhanced if self.norm == "enhanced" else None

    @property
    def _enhanced(self) -> SelfWeighted:
        return SelfWeighted(own=1.0 + self.diagonal, mean=True)

    def own_clusters(self, part: Part) -> int:
        """How many clusters this rank's part is cut into; METIS may leave some of them empty."""
        count = part.graph.num_own
        share = round(self.clusters * count / max(part.totals.num_nodes, 1))
        return min(max(share, 1), count)

    def own_steps(self, part: Part) -> int:
        count = self.own_clusters(part)
        return -(-count // (self.batch or max(count, 1)))

    async def setup(self, rank: Rank, part: Part, model: GNN) -> ClusterState:
        state = await super().setup(rank, part, model)
        count, clusters = self.own_clusters(part), None
        if not rank.shapes_only:
            clusters = Clusters.of(state.block, count, rank.key("clusters") % 2**31)
        return ClusterState(**vars(state), count=count, clusters=clusters)

    def batches(self, rank: Rank, state: Any) -> list[Tensor]:
        """The numbers of the clusters of every step; none at the end where other ranks have more steps."""
        order = torch.empty(state.count, dtype=torch.int64, device=state.trains.device)
        if not rank.shapes_only:
            order = torch.from_numpy(rank.generator("clusters").permutation(state.count))
        cut = list(order.split(self.batch or max(state.count, 1)))
        return cut + [order[:0]] * (state.steps - len(cut))

    def chosen(self, rank: Rank, part: Part, state: Any, draw: Tensor) -> tuple[Tensor, int, int]:
        share, entries = len(draw) / max(state.count, 1), state.block.nnz
        if state.clusters is None:
            rows = draw.new_empty(round(share * state.block.num_rows))
            edges = round(rank.rate("batch_edges") * share * entries) if len(draw) else 0
            return rows, edges, round(share * len(part.train))
        return state.clusters.union(draw.numpy()), 0, 0

    def weigh(self, model: GNN, part: Part, state: Any, rows: Tensor, found: Induced, x: Tensor) -> SampledBatch:
        weights = self._enhanced.weights(found.block, x) if self.norm == "enhanced" else (None, None)
        assert part.y is not None
        y = part.y.index_select(0, rows)
        return SampledBatch(uniform_layers(model, found.block, *weights), global_ids(part, rows, model.depth), x, y)

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        """The subgraph of a step's clusters. Records its edges, of the clusters' share of all own edges."""
        batch = await super().draw(rank, part, model, state, memory, seeds, step)
        if not rank.shapes_only and len(seeds):
            block = next(layer.block for layer in batch.layers if layer is not None)
            rank.observe("batch_edges", block.nnz, len(seeds) / state.count * state.block.nnz)
        return batch
