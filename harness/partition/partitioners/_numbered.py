"""Edge cuts that depend only on the numbers of the nodes: hash and contiguous."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.graphs import Graph, index_dtype
from harness.partition.partitioners._partitioner import NodePartitioner


@dataclass(frozen=True)
class Hash(NodePartitioner):
    """Node id modulo the number of parts (EC-Graph: python/data_processing/dataPartition.py)."""

    name = "hash"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        ids = np.arange(graph.num_nodes, dtype=index_dtype(graph.num_nodes))
        return np.remainder(ids, num_parts, out=ids).astype(np.int32, copy=False)

    def memory(self, num_nodes: int, num_edges: int, num_parts: int) -> int | None:
        return _ids(num_nodes)


@dataclass(frozen=True)
class Contiguous(NodePartitioner):
    """Blocks of ceil(N / P) consecutive ids, the last ones shorter or empty (CAGNET's natural order)."""

    name = "contiguous"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        ids = np.arange(graph.num_nodes, dtype=index_dtype(graph.num_nodes))
        return np.floor_divide(ids, -(-graph.num_nodes // num_parts), out=ids).astype(np.int32, copy=False)

    def memory(self, num_nodes: int, num_edges: int, num_parts: int) -> int | None:
        return _ids(num_nodes)


def _ids(num_nodes: int) -> int:
    """Bytes of the ids, which become the owners in place unless they have 64 bits."""
    width = index_dtype(num_nodes).itemsize
    return num_nodes * (width if width == 4 else width + 4)
