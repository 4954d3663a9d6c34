"""Neighbour sums on the CPU: the C function beside torch's `embedding_bag`, by the width of the rows.

Run with `python -m benchmarks.neighbour_sums`. Half of the neighbours of a node are near it, as among nodes that are
sorted by clusters, and half are anywhere. Large blocks of memory are kept as in ranks of a run. The two take turns, so
that a busy machine hits both; times are those of the calling thread's processor with one thread. Sums must be equal
bit by bit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from harness.machine import large_tensors
from harness.nn._neighbour_sums import native_sums, sums_natively

NEAR = 1000
"""Half of the neighbours are at most so many nodes away."""


def neighbours(nodes: int, degree: int) -> tuple[Tensor, Tensor]:
    """indptr and indices, int32, of a graph whose nodes all have this degree."""
    source = torch.Generator().manual_seed(0)
    here = torch.arange(nodes)[:, None]
    near = (here + torch.randint(-NEAR, NEAR + 1, (nodes, degree), generator=source)).clamp_(0, nodes - 1)
    far = torch.randint(0, nodes, (nodes, degree), generator=source)
    chosen = torch.where(torch.rand(nodes, degree, generator=source) < 0.5, near, far).sort(1).values
    return (torch.arange(nodes + 1) * degree).int(), chosen.flatten().int()


def shortest(contenders: list[Callable[[], object]], turns: int, clock: Callable[[], float]) -> list[float]:
    """Shortest time of each in seconds, after a turn that does not count."""
    found = [float("inf")] * len(contenders)
    for turn in range(turns + 1):
        for at, run in enumerate(contenders):
            start = clock()
            run()
            if turn:
                found[at] = min(found[at], clock() - start)
    return found


def compare(indptr: Tensor, indices: Tensor, width: int, turns: int) -> tuple[float, float]:
    """Seconds of `embedding_bag` and of the C function. Raises SystemExit where their bits differ."""
    x = torch.randn(len(indptr) - 1, width, generator=torch.Generator().manual_seed(1))

    def by_torch() -> Tensor:
        return functional.embedding_bag(indices, x, indptr, mode="sum", include_last_offset=True)

    def ours() -> Tensor:
        return native_sums(indptr, indices, x)

    if not torch.equal(by_torch(), ours()):
        sys.exit(f"sums of {width} columns differ")
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    theirs, mine = shortest([by_torch, ours], turns, clock)
    return theirs, mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_200_000)
    parser.add_argument("--degree", type=int, default=25)
    parser.add_argument("--widths", default="16,41,47,100,128,256")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    kept = large_tensors(4 * options.nodes * max(widths))
    if kept and "LD_PRELOAD" not in os.environ:  # a library for memory is loaded when a process starts
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.neighbour_sums", *sys.argv[1:]], os.environ | kept)
    torch.set_num_threads(options.threads)
    indptr, indices = neighbours(options.nodes, options.degree)
    if not sums_natively(indptr, indices, torch.empty(1, 1)):
        sys.exit("no C compiler on this machine")
    print(f"{options.nodes:,} nodes with {options.degree} neighbours, {options.threads} thread(s)")
    print(f"{'columns':>7}{'embedding_bag':>16}{'C function':>14}{'ratio':>8}{'rows read':>14}")
    for width in widths:
        theirs, mine = compare(indptr, indices, width, options.turns)
        rate = 4 * indices.shape[0] * width / mine / 1e9
        print(f"{width:>7}{theirs:>14.3f} s{mine:>12.3f} s{theirs / mine:>8.2f}{rate:>9.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
