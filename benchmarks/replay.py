"""Seconds of one what-if point, a replay of a recorded run, beside the full simulation of the same epochs.

    python -m benchmarks.replay [--parts 16] [--epochs 1] [--repeat 25] [--cluster NAME ...]

GraphSAGE 3 x 128 on a synthetic graph cut by hash, shapes only, one thread. CPU seconds, best of several.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from harness.config import RunConfig
from sims.cluster import load_cluster
from sims.replay import Replay, record

METHODS = ("vanilla", "sylvie-s:bits=1", "bns-gcn:p=0.1")
CLUSTERS = ("cdfgnn-2x8a800", "sylvie-2x8", "ethernet-10g:hosts.count=16")
CONFIG = RunConfig.of(
    dataset="synthetic:nodes=20000,degree=20,classes=8,features=64", model="sage", layers=3, hidden=128,
    partitioner="hash", mode="sim", shapes_only=True, eval_every=-1,
)  # fmt: skip


def best(call: Callable[[], object], repeat: int) -> float:
    """Fewest CPU seconds of several calls after a first."""
    call()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print one line per method and cluster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--cluster", nargs="*", default=CLUSTERS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{options.parts} ranks, {options.epochs} epochs a point; recorded on the first cluster")
    print(f"{'method':<18}{'cluster':<32}{'full':>10}{'replay':>10}{'solves':>9}")
    for method in METHODS:
        config = CONFIG.changed(method=method, parts=options.parts, epochs=options.epochs, cluster=options.cluster[0])
        replay = Replay(record(config))
        for name in options.cluster:
            cluster = load_cluster(name)
            start = time.process_time()
            record(config.changed(cluster=name))
            full = time.process_time() - start
            point = best(lambda r=replay, c=cluster: r.time(c), options.repeat)  # type: ignore[misc]
            simulator = replay.simulator(cluster)
            simulator.run()
            solves = simulator.effects.network.solves
            print(f"{method:<18}{name:<32}{full:>9.2f}s{1e3 * point:>8.1f}ms{solves:>9}", flush=True)


if __name__ == "__main__":
    main()
