"""The cores that this process may use: with taskset, in a container or in a job, a subset of the machine's."""

from __future__ import annotations

import os
import platform
from pathlib import Path

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


def processor() -> str:
    """The name of this machine's processor, as its operating system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
