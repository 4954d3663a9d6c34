"""Overlapping parts: an edge cut whose parts also hold copies of nearby foreign nodes (subgraph approximation)."""

from harness.partition.overlap._parts import check_overlap, overlapped, overlapping_parts

__all__ = [
    "check_overlap",
    "overlapped",
    "overlapping_parts",
]
