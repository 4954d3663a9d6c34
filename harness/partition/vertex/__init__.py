"""Vertex cuts: edges are assigned to ranks (EBV, HEP, DNE, Libra, HDRF), nodes have a master and mirrors."""

from harness.partition.partitioners import undirected_pairs
from harness.partition.vertex._assign import assign_edges
from harness.partition.vertex._build import build_vertex_parts
from harness.partition.vertex._masters import masters
from harness.partition.vertex._quality import VertexQuality, vertex_quality
from harness.partition.vertex._store import open_vertex_partition, vertex_assigned, vertex_partitioned

__all__ = [
    "VertexQuality",
    "assign_edges",
    "build_vertex_parts",
    "masters",
    "open_vertex_partition",
    "undirected_pairs",
    "vertex_assigned",
    "vertex_partitioned",
    "vertex_quality",
]
