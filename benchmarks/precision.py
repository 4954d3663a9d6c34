"""Test accuracy in bf16 beside fp32, with paired seeds, and what products, sums and epochs cost in each.

    HALOSCOPE_DATA=... python -m benchmarks.precision [--graphs cora,amazon_computers] [--seeds 5] [--no-times]

Accuracy: the test accuracy at the best validation of `vanilla` on two ranks (loopback), GraphSAGE 3 x 64 with LayerNorm
and dropout 0.5, and the mean difference of both precisions with its 95 % interval (Student's t over seeds). Times: one
thread, 50,000 x 256 by 256 x 256 in the three forms that a layer needs, and sums over 50 neighbours, all in turns, as
medians; products write to memory that is there already, sums to new memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats

from benchmarks.accuracy import CASES
from harness.config import RunConfig
from harness.graphs import Block
from harness.running import run

ROWS, WIDTH, DEGREE, TURNS = 50_000, 256, 50, 7


def setting(graph: str, seed: int, precision: str) -> RunConfig:
    """One training of the comparison."""
    case = CASES[graph]
    return RunConfig.of(
        dataset=graph, split=case.split, features=case.features, epochs=case.epochs, lr=case.lr, seed=seed,
        model="sage", layers=3, hidden=64, norm="layer", dropout=0.5, parts=2, threads=1, eval_every=5,
        precision=precision,
    )  # fmt: skip


def accuracy(graph: str, seed: int, precision: str) -> float:
    """Test accuracy in percent at the best validation."""
    return 100 * float(run(setting(graph, seed, precision)).summary()["best_test"])


def compare(graph: str, seeds: int) -> None:
    """Print one row: both means, and the difference with its interval."""
    pairs = [[accuracy(graph, seed, precision) for precision in ("fp32", "bf16")] for seed in range(seeds)]
    whole, half = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    apart = [second - first for first, second in pairs]
    spread = statistics.stdev(apart) / seeds**0.5 * float(stats.t.ppf(0.975, seeds - 1))
    difference = f"{half - whole:+.2f} +- {spread:.2f} ({seeds} seeds)"
    print(f"{graph:20} fp32 {whole:6.2f}  bf16 {half:6.2f}  difference {difference}")


def times() -> None:
    """Print the median seconds of every operation in both precisions, and their ratio."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    columns = np.sort(random.integers(0, ROWS, (ROWS, DEGREE)), axis=1).astype(np.int32)
    block = Block.from_csr(np.arange(0, ROWS * DEGREE + 1, DEGREE, dtype=np.int32), columns.reshape(-1), ROWS)
    calls: dict[str, list[Callable[[], object]]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, g, w = (torch.randn(n, WIDTH).to(dtype) for n in (ROWS, ROWS, WIDTH))
        out, square = torch.empty_like(x), torch.empty_like(w)
        for name, call in {
            "rows x weights": lambda x=x, w=w, out=out: torch.mm(x, w, out=out),
            "gradients x weights^T": lambda g=g, w=w, out=out: torch.mm(g, w.t(), out=out),
            "rows^T x gradients": lambda x=x, g=g, square=square: torch.mm(x.t(), g, out=square),
            "neighbour sums": lambda x=x: torch.ops.haloscope.gather_sum(block.indptr, block.indices, x),
        }.items():
            calls.setdefault(name, []).append(call)
    for name, pair in calls.items():
        found: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for which, call in enumerate(pair):
                begin = time.perf_counter()
                call()
                found[which].append(time.perf_counter() - begin)
        whole, half = (1e3 * statistics.median(each[1:]) for each in found)
        print(f"{name:24} fp32 {whole:7.1f} ms  bf16 {half:7.1f} ms  {whole / half:.2f} x")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="cora,citeseer,amazon_computers")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-times", action="store_true")
    options = parser.parse_args()
    if not options.no_times:
        times()
    for graph in filter(None, options.graphs.split(",")):
        compare(graph, options.seeds)


if __name__ == "__main__":
    main()
