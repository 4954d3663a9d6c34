"""EBV, a streaming vertex cut that weighs new replicas against balance, and its version for hosts with several devices.

Zhang et al., "An efficient and balanced graph partition algorithm ...", ICDCS 2021; the hierarchical score is CDFGNN's
(Sec. 6, Eq. 24). Written from the papers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._pairs import EdgeOrder, empty_sets, has, put, stream, undirected_pairs
from harness.partition.partitioners._partitioner import EdgePartitioner


@dataclass(frozen=True)
class EBV(EdgePartitioner):
    """Edge by edge to the part with the smallest score, the lowest of equals (CDFGNN, Eq. 24).

    The score of part i for an edge is (1 - gamma) times the ends with no replica in i, plus gamma times the ends with
    no replica on the host of i, plus alpha edges_i / (E / P) plus beta vertices_i / (V / P), E and V those of the whole
    graph. A self loop has one end. gamma = 0 is EBV itself. On one host gamma weakens only the first term, as if alpha
    and beta were divided by 1 - gamma; with one part per host it has no effect.

    Options:
        gamma: weight of the hosts, 0 to 1; the paper's 0.1.
        alpha, beta: weights of edge and vertex balance; the paper of EBV has 1 and 1, CDFGNN gives none.
        order: in which edges are read. degree is what EBV's paper sorts by (ascending sum of the degrees of both ends);
            CDFGNN does not say. file and random as in `EdgeOrder`.
    """

    name = "ebv"
    gamma: float = 0.1
    alpha: float = 1.0
    beta: float = 1.0
    order: EdgeOrder = "degree"

    def validate(self) -> None:
        self._require("gamma must be 0 to 1", 0 <= self.gamma <= 1)
        self._require("alpha must be 0 or more and finite", 0 <= self.alpha < float("inf"))
        self._require("beta must be 0 or more and finite", 0 <= self.beta < float("inf"))

    @property
    def seeded(self) -> bool:
        return self.order == "random"

    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        u, v = undirected_pairs(graph)
        order = stream(u, v, graph.in_degree, self.order, seed)
        weights = (float(self.gamma), float(self.alpha), float(self.beta))
        devices, near = empty_sets(graph.num_nodes, num_parts), empty_sets(graph.num_nodes, hosts)
        return _assign(u, v, order, devices, near, num_parts, hosts, weights)


@njit(cache=True, nogil=True)
def _assign(
    u: np.ndarray,
    v: np.ndarray,
    order: np.ndarray,
    devices: np.ndarray,
    near: np.ndarray,
    num_parts: int,
    hosts: int,
    weights: tuple[float, float, float],
) -> np.ndarray:
    """`devices` and `near`: per node, the sets of devices and hosts with a replica, initially empty."""
    gamma, alpha, beta = weights
    part = np.empty(len(u), np.int32)
    edges, nodes, balance = np.zeros(num_parts), np.zeros(num_parts), np.zeros(num_parts)
    mean_edges, mean_nodes = len(u) / num_parts, len(devices) / num_parts
    for step in range(len(u)):
        e = order[step] if len(order) else step
        a, b = u[e], v[e]
        best = _best(a, b, devices, near, balance, hosts, gamma)
        part[e] = best
        edges[best] += 1
        host = best // (num_parts // hosts)
        for end in (a, b):  # for a self loop, the second end is in the set already
            nodes[best] += put(devices, end, best)
            put(near, end, host)
        balance[best] = alpha * edges[best] / mean_edges + beta * nodes[best] / mean_nodes
    return part


@njit(cache=True, nogil=True)
def _best(a: int, b: int, devices: np.ndarray, near: np.ndarray, balance: np.ndarray, hosts: int, gamma: float) -> int:
    size = len(balance) // hosts
    best, lowest = 0, np.inf
    for host in range(hosts):
        far = (not has(near, a, host)) + (a != b and not has(near, b, host))
        for i in range(host * size, (host + 1) * size):
            new = (not has(devices, a, i)) + (a != b and not has(devices, b, i))
            score = (1 - gamma) * new + gamma * far + balance[i]
            if score < lowest:
                best, lowest = i, score
    return best
