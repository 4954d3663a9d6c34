"""HDRF, a streaming vertex cut that replicates the end of the higher degree (Petroni et al., CIKM 2015).

Also the compiled stream that HEP uses for the edges it does not grow. Written from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._pairs import EdgeOrder, empty_sets, has, put, stream, undirected_pairs
from harness.partition.partitioners._partitioner import EdgePartitioner
from harness.registry import Unbounded


@dataclass(frozen=True)
class HDRF(EdgePartitioner):
    """Edge by edge to the part with the largest score, the lowest of equals (Sec. 3.2 of the paper).

    The score of part i for (a, b) is g(a) + g(b) + lambda (max - edges_i) / (epsilon + max - min), where g(a) = 2 -
    d(a) / (d(a) + d(b)) if a has a replica in i and 0 otherwise, and d counts the edges read so far, this one included.
    A self loop has one end.

    The balance term is below lambda, the gain of one replica at least 1: edges that are read along the graph accumulate
    in one part. Therefore a full part gets no more edges, unlike in the paper but as in the public codes
    (mayerrn/hybrid_edge_partitioner, lcj2021/split-merge-partitioner, both with the default below).

    Options:
        lambda: weight of edge balance; the default is that of HEP's authors.
        epsilon: keeps the divisor above 0.
        balance: a part is full at floor(balance M / P) + 1 edges; inf for the paper's stream without bound.
        order: in which edges are read, as in `EdgeOrder`.
    """

    name = "hdrf"
    lambda_: float = 1.1
    epsilon: float = 1.0
    balance: Unbounded = 1.0
    order: EdgeOrder = "file"

    def validate(self) -> None:
        self._require("lambda must be 0 or more and finite", 0 <= self.lambda_ < float("inf"))
        self._require("epsilon must be above 0 and finite", 0 < self.epsilon < float("inf"))
        self._require("balance must be at least 1", self.balance >= 1)

    @property
    def seeded(self) -> bool:
        return self.order == "random"

    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        u, v = undirected_pairs(graph)
        order = stream(u, v, graph.in_degree, self.order, seed)
        order = order if len(order) else np.arange(len(u))
        part, load = np.empty(len(u), np.int32), np.zeros(num_parts, np.int64)
        degree, sets = np.zeros(graph.num_nodes, np.int64), empty_sets(graph.num_nodes, num_parts)
        capacity = int(min(self.balance, num_parts) * len(u) / num_parts) + 1
        weights = (float(self.lambda_), float(self.epsilon))
        stream_edges(u, v, order, degree, True, sets, load, capacity, weights, part)
        return part


@njit(cache=True, nogil=True)
def stream_edges(
    u: np.ndarray,
    v: np.ndarray,
    order: np.ndarray,
    degree: np.ndarray,
    partial: bool,
    sets: np.ndarray,
    load: np.ndarray,
    capacity: int,
    weights: tuple[float, float],
    part: np.ndarray,
) -> None:
    """Assign the pairs `order` one by one; updates `sets`, `load` and `part`.

    With `partial`, `degree`, int64 [N], counts the edges read so far; otherwise it is not changed. A part with
    `capacity` edges gets no more; at least one part must have room.
    """
    low, high = load.min(), load.max()
    for e in order:
        a, b = u[e], v[e]
        if partial:
            degree[a] += 1
            degree[b] += a != b
        best = _best(a, b, degree, sets, load, capacity, (low, high), weights)
        part[e] = best
        put(sets, a, best)
        put(sets, b, best)
        load[best] += 1
        high = max(high, load[best])
        if load[best] - 1 == low:
            low = load.min()


@njit(cache=True, nogil=True)
def _best(
    a: int,
    b: int,
    degree: np.ndarray,
    sets: np.ndarray,
    load: np.ndarray,
    capacity: int,
    extremes: tuple[int, int],
    weights: tuple[float, float],
) -> int:
    low, high = extremes
    share = degree[a] / (degree[a] + degree[b])
    gain_a, gain_b = 2 - share, (1 + share) if a != b else 0.0
    scale = weights[0] / (weights[1] + high - low)
    best, largest = 0, -1.0
    for i in range(len(load)):
        if load[i] < capacity:
            gain = (gain_a if has(sets, a, i) else 0.0) + (gain_b if has(sets, b, i) else 0.0)
            score = gain + scale * (high - load[i])
            if score > largest:
                best, largest = i, score
    return best
