"""GraphSAGE's neighbour sampling, data-parallel over an edge cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from harness.exchanges import Memory
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.mini_batch import BatchState, MiniBatch, fan_outs, fan_outs_by_layer, total_observed
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import SampledBatch, draw_hops, needs_degrees, sampled_layers


@dataclass(frozen=True, kw_only=True)
class GraphSAGENS(MiniBatch):
    """Mini-batches over sampled neighbours (Hamilton, Ying and Leskovec), on one rank or over the parts of a graph.

    From the batch downwards, every node that a layer computes draws k = min(degree, fan-out) of its neighbours,
    uniformly without replacement, anew in every layer and step. A sampled neighbour weighs P_vu d_v / k_v, with P the
    model's matrix and full degrees d, so the aggregation is unbiased, and exact where the fan-out is no less than the
    degree; the self loop of a gcn is always there. What a node draws depends on (seed, epoch, step, layer, node), not
    on the partition. The authors' code draws from lists that were cut or padded to 128 entries once; this one from the
    real lists. Attention is normalised over the sample, which is biased. The layers are the model's: the code's
    concatenation, normalised embedding and clipped gradients are left out.

    An epoch trains every training node once, each rank its own in random order; a short last batch is kept, and a rank
    that is through takes part with empty batches. Memory: 8 bytes an edge for the lists, beside the part.

    The seeds' lists and all input rows of own nodes are local; other lists are drawn by their owners, hop by hop, and
    features of remote nodes are fetched in every step, without a cache.

    Bytes per step over P ranks: for layer l, with T_l remote nodes asked for and E_l entries received, 12 T_l + 8 E_l +
    16 P (P - 1); for the last layer nothing, its nodes are own ones. Then (8 + 4 F) U + 8 P (P - 1) for the U remote
    input rows, forward at layer 0, with 4 U more for degrees where the model is a gcn; and the all-reduce, 8 (P - 1)
    (parameters + 2).

    In brief:
        travels: sampled lists of remote nodes hop by hop, and features of remote input nodes
        bytes: a step: 12 T + 8 E a layer for T remote nodes and E entries, (8 + 4 F) U for U remote input rows, 8 or 16
            P (P - 1) each, and 8 (P - 1) (parameters + 2)
        memory: the rows of one batch and its neighbourhoods

    Options:
        batch: training nodes of a rank in a step; 0 for all of them, one step an epoch. GraphSAGE: 512.
        fanout: neighbours drawn per node, the seeds' own first, with slashes between; one number for every layer, full
            for all neighbours. GraphSAGE: 10/25; PyG's products script: 15/10/5 with batches of 1024.
    """

    fanout: str = "5"

    name = "graphsage-ns"
    facts = Facts(
        cut="edge", exact=False, lossy=True, unbiased=True, exact_when={"fanout": "full", "batch": 0},
        paper="GraphSAGE, Alg. 2, compared in all five papers",
    )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        fan_outs(self.name, self.fanout)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        fan_outs_by_layer(self.name, self.fanout, model)

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: BatchState, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        assert part.x is not None and part.y is not None
        fanouts, neighbours = fan_outs_by_layer(self.name, self.fanout, model), state.neighbours
        hops = await draw_hops(rank, neighbours, fanouts, seeds, step, own_seeds=True)
        tables = [part.x, state.degree] if needs_degrees(model) else [part.x]
        x, *degree = await neighbours.fetch(rank, hops.ids[0], tables, label="x")
        layers = sampled_layers(model, hops, degree[0] if degree else None, x)
        y = part.y.index_select(0, neighbours.local(seeds).to(part.y.device))
        return SampledBatch(layers, hops.nodes(rank.device), x, y)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes and entries that were drawn."""
        found, pairs = self.reduce_bytes(model, ranks), len(ranks) * (len(ranks) - 1) * ranks[0].state.steps

        for l in [l for l in range(model.depth) if model.exchanges(l)][:-1]:
            found["other"][l] = 12 * total_observed(ranks, f"remote_nodes/{l}") + 8 * total_observed(
                ranks, f"remote_edges/{l}"
            )
            found["other"][l] += 16 * pairs
        row = 8 + 4 * model.widths[0] + 4 * needs_degrees(model)
        found["forward"][0] = row * total_observed(ranks, "remote_x/0") + 8 * pairs
        return found
