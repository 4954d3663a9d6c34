"""Page faults and seconds of an epoch with and without keeping freed heap memory of a rank.

    python -m benchmarks.allocator [--nodes 15000] [--epochs 30] [--repeat 3]

Setting: one device's full-graph GCN of 3 layers x 128, features 64, 20 neighbours (tensors of 7.3 MiB at 15,000 nodes,
below those that are always mapped afresh), one thread. Both ways run in processes of their own, in turn; medians over
epochs after the fifth, then over repetitions. System time and faults are the process's, per epoch.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from harness.config import RunConfig
from harness.machine import keep_heap
from harness.running import run
from harness.running.results import RankEpoch

WARM_UP = 5


def measured(nodes: int, epochs: int) -> dict[str, float]:
    """Seconds, system seconds and page faults of a typical epoch in this process."""
    stamps: list[tuple[float, float, int]] = []

    def note(_: RankEpoch) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        stamps.append((time.perf_counter(), used.ru_stime, used.ru_minflt))

    dataset = f"synthetic:nodes={nodes},degree=20,classes=16,features=64,signal=0.7"
    run(
        RunConfig.of(
            dataset=dataset, model="gcn", layers=3, hidden=128, method="single", parts=1, threads=1, epochs=epochs,
            eval_every=-1,
        ),
        note,
    )  # fmt: skip
    steps = list(zip(stamps[WARM_UP:], stamps[WARM_UP + 1 :], strict=False))
    columns = zip(*([b - a for a, b in zip(*step, strict=True)] for step in steps), strict=True)
    return dict(zip(("seconds", "system", "faults"), map(statistics.median, columns), strict=True))


def _in_a_process(kept: bool, given: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.allocator", "--only", "kept" if kept else "given back"]
    command += ["--nodes", str(given.nodes), "--epochs", str(given.epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=15_000)
    options.add_argument("--epochs", type=int, default=30)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--only", choices=("kept", "given back"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.only:
        if given.only == "kept":
            keep_heap()
        print(json.dumps(measured(given.nodes, given.epochs)))
        return
    runs = [(kept, _in_a_process(kept, given)) for _ in range(given.repeat) for kept in (False, True)]
    found = {
        kept: {key: statistics.median(r[key] for k, r in runs if k == kept) for key in runs[0][1]}
        for kept in (False, True)
    }
    print("| heap | ms/epoch | of the system | page faults/epoch | ratio |\n|---|---:|---:|---:|---:|")
    for kept, name in ((False, "given back (default of the C library)"), (True, "kept (ranks)")):
        row, ratio = found[kept], found[kept]["seconds"] / found[False]["seconds"]
        print(
            f"| {name} | {1e3 * row['seconds']:.1f} | {1e3 * row['system']:.1f} | {row['faults']:.0f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
