"""Edge cuts that depend only on the numbers of the nodes: hash and contiguous."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.graphs import Graph
from harness.partition.partitioners._partitioner import NodePartitioner


@dataclass(frozen=True)
class Hash(NodePartitioner):
    """Node id modulo the number of parts (EC-Graph: python/data_processing/dataPartition.py)."""

    name = "hash"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        return (np.arange(graph.num_nodes) % num_parts).astype(np.int32)


@dataclass(frozen=True)
class Contiguous(NodePartitioner):
    """Blocks of ceil(N / P) consecutive ids, the last ones shorter or empty (CAGNET's natural order)."""

    name = "contiguous"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        return (np.arange(graph.num_nodes) // -(-graph.num_nodes // num_parts)).astype(np.int32)
