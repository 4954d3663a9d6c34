"""Resources of the machine: cores, heap, files and locks, the cache folder, worker processes, the source's version."""

from harness.machine._allocator import (
    allocator_environment,
    keep_heap,
    large_tensors,
    memory_left,
    restart_in_allocator_environment,
)
from harness.machine._arrays import IN_MEMORY, ArrayMaker
from harness.machine._cache import (
    NewEntry,
    building,
    has_entry,
    load_arrays,
    load_meta,
    scratch_in,
    store_arrays,
    writing,
)
from harness.machine._calibration import (
    FOREIGN,
    HERE,
    Depth,
    KeptCalibration,
    calibration_folder,
    kept_calibration,
)
from harness.machine._code import GPU_KERNELS, listed_code, used_code, used_modules
from harness.machine._cores import CORES_VARIABLE, Claim, core_count, processor, usable_cores
from harness.machine._files import (
    Lock,
    Reserved,
    files_left,
    hidden_name,
    kept_json,
    machine_in_name,
    remove_scratch,
    replacing,
    synchronise,
    this_machine,
    write_atomically,
)
from harness.machine._large_blocks import large_blocks
from harness.machine._native import THIS_PROCESSOR, native_library
from harness.machine._resident import ResidentPeak, resident
from harness.machine._run_folders import RUN_FOLDER_VARIABLE, Leftover, leftovers, remove_leftover, run_folder, started
from harness.machine._source import code_version
from harness.machine._termination import TWICE_S, Terminated, ended_by_sigterm
from harness.machine._workers import CALL_S, LOST_AGAIN, Died, end_with, map_on_processes
from harness.user_cache import cache_root

__all__ = [
    "TWICE_S",
    "Terminated",
    "ended_by_sigterm",
    "Died",
    "Leftover",
    "end_with",
    "leftovers",
    "remove_leftover",
    "run_folder",
    "started",
    "ArrayMaker",
    "CALL_S",
    "CORES_VARIABLE",
    "LOST_AGAIN",
    "RUN_FOLDER_VARIABLE",
    "THIS_PROCESSOR",
    "Claim",
    "Depth",
    "FOREIGN",
    "GPU_KERNELS",
    "HERE",
    "IN_MEMORY",
    "KeptCalibration",
    "Lock",
    "NewEntry",
    "ResidentPeak",
    "Reserved",
    "allocator_environment",
    "building",
    "cache_root",
    "calibration_folder",
    "listed_code",
    "used_code",
    "used_modules",
    "code_version",
    "files_left",
    "core_count",
    "map_on_processes",
    "keep_heap",
    "kept_calibration",
    "kept_json",
    "large_blocks",
    "native_library",
    "large_tensors",
    "memory_left",
    "has_entry",
    "hidden_name",
    "load_arrays",
    "load_meta",
    "machine_in_name",
    "processor",
    "remove_scratch",
    "replacing",
    "resident",
    "restart_in_allocator_environment",
    "scratch_in",
    "store_arrays",
    "synchronise",
    "this_machine",
    "usable_cores",
    "write_atomically",
    "writing",
]
