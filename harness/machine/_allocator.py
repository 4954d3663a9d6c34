"""Memory allocation of ranks on CPUs: settings of the C library and of torch.

An epoch allocates and frees the same tensors repeatedly. By default the C library returns the top of the heap to the
system whenever it is free, so that every epoch has a page fault for each 4 KiB of it.
"""

from __future__ import annotations

import ctypes

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


def huge_pages(largest: int) -> dict[str, str]:
    """Environment of a rank whose row tensors have up to `largest` bytes: huge pages if each tensor is mapped anew.

    Tensors above MAPPED_ABOVE always are, whatever the settings. Smaller ones would only be aligned to huge pages.
    `benchmarks.epoch` measures PyG with and without.
    """
    return {"THP_MEM_ALLOC_ENABLE": "1"} if largest > MAPPED_ABOVE else {}
