"""Tables of all nodes of a partitioned graph, gathered on every rank before training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harness.effects import Rows
from harness.graphs import Part
from harness.nn import Aggregation, edge_rows
from harness.rank import Rank


async def gather_by_number(rank: Rank, part: Part, values: Sequence[Tensor], *, label: str) -> tuple[Tensor, ...]:
    """The owner of every node, int64 [N], and one [N] for each of `values` ([n_own], of own nodes), by the number of
    the node in the whole graph; on the host.

    All ranks call this together: one all-to-all of 8 bytes and those of the values for every node and other rank.
    """
    count, size = len(part.nodes), rank.size
    if rank.shapes_only:
        size = 1  # a model's set-up is not timed, and the tables have no content
    rows = [Rows(t.to(rank.device).repeat(size), np.full(size, count, np.int64), None) for t in (part.nodes, *values)]
    if rank.shapes_only:
        return tuple(t.tensor.new_empty(part.totals.num_nodes) for t in rows)
    received = await rank.all_to_all(rows, label=label)
    nodes, *found = (t.cpu() for t in received.tensors)
    owners = torch.from_numpy(np.repeat(np.arange(size), received.counts[0]))
    return tuple(torch.empty(part.totals.num_nodes, dtype=t.dtype).index_copy_(0, nodes, t) for t in (owners, *found))


async def column_norms(rank: Rank, part: Part, aggregation: Aggregation) -> Tensor:
    """Squared norm of the columns of own nodes in the propagation matrix, float64 [n_own].

    A column's entries are in the rows of all ranks that read the node: those of halo nodes go to their owners, 8 bytes
    each, before training.
    """
    graph, like = part.graph, part.graph.degree.new_empty(0, dtype=torch.float64)
    scale = aggregation.scale(graph.degree, like)[:, 0]
    norms = like.new_zeros(graph.num_own)
    norms.index_add_(0, graph.own.indices.long(), scale.square().index_select(0, edge_rows(graph.own)))
    halo = like.new_zeros(graph.num_halo)
    halo.index_add_(0, graph.halo.indices.long(), scale.square().index_select(0, edge_rows(graph.halo)))
    plan = part.plan
    received = await rank.all_to_all([Rows(halo, plan.recv_counts, plan.send_counts)], label="column norms")
    norms.index_add_(0, plan.send_rows, received.tensors[0])
    if aggregation.kind == "mean":
        return norms
    norms = norms + scale.square() if aggregation.kind == "gcn" else norms
    return norms * scale.square()
