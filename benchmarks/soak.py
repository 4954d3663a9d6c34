"""Long real runs: `python -m benchmarks.soak [--epochs 2000] [--methods vanilla,...] [--parts 2]`.

Every method trains in real mode on a small graph. Memory, threads and open files of each rank are sampled, and a line
is fitted to those of the second half, when everything that a rank keeps is there. What a rank gains over that half must
be within three standard errors of the line, or below a MiB; threads and open files must not grow at all; the epochs'
times of the last quarter must be those of the quarter before, by their medians and within their spread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.config import RunConfig
from harness.errors import HaloscopeError
from harness.methods.registry import METHODS
from harness.running import run
from harness.running.results import RankEpoch

DATASET = "synthetic:nodes=400,degree=8,classes=4,features=16"
SAMPLES = 100
LEAST = 1 << 20
"""Bytes of growth that are not worth a word."""


class Sample(NamedTuple):
    """What one process has after an epoch."""

    epoch: int
    memory: int
    threads: int
    files: int


@dataclass(frozen=True)
class Growth:
    """What a rank gained over the second half of a run.

    Attributes:
        memory, error: bytes, by a fitted line, and its standard error.
        threads, files: more at the end than in the middle.
    """

    memory: float
    error: float
    threads: int
    files: int

    @property
    def flat(self) -> bool:
        """Whether that is nothing."""
        return self.memory <= max(LEAST, 3 * self.error) and self.threads <= 0 and self.files <= 0


def sample(pid: int, epoch: int) -> Sample:
    """What a process has now."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(epoch, 1024 * int(lines["VmRSS"].split()[0]), int(lines["Threads"]), files)


def growth(samples: Sequence[Sample]) -> Growth:
    """The growth over the second half of the samples, of which there are at least eight."""
    late = samples[len(samples) // 2 :]
    epochs, memory = (np.asarray([s[at] for s in late], float) for at in (0, 1))
    line, fitted = np.polyfit(epochs, memory, 1, cov=True)
    span = epochs[-1] - epochs[0]
    more = [late[-1][at] - max(s[at] for s in late[: len(late) // 2]) for at in (2, 3)]
    return Growth(float(line[0] * span), float(np.sqrt(fitted[0, 0]) * span), more[0], more[1])


def drift(seconds: Sequence[float]) -> tuple[float, float]:
    """Ratio of the median epoch of the last quarter to that of the quarter before, and what their spread allows."""
    quarter = len(seconds) // 4
    late, before = seconds[-quarter:], seconds[-2 * quarter : -quarter]
    middle = statistics.median(before)
    spread = statistics.quantiles(before, n=4)
    return statistics.median(late) / middle, 1 + max(0.1, (spread[2] - spread[0]) / middle)


def ranks() -> list[int]:
    """Process ids of the ranks that this process has started."""
    found = set[int]()
    for task in Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if b"RANK=" in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(pid)
    return sorted(found)


def soak(method: str, epochs: int, parts: int) -> tuple[list[Growth], float, float]:
    """One long run: the growth of every rank, and the drift of its epochs with what is allowed."""
    every, seen, seconds = max(1, epochs // SAMPLES), dict[int, list[Sample]](), list[float]()

    def look(record: RankEpoch) -> None:
        seconds.append(record.seconds["epoch"])
        if record.epoch % every == 0 and record.epoch < epochs - 1:
            for pid in ranks():
                seen.setdefault(pid, []).append(sample(pid, record.epoch))

    config = RunConfig.of(
        dataset=DATASET, method=method, parts=1 if method == "single" else parts, epochs=epochs, mode="real", threads=1,
        eval_every=max(1, epochs // 10),
    )  # fmt: skip
    run(config, look)
    return [growth(found) for found in seen.values() if len(found) >= 8], *drift(seconds)


def main() -> int:
    """A line for every method; returns 1 if one grows."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--epochs", type=int, default=2000)
    options.add_argument("--methods", default=",".join(sorted(METHODS.builtin)))
    options.add_argument("--parts", type=int, default=2)
    args, bad = options.parse_args(), 0
    print(f"{'method':24} {'KiB more':>10} {'+-':>8} threads files  last quarter / before (allowed)")
    for method in args.methods.split(","):
        try:
            found, ratio, allowed = soak(method, args.epochs, args.parts)
        except HaloscopeError as error:
            print(f"{method:24} failed: {error}", flush=True)
            bad += 1
            continue
        flat = bool(found) and all(g.flat for g in found) and ratio <= allowed
        bad += not flat
        worst = max(found, key=lambda g: g.memory, default=Growth(0, 0, 0, 0))
        print(
            f"{method:24} {worst.memory / 1024:10.0f} {worst.error / 1024:8.0f} {worst.threads:7} {worst.files:5}  "
            f"{ratio:.3f} ({allowed:.3f}){'' if flat else '  GROWS'}",
            flush=True,
        )
    print(f"{args.epochs} epochs of {len(args.methods.split(','))} methods, {bad} not flat")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
