"""Measures this machine and describes it as a cluster that `--mode sim` can use.

Operators are timed by two ranks at once, so that cores and memory are shared as in a run (`_probes`);
every collective among 2, 3 and 4 ranks over gloo, through the real driver, its own overhead included
(`real.measure.link_probes`). The files are plain TOML in the model's format; the model itself is not needed here.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch

from harness.config import LabSpec
from harness.errors import InputError
from harness.kernels.triton_code import triton
from harness.machine import core_count, large_tensors, run_folder, write_atomically
from harness.rank import Rank
from real import lab
from real.lab import HostSetup, ThisMachine
from real.launch import launch
from real.measure import _gpu_probes as gpu_probes
from real.measure._calibration_files import cluster_toml, device_toml, gpu_cluster_toml, gpu_device_toml
from real.measure._lines import lines
from real.measure._probes import bench, jitter, measure_device
from real.measure.link_probes import BRIEF_FEWEST, BRIEF_SIZES, LARGEST_MESSAGE, Probed, probe
from real.rank import run_program
from real.rank.connection import connect
from real.rank.health import end_process

RANKS = 2
LINK_RANKS = (2, 3, 4)
DEADLINE_S = 600.0


def calibrate(
    threads: int = 1,
    quick: bool = True,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = LINK_RANKS,
    brief: bool = False,
) -> dict[str, Any]:
    """Measure operators with two ranks of `threads` threads each, and collectives among every number in `ranks`.

    `brief`: only among two ranks, at fewer sizes, in the same processes as the operators.

    `hosts`: a lab in which the collectives are measured instead, with as many ranks as it has; without its shaping,
    so that the machine's software costs are not hidden behind a slow link.

    Returns:
        device: key of a device file -> number in base units (s, B/s, flop/s, B).
        jitter: `_probes.jitter` of ranks that compute at the same time.
        links: number of ranks -> kind of collective -> `Line`.
        cores: the same of the seconds that a rank's threads run on cores.
        resting: number of ranks -> `Probed.resting`.
        provenance: machine, versions, date, ranks, threads, hosts, seconds it took.

    Raises:
        InputError: the lab cannot be built.
        RankFailed: a rank failed.
    """
    begin = time.perf_counter()
    depth = "brief" if brief else "quick" if quick else "full"
    said = _ranks_say("real.measure.calibrate", RANKS, threads, [depth], ThisMachine(), _Said)
    numbers, spread = said.device, said.device.pop("jitter")
    numbers["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    probed = {RANKS: said.probed} if brief else measure_links(ranks if hosts is None else (hosts.ranks,), quick, hosts)
    return {
        "device": numbers,
        "jitter": spread,
        "links": {size: lines(of.points) for size, of in probed.items()},
        "cores": {size: lines(of.cores) for size, of in probed.items()},
        "resting": {size: of.resting for size, of in probed.items()},
        "provenance": _provenance(begin, RANKS, threads, hosts),
    }


def _provenance(begin: float, ranks: int, threads: int, hosts: LabSpec | None) -> dict[str, Any]:
    """Where and how a CPU's numbers were measured, from `begin` on."""
    return {
        "machine": _machine(),
        "cores": core_count(),
        "ranks": ranks,
        "threads": threads,
        "hosts": 1 if hosts is None else hosts.hosts,
        **_versions(begin),
    }


def calibrate_gpu(quick: bool = True) -> dict[str, Any]:
    """Measure the operators of this host's first GPU, and its copies to and from host memory, as `gloo` uses them.

    Returns:
        device: as of `calibrate`.
        copies: `_gpu_probes.host_copies`.
        provenance: GPU, how many of them, versions, date, seconds it took.
    """
    begin, budget_s = time.perf_counter(), 0.05 if quick else 0.5
    on, numbers = bench("cuda", budget_s), measure_device(budget_s, "cuda")
    about = torch.cuda.get_device_properties(0)
    return {
        "device": numbers | {"memory": about.total_memory} | gpu_probes.overlap(on),
        "copies": gpu_probes.host_copies(on),
        "provenance": {
            "machine": about.name,
            "gpus": torch.cuda.device_count(),
            "cuda": torch.version.cuda,
            "triton": triton.__version__ if triton is not None else "none",
            **_versions(begin),
        },
    }


