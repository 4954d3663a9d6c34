"""Mini-batches of a graph that is entirely on one rank: sampled neighbourhoods as graphs for the ordinary layers.

A layer of a batch is a bipartite graph: its destinations are the `own` rows, the sampled sources that are not
destinations are the `halo` rows. Nothing here communicates or steps an optimizer; independent of methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.graphs import Block, LocalGraph, Part
from harness.kernels.csr import transpose
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import Gather, declare_work
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling._neighbours import sample_neighbours
from harness.sampling._sampled import no_edges


@dataclass(frozen=True, eq=False)
class BatchGraphs:
    """The graphs and rows of one step.

    Attributes:
        graphs: per layer of the model, input layer first. Its destinations are the first `num_own` of `rows`, its
            sources the first `num_own + num_halo`. `degree` counts the sampled edges of a destination; `halo_degree`
            is the degree in the graph sampled from.
        rows: int64 [n] rows of the part whose features enter the first layer; the batch itself comes first.
    """

    graphs: tuple[LocalGraph, ...]
    rows: Tensor


@dataclass(frozen=True, eq=False)
class NeighbourSampler:
    """Draws the neighbourhoods of batches from a part without a halo.

    Attributes:
        part: the part to sample from; its index stays on the host, where the sampler runs.
        fanouts: neighbours per destination and layer, input layer first; None where a layer reads no neighbours.
        self_loops: every destination is also its own source (attention layers), besides its sampled neighbours.
    """

    part: Part
    indptr: Tensor
    indices: Tensor
    fanouts: tuple[int | None, ...]
    self_loops: bool

    @classmethod
    def of(cls, part: Part, model: GNN, fanouts: Sequence[int]) -> NeighbourSampler:
        """A sampler for the layers of `model` that read neighbours, in order; one fan-out for each."""
        left = iter(fanouts)
        per_layer = tuple(next(left) if model.exchanges(l) else None for l in range(model.depth))
        block = part.graph.own
        host = [t if t.is_meta else t.cpu() for t in (block.indptr, block.indices)]
        return cls(part, host[0], host[1], per_layer, model.self_loops)

    def sample(self, rank: Rank, batch: Tensor, step: int) -> BatchGraphs:
        """The graphs of one batch: int64 [n] distinct rows of the part, on its device; `step` numbers the epoch's.

        Records the share of edges drawn (of fan-out x destinations) and of new rows (per edge) for every layer.
        On meta tensors sizes follow the recorded shares; raises InputError where none were given.
        """
        rows, graphs = batch, list[LocalGraph]()
        for l in reversed(range(len(self.fanouts))):
            fanout = self.fanouts[l]
            graph, rows = (no_edges(rows), rows) if fanout is None else self._layer(rank, l, fanout, rows, step)
            graphs.append(graph)
        return BatchGraphs(tuple(reversed(graphs)), rows)

    def _layer(self, rank: Rank, l: int, fanout: int, rows: Tensor, step: int) -> tuple[LocalGraph, Tensor]:
        """The bipartite graph into `rows`, and `rows` with the new sources behind them."""
        expected = _expected(rank, l, fanout, rows.shape[0]) if rows.is_meta else []
        host = rows if rows.is_meta else rows.cpu()
        key = rank.key(f"neighbours/{step}", l)
        arrays = torch.ops.haloscope.sample_block(self.indices, self.indptr, host, fanout, key, expected)
        arrays = [array.to(rows.device) for array in arrays]
        own, halo, new = Block(*arrays[:4]), Block(*arrays[4:8]), arrays[8]
        if not rows.is_meta:
            edges = own.nnz + halo.nnz
            rank.observe("sampled_edges", edges, fanout * rows.shape[0], l)
            rank.observe("sampled_rows", new.shape[0], edges, l)
        degree = (own.indptr.diff() + halo.indptr.diff()).long()
        graph = LocalGraph(own, halo, degree, self.part.graph.degree.index_select(0, new))
        return graph.with_self_loops() if self.self_loops else graph, torch.cat([rows, new])


def batches(rank: Rank, part: Part, size: int) -> list[Tensor]:
    """The training rows of a part in random order, `size` at a time; the last batch may be smaller. Keyed by epoch."""
    train = part.train
    if not train.is_meta:
        order = rank.generator("batches").permutation(train.shape[0])
        train = train.index_select(0, torch.from_numpy(order).to(train.device))
    return list(train.split(size)) if train.shape[0] else []


def batch_logits(rank: Rank, model: GNN, part: Part, batch: BatchGraphs, step: int) -> Tensor:
    """Logits of the batch's rows, [n, classes]; dropout is keyed by global node, layer and step."""
    assert part.x is not None
    nodes, h = part.nodes.index_select(0, batch.rows), part.x.index_select(0, batch.rows)
    for l, graph in enumerate(batch.graphs):
        h = model.drop(h, nodes[: h.shape[0]], rank.key(f"dropout/{step}", l, per_rank=False))
        message, count = model.message(l, h), graph.num_own
        h = model.update(l, graph, h[:count], message[:count], message[count:])
    return h


