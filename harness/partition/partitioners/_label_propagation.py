"""A multilevel edge cut of our own: clusters by label propagation, METIS on the graph of clusters, refinement.

The method of Meyerhenke, Sanders and Schulz, "Partitioning complex networks via size-constrained clustering", SEA 2014,
written from the paper, with METIS for the coarsest graph. Clustering shrinks a graph with communities at once to a few
percent of its edges, where a matching, as METIS uses, halves it at best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._metis import metis, undirected
from harness.partition.partitioners._partitioner import NodePartitioner

_CLUSTERS = 48  # at least so many clusters a part: METIS can balance them
_FEW_ENTRIES = 200_000  # METIS cuts such a graph in a tenth of a second, or one of a 64th of the entries
_FEWEST_NODES = 60  # a part; coarser graphs are hard to balance
_CUTS = 4  # of the coarsest graph, of which the best is taken: the graph is small, and its cut decides
_SETTLED = 0.02  # share of nodes that change their cluster below which another pass gains little
_STUCK = 0.95  # of the nodes: a level with as many clusters is not worth another one
_WIDER = 8  # times the nodes of a cluster, one level of `clustered_order` up
_ORDER_SEED = 1  # equal graphs have equal orders


class Level(NamedTuple):
    """A graph whose nodes stand for one or more nodes of the first one; both directions of every edge, no self loops.

    Attributes:
        indptr, indices: int64 [N+1] and int32 [E].
        edge_weight: int32 or int64 [E], edges that each entry stands for; empty where each is 1.
        node_weight: int64 [N], nodes that each stands for.
    """

    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: np.ndarray
    node_weight: np.ndarray


@dataclass(frozen=True)
class LabelPropagation(NodePartitioner):
    """Multilevel: clusters by label propagation, METIS on the graph of clusters, refined by moves of single nodes.

    On every level nodes join the cluster with most of their edges, as long as it has room for them, and the clusters
    are the nodes of the next level. METIS cuts the last one. On the way back, nodes at a boundary move to the part with
    most of their edges, as long as that has room. O(E) time with some ten passes over the edges; graphs that METIS cuts
    in a tenth of a second are left to METIS. The volume is that of metis-cut on networks and meshes alike
    (`python -m benchmarks.partition`).

    Options:
        imbalance: how much the largest part may exceed the mean number of nodes; METIS's default.
        passes: at most so many of label propagation on each level.
        refinements: at most so many passes of moves on each level.
    """

    name = "label-propagation"
    imbalance: float = 0.03
    passes: int = 3
    refinements: int = 4

    def validate(self) -> None:
        self._require("imbalance must be above 0 and at most 1", 0 < self.imbalance <= 1)
        self._require("passes must be at least 1", self.passes >= 1)
        self._require("refinements must be at least 1", self.refinements >= 1)

    @property
    def seeded(self) -> bool:
        return True

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        adjacency = undirected(graph.indptr, graph.indices, graph.is_symmetric(), np.int32)
        count = np.int32 if len(adjacency[1]) < 2**31 else np.int64
        level = Level(*adjacency, np.empty(0, count), np.ones(graph.num_nodes, np.int64))
        finer, level = _coarsened(level, num_parts, self.passes, seed)
        owner = metis(
            level.indptr, level.indices.astype(np.int64), num_parts, seed, "cut", cuts=_CUTS,
            node_weight=level.node_weight, edge_weight=level.edge_weight if len(level.edge_weight) else None,
        )  # fmt: skip
        size = np.bincount(owner, level.node_weight, num_parts).astype(np.int64)
        full = max(-(-graph.num_nodes // num_parts), int((1 + self.imbalance) * graph.num_nodes / num_parts))
        _refine(level, owner, size, full, self.refinements)
        while finer:
            level, cluster = finer.pop()
            owner = owner[cluster]
            _refine(level, owner, size, full, self.refinements)
        return owner


def clustered_order(indptr: np.ndarray, indices: np.ndarray, most: int, passes: int = 3) -> np.ndarray:
    """The nodes, int [N], sorted by clusters, so that rows summed one after the other share neighbours in the cache.

    Clusters have up to `most` nodes, are listed by clusters of up to 8 times as many, and so on; inside the smallest
    ones nodes ascend. Edges may have one direction or both; every pass is O(E), on the first level, and a few percent
    of that on the others where the graph has communities.
    """
    level = Level(indptr, indices, np.empty(0, np.int32), np.ones(len(indptr) - 1, np.int64))
    clusters = list[np.ndarray]()
    while len(level.node_weight) > 1:
        random = np.random.default_rng([_ORDER_SEED, len(clusters)]).integers(1, 2**63, dtype=np.uint64)
        cluster, count = _clusters(level, most, passes, random)
        if count > _STUCK * len(cluster):
            break
        clusters.append(cluster)
        level, most = _contract(level, cluster, count), _WIDER * most
    order = np.arange(len(level.node_weight))
    for cluster in reversed(clusters):
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        order = np.argsort(rank[cluster], kind="stable")
    return order


def _coarsened(level: Level, num_parts: int, passes: int, seed: int) -> tuple[list[tuple[Level, np.ndarray]], Level]:
    """The levels that were coarsened, each with the cluster of its nodes, int32 [N], and the coarsest one."""
    finer: list[tuple[Level, np.ndarray]] = []
    num_nodes = len(level.node_weight)
    most = max(num_nodes // (num_parts * _CLUSTERS), 2)
    few = max(_FEW_ENTRIES, len(level.indices) // 64)
    while len(level.indices) > few and num_nodes > _FEWEST_NODES * num_parts:
        random = np.random.default_rng([seed, len(finer)]).integers(1, 2**63, dtype=np.uint64)
        cluster, count = _clusters(level, most, passes, random)
        if count > _STUCK * num_nodes:
            break
        finer.append((level, cluster))
        level, num_nodes = _contract(level, cluster, count), count
    return finer, level


@njit(cache=True, nogil=True)
def _clusters(level: Level, most: int, passes: int, random: np.uint64) -> tuple[np.ndarray, int]:
    """The cluster of every node, int32 [N] from 0 on, of at most `most` nodes of the first graph, and their number."""
    num_nodes = len(level.node_weight)
    label, weight = np.arange(num_nodes).astype(np.int32), level.node_weight.copy()
    near, touched = np.zeros(num_nodes, level.edge_weight.dtype), np.empty(num_nodes, np.int32)
    second = np.full(num_nodes, -1, np.int32)
    settled = False
    for step in range(passes):
        moved, last = 0, settled or step == passes - 1
        for v in range(num_nodes):
            old, own = label[v], level.node_weight[v]
            found = _tally(level, v, label, near, touched)
            best, ties, wished = old, 1, old
            for at in range(found):
                other = touched[at]
                if near[other] > near[wished]:
                    wished = other
                if other == old or near[other] < near[best] or weight[other] + own > most:
                    continue
                if near[other] > near[best]:
                    best, ties = other, 1
                elif best != old:  # of equals one at random: the first one would gather nodes of small numbers
                    ties += 1
                    random ^= random << np.uint64(13)
                    random ^= random >> np.uint64(7)
                    random ^= random << np.uint64(17)
                    if random % np.uint64(ties) == 0:
                        best = other
            for at in range(found):
                near[touched[at]] = 0
            if last and best == old and wished != old and weight[old] == own:
                # alone, because the cluster of its neighbours is full: it joins another one in the same position
                mate = second[wished]
                if mate >= 0 and weight[label[mate]] + own <= most:
                    best = label[mate]
                else:
                    second[wished] = v
            if best != old:
                weight[old] -= own
                weight[best] += own
                label[v] = best
                moved += 1
        if last:
            break
        settled = moved < _SETTLED * num_nodes
    return _numbered(label)


@njit(cache=True, nogil=True, inline="always")
def _tally(level: Level, v: int, label: np.ndarray, near: np.ndarray, touched: np.ndarray) -> int:
    """Add the weights of a node's edges by the label of their other end to `near`, which is 0 before; returns how many
    labels are among them, and lists these in `touched`."""
    found, weighted = 0, len(level.edge_weight) > 0
    for at in range(level.indptr[v], level.indptr[v + 1]):
        other = label[level.indices[at]]
        if near[other] == 0:
            touched[found] = other
            found += 1
        near[other] += level.edge_weight[at] if weighted else 1
    return found


@njit(cache=True, nogil=True)
def _numbered(label: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels as numbers from 0 on in the order in which they appear, in place, and how many there are."""
    number, count = np.full(len(label), -1, np.int32), 0
    for v in range(len(label)):
        if number[label[v]] < 0:
            number[label[v]] = count
            count += 1
        label[v] = number[label[v]]
    return label, count


