"""HEP, a vertex cut that grows parts from the edges of low-degree vertices and streams the rest with HDRF.

Mayer and Jacobsen, SIGMOD 2021; its growth is neighbourhood expansion (Zhang et al., KDD 2017). Written from the papers
and from the behaviour of mayerrn/hybrid_edge_partitioner (src/hep_partitioner.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._hdrf import stream_edges
from harness.partition.partitioners._pairs import empty_sets, pair_ids, put, undirected_pairs
from harness.partition.partitioners._partitioner import EdgePartitioner
from harness.registry import Unbounded


@dataclass(frozen=True)
class HEP(EdgePartitioner):
    """Parts 0 to P-2 grow one after the other; what is left is streamed. No part gets more than floor(M / P) + 1 edges.

    A part grows by moving the boundary vertex with the fewest unassigned edges (then the lowest id) into its core; all
    neighbours join the boundary, and every edge inside core and boundary is the part's. With no boundary the lowest
    vertex with unassigned edges starts a new one. Vertices of high degree count as core of every part and are never
    expanded; edges between two of them are streamed last, by exact degrees. An edge of a full part is assigned to the
    next part with room.

    Three faults of the authors' code are not repeated: the streaming starts from the true sizes of the parts; an edge
    that overflows does not hide its ends from the part that gets it; a part that overflow has filled gets no more.

    Options:
        tau: high means a degree above tau times the mean; 100 in the authors' code, 100, 10 and 1 in their paper. inf
            grows everything, which is neighbourhood expansion.
        lambda: weight of balance in the streaming, as for hdrf.
    """

    name = "hep"
    tau: Unbounded = 100.0
    lambda_: float = 1.1

    def validate(self) -> None:
        self._require("tau must be above 0", self.tau > 0)
        self._require("lambda must be 0 or more and finite", 0 <= self.lambda_ < float("inf"))

    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        u, v = undirected_pairs(graph)
        degree, count = graph.in_degree, len(u)
        high = degree > self.tau * (2 * count / graph.num_nodes)
        between = int((high[u] & high[v]).sum())
        part, load = np.full(count, -1, np.int32), np.zeros(num_parts, np.int64)
        sets, capacity = empty_sets(graph.num_nodes, num_parts), count // num_parts + 1
        state = _Growth(
            indptr=graph.indptr, indices=graph.indices, ids=pair_ids(graph), part=part, sets=sets, load=load,
            left=degree.copy(), high=high, member=np.full(graph.num_nodes, -1, np.int32),
            heap=np.empty(graph.num_nodes, graph.indices.dtype), place=np.full(graph.num_nodes, -1, np.int64),
            size=np.zeros(1, np.int64),
        )  # fmt: skip
        _grow(state, (count - between) // num_parts + 1, capacity)
        rest = np.flatnonzero(part < 0)
        streamed = high[u[rest]] & high[v[rest]]
        order = np.concatenate([rest[~streamed], rest[streamed]])
        stream_edges(u, v, order, degree, False, sets, load, capacity, (float(self.lambda_), 1.0), part)
        return part


class _Growth(NamedTuple):
    """The state of the growth. N vertices, M pairs, E entries."""

    indptr: np.ndarray  # int64 [N+1]
    indices: np.ndarray  # [E]
    ids: np.ndarray  # [E] pair of every entry
    part: np.ndarray  # int32 [M], -1 while unassigned
    sets: np.ndarray  # uint64 [N, W] parts with a replica
    load: np.ndarray  # int64 [P]
    left: np.ndarray  # int64 [N] unassigned edges of every vertex
    high: np.ndarray  # bool [N]
    member: np.ndarray  # int32 [N] the latest part with the vertex in its core or boundary
    heap: np.ndarray  # [N] the boundary, a binary heap by (left, id)
    place: np.ndarray  # int64 [N] position of a vertex in the heap, or -1
    size: np.ndarray  # int64 [1] of the heap


@njit(cache=True, nogil=True)
def _grow(s: _Growth, enough: int, capacity: int) -> None:
    """Grow every part but the last until it has `enough` edges or no low vertex has any left."""
    free = 0
    for i in range(len(s.load) - 1):
        while s.load[i] < enough:
            if s.size[0] > 0:
                x = _pop(s)
            else:
                while free < len(s.left) and (s.left[free] == 0 or s.high[free]):
                    free += 1
                if free == len(s.left):
                    return
                x = free
                _join(s, x, i, capacity, True)
            for e in range(s.indptr[x], s.indptr[x + 1]):
                if s.part[s.ids[e]] < 0:
                    _join(s, s.indices[e], i, capacity, False)
        for h in range(s.size[0]):
            s.place[s.heap[h]] = -1
        s.size[0] = 0


@njit(cache=True, nogil=True)
def _join(s: _Growth, x: int, i: int, capacity: int, core: bool) -> None:
    """Add x to the boundary of part i, or directly to its core, with its edges to members of the part.

    A vertex in the core of an earlier part has no unassigned edges, so only members of this part are considered.
    """
    if s.member[x] == i:
        return
    s.member[x] = i
    if s.high[x]:
        return
    for e in range(s.indptr[x], s.indptr[x + 1]):
        y, k = s.indices[e], s.ids[e]
        if s.part[k] < 0 and (s.high[y] or s.member[y] == i):
            target = i
            while s.load[target] >= capacity and target < len(s.load) - 1:
                target += 1
            s.part[k] = target
            s.load[target] += 1
            put(s.sets, x, target)
            put(s.sets, y, target)
            s.left[x] -= 1
            if y != x:
                s.left[y] -= 1
                if s.place[y] >= 0:
                    _rise(s, s.place[y])
    if not core:
        s.place[x] = s.size[0]
        s.heap[s.size[0]] = x
        s.size[0] += 1
        _rise(s, s.place[x])


@njit(cache=True, nogil=True)
def _before(s: _Growth, a: int, b: int) -> bool:
    return s.left[a] < s.left[b] or (s.left[a] == s.left[b] and a < b)


@njit(cache=True, nogil=True)
def _rise(s: _Growth, at: int) -> None:
    x = s.heap[at]
    while at > 0 and _before(s, x, s.heap[(at - 1) // 2]):
        above = (at - 1) // 2
        s.heap[at] = s.heap[above]
        s.place[s.heap[at]] = at
        at = above
    s.heap[at] = x
    s.place[x] = at


@njit(cache=True, nogil=True)
def _pop(s: _Growth) -> int:
    """Remove and return the first of the heap."""
    first: int = s.heap[0]
    s.place[first] = -1
    s.size[0] -= 1
    size = s.size[0]
    if size > 0:
        x, at = s.heap[size], 0
        while 2 * at + 1 < size:
            below = 2 * at + 1
            if below + 1 < size and _before(s, s.heap[below + 1], s.heap[below]):
                below += 1
            if not _before(s, s.heap[below], x):
                break
            s.heap[at] = s.heap[below]
            s.place[s.heap[at]] = at
            at = below
        s.heap[at] = x
        s.place[x] = at
    return first
