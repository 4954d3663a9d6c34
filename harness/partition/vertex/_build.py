"""Builds the part of one rank of a vertex cut from a part per edge: its block, the plan of its replicas, its rows.

As in an edge cut, local orders are based on one global numbering, the *position*: nodes listed by their master's part,
those without mirrors first. A rank's masters are then a range of positions, and its mirrors sorted by position are
sorted by (master's rank, master's row), the order in which rows arrive. Edges are assigned elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit

from harness.errors import InputError
from harness.graphs import Block, Graph, HaloPlan, Totals, VertexPart, index_dtype
from harness.kernels.csr import transpose
from harness.partition.edge import bucket, features, labels, totals_of


@dataclass(frozen=True, eq=False)
class VertexLayout:
    """The edges of every part and the order of its replicas. N nodes, M undirected edges, P parts."""

    pairs: tuple[np.ndarray, np.ndarray]  # both ends of every edge, [M] each
    edges: np.ndarray  # [M] edges listed part by part
    edge_offsets: np.ndarray  # int64 [P+1] first entry of every part in `edges`
    order: np.ndarray  # [N] node at every position
    position: np.ndarray  # [N] position of every node
    offsets: np.ndarray  # int64 [P+1] first position of every part's masters
    inner: np.ndarray  # int64 [P] masters without mirrors
    mirrors: tuple[np.ndarray, ...]  # per part: ascending positions of its mirrors
    bounds: np.ndarray  # int64 [P, P+1]: mirrors[i][bounds[i, j]:bounds[i, j+1]] have their masters on part j
    looped: np.ndarray  # bool [N] nodes with a self loop, in any part
    splits: tuple[np.ndarray, ...]  # ascending positions of the train, val and test nodes
    totals: Totals

    @property
    def num_parts(self) -> int:
        return len(self.offsets) - 1

    def nodes(self, rank: int) -> np.ndarray:
        """Global ids of the rank's replicas in local order."""
        masters = self.order[self.offsets[rank] : self.offsets[rank + 1]]
        return np.concatenate([masters, self.order[self.mirrors[rank]]])


def lay_out_vertices(
    graph: Graph, pairs: tuple[np.ndarray, np.ndarray], part: np.ndarray, owner: np.ndarray, num_parts: int
) -> VertexLayout:
    """The order of all replicas, O(M + N + P), without the parts themselves.

    Args:
        graph: symmetric.
        pairs: its undirected edges, each once, as `undirected_pairs` lists them.
        part: int [M], the part of every edge.
        owner: int [N], the part of every node's master; it need not have an edge of the node.

    Raises:
        InputError: a part or an owner is not in 0..num_parts-1, or the lengths do not fit.
    """
    _check(graph, pairs, part, owner, num_parts)
    dtype = np.int32 if len(part) < 2**31 else np.int64
    edge_offsets, edges = bucket(part, num_parts, np.empty(0, dtype))
    shared = np.zeros(graph.num_nodes, np.bool_)
    starts, found = _mirrors(*pairs, edges, edge_offsets, owner, shared)
    ends, order = bucket(2 * owner.astype(np.int64) + shared, 2 * num_parts, np.empty(0, index_dtype(graph.num_nodes)))
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    offsets = ends[::2].copy()
    mirrors = tuple(np.sort(position[found[a:b]]) for a, b in zip(starts[:-1], starts[1:], strict=True))
    bounds = np.array([np.searchsorted(m, offsets) for m in mirrors], np.int64).reshape(num_parts, num_parts + 1)
    splits = tuple(order[:0] if s is None else np.sort(position[s]) for s in (graph.train, graph.val, graph.test))
    looped = np.zeros(graph.num_nodes, np.bool_)
    looped[pairs[0][pairs[0] == pairs[1]]] = True
    inner, totals = ends[1::2] - offsets[:-1], totals_of(graph, symmetric=True)
    return VertexLayout(
        pairs, edges, edge_offsets, order, position, offsets, inner, mirrors, bounds, looped, splits, totals
    )


def build_vertex_parts(
    graph: Graph, pairs: tuple[np.ndarray, np.ndarray], part: np.ndarray, owner: np.ndarray, num_parts: int
) -> list[VertexPart]:
    """All parts at once, for graphs that fit in memory twice; arguments and errors are those of `lay_out_vertices`."""
    layout = lay_out_vertices(graph, pairs, part, owner, num_parts)
    return [build_vertex_part(graph, layout, rank) for rank in range(num_parts)]


