"""The cores that this process may use: fewer than the machine has under taskset, in a container or in a job."""

from __future__ import annotations

import os

CORES_VARIABLE = "HALOSCOPE_CORES"
"""Set by our launcher for ranks, which it keeps to some cores each: the cores of all of them, separated by commas."""


def usable_cores() -> list[int]:
    """Numbers of the cores that the ranks of this machine may use together, ascending."""
    if told := os.environ.get(CORES_VARIABLE):
        return [int(core) for core in told.split(",")]
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_count() -> int:
    """How many cores this process and those it starts may use."""
    return len(usable_cores())
