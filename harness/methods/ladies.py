"""LADIES: nodes drawn among the neighbours of a layer's destinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from harness.exchanges import Memory
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.layer_wise import EVERY_NODE, LayerWise, LayerWiseState, Norm, draw_near
from harness.methods.bases.mini_batch import BatchState
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import MatrixRows, Normalise, SampledBatch


@dataclass(frozen=True, kw_only=True)
class LADIES(LayerWise):
    """Layer-dependent importance sampling (Zou et al.), data-parallel over an edge cut.

    From the batch downwards, every layer draws nodes among the neighbours of its destinations S, with q_u in proportion
    to |P_{S,u}|^2, and weighs column u by 1 / (nodes q_u) for every time it was drawn; every row is then scaled to the
    sum that it has with all neighbours (1 for a mean). The drawn nodes are the destinations of the layer below. With
    `normalise=none` the aggregation is unbiased; the division has a bias that falls with the number of draws, and less
    variance. Where layers read their own rows (sage), destinations stay sources too, and are in the neighbour sum only
    if drawn. Every rank draws for its own batch. Left out of the authors' code: the batch that joins every layer's
    sample, epochs of 10 batches, and validation on one sampled batch.

    Probabilities need the whole rows of P: the seeds' lists are local, those of other destinations come from their
    owners. A gcn weighs columns by degrees of all nodes, which every rank gathers once (12 bytes a node and rank).

    Bytes per step over P ranks: for layer l, with T_l remote destinations and E_l entries of their lists, 12 T_l +
    8 E_l + 16 P (P - 1); for the last layer nothing. Then, for the U remote input rows, (8 + 4 F) U + 8 P (P - 1)
    forward at layer 0, and the all-reduce, 8 (P - 1) (parameters + 2).

    Observed: `empty_rows`, the share of destinations without any drawn neighbour, by layer.

    In brief:
        travels: whole lists of remote destinations, and the drawn nodes' features
        bytes: a step: 12 T + 8 E a layer for T remote destinations and E entries, (8 + 4 F) U for U remote input rows,
            8 or 16 P (P - 1) each, and 8 (P - 1) (parameters + 2)
        memory: the drawn rows of one batch; of a gcn, 12 bytes of every node of the graph

    Options:
        nodes: drawn for each layer on each rank. The authors' code has 64, tables in papers 512.
        norm: square (the paper), or root: q in proportion to the norm itself, which has the least variance for rows of
            equal norm.
        normalise: rows (the paper) or none.
    """

    norm: Norm = "square"
    normalise: Normalise = "rows"

    name = "ladies"
    facts = Facts(
        cut="edge", exact=False, lossy=True,
        exact_when={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        vanishes_with={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        paper="LADIES, Alg. 1, compared in BNS-GCN",
    )  # fmt: skip

    def promises(self) -> Facts:
        facts = super().promises()
        return replace(facts, unbiased=facts.unbiased and self.normalise == "none")

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: BatchState, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        async def choose(rows: MatrixRows, l: int) -> tuple[Tensor, Tensor]:
            q = rows.squares() if self.norm == "square" else rows.squares().sqrt()
            return rows.draw(rank, q, self.nodes, self.sampling, rank.key(f"columns/{step}", l), l)

        assert isinstance(state, LayerWiseState)
        return await draw_near(rank, part, model, state, seeds, choose, self.normalise)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes that were drawn."""
        return self.list_bytes(model, ranks)
