"""From a partitioner's text to a part per undirected edge of a symmetric graph, checked; parts are built elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.partitioners import EdgePartitioner, parse_partitioner, undirected_pairs
from harness.registry import text_of


def edge_partitioner(text: str) -> EdgePartitioner:
    """The vertex cut that `name` or `name:option=value:...` describes. InputError for anything else."""
    chosen = parse_partitioner(text)
    if not isinstance(chosen, EdgePartitioner):
        raise InputError(f"partitioner {text} assigns nodes to parts; a vertex cut needs one that assigns edges")
    return chosen


def edge_settings(text: str, num_parts: int, seed: int, hosts: int) -> dict[str, Any]:
    """The settings that an assignment depends on, for cache keys: equivalent texts and seeds give equal settings.

    Keys: partitioner (with all options), num_parts, seed (None if it has no effect), hosts, code (its hash).
    """
    chosen = edge_partitioner(text)
    return {
        "partitioner": text_of(chosen),
        "num_parts": num_parts,
        "seed": seed if chosen.seeded else None,
        "hosts": hosts,
        "code": chosen.code(),
    }


def assign_edges(graph: Graph, text: str, num_parts: int, seed: int = 0, hosts: int = 1) -> np.ndarray:
    """The part of every pair of `undirected_pairs(graph)`, int32 [M] in 0..num_parts-1; parts may be empty.

    The parts are spread over `hosts` in equal contiguous blocks. Raises InputError for a text that
    `edge_partitioner` refuses, a directed graph, fewer than one part, more parts than nodes, or hosts that do not
    divide the parts.
    """
    chosen = edge_partitioner(text)
    if num_parts < 1:
        raise InputError(f"cannot partition {graph.name} into {num_parts} parts; ask for at least 1")
    if num_parts > max(graph.num_nodes, 1):
        raise InputError(
            f"cannot partition {graph.name} into {num_parts} parts: it has {graph.num_nodes} nodes; ask for fewer parts"
        )
    if hosts < 1 or num_parts % hosts:
        raise InputError(f"{num_parts} parts cannot be spread evenly over {hosts} hosts; give a divisor of {num_parts}")
    if num_parts == 1:
        return np.zeros(len(undirected_pairs(graph)[0]), np.int32)
    return chosen.parts(graph, num_parts, seed, hosts)
