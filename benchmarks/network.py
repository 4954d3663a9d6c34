"""Seconds that the fluid network takes: one solve, and a whole all-to-all on SimPy's clock.

    python -m benchmarks.network [--repeat 5]

Hosts of 6 to 8 devices on a PCIe bus of 22.7 GB/s each, one NIC of 8.27 GB/s per host. All sizes equal, and 17
different sizes. Best of several runs after one that compiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import simpy

from sims.network import FluidNetwork, solve

CASES = ((2, 8), (8, 6), (32, 6))  # hosts, devices each


def all_to_all(hosts: int, devices: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Capacities, routes, latencies, sources and destinations of all ordered pairs."""
    size = hosts * devices
    src, dst = np.nonzero(~np.eye(size, dtype=bool))
    same = src // devices == dst // devices
    tx = np.where(same, -1, 2 * size + src // devices)
    rx = np.where(same, -1, 2 * size + hosts + dst // devices)
    routes = np.stack([src, tx, rx, size + dst], axis=1).astype(np.int32)
    capacity = np.repeat([22.7e9, 8.27e9], [2 * size, 2 * hosts])
    return capacity, routes, np.where(same, 10e-6, 30e-6), src, dst


def exchange(
    capacity: np.ndarray, routes: np.ndarray, latency: np.ndarray, src: np.ndarray, dst: np.ndarray, nbytes: np.ndarray
) -> tuple[float, int]:
    """Modelled seconds of a whole all-to-all, and how many solves it took."""
    env = simpy.Environment()
    network = FluidNetwork(env, capacity)
    flows_of = np.bincount(src) + np.bincount(dst)
    groups = [network.group(int(flows)) for flows in flows_of]
    numbers = np.asarray([number for number, _ in groups])
    network.add(routes, nbytes, latency, np.stack([numbers[src], numbers[dst]], axis=1))
    env.run(until=env.all_of([event for _, event in groups]))
    return env.now, network.solves


def best(call: Callable[[], object], repeat: int) -> float:
    """Fewest seconds of several calls after a first."""
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    print(f"{'ranks':>6}{'flows':>8}{'one solve':>12}{'all equal':>12}{'solves':>8}{'17 sizes':>12}{'solves':>8}")
    for hosts, devices in CASES:
        capacity, routes, latency, src, dst = all_to_all(hosts, devices)
        equal, mixed = np.full(len(src), 64_000), (1 + (7 * src + 13 * dst) % 17) * 20_000
        cells = [best(lambda c=capacity, r=routes: solve(c, r), repeat)]  # type: ignore[misc]
        line = f"{hosts * devices:>6}{len(src):>8}{cells[0]:>11.6f}s"
        for nbytes, times in ((equal, repeat), (mixed, 1)):
            arguments = (capacity, routes, latency, src, dst, nbytes)
            seconds = best(lambda a=arguments: exchange(*a), times)  # type: ignore[misc]
            line += f"{seconds:>11.3f}s{exchange(*arguments)[1]:>8}"
        print(line)


if __name__ == "__main__":
    main()
