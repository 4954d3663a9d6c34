"""Resources of the machine: cores, heap, the cache folder, worker processes, the version of the source code."""

from harness.machine._allocator import huge_pages, keep_heap
from harness.machine._cache import building, cache_root, load_arrays, store_arrays
from harness.machine._cores import CORES_VARIABLE, core_count, usable_cores
from harness.machine._source import code_version
from harness.machine._workers import Died, map_on_processes

__all__ = [
    "Died",
    "CORES_VARIABLE",
    "building",
    "cache_root",
    "code_version",
    "core_count",
    "map_on_processes",
    "huge_pages",
    "keep_heap",
    "load_arrays",
    "store_arrays",
    "usable_cores",
]
