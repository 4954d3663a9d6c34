"""Microseconds that an all-to-all takes once its last rank has arrived, under two policies for gloo's threads.

    python -m benchmarks.exchange_latency [--ranks 2] [--kibibytes 128] [--compute-ms 7] [--repeat 30] [--rounds 4]

The ranks compute, exchange, compute, as in training. `batch`, as in every run, lets a gloo thread that wakes up wait
for the rank beside it; `other` schedules it like any thread (`real/rank/_gloo_threads.py`). Both are measured in
turn in one run. `hidden`: the rank computes behind the started exchange; what it spends itself on starting it and on
waiting for it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from harness.effects import Rows
from harness.rank import Rank
from real.launch import launch
from real.measure.link_probes import pass_checked_epochs, since_last_arrival
from real.rank import run_program
from real.rank._gloo_threads import schedule_gloo_threads
from real.rank.connection import connect
from real.rank.health import end_process

Found = dict[tuple[str, str], list[float]]
SHOWN = (0.1, 0.25, 0.5, 0.75, 0.9)


def compute(seconds: float, data: torch.Tensor) -> None:
    """Pass over memory for about so long."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        data.mul_(1.0)


async def timed(rank: Rank, nbytes: int, seconds: float, repeat: int, hidden: bool) -> torch.Tensor:
    """Seconds of every repetition, float64 [repeat]: after the last arrival, or if hidden on this rank itself."""
    rows = np.full(rank.size, nbytes // 4, np.int64)
    rows[rank.index] = 0
    source, data = torch.ones(int(rows.sum())), torch.ones(1 << 20)
    marks = torch.zeros(rank.size, repeat, 2, dtype=torch.float64)
    for index in range(repeat):
        compute(seconds, data)
        begin = time.perf_counter()
        handle = await rank.start(rank.all_to_all([Rows(source, rows, rows)], label="rows"))
        end = time.perf_counter()
        if hidden:
            compute(seconds, data)
            begin += time.perf_counter() - end
        await rank.wait(handle)
        marks[rank.index, index] = torch.tensor([begin, time.perf_counter()], dtype=torch.float64)
    everyone = await rank.all_reduce(marks, label="times")
    return (everyone[..., 1] - everyone[..., 0]).mean(0) if hidden else since_last_arrival(everyone)


async def program(rank: Rank, nbytes: int, seconds: float, repeat: int, rounds: int) -> Found:
    """Seconds of all repetitions by kind and policy; the first round is not counted."""
    found: Found = {}
    await pass_checked_epochs(rank)
    rank.clock.begin_epoch()
    for round_ in range(rounds + 1):
        for policy in ("other", "batch"):
            await rank.all_reduce(torch.zeros(1), label="change the policy")
            schedule_gloo_threads(policy == "batch")
            for kind in ("waited for", "hidden"):
                times = (await timed(rank, nbytes, seconds, repeat, kind == "hidden")).tolist()
                if round_:
                    found.setdefault((kind, policy), []).extend(times)
    rank.clock.end_epoch()
    return found


def rank_main(args: argparse.Namespace) -> None:
    """One rank: measure; rank 0 prints."""
    with connect() as link:
        found = run_program(
            lambda rank: program(rank, args.kibibytes << 10, args.compute_ms / 1e3, args.repeat, args.rounds), link
        )
    if link.rank == 0:
        work = f"{args.compute_ms:g} ms of compute before each"
        print(f"{args.ranks} ranks, {args.kibibytes} KiB to each other rank, {work}, microseconds")
        print(f"{'exchange':>12} {'policy':>7}" + "".join(f"{f'{share:.0%}':>8}" for share in SHOWN) + f"{'mean':>8}")
        for (kind, policy), times in sorted(found.items(), reverse=True):
            values = [*np.quantile(times, SHOWN), np.mean(times)]
            print(f"{kind:>12} {policy:>7}" + "".join(f"{value * 1e6:8,.0f}" for value in values), flush=True)


def main() -> None:
    """Launch the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kibibytes", type=int, default=128)
    parser.add_argument("--compute-ms", type=float, default=7.0)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank_main(args)
        end_process(0)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in vars(args).items() if name != "rank"]
    launch(["-m", "benchmarks.exchange_latency", *flags, "--rank"], args.ranks, threads=1)


if __name__ == "__main__":
    main()
