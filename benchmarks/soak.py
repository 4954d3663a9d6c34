"""Long real runs: `python -m benchmarks.soak [--epochs 4000] [--methods vanilla,...] [--state FILE] [--minutes N]`.

Every method trains in real mode on a small graph. Memory, threads, open files and processor time of each rank are
sampled, and judged over the second half, when everything that a rank keeps is there. A rank gains memory, or threads,
when it does so in the third quarter and in the last one, so that a step counts for nothing: pools of threads have a
limit, and start one more only where none is idle yet. Open files must not grow at all. A rank keeps the record of every
epoch until the end, because it is the result: so much more is allowed.

The interpreter keeps tuples that are free, up to 2,000 of each length below 20. torch.autograd.grad adds one of the
length of its inputs with every call, since it makes a tuple of an iterator, which is cut to size: up to 1 KiB an epoch,
until these lists are full. With 4,000 epochs they are before the second half.

Epochs are compared by the processor time of their rank, not by the clock: other work on the machine makes an epoch
wait, and does not make it compute more. What it does to caches and clock rates is divided out: this process times the
same piece of work of its own beside every sample. Lower quartiles are compared, of the last quarter with the second;
epochs get longer where they do so from quarter to quarter, since other work comes and goes. A run in which they do,
and nothing else grows, is made a second time, and that one counts: what lies in the code comes back.

`--state` keeps all samples, so that the same command goes on where another one ended, after `--minutes` or a signal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from harness.config import RunConfig
from harness.errors import HaloscopeError
from harness.methods.registry import typical_methods
from harness.running import run
from harness.running.results import RankEpoch

DATASET = "synthetic:nodes=400,degree=8,classes=4,features=16"
SAMPLES = 100
BLOCK = 16
"""Bytes: Python allocates multiples of them."""

SLACK = 1.05
"""Memory that a record takes, in the sum of its blocks: pools are not full."""

LEAST = 1 << 18
"""Bytes of growth beside that are not worth a word."""

DRIFT_LEAST, DRIFT_MOST = 0.1, 0.25
"""By how much epochs may get longer at least, and at most, however much their times vary."""


class Sample(NamedTuple):
    """What one process has after an epoch."""

    epoch: int
    memory: int  # bytes of its own, in memory or swapped out
    threads: int
    files: int
    cpu_s: float = 0.0  # so far
    reference_s: float = 1.0  # what a fixed piece of work takes now


@dataclass(frozen=True)
class Growth:
    """What a rank gained over the second half of a run.

    Attributes:
        memory, error: bytes beside its records, by fitted lines, and their standard error.
        threads: more in the third quarter than in the second, and as many more in the last.
        files: more at the end than in the middle.
        drift, allowed: processor time of an epoch in the last quarter, in that of the second; and what their spread
            allows.
    """

    memory: float
    error: float
    threads: int
    files: int
    drift: float = 1.0
    allowed: float = 1.0 + DRIFT_LEAST

    @property
    def kept(self) -> bool:
        """Whether the rank keeps memory, threads or files."""
        return self.memory > max(LEAST, 3 * self.error) or self.threads > 0 or self.files > 0

    @property
    def flat(self) -> bool:
        """Whether that is nothing, and epochs stay as long as they were."""
        return not self.kept and self.drift <= self.allowed


def sample(pid: int, epoch: int) -> Sample:
    """What a process has now."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    own = sum(1024 * int(lines[name].split()[0]) for name in ("RssAnon", "VmSwap"))
    clock = (~pid << 3) | 2  # <linux/posix-timers.h>: the processor time of another process
    return Sample(epoch, own, int(lines["Threads"]), files, time.clock_gettime(clock), reference())


def reference() -> float:
    """Processor seconds of a fixed piece of work, the better of two."""
    seconds = []
    for _ in range(2):
        begun = time.thread_time()
        values = np.arange(4096, dtype=np.float32)
        sum(float(np.sqrt(values).sum()) + len(str(n)) for n in range(40))
        seconds.append(time.thread_time() - begun)
    return min(seconds)


