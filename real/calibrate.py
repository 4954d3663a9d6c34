"""Measures this machine and writes it down as a cluster that `--mode sim` can use.

Two ranks measure at the same time, so that cores and memory are shared as they will be in a run: operators by
`real.probes`, exchanges over gloo through the real driver, its own overhead included. The files are plain TOML in the
model's format; the model itself is not needed here.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from harness.effects import Rows
from harness.errors import InputError
from harness.rank import Rank
from harness.results import write_atomically
from real.connection import connect
from real.driver import run
from real.health import end_process
from real.launch import launch
from real.probes import measure

RANKS = 2
SIZES = tuple(4**k for k in range(5, 13))  # 1 KiB to 16 MiB
SMALL = 64  # elements of the all-reduces that separate software costs from those of a message
DEADLINE_S = 600.0

UNITS = {
    "launch": (1e-6, "us"),
    "memory": (1e9, "GB"),
    "fresh.above": (2**20, "MiB"),
    "gemm.peak": (1e9, "Gflop/s"),
    "spmm": (1e-12, "ps"),
}
"""Key, or first half of a key, -> scale and unit in the file; everything else is in GB/s."""


def calibrate(device: str = "cpu", threads: int = 1, quick: bool = True) -> dict[str, Any]:
    """Measure operators and links with two ranks of `threads` threads each.

    Answers:
        device: key of a device file -> number in base units (s, B/s, flop/s, B).
        link: `operation`, `round` (s per collective, and per message with its latency), `bandwidth` (B/s of one rank in
            an exchange of two), `error` (largest relative error of the fit), `points` ([bytes, seconds] per exchange),
            `reduce` (s of a small all-reduce).
        provenance: machine, versions, date, ranks, threads, seconds it took.

    Raises:
        InputError: the device is not the CPU.
        RankFailed: a rank failed.
    """
    if device != "cpu":
        raise InputError(f"calibrate measures CPU ranks, not {device}; for GPUs start from a profile of sims/devices")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="haloscope-") as folder:
        found = Path(folder, "found.json")
        arguments = ["-m", "real.calibrate", str(found), "quick" if quick else "full"]
        launch(arguments, RANKS, threads=threads, deadline_s=DEADLINE_S)
        numbers, points, reduce = msgspec.json.decode(found.read_bytes())
    numbers["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device": numbers,
        "link": {**fit(points, reduce), "points": points, "reduce": reduce},
        "provenance": {
            "machine": _machine(),
            "cores": os.cpu_count() or 1,
            "python": platform.python_version(),
            "torch": version("torch"),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "ranks": RANKS,
            "threads": threads,
            "seconds": round(time.perf_counter() - begin, 1),
        },
    }


def calibrate_to(folder: Path, quick: bool = True) -> Path:
    """Measure and write `device.toml` and `cluster.toml` into `folder`; answers the path of the latter.

    Raises:
        InputError: the folder cannot be written.
    """
    threads = max(1, (os.cpu_count() or 1) // RANKS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from None
    measured = calibrate(threads=threads, quick=quick)
    write_atomically(folder / "device.toml", device_toml(measured).encode())
    write_atomically(folder / "cluster.toml", cluster_toml(measured).encode())
    return folder / "cluster.toml"


def fit(points: list[list[float]], reduce: float) -> dict[str, float]:
    """Costs of exchanges between two ranks from their times: seconds = operation + round + bytes / bandwidth.

    Least squares of the relative error over `points` ([bytes, seconds]). A small deterministic all-reduce has one
    operation and two rounds, which tells the two apart.
    """
    nbytes, seconds = np.asarray(points, np.float64).T
    design = np.stack([np.ones_like(nbytes), nbytes], axis=1) / seconds[:, None]
    (alpha, slope), *_ = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)
    alpha, slope = max(float(alpha), 1e-7), max(float(slope), 1e-15)
    one_round = min(max(reduce - alpha, 0.1 * alpha), 0.9 * alpha)
    error = float(np.abs((alpha + slope * nbytes) / seconds - 1).max())
    return {"operation": alpha - one_round, "round": one_round, "bandwidth": 1 / slope, "error": error}


def device_toml(measured: dict[str, Any]) -> str:
    """The text of a device file."""
    about = measured["provenance"]
    lines = [
        *_provenance(about),
        "# Neighbour sums (spmm) on random graphs of degree 10 and 40 with half of the edges inside communities.",
        'name = "calibrated"',
        f"summary = {_quoted(_summary(about))}",
        'kind = "cpu"',
        f"cores = {about['threads']}",
    ]
    section = ""
    numbers = sorted(measured["device"].items(), key=lambda item: "." in item[0])  # a table ends the plain keys
    for key, value in numbers:
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        lines.append(f"{name} = {_quantity(key, value)}")
    return "\n".join(lines) + "\n"


def cluster_toml(measured: dict[str, Any]) -> str:
    """The text of a cluster file: this machine, its ranks talking over loopback, beside `device.toml`."""
    about, link = measured["provenance"], measured["link"]
    together = max(RANKS, about["cores"])
    half = link["round"] / 2
    source = "measured" if together == RANKS else "assumed"
    note = "half of a measured round of messages"
    loopback = _with_unit(link["bandwidth"] * together, 1e9, "GB/s", source, f"{together} processes at once")
    lines = [
        *_provenance(about),
        f"# Exchanges of two ranks, fitted within {100 * link['error']:.0f} %; bytes to the other rank: microseconds",
        *(f"#   {int(nbytes):>9}: {1e6 * seconds:10.1f}" for nbytes, seconds in link["points"]),
        'name = "calibrated"',
        f"summary = {_quoted(_summary(about))}",
        "",
        "[hosts]",
        "count = 1",
        "ranks_per_host = 64",
        f"cores = {about['cores']}",
        'device = "device.toml"',
        "",
        "[links.loopback]",
        'tier = "loopback"',
        f"bandwidth = {loopback}",
        f"latency = {_with_unit(half, 1e-6, 'us', 'assumed', note)}",
        "",
        "[transport]",
        'kind = "gloo"',
        f"operation = {_with_unit(link['operation'], 1e-6, 'us')}",
        f"message = {_with_unit(half, 1e-6, 'us', 'assumed', note)}",
        f"process = {_with_unit(link['bandwidth'], 1e9, 'GB/s')}",
    ]
    return "\n".join(lines) + "\n"


def _provenance(about: dict[str, Any]) -> list[str]:
    return [
        f"# Measured on {about['date']} by `haloscope calibrate` in {about['seconds']:g} s: {about['machine']},",
        f"# {about['ranks']} ranks x {about['threads']} threads, torch {about['torch']}, Python {about['python']}.",
    ]


def _summary(about: dict[str, Any]) -> str:
    return f"{about['threads']} of {about['cores']} cores per rank, {about['machine']}"


def _quantity(key: str, value: float) -> str:
    if key == "gemm.efficiency":
        return f'{{ value = {value:.3f}, from = "measured" }}'
    scale, unit = UNITS.get(key) or UNITS.get(key.partition(".")[0]) or (1e9, "GB/s")
    return _with_unit(value, scale, unit)


def _with_unit(value: float, scale: float, unit: str, source: str = "measured", note: str = "") -> str:
    extra = f", note = {_quoted(note)}" if note else ""
    return f'{{ value = "{value / scale:.4g} {unit}", from = "{source}"{extra} }}'


def _quoted(text: str) -> str:
    return '"' + "".join(c for c in text if c.isprintable() and c not in '"\\') + '"'


def _machine() -> str:
    """The processor's name, without the host's."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# -- what the ranks do -------------------------------------------------------------------------------------------------


