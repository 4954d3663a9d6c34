"""Measures this machine and writes it down as a cluster that `--mode sim` can use.

Operators are timed by two ranks at once, so that cores and memory are shared as they will be in a run (`real.probes`);
every collective among 2, 3 and 4 ranks over gloo, through the real driver, its own overhead included
(`real.link_probes`). The files are plain TOML in the model's format; the model itself is not needed here.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch

from harness.cores import core_count
from harness.errors import InputError
from harness.lab_spec import LabSpec
from harness.rank import Rank
from harness.results import write_atomically
from real import lab
from real.connection import connect
from real.driver import run
from real.health import end_process
from real.launch import launch
from real.link_probes import Line, copying_rate, lines
from real.probes import jitter, measure
from real.site import Site, ThisMachine

RANKS = 2
LINK_RANKS = (2, 3, 4)
DEADLINE_S = 600.0

UNITS = {
    "launch": (1e-6, "us"),
    "memory": (1e9, "GB"),
    "fresh.above": (2**20, "MiB"),
    "gemm.peak": (1e9, "Gflop/s"),
    "spmm": (1e-12, "ps"),
}
"""Key, or first half of a key, -> scale and unit in the file; everything else is in GB/s."""


def calibrate(
    device: str = "cpu",
    threads: int = 1,
    quick: bool = True,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = LINK_RANKS,
) -> dict[str, Any]:
    """Measure operators with two ranks of `threads` threads each, and collectives among every number in `ranks`.

    `hosts`: a lab in which the collectives are measured instead, with as many ranks as it takes; without its shaping,
    so that what the machine's software takes is not hidden behind a slow link.

    Answers:
        device: key of a device file -> number in base units (s, B/s, flop/s, B).
        jitter: `real.probes.jitter` of ranks that compute at the same time.
        links: number of ranks -> kind of collective -> `Line`.
        provenance: machine, versions, date, ranks, threads, hosts, seconds it took.

    Raises:
        InputError: the device is not the CPU, or the lab cannot be built.
        RankFailed: a rank failed.
    """
    if device != "cpu":
        raise InputError(f"calibrate measures CPU ranks, not {device}; for GPUs start from a profile of sims/devices")
    begin = time.perf_counter()
    depth = "quick" if quick else "full"
    numbers = _ranks_say("real.calibrate", RANKS, threads, [depth], ThisMachine(), dict[str, float])
    spread = numbers.pop("jitter")
    numbers["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device": numbers,
        "jitter": spread,
        "links": measure_links(ranks if hosts is None else (hosts.ranks,), quick, hosts),
        "provenance": {
            "machine": _machine(),
            "cores": core_count(),
            "python": platform.python_version(),
            "torch": version("torch"),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "ranks": RANKS,
            "threads": threads,
            "hosts": 1 if hosts is None else hosts.hosts,
            "seconds": round(time.perf_counter() - begin, 1),
        },
    }


def measure_links(ranks: Sequence[int], quick: bool, hosts: LabSpec | None = None) -> dict[int, dict[str, Line]]:
    """Number of ranks -> kind of collective -> its line, on this machine or between unshaped hosts of a lab.

    Raises:
        InputError: the lab cannot be built.
        RankFailed: a rank failed.
    """

    def measured(size: int, site: Site) -> dict[str, Line]:
        budget = ["0.04" if quick else "0.5"]
        kind = dict[str, list[tuple[float, float, float]]]
        return lines(_ranks_say("real.link_probes", size, 1, budget, site, kind))

    if hosts is None:
        return {size: measured(size, ThisMachine()) for size in ranks}
    with lab.built(hosts.unshaped) as site:
        return {size: measured(size, site) for size in ranks}


def _ranks_say(module: str, size: int, threads: int, arguments: list[str], site: Site, kind: Any) -> Any:
    """What rank 0 of `python -m MODULE FILE ARGUMENTS` wrote into the file."""
    with tempfile.TemporaryDirectory(prefix="haloscope-") as folder:
        found = Path(folder, "found.json")
        launch(["-m", module, str(found), *arguments], size, threads=threads, deadline_s=DEADLINE_S, site=site)
        return msgspec.json.decode(found.read_bytes(), type=kind)


def calibrate_to(
    folder: Path,
    quick: bool = True,
    threads: int = 0,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = LINK_RANKS,
) -> Path:
    """Measure and write `device.toml` and `cluster.toml` into `folder`; answers the path of the latter.

    `threads` per rank; 0 shares the cores among two ranks.

    Raises:
        InputError: the folder cannot be written, or as `calibrate`.
    """
    threads = threads or max(1, core_count() // RANKS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from None
    measured = calibrate(threads=threads, quick=quick, hosts=hosts, ranks=ranks)
    write_atomically(folder / "device.toml", device_toml(measured).encode())
    write_atomically(folder / "cluster.toml", cluster_toml(measured).encode())
    return folder / "cluster.toml"


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
    """The text of a cluster file: this machine, its ranks talking as measured, beside `device.toml`."""
    about, links = measured["provenance"], measured["links"]
    one, together = copying_rate(links)
    where = "over loopback" if about["hosts"] == 1 else f"between {about['hosts']} hosts of a lab"
    count = ", ".join(map(str, links))
    text = [
        *_provenance(about),
        f"# Collectives of {count} ranks {where}: mean microseconds by bytes that one rank sends, and a line",
        "# through them (all ranks send at once; `ring` is the library's all-reduce, `all_reduce` adds in rank order;",
        "# `started` is what a rank itself spends on an exchange behind compute). Ranks compute in between.",
        *(_row(size, kind, line) for size, found in links.items() for kind, line in found.items()),
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
        f"bandwidth = {_with_unit(together, 1e9, 'GB/s', note=f'of {count} ranks the most, all together')}",
        f"latency = {_with_unit(0.0, 1e-6, 'us', note='in the collectives below')}",
        "",
        "[transport]",
        'kind = "gloo"',
        f"process = {_with_unit(one, 1e9, 'GB/s', note=f'one of {min(links)} ranks')}",
    ]
    for kind in next(iter(links.values())):
        text += ["", f"[transport.measured.{kind}]"]
        for size, found in links.items():
            note = f"fits {len(found[kind].points)} sizes within {100 * found[kind].error:.0f} %"
            text.append(f"{size} = {_with_unit(found[kind].alpha, 1e-6, 'us', note=note)}")
    note = "deviation of the logarithm of equal stretches of about 20 ms"
    text += ["", "[stragglers]", f'jitter = {{ value = {measured["jitter"]:.3g}, from = "measured", note = "{note}" }}']
    return "\n".join(text) + "\n"


def _row(size: int, kind: str, line: Line) -> str:
    """One line of the measured times, as a comment."""
    points = "  ".join(f"{int(nbytes)}: {1e6 * seconds:.0f}" for nbytes, seconds, _ in line.points)
    rate = f"{1e6 * line.alpha:.0f} us + bytes at {1e-9 / line.beta:.3g} GB/s within {100 * line.error:.0f} %"
    return f"#   {size} ranks, {kind}: {points}; {rate}"


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


async def _probe(rank: Rank, quick: bool) -> dict[str, float]:
    """Operators on all ranks at once; rank 0's figures count."""
    await rank.all_reduce(torch.zeros(1), label="begin together")
    numbers = measure(0.02 if quick else 0.3)
    numbers["jitter"] = jitter(1.0 if quick else 10.0)
    await rank.all_reduce(torch.zeros(1), label="operators are timed")
    return numbers


def _main(result: str, depth: str) -> None:
    with connect() as connection:
        found = run(lambda rank: _probe(rank, depth == "quick"), connection)
    if connection.rank == 0:
        Path(result).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
    end_process(0)
