"""Partitions a graph and builds the part of each rank; parts are cached under a key of their content.

`partitioners` has the algorithms by name. `edge` gives every node to a rank, `overlap` adds copies of foreign nodes
to such parts, `vertex` gives every edge to a rank; each owns its measures of quality and its store. `cutting` chooses
between them for a run.
"""

from harness.partition._cutting import Cutting, Folder, cutting
from harness.partition.edge import (
    Layout,
    PartitionFolder,
    Quality,
    Renumber,
    assign,
    build_part,
    build_parts,
    lay_out,
    open_partition,
    partition_version,
    partitioned,
    quality,
)
from harness.partition.partitioners import (
    PARTITIONERS,
    EdgePartitioner,
    NodePartitioner,
    Partitioner,
    parse_partitioner,
)

__all__ = [
    "Cutting",
    "EdgePartitioner",
    "Folder",
    "Layout",
    "NodePartitioner",
    "PARTITIONERS",
    "PartitionFolder",
    "Partitioner",
    "Quality",
    "Renumber",
    "assign",
    "build_part",
    "build_parts",
    "cutting",
    "lay_out",
    "open_partition",
    "parse_partitioner",
    "partition_version",
    "partitioned",
    "quality",
]
