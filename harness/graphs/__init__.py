"""Graphs, and what one rank holds of a partitioned one.

Owns the types that every other folder works on: `Graph` (the whole graph, checked once), `Part` with its `Block`s and
`HaloPlan` (one rank of an edge cut), `VertexPart` (one rank of a vertex cut). Loads, cuts and sends nothing. Open to
every folder but `harness.kernels`, which it is built on.
"""

from harness.graphs._checks import UNLABELLED, index_dtype
from harness.graphs._graph import Graph, NodeData, from_csr, from_edges
from harness.graphs._part import Block, HaloPlan, LocalGraph, Part, Totals
from harness.graphs._vertex_part import VertexPart

__all__ = [
    "Block",
    "Graph",
    "HaloPlan",
    "LocalGraph",
    "NodeData",
    "Part",
    "Totals",
    "UNLABELLED",
    "VertexPart",
    "from_csr",
    "from_edges",
    "index_dtype",
]
