"""The local numbering of a partitioned graph, and the nodes that each part needs from the others.

Both are based on one global numbering, the *position*: nodes listed part by part, each part in its local order. A
rank's own nodes are then a range of positions, and its halo sorted by position is sorted by (owner, owner's row), which
is the order in which rows arrive. Owners are chosen and blocks are built elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit

from harness.errors import InputError
from harness.graphs import Graph, Totals, index_dtype
from harness.kernels.edges import induced
from harness.machine import ArrayMaker
from harness.partition.partitioners import clustered_order

Renumber = int | Literal["auto"]
"""0 keeps ascending ids inside a part; k sorts them by clusters of at most k nodes that share their neighbours; "auto"
chooses k per part. Clustered rows halve the time of neighbour sums on graphs with communities and change no result."""

CLUSTERED_EDGES = 1 << 27
"""Edges inside a part above which "auto" does not cluster it: clustering holds them in memory."""

_CACHED_NODES = 2048
"""Nodes of a cluster with "auto": their rows of 128 to 256 numbers fit in a core's cache of one or two MiB."""

_FEW_NODES = 10_000
"""Nodes of a part below which "auto" does not cluster it: all of its rows fit in the caches."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The local order of every part, and every part's halo. N nodes, P parts."""

    order: np.ndarray  # [N] node at every position
    offsets: np.ndarray  # int64 [P+1] first position of every part
    halos: tuple[np.ndarray, ...]  # per part: ascending positions of its halo nodes
    cut: np.ndarray  # int64 [P] edges into every part that come from another one
    bounds: np.ndarray  # int64 [P, P+1]: halos[i][bounds[i, j]:bounds[i, j+1]] are owned by part j
    splits: tuple[np.ndarray, ...]  # ascending positions of the train, val and test nodes
    totals: Totals

    @property
    def num_parts(self) -> int:
        return len(self.offsets) - 1

    def nodes(self, rank: int) -> np.ndarray:
        """Global ids of the rank's own nodes in local order."""
        return self.order[self.offsets[rank] : self.offsets[rank + 1]]


def lay_out(
    graph: Graph, owner: np.ndarray, num_parts: int, renumber: Renumber = 0, room: ArrayMaker | None = None
) -> Layout:
    """The positions of all nodes and the halo of every part, O(E + P N / 1000), without the parts themselves.

    `room` makes the halos, which together may have as many entries as the graph has edges; by default they are in
    memory. Raises InputError unless `owner` is int [N] in 0..num_parts-1 and `renumber` is "auto" or not negative.
    """
    check_owner(graph, owner, num_parts)
    if renumber != "auto" and (not isinstance(renumber, int) or renumber < 0):
        raise InputError(f'renumber is {renumber!r}; give the nodes of a cluster, 0 for none, or "auto"')
    offsets, order = bucket(owner, num_parts, np.empty(0, index_dtype(graph.num_nodes)))
    symmetric = graph.is_symmetric()
    if renumber != 0:
        for low, high in zip(offsets[:-1], offsets[1:], strict=True):
            order[low:high] = _clustered(graph, order[low:high], owner, renumber)
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    halos, cut = _halos(graph, order, position, offsets, ArrayMaker() if room is None else room)
    ends = offsets.astype(order.dtype)  # of the halos' type: else every halo would be converted
    bounds = np.array([np.searchsorted(halo, ends) for halo in halos], np.int64).reshape(num_parts, num_parts + 1)
    splits = tuple(order[:0] if s is None else np.sort(position[s]) for s in (graph.train, graph.val, graph.test))
    return Layout(order, offsets, halos, cut, bounds, splits, totals_of(graph, symmetric))


def check_owner(graph: Graph, owner: np.ndarray, num_parts: int) -> None:
    """Raise InputError unless `owner` has a part in 0..num_parts-1 for every node of `graph`."""
    if len(owner) != graph.num_nodes:
        raise InputError(f"graph {graph.name}: owner has {len(owner)} entries for {graph.num_nodes} nodes")
    bad = np.flatnonzero((owner < 0) | (owner >= num_parts))
    if len(bad):
        raise InputError(f"graph {graph.name}: owner of node {bad[0]} is {owner[bad[0]]}; parts are 0..{num_parts - 1}")


