"""Assigns nodes to ranks and builds what each rank holds; the parts are cached under a content key.

`assign` names the partitioners, `build` makes blocks and exchange plans, `quality` measures an assignment and `store`
keeps the result; `cutting` chooses between edge cuts, overlapping parts and vertex cuts.
"""

from harness.partition.assign import PARTITIONERS, assign
from harness.partition.build import build_part, build_parts
from harness.partition.cutting import Cutting, Folder, cutting
from harness.partition.layout import Layout, Renumber, lay_out
from harness.partition.quality import Quality, quality, quality_of
from harness.partition.store import PartitionFolder, open_partition, partition_version, partitioned

__all__ = [
    "PARTITIONERS",
    "Cutting",
    "Folder",
    "Layout",
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