def build_vertex_part(graph: Graph, layout: VertexLayout, rank: int, with_x: bool = True) -> VertexPart:
    """The part of `rank`, O(M/P + N); `layout` is that of the same graph. Features are dense."""
    nodes = layout.nodes(rank)
    low, high = (int(position) for position in layout.offsets[rank : rank + 2])
    x = features(graph, nodes) if with_x else None
    dense = x.toarray() if isinstance(x, sp.csr_matrix) else x
    train, val, test = (_masters_among(split, low, high) for split in layout.splits)
    indptr, indices = _edges(layout, rank, nodes)
    return VertexPart(
        rank=rank,
        num_parts=layout.num_parts,
        num_inner=int(layout.inner[rank]),
        num_masters=high - low,
        nodes=torch.from_numpy(nodes.astype(np.int64)),
        block=Block(indptr, indices, indptr, indices),
        degree=torch.from_numpy(graph.indptr[nodes.astype(np.int64) + 1] - graph.indptr[nodes]),
        looped=torch.from_numpy(layout.looped[nodes]),
        plan=_plan(layout, rank),
        x=None if dense is None else torch.from_numpy(dense),
        y=labels(graph, nodes[: high - low]),
        train=train,
        val=val,
        test=test,
        totals=layout.totals,
    )


def _check(
    graph: Graph, pairs: tuple[np.ndarray, np.ndarray], part: np.ndarray, owner: np.ndarray, num_parts: int
) -> None:
    for what, assigned, count in (("edge", part, len(pairs[0])), ("node", owner, graph.num_nodes)):
        if len(assigned) != count:
            raise InputError(f"graph {graph.name}: parts of {len(assigned)} {what}s were given, it has {count}")
        bad = np.flatnonzero((assigned < 0) | (assigned >= num_parts))
        if len(bad):
            raise InputError(
                f"graph {graph.name}: the part of {what} {bad[0]} is {assigned[bad[0]]}; parts are 0..{num_parts - 1}"
            )


def _edges(layout: VertexLayout, rank: int, nodes: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """CSR arrays of the rank's edges between its local rows, columns ascending."""
    chosen = layout.edges[layout.edge_offsets[rank] : layout.edge_offsets[rank + 1]]
    u, v = layout.pairs
    slot = np.empty(len(layout.order), np.int32)  # only the entries of the rank's replicas are written and read
    slot[nodes] = np.arange(len(nodes), dtype=np.int32)
    dtype = np.int32 if 2 * len(chosen) < 2**31 else np.int64
    indptr, indices = _both_ways(u, v, chosen, slot, len(nodes), np.empty(0, dtype))
    indptr, indices = transpose(indptr, indices, len(nodes))  # of a symmetric matrix: the same with sorted columns
    return torch.from_numpy(indptr), torch.from_numpy(indices)


def _plan(layout: VertexLayout, rank: int) -> HaloPlan:
    """The plan of a rank's masters and mirrors, which are matched by position."""
    ends = layout.bounds[:, rank : rank + 2]
    requested = [mirrors[a:b] for mirrors, (a, b) in zip(layout.mirrors, ends, strict=True)]
    rows = np.concatenate(requested).astype(np.int64) - layout.offsets[rank]
    return HaloPlan(torch.from_numpy(rows), ends[:, 1] - ends[:, 0], np.diff(layout.bounds[rank]))


def _masters_among(split: np.ndarray, low: int, high: int) -> torch.Tensor:
    begin, end = np.searchsorted(split, (low, high))
    return torch.from_numpy(split[begin:end].astype(np.int64) - low)


@njit(cache=True, nogil=True)
def _mirrors(
    u: np.ndarray, v: np.ndarray, edges: np.ndarray, offsets: np.ndarray, owner: np.ndarray, shared: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Offsets int64 [P+1] and the mirrors of every part, each once; marks nodes with mirrors in `shared`."""
    num_parts = len(offsets) - 1
    starts = np.zeros(num_parts + 1, np.int64)
    last = np.full(len(owner), -1, np.int32)  # the latest part that counted a node
    for part in range(num_parts):
        starts[part + 1] = starts[part]
        for at in range(offsets[part], offsets[part + 1]):
            for node in (u[edges[at]], v[edges[at]]):
                if owner[node] != part and last[node] != part:
                    last[node] = part
                    shared[node] = True
                    starts[part + 1] += 1
    mirrors = np.empty(starts[-1], u.dtype)
    last[:] = -1
    cursor = 0
    for part in range(num_parts):
        for at in range(offsets[part], offsets[part + 1]):
            for node in (u[edges[at]], v[edges[at]]):
                if owner[node] != part and last[node] != part:
                    last[node] = part
                    mirrors[cursor] = node
                    cursor += 1
    return starts, mirrors


@njit(cache=True, nogil=True)
def _both_ways(
    u: np.ndarray, v: np.ndarray, edges: np.ndarray, slot: np.ndarray, num_rows: int, like: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """CSR of the given edges in both directions (a self loop once), columns unsorted; dtype of `like`."""
    indptr = np.zeros(num_rows + 1, like.dtype)
    for e in edges:
        a, b = slot[u[e]], slot[v[e]]
        indptr[a + 1] += 1
        if a != b:
            indptr[b + 1] += 1
    for row in range(num_rows):
        indptr[row + 1] += indptr[row]
    cursor = indptr[:-1].copy()
    indices = np.empty(indptr[-1], like.dtype)
    for e in edges:
        a, b = slot[u[e]], slot[v[e]]
        indices[cursor[a]] = b
        cursor[a] += 1
        if a != b:
            indices[cursor[b]] = a
            cursor[b] += 1
    return indptr, indices
