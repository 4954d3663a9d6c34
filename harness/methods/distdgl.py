"""DistDGL: neighbour sampling, training nodes dealt out evenly, and the messages of its graph and feature servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from harness.effects import Rows
from harness.exchanges import Memory
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.mini_batch import BatchState, announce, fan_outs_by_layer, total_observed
from harness.methods.graphsage_ns import GraphSAGENS
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import EdgeNeighbours, Neighbours, SampledBatch, draw_hops, needs_degrees, sampled_layers


@dataclass(frozen=True, kw_only=True)
class DistDGL(GraphSAGENS):
    """Neighbour sampling as DistDGL distributes it (dmlc/dgl, examples/distributed), with which EC-Graph compares.

    Ids of training nodes, those of a part one after the other, are dealt out to the trainers in equal shares, so that a
    trainer has mostly, not only, its own. Hop by hop from the seeds, owners draw up to a fan-out of the in-neighbours
    of the nodes they are asked for, without replacement, and return edges; then features of the distinct input nodes
    and labels of the seeds are fetched. Nothing is kept between batches but weights and optimizer. Gradients are those
    of the loss summed over all trainers' batches, divided by the number of their nodes, where DistDGL takes the mean of
    the trainers' means. Sampling is in the foreground, as with its default of no sampling processes.

    The mean is over sampled neighbours. A gcn, which the example does not have and EC-Graph's tables use, normalises by
    the degrees of the sample, min(degree, fan-out) for either end of an edge, as ec-graph-s does; its aggregation is
    not unbiased then.

    Bytes per step over P ranks: for layer l, with T_l remote nodes asked for and E_l edges received, 8 T_l + 24 E_l +
    16 P (P - 1); (8 + 4 F) U + 8 P (P - 1) for the U remote input rows, forward at layer 0, with 4 U more for degrees
    where the model is a gcn; 8 P (P - 1) for the labels, and 16 a remote seed (8 + 4 classes where a node has several
    labels); and the all-reduce, 8 (P - 1) (parameters + 2).

    In brief:
        travels: edges of remote nodes hop by hop, features of remote input nodes, labels of remote training nodes
        bytes: a step: 8 T + 24 E a layer for T remote nodes and E edges, (8 + 4 F) U for U remote input rows, 16 a
            remote training node, 8 or 16 P (P - 1) each, and 8 (P - 1) (parameters + 2)
        memory: the rows of one batch and its neighbourhoods

    Options:
        batch: training nodes of a rank in a step; 0 for all of them, one step an epoch. The example: 1000.
        fanout: neighbours drawn per node, the seeds' own first, with slashes between; one number for every layer, full
            for all neighbours. DistDGL's flag has the input layer first: its example's 10,25 is 25/10 here.
    """

    name = "distdgl"
    facts = Facts(
        cut="edge", exact=False, lossy=True, unbiased=True, exact_when={"fanout": "full", "batch": 0},
        paper="DistDGL, compared in EC-Graph",
    )  # fmt: skip

    def neighbours(self, part: Part) -> Neighbours:
        return EdgeNeighbours.of(part)

    async def deal(self, rank: Rank, part: Part, neighbours: Neighbours) -> Tensor:
        """This trainer's share of all training nodes, in the order of ranks and of local rows."""
        counts = await announce(rank, len(part.train), label="training nodes of parts")
        ends = np.cumsum(counts)
        shares = int(ends[-1]) * np.arange(rank.size + 1) // rank.size
        overlap = np.minimum(ends[:, None], shares[None, 1:]) - np.maximum((ends - counts)[:, None], shares[None, :-1])
        overlap = np.maximum(overlap, 0)  # [part, trainer]
        mine = Rows(neighbours.own(part.train).to(rank.device), overlap[rank.index], overlap[:, rank.index])
        received = await rank.all_to_all([mine], label="training nodes")
        dealt: Tensor = received.tensors[0]
        return dealt if dealt.is_meta else dealt.cpu()

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: BatchState, memory: Memory, seeds: Tensor, step: int
    ) -> SampledBatch:
        assert part.x is not None and part.y is not None
        fanouts, neighbours = fan_outs_by_layer(self.name, self.fanout, model), state.neighbours
        hops = await draw_hops(rank, neighbours, fanouts, seeds, step)
        tables = [part.x, state.degree] if needs_degrees(model) else [part.x]
        x, *degree = await neighbours.fetch(rank, hops.ids[0], tables, label="x")
        (y,) = await neighbours.fetch(rank, seeds, [part.y], label="labels", direction="other", layer=-1)
        layers = sampled_layers(model, hops, degree[0] if degree else None, x, limits=fanouts)
        return SampledBatch(layers, hops.nodes(rank.device), x, y)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes and edges that were drawn."""
        found, pairs = self.reduce_bytes(model, ranks), len(ranks) * (len(ranks) - 1) * ranks[0].state.steps
        for l in (l for l in range(model.depth) if model.exchanges(l)):
            edges = 24 * total_observed(ranks, f"remote_edges/{l}")
            found["other"][l] = 8 * total_observed(ranks, f"remote_nodes/{l}") + edges + 16 * pairs
        row = 8 + 4 * model.widths[0] + 4 * needs_degrees(model)
        found["forward"][0] = row * total_observed(ranks, "remote_x/0") + 8 * pairs
        labels = ranks[0].part.y
        row = 8 + labels.element_size() * (labels.shape[1] if labels.ndim == 2 else 1)
        found["other"][-1] = row * total_observed(ranks, "remote_labels") + 8 * pairs
        return found
