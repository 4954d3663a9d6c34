"""The partitioners by name: each turns a graph into an owner per node.

Only the assignment is made here; blocks and plans come from `_build`. A new edge-cut partitioner is
one function and one line in `PARTITIONERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.errors import InputError, unknown
from harness.graphs import Graph
from harness.partition.edge._metis import metis, undirected


class Partitioner(NamedTuple):
    """`owners(graph, num_parts, seed)` -> int32 [N]; `seeded`: whether the seed changes the result."""

    owners: Callable[[Graph, int, int], np.ndarray]
    seeded: bool


def metis_volume(graph: Graph, num_parts: int, seed: int) -> np.ndarray:
    """METIS with the communication-volume objective, the default of DGL and BNS-GCN."""
    return metis(*undirected(graph.indptr, graph.indices, graph.is_symmetric()), num_parts, seed, "volume")


def metis_cut(graph: Graph, num_parts: int, seed: int) -> np.ndarray:
    """METIS with the edge-cut objective: a boundary larger by a few percent in a fraction of the time."""
    return metis(*undirected(graph.indptr, graph.indices, graph.is_symmetric()), num_parts, seed, "cut")


def hashed(graph: Graph, num_parts: int, seed: int) -> np.ndarray:
    """Node id modulo the number of parts (EC-Graph: python/data_processing/dataPartition.py)."""
    return (np.arange(graph.num_nodes) % num_parts).astype(np.int32)


def contiguous(graph: Graph, num_parts: int, seed: int) -> np.ndarray:
    """Blocks of ceil(N / P) consecutive ids, the last ones shorter or empty (CAGNET's natural order)."""
    return (np.arange(graph.num_nodes) // -(-graph.num_nodes // num_parts)).astype(np.int32)


PARTITIONERS: dict[str, Partitioner] = {
    "metis": Partitioner(metis_volume, seeded=True),
    "metis-cut": Partitioner(metis_cut, seeded=True),
    "hash": Partitioner(hashed, seeded=False),
    "contiguous": Partitioner(contiguous, seeded=False),
}


def partitioner(name: str) -> Partitioner:
    """The partitioner called `name`. Raises InputError, with the nearest name, if there is none."""
    if name not in PARTITIONERS:
        raise unknown("partitioner", name, PARTITIONERS)
    return PARTITIONERS[name]


def assign(graph: Graph, name: str, num_parts: int, seed: int = 0) -> np.ndarray:
    """The owner of every node, int32 [N] in 0..num_parts-1; parts may be empty.

    Raises InputError for an unknown name, fewer than one part, or more parts than nodes.
    """
    chosen = partitioner(name)
    if num_parts < 1:
        raise InputError(f"cannot partition {graph.name} into {num_parts} parts; ask for at least 1")
    if num_parts > max(graph.num_nodes, 1):
        raise InputError(
            f"cannot partition {graph.name} into {num_parts} parts: it has {graph.num_nodes} nodes; ask for fewer parts"
        )
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    return chosen.owners(graph, num_parts, seed)
