"""What the checksums of the cache cost: `python -m benchmarks.cache`.

Stores arrays of `--mib` MiB, loads them mapped with and without their checksums, and prints the seconds and GiB/s of
both, medians of interleaved rounds. Everything is in the page cache, where the share of the checksums is largest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from harness.console import stdout
from harness.machine import load_arrays, store_arrays

ROUNDS = 5


def read_through(folder: Path, checked: bool) -> float:
    """Seconds until every byte of the entry has been read once, by the checksums or by a sum."""
    begin = perf_counter()
    if checked:
        assert load_arrays(folder) is not None
    else:
        for file in folder.glob("*.npy"):
            np.load(file, mmap_mode="c", allow_pickle=False).sum()
    return perf_counter() - begin


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mib", type=int, default=512, help="size of the entry, MiB")
    mib = options.parse_args().mib
    with tempfile.TemporaryDirectory() as scratch:
        folder, random = Path(scratch) / "entry", np.random.default_rng(0)
        store_arrays(folder, {"a": random.integers(0, 2**62, mib << 17)}, {})
        read_through(folder, True)  # compiles
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for checked, found in times.items():
                found.append(read_through(folder, checked))
    for checked, found in times.items():
        seconds = statistics.median(found)
        name = "load with checksums" if checked else "sum of all words"
        stdout().print(f"{name}: {seconds:.3f} s, {mib / 1024 / seconds:.2f} GiB/s (median of {ROUNDS}, {mib} MiB)")


if __name__ == "__main__":
    main()