async def _probe(rank: Rank, quick: bool) -> tuple[dict[str, float], list[list[float]], float]:
    """Operators on all ranks at once, then exchanges; rank 0's figures count."""
    await rank.all_reduce(torch.zeros(1), label="begin together")
    numbers = measure(0.02 if quick else 0.3)
    rank.clock.begin_epoch()  # beyond the first epoch, where every collective is checked
    await rank.all_reduce(torch.zeros(1), label="operators are timed")
    rank.clock.end_epoch()
    points = []
    for nbytes in SIZES:
        seconds = await _exchange(rank, nbytes, 0.1 if quick else 1.0)
        points.append([float(nbytes), seconds])
    times = []
    for _ in range(100):
        begin = time.perf_counter()
        await rank.all_reduce(torch.zeros(SMALL), label="reduce")
        times.append(time.perf_counter() - begin)
    return numbers, points, statistics.median(times)


async def _exchange(rank: Rank, nbytes: int, budget_s: float) -> float:
    """Median seconds of an all-to-all that sends `nbytes` to every other rank and nothing to itself."""
    counts = np.full(rank.size, nbytes // 4)
    counts[rank.index] = 0
    rows = Rows(torch.ones(int(counts.sum())), counts, counts)
    # Ranks must agree on how often; an exchange of two ranks moves about 1 GB/s.
    repeats = int(min(200, max(7, budget_s / (200e-6 + nbytes / 1e9))))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        await rank.all_to_all([rows], label="exchange")
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def _main(result: str, depth: str) -> None:
    with connect() as connection:
        found = run(lambda rank: _probe(rank, depth == "quick"), connection)
    if connection.rank == 0:
        Path(result).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
    end_process(0)
