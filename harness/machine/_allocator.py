"""Memory allocation of ranks on CPUs: settings of the C library and of torch, and what is left.

An epoch allocates and frees the same tensors repeatedly. By default the C library returns the top of the heap to the
system whenever it is free, so that every epoch has a page fault for each 4 KiB of it.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

from harness.machine._large_blocks import large_blocks

MAPPED_ABOVE = 32 << 20
"""Bytes: glibc's largest threshold between memory that it keeps and memory that it maps for one tensor."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt (malloc.h)."""


def keep_heap() -> bool:
    """Make this process keep freed heap memory; returns whether the C library supports this (glibc).

    `benchmarks.allocator` measures the effect.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, MAPPED_ABOVE)) and bool(mallopt(TRIM_THRESHOLD, -1))


def large_tensors(largest: int) -> dict[str, str]:
    """Environment of a rank whose row tensors have up to `largest` bytes: none unless each would be mapped anew.

    Tensors above MAPPED_ABOVE always are, whatever the settings. A library loaded before the C library keeps them, so
    that an epoch has hardly a page fault (`benchmarks.epoch`); where it cannot be built, they get huge pages, which
    are fewer. Smaller tensors are kept by `keep_heap`.
    """
    if largest <= MAPPED_ABOVE:
        return {}
    library = large_blocks()
    if library is None:
        return {"THP_MEM_ALLOC_ENABLE": "1"}
    others = os.environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": f"{library}:{others}" if others else str(library), "THP_MEM_ALLOC_ENABLE": "0"}


def memory_left() -> int | None:
    """Bytes that this process may still have: of its own limit or of the machine, whichever is less.

    None where neither is known.
    """
    left = []
    try:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            left.append(limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize())
        lines = Path("/proc/meminfo").read_text().splitlines()
        left += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    return min(left, default=None)
