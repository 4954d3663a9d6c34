"""The cores that this process may use: with taskset, in a container or in a job, a subset of the machine's."""

from __future__ import annotations

import os

CORES_VARIABLE = "HALOSCOPE_CORES"
"""Set by haloscope's launcher, which pins each rank to some cores: the cores of all ranks, separated by commas."""


def usable_cores() -> list[int]:
    """Numbers of the cores that the ranks of this machine may use together, ascending."""
    if text := os.environ.get(CORES_VARIABLE):
        return [int(core) for core in text.split(",")]
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """Number of cores that this process and its children may use."""
    return len(usable_cores())