@njit(cache=True, nogil=True)
def _contract(level: Level, cluster: np.ndarray, count: int) -> Level:
    """The graph of clusters: their nodes together, and one edge for all edges between two of them."""
    start = np.zeros(count + 1, np.int64)
    for v in range(len(cluster)):
        start[cluster[v] + 1] += 1
    for c in range(count):
        start[c + 1] += start[c]
    cursor, member = start[:-1].copy(), np.empty(len(cluster), np.int32)
    for v in range(len(cluster)):
        member[cursor[cluster[v]]] = v
        cursor[cluster[v]] += 1
    indptr, node_weight = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    near, touched = np.zeros(count, level.edge_weight.dtype), np.empty(count, np.int32)
    indices, edge_weight = np.empty(1024, np.int32), np.empty(1024, level.edge_weight.dtype)
    end, weighted = 0, len(level.edge_weight) > 0
    for c in range(count):
        found = 0
        for place in range(start[c], start[c + 1]):
            v = member[place]
            node_weight[c] += level.node_weight[v]
            for at in range(level.indptr[v], level.indptr[v + 1]):
                other = cluster[level.indices[at]]
                if other != c:
                    if near[other] == 0:
                        touched[found] = other
                        found += 1
                    near[other] += level.edge_weight[at] if weighted else 1
        if end + found > len(indices):
            room = max(end + found, 2 * len(indices))
            indices, edge_weight = _longer(indices, room, end), _longer(edge_weight, room, end)
        for at in range(found):
            indices[end], edge_weight[end] = touched[at], near[touched[at]]
            near[touched[at]] = 0
            end += 1
        indptr[c + 1] = end
    return Level(indptr, indices[:end].copy(), edge_weight[:end].copy(), node_weight)


