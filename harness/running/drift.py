"""How fast the machine is now, and who else uses it: the time of a fixed piece of work on every core at once, and the
share of the cores that other programs take.

A virtual machine changes its speed by tens of percent within the hour. Measured beside a calibration and beside a run,
the ratio of two such times is what the machine alone has changed in between.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from harness.machine import core_count

PASSES = 48
"""Repetitions of the work in one look, of 5 to 10 ms each; the median counts."""

LOOKS, APART_S = 5, 0.1
"""Looks, and the seconds between two; the median counts. One in eight or so takes 1.3 times as long as those around it:
a virtual machine loses its processors for half a second, in which epochs that are medians too have no part."""


def reference_seconds(copies: int = 0, looks: int = LOOKS) -> float:
    """Seconds of a product, a gather of rows and a pass over memory, mean over the cores and median of `looks`.

    The three take about a third each, as in the epochs of a graph neural network. They run without Python's lock.

    Args:
        copies: how many threads work at once; 0: one per core.
    """
    count, found = copies or core_count(), list[float]()
    with ThreadPoolExecutor(count) as pool:
        for look in range(looks):
            time.sleep(APART_S if look else 0.0)
            found.append(statistics.fmean(pool.map(_median_pass, [PASSES] * count)))
    return statistics.median(found)


@dataclass
class Load:
    """Mean share of the machine's cores that other programs used; 0 if the kernel does not report it."""

    foreign: float = 0.0


def count_as_own(seconds: float) -> None:
    """Processor time that processes of this one have taken, which the system will not add to it."""
    global _elsewhere
    _elsewhere += seconds


_elsewhere = 0.0


@contextmanager
def watching() -> Iterator[Load]:
    """Context that measures the load of other programs, without this process and its ended children."""
    load, busy, ours = Load(), *_busy()
    yield load
    busy_now, ours_now = _busy()
    if busy is not None and busy_now is not None:
        elapsed = busy_now[1] - busy[1]
        load.foreign = max(0.0, (busy_now[0] - busy[0]) - (ours_now - ours)) / elapsed if elapsed > 0 else 0.0


def _median_pass(passes: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # of this thread
    try:
        random = torch.Generator().manual_seed(0)
        rows, weights = torch.randn(2_048, 256, generator=random), torch.randn(256, 256, generator=random)
        table, picked = torch.randn(1 << 15, 64, generator=random), torch.randint(1 << 15, (1 << 15,), generator=random)
        stream, times = torch.ones(1 << 21), list[float]()
        for _ in range(passes):
            begin = time.perf_counter()
            rows @ weights
            table[picked]
            stream.mul_(1.0)
            times.append(time.perf_counter() - begin)
    finally:
        torch.set_num_threads(before)
    return statistics.median(times)


def _busy() -> tuple[tuple[float, float] | None, float]:
    """Busy and total core seconds of the machine since its start, and core seconds of this process and its children.

    Interrupts are no one's: where links are shaped, most of them are those of the exchanges that are measured.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ours = _elsewhere + sum(usage.ru_utime + usage.ru_stime for usage in used)
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None, ours
    ticks = [int(value) / os.sysconf("SC_CLK_TCK") for value in fields]
    idle, interrupts = ticks[3] + ticks[4], ticks[5] + ticks[6]
    return (sum(ticks) - idle - interrupts, sum(ticks)), ours
