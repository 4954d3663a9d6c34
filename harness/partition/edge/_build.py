"""Builds the part of one rank from a layout: sparse blocks with transposes, exchange plan, features, labels, split.

Building a part reads its own edges once, whatever the number of parts. Owners and numberings are chosen elsewhere;
nothing is cached or sent here.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit

from harness.graphs import Block, Graph, HaloPlan, LocalGraph, Part
from harness.kernels.csr import transpose
from harness.partition.edge._layout import Layout, Renumber, lay_out


def build_parts(graph: Graph, owner: np.ndarray, num_parts: int, renumber: Renumber = 0) -> list[Part]:
    """All parts at once, for graphs that fit in memory twice; arguments and errors are those of `lay_out`."""
    layout = lay_out(graph, owner, num_parts, renumber)
    return [build_part(graph, layout, rank) for rank in range(num_parts)]


def build_part(graph: Graph, layout: Layout, rank: int, with_x: bool = True) -> Part:
    """The part of `rank`, O(E/P + N); `layout` is that of the same graph. Features are dense."""
    nodes, low = layout.nodes(rank), int(layout.offsets[rank])
    halo_nodes = layout.order[layout.halos[rank]]
    own, halo = _blocks(graph, layout, rank)
    x = features(graph, nodes) if with_x else None
    dense = x.toarray() if isinstance(x, sp.csr_matrix) else x
    train, val, test = (_local(split, low, len(nodes)) for split in layout.splits)
    return Part(
        rank=rank,
        num_parts=layout.num_parts,
        nodes=_int64(nodes),
        halo_nodes=_int64(halo_nodes),
        graph=LocalGraph(own, halo, _degree(graph, nodes), _degree(graph, halo_nodes)),
        plan=_plan(layout, rank),
        x=None if dense is None else torch.from_numpy(dense),
        y=labels(graph, nodes),
        train=train,
        val=val,
        test=test,
        totals=layout.totals,
    )


def features(graph: Graph, nodes: np.ndarray) -> np.ndarray | sp.csr_matrix | None:
    """The feature rows of `nodes`, float32 [len(nodes), F], dense or sparse as the graph has them."""
    return None if graph.x is None else graph.x[nodes]


def _blocks(graph: Graph, layout: Layout, rank: int) -> tuple[Block, Block]:
    """The edges into the rank's nodes, split by whether it owns the source."""
    halo, num_own = layout.halos[rank], len(layout.nodes(rank))
    where = (graph.indptr, graph.indices, layout.nodes(rank), layout.position, int(layout.offsets[rank]))
    own_ptr, halo_ptr = (ptr.astype(np.int32) if ptr[-1] < 2**31 else ptr for ptr in _count(*where))
    own = _block(own_ptr, *_fill_own(*where, np.empty(own_ptr[-1], own_ptr.dtype)), num_own)
    slot = np.empty(len(layout.order), halo_ptr.dtype)  # only the halo's entries are written and read
    slot[halo] = np.arange(len(halo), dtype=halo_ptr.dtype)
    outer = _block(halo_ptr, *_fill_halo(*where, slot, np.empty(halo_ptr[-1], halo_ptr.dtype)), len(halo))
    return own, outer


def _block(indptr: np.ndarray, indices: np.ndarray, ascending: bool, num_cols: int) -> Block:
    """A block from rows with unsorted columns: transposing twice is a counting sort of the columns."""
    transposed = transpose(indptr, indices, num_cols)
    if not ascending:
        indptr, indices = transpose(*transposed, len(indptr) - 1)
    return Block(*map(torch.from_numpy, (indptr, indices, *transposed)))


def _plan(layout: Layout, rank: int) -> HaloPlan:
    """The rows to send follow from the halos of the other parts, without a reverse adjacency."""
    ends = layout.bounds[:, rank : rank + 2]
    requested = [halo[a:b] for halo, (a, b) in zip(layout.halos, ends, strict=True)]
    rows = np.concatenate(requested).astype(np.int64) - layout.offsets[rank]
    return HaloPlan(torch.from_numpy(rows), ends[:, 1] - ends[:, 0], np.diff(layout.bounds[rank]))


def _local(split: np.ndarray, low: int, num_own: int) -> torch.Tensor:
    begin, end = np.searchsorted(split, (low, low + num_own))
    return _int64(split[begin:end]) - low


def labels(graph: Graph, nodes: np.ndarray) -> torch.Tensor | None:
    if graph.y is None:
        return None
    return torch.from_numpy(graph.y[nodes].astype(np.float32 if graph.multilabel else np.int64))


def _degree(graph: Graph, nodes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(graph.indptr[nodes.astype(np.int64) + 1] - graph.indptr[nodes])


def _int64(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64))


@njit(cache=True, nogil=True)
def _count(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, position: np.ndarray, low: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row pointers, int64 [n_own+1], of the edges from inside and from outside the part."""
    own, halo = np.zeros(len(nodes) + 1, np.int64), np.zeros(len(nodes) + 1, np.int64)
    high = low + len(nodes)
    for row in range(len(nodes)):
        inside, v = 0, nodes[row]
        for e in range(indptr[v], indptr[v + 1]):
            p = position[indices[e]]
            inside += p >= low and p < high
        own[row + 1] = own[row] + inside
        halo[row + 1] = halo[row] + indptr[v + 1] - indptr[v] - inside
    return own, halo


@njit(cache=True, nogil=True)
def _fill_own(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, position: np.ndarray, low: int, out: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Write the own columns row by row to `out`; also returns whether every row ascends."""
    at, high, ascending = 0, low + len(nodes), True
    for v in nodes:
        last = -1
        for e in range(indptr[v], indptr[v + 1]):
            p = position[indices[e]]
            if p >= low and p < high:
                ascending = ascending and p >= last
                last = p
                out[at] = p - low
                at += 1
    return out, ascending


@njit(cache=True, nogil=True)
def _fill_halo(
    indptr: np.ndarray,
    indices: np.ndarray,
    nodes: np.ndarray,
    position: np.ndarray,
    low: int,
    slot: np.ndarray,
    out: np.ndarray,
) -> tuple[np.ndarray, bool]:
    """Write the halo columns row by row to `out`; also returns whether every row ascends."""
    at, high, ascending = 0, low + len(nodes), True
    for v in nodes:
        last = -1
        for e in range(indptr[v], indptr[v + 1]):
            p = position[indices[e]]
            if p < low or p >= high:
                ascending = ascending and p >= last
                last = p
                out[at] = slot[p]
                at += 1
    return out, ascending