def _versions(begin: float) -> dict[str, Any]:
    """The entries common to every provenance; `begin`: start of the measurement, by the performance counter."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def measure_links(ranks: Sequence[int], quick: bool, hosts: LabSpec | None = None) -> dict[int, Probed]:
    """What collectives among every number of ranks take, on this machine or between unshaped hosts of a lab.

    Raises:
        InputError: the lab cannot be built.
        RankFailed: a rank failed.
    """

    def measured(size: int, site: HostSetup) -> Probed:
        budget = [str(_link_budget("quick" if quick else "full"))]
        return _ranks_say("real.measure.link_probes", size, 1, budget, site, Probed)  # type: ignore[no-any-return]

    if hosts is None:
        return {size: measured(size, ThisMachine()) for size in ranks}
    with lab.built(hosts.unshaped) as site:
        return {size: measured(size, site) for size in ranks}


def _link_budget(depth: str) -> float:
    """Seconds for which one kind of collective of one size is repeated, with the compute in between, about."""
    return {"brief": 0.12, "quick": 0.5, "full": 6.0}[depth]


def _ranks_say(module: str, size: int, threads: int, arguments: list[str], site: HostSetup, kind: Any) -> Any:
    """The content that rank 0 of `python -m MODULE FILE ARGUMENTS` writes into the file.

    Ranks keep the memory of their largest messages, as those of a run keep that of their tensors.
    """
    with run_folder() as folder:
        result = folder / "result.json"
        launch(
            ["-m", module, str(result), *arguments], size, threads=threads, deadline_s=DEADLINE_S, site=site,
            env=large_tensors(LARGEST_MESSAGE * size),
        )  # fmt: skip
        return msgspec.json.decode(result.read_bytes(), type=kind)


def calibrate_to(
    folder: Path,
    quick: bool = True,
    threads: int = 0,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = LINK_RANKS,
    brief: bool = False,
) -> Path:
    """Measure and write `device.toml` and `cluster.toml` into `folder`; returns the path of the latter.

    `threads` per rank; 0 shares the cores among two ranks.

    Raises:
        InputError: the folder cannot be written, or as `calibrate`.
    """
    threads = threads or max(1, core_count() // RANKS)
    _make(folder)
    measured = calibrate(threads=threads, quick=quick, hosts=hosts, ranks=ranks, brief=brief)
    write_atomically(folder / "device.toml", device_toml(measured).encode())
    write_atomically(folder / "cluster.toml", cluster_toml(measured).encode())
    return folder / "cluster.toml"


def calibrate_links_to(
    folder: Path,
    ranks: int,
    *,
    jitter: float,
    threads: int = 1,
    hosts: LabSpec | None = None,
    quick: bool = True,
    pace: float = 1.0,
) -> Path:
    """Measure collectives among `ranks` ranks and write `cluster.toml` for a device that is measured; returns its path.

    Args:
        jitter: of the device, as `calibrate` found it.
        threads: per rank, for the description.
        hosts: a lab that the ranks fill host by host, measured without its shaping; this machine when None.
        pace: factor on the measured times, where the machine was faster or slower than when the device was measured.

    Raises:
        InputError: the folder cannot be written, or the lab cannot be built.
        RankFailed: a rank failed.
    """
    _make(folder)
    begin = time.perf_counter()
    probed = measure_links((ranks,), quick, hosts)
    measured = {
        "links": {size: lines(of.points, pace) for size, of in probed.items()},
        "cores": {size: lines(of.cores, pace) for size, of in probed.items()},
        "resting": {size: of.resting for size, of in probed.items()},
        "jitter": jitter,
        "provenance": _provenance(begin, ranks, threads, hosts),
    }
    write_atomically(folder / "cluster.toml", cluster_toml(measured).encode())
    return folder / "cluster.toml"


def calibrate_gpu_to(folder: Path, quick: bool = True) -> Path:
    """The same for this host's GPUs. Raises InputError: there is none, or the folder cannot be written."""
    if not torch.cuda.is_available():
        raise InputError("--device cuda, but no GPU is visible here; without it, calibrate measures the CPU")
    _make(folder)
    measured = calibrate_gpu(quick)
    write_atomically(folder / "device.toml", gpu_device_toml(measured).encode())
    write_atomically(folder / "cluster.toml", gpu_cluster_toml(measured).encode())
    return folder / "cluster.toml"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {folder}: {error.strerror}") from None


def _machine() -> str:
    """The processor's name, without the host's."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# -- what the ranks do -------------------------------------------------------------------------------------------------


class _Said(msgspec.Struct):
    """What rank 0 measured: numbers of a device file and jitter; if brief, collectives too."""

    device: dict[str, float]
    probed: Probed = Probed()


async def _probe(rank: Rank, depth: str) -> _Said:
    """Time operators on all ranks at once, if brief then collectives; rank 0's results are used."""
    quick, brief = depth != "full", depth == "brief"
    await rank.all_reduce(torch.zeros(1), label="begin together")
    numbers = measure_device(0.02 if quick else 0.3)
    numbers["jitter"] = jitter(1.0 if brief else 4.0 if quick else 10.0)
    await rank.all_reduce(torch.zeros(1), label="operators are timed")
    return _Said(numbers, await probe(rank, _link_budget(depth), BRIEF_SIZES, BRIEF_FEWEST) if brief else Probed())


def _main(result: str, depth: str) -> None:
    with connect() as connection:
        said = run_program(lambda rank: _probe(rank, depth), connection)
    if connection.rank == 0:
        Path(result).write_bytes(msgspec.json.encode(said))


if __name__ == "__main__":
    _main(*sys.argv[1:])
    end_process(0)
