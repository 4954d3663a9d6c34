"""The vertex-cut partitioners by name: each turns a symmetric graph into a part per undirected edge.

Only the assignment of edges and of masters is made here; parts and plans are built elsewhere. A new vertex cut is one
class in a file of its own and one line in `EDGE_PARTITIONERS`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from harness.errors import InputError, unknown
from harness.graphs import Graph
from harness.partition.vertex._dne import DNE
from harness.partition.vertex._ebv import EBV
from harness.partition.vertex._hdrf import HDRF
from harness.partition.vertex._hep import HEP
from harness.partition.vertex._libra import Libra
from harness.partition.vertex._masters import masters
from harness.partition.vertex._pairs import undirected_pairs
from harness.partition.vertex._partitioner import EdgePartitioner

__all__ = [
    "EDGE_PARTITIONERS",
    "assign_edges",
    "edge_partitioner",
    "edge_settings",
    "is_vertex_cut",
    "masters",
    "undirected_pairs",
]

EDGE_PARTITIONERS: dict[str, type[EdgePartitioner]] = {kind.name: kind for kind in (EBV, HEP, DNE, Libra, HDRF)}


def is_vertex_cut(text: str) -> bool:
    """Whether `text`, a name with or without options, names a vertex cut; options are not checked."""
    return text.partition(":")[0] in EDGE_PARTITIONERS


def edge_partitioner(text: str) -> EdgePartitioner:
    """The vertex cut that `name` or `name:option=value:...` describes.

    Raises InputError for an unknown name or option (the nearest one is named), a wrong type, or a value out of range.
    """
    name, *pairs = text.split(":")
    if name not in EDGE_PARTITIONERS:
        raise unknown("vertex-cut partitioner", name, EDGE_PARTITIONERS)
    kind = EDGE_PARTITIONERS[name]
    options = {field.name.removesuffix("_"): field.name for field in fields(kind)}
    values: dict[str, str] = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise InputError(f"partitioner {text!r}: {pair!r} is not option=value")
        if key not in options:
            raise unknown(f"option of {name}", key, options)
        values[options[key]] = value
    try:
        made: EdgePartitioner = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"partitioner {text!r}: {error}") from None
    made.validate()
    return made


def edge_settings(text: str, num_parts: int, seed: int, hosts: int) -> dict[str, Any]:
    """The settings that an assignment depends on, for cache keys: equivalent texts and seeds give equal settings.

    Keys: partitioner (with all options), num_parts, seed (None if it has no effect), hosts.
    """
    chosen = edge_partitioner(text)
    options = sorted((field.name.removesuffix("_"), getattr(chosen, field.name)) for field in fields(chosen))
    written = ":".join((chosen.name, *(f"{key}={value}" for key, value in options)))
    return {
        "partitioner": written,
        "num_parts": num_parts,
        "seed": seed if chosen.seeded else None,
        "hosts": hosts,
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
