"""Builds the part of one rank from a layout: sparse blocks with transposes, exchange plan, features, labels, split.

Building a part reads its own edges once, whatever the number of parts, and writes its arrays front to back where they
are made, which may be in files: then memory grows with nodes, not with edges. Owners and numberings are chosen
elsewhere; nothing is cached or sent here.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit

from harness.graphs import Block, Graph, HaloPlan, LocalGraph, Part, position_dtype
from harness.machine import ArrayMaker
from harness.partition.edge._layout import Layout, Renumber, lay_out
from harness.partition.edge._transpose import transpose_into

_AT_ONCE = 64 << 20
"""Bytes of features or labels that are copied at once."""


def build_parts(graph: Graph, owner: np.ndarray, num_parts: int, renumber: Renumber = 0) -> list[Part]:
    """All parts at once, for graphs that fit in memory twice; arguments and errors are those of `lay_out`."""
    layout = lay_out(graph, owner, num_parts, renumber)
    return [build_part(graph, layout, rank) for rank in range(num_parts)]


def build_part(
    graph: Graph,
    layout: Layout,
    rank: int,
    with_x: bool = True,
    room: ArrayMaker | None = None,
    scratch: ArrayMaker | None = None,
) -> Part:
    """The part of `rank`, O(E/P + N); `layout` is that of the same graph. Features are dense.

    Args:
        room: makes the arrays of the part, under the names of its files in the cache; by default they are in memory.
        scratch: makes what is needed on the way and may have an entry for every edge; by default nothing is, and
            blocks of any size are sorted in memory.
    """
    room = ArrayMaker() if room is None else room
    nodes, low = layout.nodes(rank), int(layout.offsets[rank])
    halo = layout.halos[rank]
    ids, halo_ids, degree, halo_degree = (
        room.new(name, (count,), np.int64)
        for name, count in (("nodes", len(nodes)), ("halo_nodes", len(halo)), ("degree", len(nodes)),
                            ("halo_degree", len(halo)))
    )  # fmt: skip
    ids[:] = nodes
    _take(layout.order, halo, halo_ids)
    column = np.empty(graph.num_nodes, layout.order.dtype)  # only nodes with an edge into the part are written and read
    _number(graph.indptr, ids, False, column, degree)
    _number(graph.indptr, halo_ids, True, column, halo_degree)
    own, outer = _blocks(graph, layout, rank, column, room)
    del column
    blocks = (_block(*own, len(nodes), "own", room, scratch), _block(*outer, len(halo), "halo", room, scratch))
    x = features(graph, nodes, room) if with_x else None
    dense = x.toarray() if isinstance(x, sp.csr_matrix) else x
    train, val, test = (_local(split, low, len(nodes)) for split in layout.splits)
    return Part(
        rank=rank,
        num_parts=layout.num_parts,
        nodes=torch.from_numpy(ids),
        halo_nodes=torch.from_numpy(halo_ids),
        graph=LocalGraph(*blocks, torch.from_numpy(degree), torch.from_numpy(halo_degree)),
        plan=_plan(layout, rank, room),
        x=None if dense is None else torch.from_numpy(dense),
        y=labels(graph, nodes, room),
        train=train,
        val=val,
        test=test,
        totals=layout.totals,
    )


def features(graph: Graph, nodes: np.ndarray, room: ArrayMaker | None = None) -> np.ndarray | sp.csr_matrix | None:
    """The feature rows of `nodes`, float32 [len(nodes), F], dense or sparse as the graph has them.

    `room` makes the dense ones, as "x"; by default they are in memory.
    """
    if not isinstance(graph.x, np.ndarray):
        return None if graph.x is None else graph.x[nodes]
    room = ArrayMaker() if room is None else room
    return _rows(graph.x, nodes, room.new("x", (len(nodes), *graph.x.shape[1:]), graph.x.dtype))


def labels(graph: Graph, nodes: np.ndarray, room: ArrayMaker | None = None) -> torch.Tensor | None:
    """The labels of `nodes`, int64 [len(nodes)], or float32 [len(nodes), C]; `room` makes them, as "y"."""
    if graph.y is None:
        return None
    kind = np.float32 if graph.multilabel else np.int64
    room = ArrayMaker() if room is None else room
    return torch.from_numpy(_rows(graph.y, nodes, room.new("y", (len(nodes), *graph.y.shape[1:]), kind)))


def _rows(table: np.ndarray, nodes: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the rows of `nodes` to `out`, some at a time, since they pass through memory."""
    step = max(1, _AT_ONCE // max(1, out.nbytes // max(len(nodes), 1)))
    for begin in range(0, len(nodes), step):
        out[begin : begin + step] = table[nodes[begin : begin + step]]
    return out


def _blocks(
    graph: Graph, layout: Layout, rank: int, column: np.ndarray, room: ArrayMaker
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Row pointers and columns of the edges into the rank's nodes, split by whether it owns the source."""
    nodes, cut = layout.nodes(rank), int(layout.cut[rank])
    sides = []
    for side, nnz in (("own", _num_edges(graph.indptr, nodes) - cut), ("halo", cut)):
        dtype = torch.empty(0, dtype=position_dtype(nnz)).numpy().dtype
        sides.append((room.new(f"{side}_indptr", (len(nodes) + 1,), dtype), room.new(f"{side}_indices", (nnz,), dtype)))
    own, outer = sides
    _fill(graph.indptr, graph.indices, nodes, column, *own, *outer)
    return own, outer


def _block(
    indptr: np.ndarray, indices: np.ndarray, num_cols: int, side: str, room: ArrayMaker, scratch: ArrayMaker | None
) -> Block:
    """The block with its transpose."""
    t_indptr = room.new(f"{side}_t_indptr", (num_cols + 1,), indptr.dtype)
    t_indices = room.new(f"{side}_t_indices", indices.shape, indices.dtype)
    transpose_into(indptr, indices, t_indptr, t_indices, scratch)
    return Block(*map(torch.from_numpy, (indptr, indices, t_indptr, t_indices)))


def _plan(layout: Layout, rank: int, room: ArrayMaker) -> HaloPlan:
    """The rows to send follow from the halos of the other parts, without a reverse adjacency."""
    ends = layout.bounds[:, rank : rank + 2]
    counts = ends[:, 1] - ends[:, 0]
    rows, at = room.new("send_rows", (int(counts.sum()),), np.int64), 0
    for halo, (a, b) in zip(layout.halos, ends.tolist(), strict=True):
        np.subtract(halo[a:b], layout.offsets[rank], out=rows[at : at + b - a], dtype=np.int64)
        at += b - a
    return HaloPlan(torch.from_numpy(rows), counts, np.diff(layout.bounds[rank]))


def _local(split: np.ndarray, low: int, num_own: int) -> torch.Tensor:
    begin, end = np.searchsorted(split, (low, low + num_own))
    return _int64(split[begin:end]) - low


def _int64(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64))


@njit(cache=True, nogil=True)
def _take(values: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """Write the values at `places` to `out`; numpy would convert the places to 64 bits."""
    for i in range(len(places)):
        out[i] = values[places[i]]


@njit(cache=True, nogil=True)
def _number(indptr: np.ndarray, nodes: np.ndarray, outside: bool, column: np.ndarray, degree: np.ndarray) -> None:
    """Write the local column of every one of `nodes` to `column`, i or, outside the part, -1 - i; and its degree."""
    for i in range(len(nodes)):
        v = nodes[i]
        column[v] = -1 - i if outside else i
        degree[i] = indptr[v + 1] - indptr[v]


@njit(cache=True, nogil=True)
def _num_edges(indptr: np.ndarray, nodes: np.ndarray) -> int:
    """Edges into `nodes`."""
    count = 0
    for v in nodes:
        count += indptr[v + 1] - indptr[v]
    return count


@njit(cache=True, nogil=True)
def _fill(
    indptr: np.ndarray,
    indices: np.ndarray,
    nodes: np.ndarray,
    column: np.ndarray,
    own_ptr: np.ndarray,
    own: np.ndarray,
    halo_ptr: np.ndarray,
    halo: np.ndarray,
) -> None:
    """Write row pointers and ascending columns of both blocks, row by row and each position once.

    The sources of a row ascend by id, and so do columns that are numbered by id; others are sorted in their row.
    """
    a, b = 0, 0
    own_ptr[0], halo_ptr[0] = 0, 0
    for row in range(len(nodes)):
        first_a, first_b, last_a, last_b, sorted_a, sorted_b = a, b, -1, -1, True, True
        for e in range(indptr[nodes[row]], indptr[nodes[row] + 1]):
            found = int(column[indices[e]])
            if found >= 0:
                own[a] = found
                sorted_a &= found >= last_a
                last_a = found
                a += 1
            else:
                found = -1 - found
                halo[b] = found
                sorted_b &= found >= last_b
                last_b = found
                b += 1
        if not sorted_a:
            own[first_a:a].sort()
        if not sorted_b:
            halo[first_b:b].sort()
        own_ptr[row + 1], halo_ptr[row + 1] = a, b
