"""Consecutive nodes in ranges of equal predicted cost (ROC)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.graphs import Graph
from harness.partition.partitioners._partitioner import NodePartitioner

BLOCK = 32  # nodes whose rows one memory transaction of a warp may share


@dataclass(frozen=True)
class Ranges(NodePartitioner):
    """Consecutive ids in ranges of equal cost, the cost model of ROC's partitioner with fixed weights.

    A node costs `nodes` + `edges` x in-degree + `blocks` x the number of 32-node blocks that its neighbours lie in;
    bounds cut the sums of costs into equal pieces, so a range is off by less than one node. With the defaults, edges
    alone, it is the published code's rule. ROC refits the weights to measured times while it trains; here they
    are given.

    Options:
        nodes, edges, blocks: seconds, or any other unit of cost, of each.
    """

    nodes: float = 0.0
    edges: float = 1.0
    blocks: float = 0.0

    name = "ranges"

    def validate(self) -> None:
        weights = (self.nodes, self.edges, self.blocks)
        fits = all(0 <= weight < float("inf") for weight in weights) and sum(weights) > 0
        self._require("nodes, edges and blocks must be at least 0 and finite, one of them above 0", fits)

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        costs = self.costs(graph)
        sums = np.cumsum(costs)
        total = float(sums[-1]) if len(sums) else 0.0
        # A node belongs to the range that its middle lies in, so no range is off by more than half of its last node.
        middle = sums - costs / 2
        found = middle * num_parts / total if total else np.zeros(len(sums))
        return np.minimum(found, num_parts - 1).astype(np.int32)

    def memory(self, num_nodes: int, num_edges: int, num_parts: int) -> int | None:
        if self.blocks:
            return None  # that of sorting a number for every edge
        return 8 * 6 * num_nodes  # degrees, costs, their sums and middles, and two results on the way

    def costs(self, graph: Graph) -> np.ndarray:
        """Predicted cost of every node, float64 [num_nodes]."""
        degree = np.diff(graph.indptr)
        found = self.nodes + self.edges * degree.astype(np.float64)
        if self.blocks:
            rows = np.repeat(np.arange(graph.num_nodes, dtype=np.int64), degree)
            count = graph.num_nodes // BLOCK + 1
            touched = np.unique(rows * count + graph.indices // BLOCK) // count
            found += self.blocks * np.bincount(touched, minlength=graph.num_nodes)
        return found
