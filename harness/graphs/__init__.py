"""Graphs, and one rank's part of a partitioned graph.

Defines the types that every other folder works on: `Graph` (the whole graph, checked once), `Part` with its `Block`s
and `HaloPlan` (one rank of an edge cut), `VertexPart` (one rank of a vertex cut). Does not load, partition or
communicate. Built on `harness.kernels`.
"""

from harness.graphs._checks import UNLABELLED, index_dtype
from harness.graphs._edges import EdgeGraph
from harness.graphs._graph import BOTH_DIRECTIONS, Graph, NodeData, from_csr, from_edges
from harness.graphs._part import Block, HaloPlan, HostBlock, LocalGraph, Part, Totals, position_dtype
from harness.graphs._replicas import RankGrid, replicated
from harness.graphs._vertex_part import VertexPart

__all__ = [
    "BOTH_DIRECTIONS",
    "Block",
    "EdgeGraph",
    "Graph",
    "RankGrid",
    "HaloPlan",
    "HostBlock",
    "LocalGraph",
    "NodeData",
    "Part",
    "Totals",
    "UNLABELLED",
    "VertexPart",
    "from_csr",
    "from_edges",
    "index_dtype",
    "position_dtype",
    "replicated",
]
