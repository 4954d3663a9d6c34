"""How ranks on CPUs get their memory: settings of the C library and of torch.

An epoch allocates and frees the same tensors again and again. Left alone, the C library gives the top of the heap back
to the system whenever it is free, and every epoch pays a page fault for each 4 KiB of it anew.
"""

from __future__ import annotations

import ctypes

MAPPED_ABOVE = 32 << 20
"""Bytes: glibc's largest threshold between memory that it keeps and memory that it maps for one tensor."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's mallopt (malloc.h)."""


def keep_heap() -> bool:
    """Have this process keep what its heap once held; answers whether the C library can be told so (glibc).

    `benchmarks.allocator` shows what that is worth.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(MMAP_THRESHOLD, MAPPED_ABOVE)) and bool(mallopt(TRIM_THRESHOLD, -1))


def huge_pages(largest: int) -> dict[str, str]:
    """Environment of a rank whose row tensors have up to `largest` bytes: huge pages where each is mapped afresh.

    That is so above MAPPED_ABOVE, whatever one sets. Smaller tensors would only be aligned to huge pages.
    `benchmarks.epoch` shows PyG with and without.
    """
    return {"THP_MEM_ALLOC_ENABLE": "1"} if largest > MAPPED_ABOVE else {}