def batch_part(part: Part, batch: Tensor) -> Part:
    """The part for a loss over one batch: labels of its rows only, all of them for training."""
    assert part.y is not None
    return replace(part, y=part.y.index_select(0, batch), train=torch.arange(batch.shape[0], device=batch.device))


def _expected(rank: Rank, l: int, fanout: int, count: int) -> list[int]:
    """Own edges, halo edges and new rows to expect for `count` destinations, from the recorded shares.

    Sources are taken to be spread evenly over destinations and new rows.
    """
    edges = rank.rate("sampled_edges", l) * fanout * count
    new = rank.rate("sampled_rows", l) * edges
    own = edges * count / max(count + new, 1)
    return [round(own), round(edges - own), round(new)]


@custom_operator(
    "haloscope::sample_block",
    # The graph's `indices` come first: the simulated ledger charges the arguments after it, as few of them are read.
    "(Tensor indices, Tensor indptr, Tensor rows, int fanout, int key, int[] expected)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def sample_block(
    indices: Tensor, indptr: Tensor, rows: Tensor, fanout: int, key: int, expected: Sequence[int]
) -> tuple[Tensor, ...]:
    """The sampled edges into the distinct `rows` (int64 [n]) as own and halo block (four arrays each) and new rows.

    Columns of the halo block are the new rows, int64, ascending. `expected` counts (own edges, halo edges, new rows)
    where tensors have no numbers, and is ignored where they have.
    """
    pointers, columns, chosen = indptr.numpy(), indices.numpy(), rows.numpy()
    sampled = sample_neighbours(pointers, columns, chosen, fanout, key)
    own_ptr, own, halo_ptr, halo, new = _bipartite(*sampled, chosen, len(pointers) - 1)
    arrays = (*_ordered(own_ptr, own, len(chosen)), *_ordered(halo_ptr, halo, len(new)), new)
    return tuple(torch.from_numpy(array) for array in arrays)


@sample_block.register_fake
def _(
    indices: Tensor, indptr: Tensor, rows: Tensor, fanout: int, key: int, expected: Sequence[int]
) -> tuple[Tensor, ...]:
    count = rows.shape[0]
    own, halo, new = expected
    sizes = (count + 1, own, count + 1, own, count + 1, halo, new + 1, halo)
    return (*(indices.new_empty(size) for size in sizes), rows.new_empty(new))


declare_work("haloscope::sample_block", Gather())


def _ordered(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> tuple[np.ndarray, ...]:
    """The four arrays of a block: transposing twice is a counting sort of the columns."""
    transposed = transpose(indptr, indices, num_cols)
    return (*transpose(*transposed, len(indptr) - 1), *transposed)


@njit(cache=True, nogil=True)
def _bipartite(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """CSR from inside `rows` and from outside, columns renumbered, and the new nodes outside, ascending."""
    place = np.full(num_nodes, -1, indices.dtype)
    for i in range(len(rows)):
        place[rows[i]] = i
    count = 0
    for u in indices:
        if place[u] == -1:
            place[u] = -2
            count += 1
    new = np.empty(count, np.int64)
    at = 0
    for v in range(num_nodes):
        if place[v] == -2:
            new[at] = v
            place[v] = len(rows) + at
            at += 1
    own, halo = np.empty_like(indices), np.empty_like(indices)
    own_ptr, halo_ptr = np.zeros_like(indptr), np.zeros_like(indptr)
    inside, outside = 0, 0
    for row in range(len(rows)):
        for e in range(indptr[row], indptr[row + 1]):
            p = place[indices[e]]
            if p < len(rows):
                own[inside] = p
                inside += 1
            else:
                halo[outside] = p - len(rows)
                outside += 1
        own_ptr[row + 1], halo_ptr[row + 1] = inside, outside
    return own_ptr, own[:inside].copy(), halo_ptr, halo[:outside].copy(), new
