"""Libra, the greedy vertex cut of DistGNN (Md et al., SC 2021; dmlc/dgl: src/array/libra_partition.cc).

Written from the description of its rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.kernels.random import GOLDEN, mix64, stream_of
from harness.partition.partitioners._pairs import EdgeOrder, empty_sets, has, put, stream, undirected_pairs
from harness.partition.partitioners._partitioner import EdgePartitioner


@dataclass(frozen=True)
class Libra(EdgePartitioner):
    """Edge by edge to the least loaded of the parts that fit best, one of equals at random.

    Those are: all parts when neither end has a replica; the parts of the one end that has; the common parts of both;
    else the parts of the end of lower degree (of the second at equal degrees), so that the other is replicated. Balance
    is not bounded: edges that are read along the graph accumulate in few parts.

    Options:
        order: in which edges are read, as in `EdgeOrder`.
    """

    name = "libra"
    order: EdgeOrder = "file"

    @property
    def seeded(self) -> bool:
        return True

    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        u, v = undirected_pairs(graph)
        order = stream(u, v, graph.in_degree, self.order, seed)
        sets = empty_sets(graph.num_nodes, num_parts)
        return _assign(u, v, order, graph.in_degree, sets, np.zeros(num_parts, np.int64), stream_of(seed))


@njit(cache=True, nogil=True)
def _assign(
    u: np.ndarray,
    v: np.ndarray,
    order: np.ndarray,
    degree: np.ndarray,
    sets: np.ndarray,
    load: np.ndarray,
    random: np.uint64,
) -> np.ndarray:
    part = np.empty(len(u), np.int32)
    fitting = np.empty(sets.shape[1], np.uint64)
    for step in range(len(u)):
        e = order[step] if len(order) else step
        a, b = u[e], v[e]
        _candidates(sets[a], sets[b], degree[a] < degree[b], fitting)
        best = _least_loaded(fitting.reshape(1, -1), load, mix64(random + np.uint64(step) * np.uint64(GOLDEN)))
        part[e] = best
        load[best] += 1
        put(sets, a, best)
        put(sets, b, best)
    return part


@njit(cache=True, nogil=True)
def _candidates(first: np.ndarray, second: np.ndarray, prefer_first: bool, fitting: np.ndarray) -> None:
    """Write the set of the best parts to `fitting`; all bits are set if every part qualifies."""
    none = np.uint64(0)
    shared = known_first = known_second = none
    for w in range(len(fitting)):
        known_first |= first[w]
        known_second |= second[w]
        shared |= first[w] & second[w]
    for w in range(len(fitting)):
        if known_first == none and known_second == none:
            fitting[w] = ~none
        elif known_first == none or known_second == none:
            fitting[w] = first[w] | second[w]
        elif shared != none:
            fitting[w] = first[w] & second[w]
        else:
            fitting[w] = first[w] if prefer_first else second[w]


@njit(cache=True, nogil=True)
def _least_loaded(fitting: np.ndarray, load: np.ndarray, random: np.uint64) -> int:
    """One of the least loaded parts of the set, chosen uniformly (up to 2**-50) by the random word."""
    lowest, equals = load.max(), 0
    for i in range(len(load)):
        if has(fitting, 0, i):
            if load[i] < lowest:
                lowest, equals = load[i], 1
            elif load[i] == lowest:
                equals += 1
    chosen = np.int64(random % np.uint64(equals))
    for i in range(len(load)):
        if has(fitting, 0, i) and load[i] == lowest:
            if chosen == 0:
                return i
            chosen -= 1
    return -1