def bytes_of(value: object) -> int:
    """Memory of a record: of an object and all that it holds, each in blocks of Python's allocator.

    A float of 24 bytes takes a block of 32, which matters where a record has many.
    """
    inside: Iterable[object] = ()
    if isinstance(value, dict):
        inside = chain(value.keys(), value.values())
    elif isinstance(value, list):
        inside = value
    elif isinstance(value, msgspec.Struct):
        inside = (getattr(value, name) for name in value.__struct_fields__)
    shared = isinstance(value, str) or (isinstance(value, int) and -5 <= value <= 256)  # exist once
    own = 0 if shared or value is None else -(-sys.getsizeof(value) // BLOCK) * BLOCK
    return own + sum(map(bytes_of, inside))


def growth(samples: Sequence[Sample], record: float = 0.0) -> Growth:
    """The growth over the second half of the samples, of which there are at least eight.

    Args:
        record: bytes per epoch that a rank may keep.
    """
    middle, quarter = len(samples) // 2, len(samples) // 4
    late = samples[middle:]
    halves = [_gain(part) for part in (samples[middle : middle + quarter], samples[middle + quarter :])]
    span = late[-1].epoch - late[0].epoch
    gain, error = 2 * min(gain for gain, _ in halves), 2 * max(error for _, error in halves)
    before = late[: len(late) // 2]
    third, earlier = (max(s.threads for s in part) for part in (before, samples[quarter:middle]))
    threads = max(0, min(third - earlier, late[-1].threads - third))
    files = late[-1].files - max(s.files for s in before)
    return Growth(gain - record * span, error, threads, files, *drift(samples))


def _gain(samples: Sequence[Sample]) -> tuple[float, float]:
    """Bytes gained from the first to the last of some samples, by a fitted line, and its standard error."""
    epochs, memory = (np.asarray([s[at] for s in samples], float) for at in (0, 1))
    span = epochs[-1] - epochs[0]
    if len(samples) < 4:
        return float(memory[-1] - memory[0]), 0.0
    line, fitted = np.polyfit(epochs, memory, 1, cov=True)
    return float(line[0] * span), float(np.sqrt(fitted[0, 0]) * span)


def drift(samples: Sequence[Sample]) -> tuple[float, float]:
    """How much longer epochs compute in the last quarter than in the second, and what their spread allows.

    Both are ratios. The spread allows three standard errors of a quartile, by the ranges between quartiles.
    """
    epochs, cpu, fixed = (np.asarray([s[at] for s in samples], float) for at in (0, 4, 5))
    each = np.diff(cpu) / np.diff(epochs) / np.median(np.stack([fixed[1:], fixed[:-1]]), axis=0)
    quarter = len(each) // 4
    parts = each[quarter : 2 * quarter], each[2 * quarter : -quarter], each[-quarter:]
    lows = [float(np.quantile(part, 0.25)) for part in parts]
    if not all(lows):
        return 1.0, 1.0 + DRIFT_LEAST
    ranges = [float(np.subtract(*np.quantile(part, (0.75, 0.25)))) for part in parts]
    spread = 3 * min(ranges) / lows[0] / np.sqrt(quarter)
    steps = lows[1] / lows[0], lows[2] / lows[1]
    # What goes on growing shows in both steps, though not in equal parts: hence the power of four instead of two. Of
    # what has come and gone one of them shows nothing.
    steady = min(steps) ** 4
    return min(lows[2] / lows[0], max(steady, 1.0)), 1 + min(max(DRIFT_LEAST, float(spread)), DRIFT_MOST)


def ranks() -> list[int]:
    """Process ids of the ranks that this process has started."""
    found, waiting = set[int](), [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
            with suppress(OSError):  # it has just ended
                waiting += map(int, (task / "children").read_text().split())
                if (task / "comm").read_text().startswith("rank"):
                    found.add(int(task.parent.parent.name))
    return sorted(found)


@dataclass(frozen=True)
class Soaked:
    """One long run: the samples of every rank, the bytes of a record, and whether it is a method's second."""

    ranks: list[list[Sample]]
    record: float
    second: bool = False

    def growth(self) -> list[Growth]:
        """What every rank gained that was sampled often enough."""
        return [growth(found, SLACK * self.record) for found in self.ranks if len(found) >= 8]

    @property
    def repeat(self) -> bool:
        """Whether it is a first run in which epochs got longer and nothing else grew."""
        found = self.growth()
        return not self.second and any(not each.flat for each in found) and not any(each.kept for each in found)


def soak(method: str, epochs: int, parts: int) -> Soaked:
    """One long run."""
    every, seen, sizes = max(1, epochs // SAMPLES), dict[int, list[Sample]](), list[int]()

    def look(record: RankEpoch) -> None:
        sizes.append(bytes_of(record))
        if record.epoch % every == 0 and record.epoch < epochs - 1:
            for pid in ranks():
                seen.setdefault(pid, []).append(sample(pid, record.epoch))

    config = RunConfig.of(
        dataset=DATASET, method=method, parts=1 if method == "single" else parts, epochs=epochs, mode="real", threads=1,
        eval_every=max(1, epochs // 10),
    )  # fmt: skip
    run(config, look)
    return Soaked(list(seen.values()), sum(sizes) / max(len(sizes), 1))


def line_of(method: str, found: Sequence[Growth]) -> str:
    """A line of the table, of the rank that grew most."""
    worst = max(found, key=lambda g: (not g.flat, g.memory), default=Growth(0, 0, 0, 0))
    slowest = max(found, key=lambda g: g.drift - g.allowed, default=worst)
    flat = bool(found) and all(each.flat for each in found)
    return (
        f"{method:24} {worst.memory / 1024:10.0f} {worst.error / 1024:8.0f} {worst.threads:7} {worst.files:5}  "
        f"{slowest.drift:.3f} ({slowest.allowed:.3f}){'' if flat else '  GROWS'}"
    )


def kept(state: Path | None, epochs: int, parts: int) -> dict[str, Soaked]:
    """What earlier commands with the same arguments have sampled, by method."""
    if state is None or not state.exists():
        return {}
    lines = list[dict[str, Any]]()
    for text in state.read_text().splitlines():
        with suppress(ValueError):  # the line was being written when the command was killed
            lines.append(json.loads(text))
    return {
        line["method"]: Soaked(
            [[Sample(*found) for found in rank] for rank in line["ranks"]], line["record"], line.get("second", False)
        )
        for line in lines
        if (line["epochs"], line["parts"]) == (epochs, parts)
    }


def store(state: Path | None, method: str, epochs: int, parts: int, soaked: Soaked) -> None:
    """Add a run to the file of `kept`, if there is one; a method's last line counts."""
    if state is not None:
        with state.open("a") as stream:
            record = {"method": method, "epochs": epochs, "parts": parts, **asdict(soaked)}
            stream.write("\n" + json.dumps(record) + "\n")


def main() -> int:
    """A line for every method; returns 1 if one grows."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--epochs", type=int, default=4000)
    options.add_argument("--methods", default=",".join(["single", *typical_methods(2)]))
    options.add_argument("--parts", type=int, default=2)
    options.add_argument("--state", type=Path, help="keep what is done in this file, and go on from there")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    args, bad = options.parse_args(), 0
    methods, done = args.methods.split(","), kept(args.state, args.epochs, args.parts)
    begun, fresh = time.monotonic(), 0
    left = [name for name in methods if name not in done or done[name].repeat]
    print(f"{'method':24} {'KiB more':>10} {'+-':>8} threads files  last quarter / second (allowed)")
    for method in methods:
        while method not in done or done[method].repeat:
            if time.monotonic() - begun > 60 * args.minutes:
                print(f"stopped before {method}; {len(left) - fresh} of {len(methods)} methods are left")
                return 3
            try:
                done[method] = replace(soak(method, args.epochs, args.parts), second=method in done)
            except HaloscopeError as error:
                print(f"{method:24} failed: {error}", flush=True)
                break
            store(args.state, method, args.epochs, args.parts, done[method])
            if done[method].repeat:
                continue
            fresh += 1
            each_s = (time.monotonic() - begun) / fresh
            eta = f"{fresh} of {len(left)}, {each_s:.0f} s each, {each_s * (len(left) - fresh) / 60:.0f} min to go"
            print(eta, file=sys.stderr, flush=True)
        if method not in done or done[method].repeat:
            bad += 1
            continue
        found = done[method].growth()
        print(line_of(method, found), flush=True)
        bad += not (found and all(each.flat for each in found))
    print(f"{args.epochs} epochs of {len(methods)} methods, {bad} not flat")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
