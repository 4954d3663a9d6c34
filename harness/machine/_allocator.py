"""Memory allocation of ranks on CPUs: settings of the C library and of torch, and what is left.

An epoch allocates and frees the same tensors repeatedly. By default the C library returns the top of the heap to the
system whenever it is free, so that every epoch has a page fault for each 4 KiB of it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from harness.machine._large_blocks import large_blocks

MAPPED_ABOVE = 32 << 20
"""Bytes: glibc's largest threshold between memory that it keeps and memory that it maps for one tensor."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt (malloc.h)."""

LARGE_BLOCKS_VARIABLE = "HALOSCOPE_LARGE_BLOCKS"
"""Set where a process keeps large blocks from its start; `large_blocks.c` and `keep_heap` read it."""

RESTARTED_VARIABLE = "HALOSCOPE_RESTARTED"
"""Set in a process that `restart_in_allocator_environment` has replaced."""

HUGE_PAGES_VARIABLE = "THP_MEM_ALLOC_ENABLE"
"""Tells torch to ask for huge pages, for tensors of 2 MiB and more."""


def keep_heap(largest: int = 0) -> bool:
    """Make this process keep freed heap memory; returns whether the C library supports this (glibc).

    Large blocks are kept too where a tensor of `largest` bytes would be mapped anew, or LARGE_BLOCKS_VARIABLE is set,
    if the process was started in `allocator_environment`. `benchmarks.allocator` measures the effect.
    """
    if largest > MAPPED_ABOVE or os.environ.get(LARGE_BLOCKS_VARIABLE):
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).haloscope_keep_large_blocks()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, MAPPED_ABOVE)) and bool(mallopt(TRIM_THRESHOLD, -1))


def allocator_environment() -> dict[str, str]:
    """Environment to start ranks in, so that they can keep large tensors: variables to add to those of this process.

    Tensors above MAPPED_ABOVE are mapped anew in every epoch, whatever the settings of the C library. A library loaded
    before it keeps them once it is told to (`keep_heap`), so that an epoch has hardly a page fault
    (`benchmarks.epoch`); until then it does nothing. Where it cannot be built, large tensors get huge pages, which are
    fewer. An allocator that the user preloads goes first.
    """
    library = large_blocks()
    if library is None:
        return {HUGE_PAGES_VARIABLE: os.environ.get(HUGE_PAGES_VARIABLE, "1")}
    others = [each for each in os.environ.get("LD_PRELOAD", "").split(":") if each not in ("", str(library))]
    return {"LD_PRELOAD": ":".join([*others, str(library)])}


def large_tensors(largest: int) -> dict[str, str]:
    """Environment of a process whose tensors have up to `largest` bytes: none unless each would be mapped anew."""
    if largest <= MAPPED_ABOVE:
        return {}
    return {**allocator_environment(), LARGE_BLOCKS_VARIABLE: "1"}


def restart_in_allocator_environment() -> None:
    """Replace this process by the same command in `allocator_environment`, once, where that has a library to load.

    For processes that others start, before they import anything large. Returns where the library is loaded, where it
    cannot be, or where this process has been replaced before.
    """
    if os.environ.get(RESTARTED_VARIABLE):
        return
    more = allocator_environment()
    if more.get("LD_PRELOAD") in (None, os.environ.get("LD_PRELOAD")):
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **more, RESTARTED_VARIABLE: "1"})


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
