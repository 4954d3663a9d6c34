"""Fennel, a streaming edge cut that needs no memory beyond an owner per node, for graphs that are mapped from disk.

Tsourakakis et al., "FENNEL: streaming graph partitioning for massive scale graphs", WSDM 2014; further passes over the
same stream as in Nishimura and Ugander, "Restreaming graph partitioning", KDD 2013. Written from the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit

from harness.graphs import Graph
from harness.partition.partitioners._partitioner import NodePartitioner


@dataclass(frozen=True)
class Fennel(NodePartitioner):
    """Node by node to the part with most of its neighbours, less a price for the size that the part has.

    The gain of part i is the number of in-neighbours that it owns minus alpha gamma nodes_i^(gamma - 1), with the
    paper's alpha = sqrt(P) M / N^1.5 of M undirected edges and N nodes (FENNEL, Sec. 3); the lowest of equals wins,
    but a node stays where it is among them. Full parts get no more nodes. In passes after the first, a node leaves its
    part before it chooses. O(passes (E + N P)) time, O(N + P) memory beside the graph. Communities come out nearly as
    by METIS, meshes and networks of far-apart neighbours much worse (`haloscope partition --compare`).

    Options:
        passes: over all nodes; the last ones are skipped once a pass moves nobody.
        gamma: exponent of the price of size, above 1; the paper's.
        imbalance: how much the largest part may exceed the mean number of nodes; METIS's default.
        order: in which nodes are read; file reads a mapped graph from front to back.
    """

    name = "fennel"
    passes: int = 5
    gamma: float = 1.5
    imbalance: float = 0.03
    order: Literal["random", "file"] = "random"

    def validate(self) -> None:
        self._require("passes must be at least 1", self.passes >= 1)
        self._require("gamma must be above 1 and at most 2", 1 < self.gamma <= 2)
        self._require("imbalance must be 0 to 1", 0 <= self.imbalance <= 1)

    @property
    def seeded(self) -> bool:
        return self.order == "random"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        num_nodes = graph.num_nodes
        owner, size = np.full(num_nodes, -1, np.int32), np.zeros(num_parts, np.int64)
        order = np.random.default_rng(seed).permutation(num_nodes) if self.order == "random" else np.arange(num_nodes)
        price = np.sqrt(num_parts) * (graph.num_edges / 2) / num_nodes**1.5 * self.gamma
        full = max(-(-num_nodes // num_parts), int((1 + self.imbalance) * num_nodes / num_parts))
        # the price of every size, computed once: a power per node and part would take longer than the edges
        prices = price * np.arange(full + 1) ** (self.gamma - 1)
        for _ in range(self.passes):
            if not _stream(graph.indptr, graph.indices, order, owner, size, prices):
                break
        return owner

    def memory(self, num_nodes: int, num_edges: int, num_parts: int) -> int | None:
        full = max(-(-num_nodes // num_parts), int((1 + self.imbalance) * num_nodes / num_parts))
        return (4 + 8) * num_nodes + 4 * 8 * full  # owners and order; prices and what they are computed from


@njit(cache=True, nogil=True)
def _stream(
    indptr: np.ndarray, indices: np.ndarray, order: np.ndarray, owner: np.ndarray, size: np.ndarray, prices: np.ndarray
) -> int:
    """One pass: `owner` (-1 for none) and `size` are changed in place; returns how many nodes moved."""
    near, moved, full = np.zeros(len(size), np.int64), 0, len(prices) - 1
    for v in order:
        old = owner[v]
        if old >= 0:
            size[old] -= 1
        for e in range(indptr[v], indptr[v + 1]):
            part = owner[indices[e]]
            if part >= 0 and indices[e] != v:
                near[part] += 1
        best, most = -1, -np.inf
        for part in range(len(size)):
            if size[part] < full:
                gain = near[part] - prices[size[part]]
                if gain > most or (gain == most and part == old):
                    best, most = part, gain
            near[part] = 0
        owner[v] = best
        size[best] += 1
        moved += best != old
    return moved
