"""From a partitioner's text to the owner of every node, checked; blocks and plans come from `_build`."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.partitioners import NodePartitioner, parse_partitioner
from harness.registry import text_of


def assign(graph: Graph, text: str, num_parts: int, seed: int = 0) -> np.ndarray:
    """The owner of every node, int32 [N] in 0..num_parts-1; parts may be empty.

    Raises InputError for a text that is no edge-cut partitioner, fewer than one part, or more parts than nodes.
    """
    chosen = node_partitioner(text)
    if num_parts < 1:
        raise InputError(f"cannot partition {graph.name} into {num_parts} parts; ask for at least 1")
    if num_parts > max(graph.num_nodes, 1):
        raise InputError(
            f"cannot partition {graph.name} into {num_parts} parts: it has {graph.num_nodes} nodes; ask for fewer parts"
        )
    if num_parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    return chosen.owners(graph, num_parts, seed)


def node_settings(text: str, num_parts: int, seed: int) -> dict[str, Any]:
    """What decides an assignment, for cache keys: texts and seeds that mean the same give equal settings.

    Keys: partitioner (every option written out), num_parts, seed (None where it changes nothing), code (its hash), and
    library where the partitioner has one of its own.
    """
    chosen = node_partitioner(text)
    seeded = seed if chosen.seeded else None
    settings = {"partitioner": text_of(chosen), "num_parts": num_parts, "seed": seeded, "code": chosen.code()}
    return settings | ({"library": chosen.library} if chosen.library else {})


def node_partitioner(text: str) -> NodePartitioner:
    """The edge cut that `name` or `name:option=value:...` describes. InputError for anything else."""
    chosen = parse_partitioner(text)
    if not isinstance(chosen, NodePartitioner):
        raise InputError(f"partitioner {text} assigns edges to parts; an edge cut needs one that assigns nodes")
    return chosen
