"""Resources of the machine: cores, heap, files and locks, the cache folder, worker processes, the source's version."""

from harness.machine._allocator import huge_pages, keep_heap
from harness.machine._cache import building, cache_root, has_entry, load_arrays, store_arrays
from harness.machine._cores import CORES_VARIABLE, Claim, core_count, processor, usable_cores
from harness.machine._files import Lock, remove_scratch, replacing, synchronise, write_atomically
from harness.machine._source import code_version
from harness.machine._workers import Died, map_on_processes

__all__ = [
    "Died",
    "CORES_VARIABLE",
    "Claim",
    "Lock",
    "building",
    "cache_root",
    "code_version",
    "core_count",
    "map_on_processes",
    "huge_pages",
    "keep_heap",
    "has_entry",
    "load_arrays",
    "processor",
    "remove_scratch",
    "replacing",
    "store_arrays",
    "synchronise",
    "usable_cores",
    "write_atomically",
]
