"""Seconds and memory that the fluid network takes for one all-to-all, and how they grow with the number of ranks.

    python -m benchmarks.network [--ranks 16 64 192 1024] [--sizes equal different] [--repeat 2] [--window 0.01]

Hosts of 8 devices (192 ranks: of 6) on a PCIe bus of 22.7 GB/s each, one NIC of 8.27 GB/s per host, NCCL. `equal`:
64 kB each; `different`: 1 to 127 kB in random order, all different up to 354 ranks. Rows are one process each, so
that the peak memory is its own. The first run, which may compile, is not counted; times are CPU seconds of one core;
`again` is the same exchange once more, from memory. 4096 ranks take two minutes and 2.7 GB.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import simpy

from sims.cluster import Placement, load_cluster, place
from sims.network import FluidNetwork
from sims.network._completions import WINDOW

CLUSTER = """
[hosts]
count = {hosts}
devices = {devices}
device = "a800-80gb"

[links.bus]
bandwidth = "22.7 GB/s"
latency = "5 us"

[links.nic]
bandwidth = "8.27 GB/s"
latency = "10 us"

[transport]
kind = "nccl"
"""


def placed(ranks: int) -> Placement:
    """So many ranks on hosts of 8 devices, or of 6 where that divides."""
    devices = 6 if ranks % 6 == 0 else 8
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.toml"
        path.write_text(CLUSTER.format(hosts=ranks // devices, devices=devices))
        return place(load_cluster(path), ranks)


def exchange(network: FluidNetwork, placement: Placement, nbytes: np.ndarray) -> float:
    """Modelled seconds of an all-to-all of nbytes [ranks, ranks]."""
    env, start = network.env, network.env.now
    ends = [network.group(2 * (placement.size - 1)) for _ in range(placement.size)]
    numbers = np.asarray([number for number, _ in ends], np.int32)
    for first in range(0, placement.size, 64):  # in portions, as from ranks that arrive one after the other
        rank, peer = np.meshgrid(np.arange(first, min(first + 64, placement.size)), np.arange(placement.size))
        src, dst = rank[rank != peer].astype(np.int32), peer[rank != peer].astype(np.int32)
        head, tail = placement.segments_of(src, dst)
        groups = np.stack([numbers[src], numbers[dst]], axis=1)
        network.add_by_segments(head, tail, nbytes[src, dst], placement.route_latencies(head, tail), groups)
    env.run(until=env.all_of([event for _, event in ends]))
    return env.now - start


def sizes_of(kind: str, ranks: int) -> np.ndarray:
    """Bytes from every rank to every other, int64 [ranks, ranks]; 64 kB on average."""
    if kind == "equal":
        return np.full((ranks, ranks), 64_000)
    return 1_000 + (np.random.default_rng(0).permutation(ranks * ranks) * 126_000 // ranks**2).reshape(ranks, ranks)


def measure(ranks: int, kind: str, repeat: int, window: float) -> tuple[float, float, float, float, int, float]:
    """CPU seconds of the exchange and of the same again (best), peak GB, modelled seconds, solves, window."""
    placement, nbytes = placed(ranks), sizes_of(kind, ranks)
    times = []
    for run in range(repeat + 1):
        run_placement, run_bytes = (placement, nbytes) if run else (placed(48), sizes_of("different", 48))
        network = FluidNetwork(simpy.Environment(), run_placement.capacity, run_placement.segments, window)
        start = time.process_time()
        modelled = exchange(network, run_placement, run_bytes)
        first = time.process_time()
        exchange(network, run_placement, run_bytes)
        times.append((first - start, time.process_time() - first))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    once, again = (min(column) for column in zip(*times[1:], strict=True))
    return once, again, peak, modelled, network.solves, network.facts()["network_window_s"]


def main() -> None:
    """Print one line per number of ranks and kind of sizes, then the growth exponents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 192, 1024])
    parser.add_argument("--sizes", nargs="+", choices=("equal", "different"), default=["equal", "different"])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--window", type=float, default=WINDOW)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(*measure(args.ranks[0], args.sizes[0], args.repeat, args.window))
        return
    print(f"{'ranks':>6}{'transfers':>11}{'sizes':>11}{'seconds':>10}{'again':>9}{'GB':>7}{'modelled s':>12}", end="")
    print(f"{'solves':>8}{'window s':>11}")
    for kind in args.sizes:
        seconds = {}
        for ranks in args.ranks:
            flags = ["--one", "--ranks", str(ranks), "--sizes", kind]
            flags += ["--repeat", str(args.repeat if ranks < 4096 else 1), "--window", str(args.window)]
            found = subprocess.run(
                [sys.executable, "-m", "benchmarks.network", *flags], capture_output=True, check=True
            )
            took, again, peak, modelled, solves, window = found.stdout.decode().split()
            seconds[ranks] = float(took)
            print(
                f"{ranks:>6}{ranks * (ranks - 1):>11}{kind:>11}{float(took):>10.4f}{float(again):>9.4f}"
                f"{float(peak):>7.2f}{float(modelled):>12.6f}{solves:>8}{float(window):>11.2g}",
                flush=True,
            )
        growth = [
            f"{math.log(seconds[b] / seconds[a]) / math.log(b * (b - 1) / (a * (a - 1))):.2f} from {a} to {b} ranks"
            for a, b in zip(args.ranks, args.ranks[1:], strict=False)
        ]
        print(f"exponent of the seconds in the number of transfers, {kind}: {', '.join(growth)}")


if __name__ == "__main__":
    main()
