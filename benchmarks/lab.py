"""Seconds of large exchanges of the real driver in a lab, beside those of an ideal fluid on its links.

    python -m benchmarks.lab [--cluster lab:3x1gbit] [--mebibytes 8] [--repeat 10]        (Linux, root)

The ideal moves the payload at the rate of the slowest link that it crosses; `payload` is the same at the 95.6 % of a
rate that TCP in frames of 1514 bytes leaves, `acknowledged` at what acknowledgements of the other direction leave of
that. `least` is the quickest repetition; `cores ns/B` what the cores of this machine spend on a byte from one rank to
another, in all programs and in the kernel, so let nothing run beside it. Below: how much of a message its receiver
lacks when its sender is done, of messages of several sizes, and what the model says (`sims.cluster.Buffers`).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from harness.config import ACKNOWLEDGED, PAYLOAD_SHARE, LabSpec, parse_lab
from harness.effects import Effect, Rows
from harness.rank import Rank
from real.lab import _hosts as lab
from real.lab._probe import ahead, throughput
from real.launch import launch
from real.rank import run_program
from real.rank.connection import connect
from real.rank.health import end_process
from sims.cluster import load_cluster

AHEAD_MIB = (0.25, 0.5, 1, 2, 8)
AHEAD_REPEAT = 8  # messages that are timed, after as many that are not, since windows grow

KINDS = ("all-to-all", "all-reduce, gloo's ring", "all-reduce in rank order")


def exchange(rank: Rank, kind: str, size: int) -> Callable[[], Effect]:
    """Makes one exchange: all-to-all of `size` bytes to every other rank, or all-reduce of as much per rank."""
    if kind == "all-to-all":
        rows = np.full(rank.size, size // 4096, np.int64)
        rows[rank.index] = 0
        data = torch.ones(int(rows.sum()), 1024)
        return lambda: rank.all_to_all([Rows(data, rows, rows)], label=kind)
    data = torch.ones(size // 4 * rank.size)
    return lambda: rank.all_reduce(data, label=kind)


def busy_seconds() -> float:
    """Seconds that the cores of this machine have not idled since it started, interrupts among them (Linux)."""
    ticks = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


async def timed(rank: Rank, kind: str, size: int, repeat: int) -> tuple[list[float], float] | None:
    """Seconds of each repetition, on the slowest rank, and those of cores for all of them; known to rank 0."""
    rank.deterministic = kind.endswith("rank order")
    make, one = exchange(rank, kind, size), np.ones(rank.size, np.int64)
    times = torch.zeros(repeat + 1, dtype=torch.float64)
    spent = 0.0
    for index in range(repeat + 1):
        if index == 1:  # the first is not timed
            spent = -busy_seconds()
        await rank.all_to_all([Rows(torch.zeros(rank.size, 1), one, one)], label="line up")
        begun = time.perf_counter()
        await make()
        times[index] = time.perf_counter() - begun
    spent += busy_seconds()
    to_first = np.zeros(rank.size, np.int64)
    to_first[0] = 1
    found = await rank.all_to_all([Rows(times[1:].reshape(1, -1), to_first, None)], label="times")
    return (found.tensors[0].amax(0).tolist(), spent) if rank.index == 0 else None


def ideal(spec: LabSpec, size: int) -> float:
    """Seconds of a fluid: every rank sends and takes (ranks - 1) x size, the all-reduces twice that for twice as much.

    An all-reduce of ranks x size per rank moves 2 (ranks - 1) x size through every link.
    """
    rate = min((rate for rate in spec.rates if rate is not None), default=float("inf"))
    outside = (spec.ranks - spec.ranks_per_host) * spec.ranks_per_host
    return outside * size / rate


def sockets(built: lab.Lab, *, both_ways: bool) -> float:
    """Time of plain sockets between all hosts, or from the first to the second, relative to the ideal: the overhead of
    the lab itself."""
    hosts, rates = range(built.spec.hosts), [rate for rate in built.spec.rates if rate is not None]
    flows = [(a, b) for a in hosts for b in hosts if a != b] if both_ways else [(0, 1)]
    return min(rates, default=0.0) * (len(hosts) if both_ways else 1) / throughput(built, flows)


def print_ahead(built: lab.Lab) -> None:
    """A line for each size of a message from the first host to the last."""
    cluster = load_cluster(built.spec.name)
    last = built.spec.hosts - 1
    rate = built.spec.rate_between(0, last)
    if rate is None or cluster.buffers is None:
        return
    for mebibytes in AHEAD_MIB:
        nbytes = int(mebibytes * 2**20)
        times = ahead(built, 0, last, [nbytes] * (2 * AHEAD_REPEAT))[AHEAD_REPEAT:]
        held = median((there - left) * rate * PAYLOAD_SHARE for left, there in times) / 2**20
        model = cluster.buffers.hold(nbytes, rate * PAYLOAD_SHARE) / 2**20
        print(f"sender of {mebibytes:g} MiB ahead by {held:>22.2f} MiB, in the model {model:.2f}", flush=True)


def rank_main(spec: LabSpec, size: int, repeat: int) -> None:
    """One rank: measure every kind; rank 0 prints."""
    with connect() as link:
        for kind in KINDS:

            async def program(rank: Rank, kind: str = kind) -> tuple[list[float], float] | None:
                return await timed(rank, kind, size, repeat)

            found = run_program(program, link)
            if found is None:
                continue
            times, spent = found
            best = ideal(spec, size) * (1 if kind == "all-to-all" else 2)
            middle, least = median(times), min(times)
            payload = middle / best * PAYLOAD_SHARE if best else 0.0  # unshaped: no ideal
            ratios = [middle / best, payload, payload / (1 + ACKNOWLEDGED), least / best] if best else []
            moved = spec.ranks * (spec.ranks - 1) * size * (1 if kind == "all-to-all" else 2) * repeat
            ratios += [] if best else [math.nan] * 4
            cores = 1e9 * spent / moved
            shown = "".join(f"{value:>14.2f}" for value in (best * 1e3, middle * 1e3, *ratios, cores))
            print(f"{kind:<28}{shown}", flush=True)


def main() -> None:
    """Build the lab and run its ranks; print one line per exchange."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="lab:3x1gbit")
    parser.add_argument("--mebibytes", type=int, default=8, help="to each other rank")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    spec, size = parse_lab(options.cluster), options.mebibytes << 20
    if options.rank:
        rank_main(spec, size, options.repeat)
        end_process(0)
    print(f"{spec.name}, {options.mebibytes} MiB to each other rank, median of {options.repeat}")
    columns = ("ideal ms", "ms", "x ideal", "x payload", "acknowledged", "least x ideal", "cores ns/B")
    print(f"{'':<28}" + "".join(f"{column:>14}" for column in columns))
    with lab.built(spec) as hosts:
        words = ["--cluster", options.cluster, "--mebibytes", str(options.mebibytes), "--repeat", str(options.repeat)]
        for what, both_ways in (("sockets, one direction", False), ("sockets, all-to-all", True)):
            ratio = sockets(hosts, both_ways=both_ways)
            payload = ratio * PAYLOAD_SHARE
            rest = f"{payload / (1 + ACKNOWLEDGED):>14.2f}" if both_ways else ""
            print(f"{what:<28}{'':>28}{ratio:>14.2f}{payload:>14.2f}{rest}", flush=True)
        print_ahead(hosts)
        launch(["-m", "benchmarks.lab", "--rank", *words], spec.ranks, threads=1, site=hosts, deadline_s=300)


if __name__ == "__main__":
    main()
