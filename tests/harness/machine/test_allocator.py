"""Settings of the C library for ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.machine import huge_pages
from harness.machine._allocator import MAPPED_ABOVE

GROWS_AND_SHRINKS = """
import ctypes, os, resource, sys
from harness.machine import keep_heap
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
if "keep" in sys.argv and not keep_heap():
    sys.exit(3)
def epoch():
    blocks = [c.malloc(4 << 20) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 4 << 20)
    for block in reversed(blocks):
        c.free(block)
for _ in range(3):
    epoch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    epoch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*words: str) -> int:
    done = subprocess.run([sys.executable, "-c", GROWS_AND_SHRINKS, *words], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_memory_that_was_used_once_is_not_faulted_in_again() -> None:
    assert faults("keep") < 100 < faults()


def test_huge_pages_only_where_tensors_are_mapped_afresh() -> None:
    assert huge_pages(MAPPED_ABOVE) == {}
    assert huge_pages(MAPPED_ABOVE + 1) == {"THP_MEM_ALLOC_ENABLE": "1"}
