"""How long a waiting process waits after another core has become idle: `python -m benchmarks.idle_core`.

One process more than there are cores. All but one compute all the time; the other computes for some milliseconds and
sleeps for some, over and over. When it goes to sleep its core has nothing to do, and one of those that share another
core could go on there. Every process notes the gaps in which it did not run, and its core. Printed is the time from the
moment at which a core became idle to the end of the gap of whoever goes on first, in the cases in which somebody waited
at another core. The model's ranks wait for the next tick of the system's clock (`sims.engine._cores`).
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
from rich.table import Table

from harness.console import stdout
from harness.machine import core_count
from sims.engine._cores import TICK_S

GAP_S = 2e-4  # a process that has not run for so long has lost its core
WORKS_S, SLEEPS_S = 0.02, 0.01  # of the one that sleeps, in the mean; drawn anew, so that ticks are met evenly

Gap = tuple[float, float, int]
"""Begin and end (s) of a gap, and the core before it."""


def where() -> Callable[[], int]:
    """A function that returns the core that this process runs on (Linux)."""
    libc = ctypes.CDLL(None)
    found: Callable[[], int] = libc.sched_getcpu
    return found


def compute(until: float, out: Connection) -> None:
    """Run until a time, and send the gaps."""
    core, gaps, last = where(), list[Gap](), time.perf_counter()
    at = core()
    while last < until:
        now = time.perf_counter()
        if now - last > GAP_S:
            gaps.append((last, now, at))
        at, last = core(), now
    out.send(gaps)


def sleep_often(until: float, seed: int, out: Connection) -> None:
    """Compute and sleep in turn until a time; send the moments at which it went to sleep, and its core."""
    core, draw, slept = where(), random.Random(seed), list[tuple[float, int]]()
    while (now := time.perf_counter()) < until:
        stop = now + WORKS_S * draw.uniform(0.5, 1.5)
        while time.perf_counter() < stop:
            pass
        slept.append((time.perf_counter(), core()))
        time.sleep(SLEEPS_S * draw.uniform(0.5, 1.5))
    out.send(slept)


def delays(slept: list[tuple[float, int]], gaps: list[Gap]) -> np.ndarray:
    """Seconds from going to sleep to the end of the first gap of those who waited at another core then; nothing where
    somebody waited at the same core, who goes on there at once."""
    found = []
    for at, core in slept:
        waiting = [(end, before) for begin, end, before in gaps if begin < at < end]
        if waiting and all(before != core for _, before in waiting):
            found.append(min(end for end, _ in waiting) - at)
    return np.asarray(found)


def measured(seconds: float, seed: int) -> np.ndarray:
    """The delays of one session of `seconds`."""
    until = time.perf_counter() + seconds
    context, pipes, processes = multiprocessing.get_context("fork"), [], []
    for number in range(core_count() + 1):
        mine, theirs = context.Pipe(duplex=False)
        work = (sleep_often, (until, seed, theirs)) if number == 0 else (compute, (until, theirs))
        processes.append(context.Process(target=work[0], args=work[1]))
        pipes.append(mine)
    for process in processes:
        process.start()
    slept, *gaps = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    return delays(slept, [gap for some in gaps for gap in some])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of a session (default: 10)")
    parser.add_argument("--sessions", type=int, default=3, help="sessions (default: 3)")
    args = parser.parse_args()
    columns = ("session", "cases", "within 0.1 ms", "median ms", "90th ms", "mean ms")
    table = Table(*columns, title="until an idle core takes over")
    for number in range(args.sessions):
        found = 1e3 * measured(args.seconds, number)
        if not len(found):
            table.add_row(str(number), "0", *["-"] * 4)
            continue
        row = (np.mean(found < 0.1), np.median(found), np.percentile(found, 90), found.mean())
        table.add_row(str(number), str(len(found)), f"{100 * row[0]:.0f} %", *(f"{value:.2f}" for value in row[1:]))
    stdout().print(table)
    tick = 1e3 * TICK_S
    stdout().print(f"at the next tick of {tick:g} ms: median and mean {0.5 * tick:g}, 90th {0.9 * tick:.1f} ms")


if __name__ == "__main__":
    main()
