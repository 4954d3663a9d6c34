"""Edge cuts: nodes are assigned to ranks (METIS, KaMinPar, hash, ...); parts, their quality, and their store on disk.

`overlap` and `vertex` use the layout and the store of this folder. Other code imports `harness.partition`, except
reports and tests that need a single assignment.
"""

from harness.partition.edge._assign import assign
from harness.partition.edge._build import build_part, build_parts, features, labels
from harness.partition.edge._changed_code import tell_of_changed_code
from harness.partition.edge._layout import Layout, Renumber, bucket, lay_out, totals_of
from harness.partition.edge._memory import BuildMemory, build_memory
from harness.partition.edge._quality import OverlapQuality, Quality, quality
from harness.partition.edge._store import (
    WHOLE,
    MemoryOfBuild,
    PartitionFolder,
    assigned,
    export_partition,
    keep_part,
    keep_whole,
    missing_parts,
    open_partition,
    part_name,
    partition_path,
    partition_version,
    partitioned,
    read_part,
    read_whole,
    stored,
)

__all__ = [
    "WHOLE",
    "BuildMemory",
    "Layout",
    "MemoryOfBuild",
    "OverlapQuality",
    "PartitionFolder",
    "Quality",
    "Renumber",
    "assign",
    "assigned",
    "bucket",
    "build_memory",
    "build_part",
    "build_parts",
    "export_partition",
    "features",
    "keep_part",
    "keep_whole",
    "labels",
    "lay_out",
    "missing_parts",
    "open_partition",
    "part_name",
    "partition_path",
    "partition_version",
    "partitioned",
    "quality",
    "read_part",
    "read_whole",
    "stored",
    "tell_of_changed_code",
    "totals_of",
]
