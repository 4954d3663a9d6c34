"""`haloscope calibrate`: measures this machine, writes a cluster file and shows it.

Without a folder the calibration is kept for this machine: every run finds it as the cluster `here`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.commands import clusters
from harness.commands.shared.cells import deliver, json_target, writable
from harness.config import LabSpec, parse_lab
from harness.console import StepLines, show, stderr
from harness.errors import InputError
from harness.machine import HERE, Depth, KeptCalibration, calibration_folder, core_count, write_atomically
from harness.running.drift import reference_seconds, watching
from real.measure.calibrate import LINK_RANKS, RANKS, calibrate_gpu_to, calibrate_to
from sims.cluster import load_cluster
from sims.device import load_device
from sims.study.calibrated import (
    BRIEF_GRAPHS,
    BRIEF_METHODS,
    add_gpu_operators,
    add_idling,
    add_operators,
    add_sharing,
    save_over,
)
from sims.study.real_runs import ACCOMPANIED, BRIEF_ACCOMPANIED, BRIEF_PASSES, PASSES, add_contention, add_host

TAKES = {"brief": "one to two minutes", "quick": "five to ten minutes", "full": "longer than ten minutes"}
"""How long each depth of a calibration takes."""

REFERENCE = "reference.json"
"""How fast the machine was when its operators were timed: `seconds` of `harness.running.drift`."""


class Reference(msgspec.Struct, frozen=True):
    """The content of `REFERENCE`."""

    seconds: float


def main(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    here = args.device == "cpu" and not args.lab and args.out is None
    out = Path("calibration") if args.out is None else args.out
    json_target(args.json)
    if not here:
        writable(out, folder=True)
    if args.device == "cuda":
        if args.lab:
            raise InputError("--device cuda measures the GPUs of this host; --lab has none")
        if args.depth == "brief":
            raise InputError("--device cuda: --brief is for CPUs; leave it out (one to two minutes)")
        quick = args.depth == "quick"
        if not args.quiet:
            show([f"measuring a GPU ({'one to two minutes' if quick else 'some minutes'}; keep it idle)"], stderr())
        steps = StepLines(3, args.quiet)
        steps.begin("timing the GPU's memory and arithmetic, and copies to and from its host")
        path = calibrate_gpu_to(out, quick=quick)
        steps.begin("timing the operators of training")
        add_gpu_operators(out / "device.toml", quick=quick)
        steps.begin("training small runs for real, and fitting what the host takes")
        add_host(out, quick=quick)
    elif here:
        path = keep(args.depth, quiet=args.quiet)
    else:
        path = measure(out, depth=args.depth, quiet=args.quiet, hosts=parse_lab(args.lab) if args.lab else None)
    cluster = load_cluster(path)
    name = HERE if here else path
    lines = [*clusters.cluster_report(cluster), f"written: {path}; use it with --mode sim --cluster {name}"]
    deliver(clusters.cluster_content(cluster), lines, args.json, args.quiet)
    return 0


def keep(depth: Depth, *, quiet: bool = False) -> Path:
    """Measure this machine and keep that for `--cluster here`; returns the path of the cluster file.

    Says so where other programs disturbed it: predictions on it say so too.

    A brief calibration measures collectives of two ranks only, and fewer operators.

    Raises:
        InputError: the cache folder cannot be written.
    """
    folder = calibration_folder()
    writable(folder, folder=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
        with watching() as load:
            made = measure(Path(beside), depth=depth, quiet=quiet)
        reference = msgspec.json.decode(made.with_name(REFERENCE).read_bytes(), type=Reference).seconds
        folder.mkdir(exist_ok=True)
        for name in ("device.toml", "cluster.toml"):  # the last one says that there is a calibration
            write_atomically(folder / name, made.with_name(name).read_bytes())
    about = KeptCalibration(depth, datetime.now(UTC).strftime("%Y-%m-%d"), load.foreign, reference)
    write_atomically(folder / "about.json", msgspec.json.encode(about))
    if about.disturbed and not quiet:
        show([f"{about.disturbed}: predictions on it are off by as much; measure again when it is idle"], stderr())
    return folder / "cluster.toml"


def measure(
    out: Path,
    *,
    depth: Depth,
    quiet: bool = False,
    threads: int = 0,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = (),
) -> Path:
    """Measure this machine's CPU and write its device and cluster file into `out`; returns the path of the latter.

    `REFERENCE`, a file beside them, has the seconds of the reference work beside the real runs that costs were fitted
    to.

    See `real.measure.calibrate` for machine and collectives (for every number of ranks in `ranks`, by default 2 to 4,
    of a brief one 2; with `hosts` between the hosts of a lab), `sims.study.calibrated` for operators, and
    `sims.study.real_runs` for what ranks that exchange compute longer. GPUs are measured by `calibrate_gpu_to`,
    `add_gpu_operators` and `add_host`.
    """
    if not quiet:
        show([f"measuring this machine ({TAKES[depth]}; keep it idle)"], stderr())
    quick, brief = depth != "full", depth == "brief"
    steps = StepLines(4 if brief else 5, quiet)
    steps.begin("timing this machine's memory and arithmetic, and collectives between its ranks")
    path = calibrate_to(out, quick=quick, threads=threads, hosts=hosts, ranks=ranks or LINK_RANKS, brief=brief)
    threads = threads or max(1, core_count() // RANKS)
    few: dict[str, Any] = {"only": BRIEF_METHODS, "sizes": BRIEF_GRAPHS} if brief else {}
    steps.begin("timing the operators of training")
    add_operators(path.with_name("device.toml"), threads=threads, quick=quick, **few)
    steps.begin("timing what ranks compute longer after a wait")
    add_idling(path.with_name("device.toml"), threads=threads, brief=brief)
    if not brief:
        steps.begin("timing what ranks compute longer where two share a core")
        add_sharing(path.with_name("device.toml"), threads=threads)
    trained, passes = (BRIEF_ACCOMPANIED, BRIEF_PASSES) if brief else (ACCOMPANIED, PASSES)
    steps.begin(f"training {len(trained)} small runs for real, and fitting what ranks that exchange compute longer")
    before, device = reference_seconds(), path.with_name("device.toml")
    add_contention(out, threads=threads, hosts=hosts and hosts.unshaped, trained=trained, passes=passes)
    reference = (before + reference_seconds()) / 2
    save_over(replace(load_device(device), depth=depth), device)
    write_atomically(out / REFERENCE, msgspec.json.encode(Reference(reference)))
    return path