def cluster_nodes(renumber: Renumber, num_own: int, num_edges: int) -> int:
    """Most nodes of a cluster, for a part of `num_own` nodes with `num_edges` edges among them; 0 = no clusters."""
    if renumber == "auto":
        return _CACHED_NODES if num_own >= _FEW_NODES and num_edges <= CLUSTERED_EDGES else 0
    return renumber


def _clustered(graph: Graph, nodes: np.ndarray, owner: np.ndarray, renumber: Renumber) -> np.ndarray:
    """The ascending `nodes` of one part, clusters of them together."""
    if not cluster_nodes(renumber, len(nodes), 0):
        return nodes
    most = cluster_nodes(renumber, len(nodes), _num_inside(graph.indptr, graph.indices, nodes, owner))
    return nodes[clustered_order(*induced(graph.indptr, graph.indices, nodes), most)] if most else nodes


def _halos(
    graph: Graph, order: np.ndarray, position: np.ndarray, offsets: np.ndarray, room: ArrayMaker
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The halo and the number of cut edges of every part."""
    visited, outside = np.zeros(len(order), np.bool_), np.empty_like(order)
    halos, cut = list[np.ndarray](), np.zeros(len(offsets) - 1, np.int64)
    for rank, (low, high) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        where = (graph.indptr, graph.indices, order[low:high], position, low)
        count, cut[rank] = _outside(*where, visited, outside)
        outside[:count].sort()
        halos.append(room.new(f"halo-{rank:05d}", (count,), order.dtype))
        halos[-1][:] = outside[:count]
    return tuple(halos), cut


def totals_of(graph: Graph, symmetric: bool) -> Totals:
    return Totals(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_train=0 if graph.train is None else len(graph.train),
        num_val=0 if graph.val is None else len(graph.val),
        num_test=0 if graph.test is None else len(graph.test),
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        multilabel=graph.multilabel,
        symmetric=symmetric,
    )


@njit(cache=True, nogil=True)
def bucket(key: np.ndarray, num_keys: int, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets int64 [num_keys+1] and the stable order of the entries by key, in the dtype of `like`, O(N)."""
    offsets = np.zeros(num_keys + 1, np.int64)
    for k in key:
        offsets[k + 1] += 1
    for k in range(num_keys):
        offsets[k + 1] += offsets[k]
    cursor = offsets[:-1].copy()
    order = np.empty(len(key), like.dtype)
    for i in range(len(key)):
        order[cursor[key[i]]] = i
        cursor[key[i]] += 1
    return offsets, order


@njit(cache=True, nogil=True)
def _num_inside(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, owner: np.ndarray) -> int:
    """Edges among the nodes of one part."""
    inside = 0
    for v in nodes:
        part = owner[v]
        for e in range(indptr[v], indptr[v + 1]):
            inside += owner[indices[e]] == part
    return inside


@njit(cache=True, nogil=True)
def _outside(
    indptr: np.ndarray,
    indices: np.ndarray,
    nodes: np.ndarray,
    position: np.ndarray,
    low: int,
    visited: np.ndarray,
    outside: np.ndarray,
) -> tuple[int, int]:
    """Write the positions outside the part that have an edge into it to `outside`, each once, unsorted.

    Returns their number and that of the edges; `visited` is reset to False.
    """
    at, cut, high = 0, 0, low + len(nodes)
    for v in nodes:
        for e in range(indptr[v], indptr[v + 1]):
            p = position[indices[e]]
            if p < low or p >= high:
                cut += 1
                if not visited[p]:
                    visited[p] = True
                    outside[at] = p
                    at += 1
    for i in range(at):
        visited[outside[i]] = False
    return at, cut