@njit(cache=True, nogil=True)
def _longer(array: np.ndarray, room: int, used: int) -> np.ndarray:
    made = np.empty(room, array.dtype)
    made[:used] = array[:used]
    return made


@njit(cache=True, nogil=True)
def _refine(level: Level, owner: np.ndarray, size: np.ndarray, full: int, passes: int) -> None:
    """Move nodes to the part with most of their edges, while it has room; of equal parts to a smaller one.

    A part of more than `full` nodes loses nodes whatever that costs. `owner` [N] and `size` [P] change in place.
    """
    near, weighted = np.zeros(len(size), level.edge_weight.dtype), len(level.edge_weight) > 0
    for _ in range(passes):
        moved = 0
        for v in range(len(owner)):
            old, own, outside = owner[v], level.node_weight[v], False
            for at in range(level.indptr[v], level.indptr[v + 1]):
                part = owner[level.indices[at]]
                outside |= part != old
                near[part] += level.edge_weight[at] if weighted else 1
            over = size[old] > full
            if outside or over:
                best = -1
                for part in range(len(size)):
                    if part == old or size[part] + own > full:
                        continue
                    if best < 0 or near[part] > near[best] or (near[part] == near[best] and size[part] < size[best]):
                        best = part
                if best >= 0 and (
                    over or near[best] > near[old] or (near[best] == near[old] and size[best] + own < size[old])
                ):
                    owner[v] = best
                    size[old] -= own
                    size[best] += own
                    moved += 1
            near[:] = 0
        if moved < len(owner) / 200:
            break
