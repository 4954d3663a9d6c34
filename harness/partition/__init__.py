"""Partitions a graph and builds the part of each rank; parts are cached under a key of their content.

`edge` assigns nodes to ranks, `overlap` adds copies of foreign nodes to such parts, `vertex` assigns edges; each has
its own partitioners, measures of quality and store. `cutting` selects one of them for a run.
"""

from harness.partition._cutting import Cutting, Folder, cutting
from harness.partition.edge import (
    PARTITIONERS,
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
    quality_of,
)

__all__ = [
    "Cutting",
    "Folder",
    "Layout",
    "PARTITIONERS",
    "PartitionFolder",
    "Quality",
    "Renumber",
    "assign",
    "build_part",
    "build_parts",
    "cutting",
    "lay_out",
    "open_partition",
    "partition_version",
    "partitioned",
    "quality",
    "quality_of",
]
