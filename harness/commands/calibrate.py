"""`haloscope calibrate`: measures this machine, writes a cluster file and shows it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.commands import clusters
from harness.commands.cells import writable
from harness.config import LabSpec, parse_lab
from harness.console import show, stderr, stdout
from harness.errors import InputError
from harness.machine import core_count
from real.measure.calibrate import LINK_RANKS, RANKS, calibrate_gpu_to, calibrate_to
from sims.cluster import load_cluster
from sims.study.calibrated import add_contention, add_host, add_operators


def main(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    writable(args.out, folder=True)
    if args.device == "cuda":
        if args.lab:
            raise InputError("--device cuda measures the GPUs of this host; --lab has none")
        show([f"measuring a GPU ({'one to two minutes' if args.quick else 'some minutes'}; keep it idle)"], stderr())
        path = calibrate_gpu_to(args.out, quick=args.quick)
        add_host(args.out, quick=args.quick)
    else:
        path = measure(args.out, quick=args.quick, hosts=parse_lab(args.lab) if args.lab else None)
    cluster = load_cluster(path)
    show([*clusters.cluster_report(cluster), f"written: {path}; use it with --mode sim --cluster {path}"], stdout())
    return 0


def measure(
    out: Path,
    *,
    quick: bool,
    quiet: bool = False,
    threads: int = 0,
    hosts: LabSpec | None = None,
    ranks: Sequence[int] = (),
) -> Path:
    """Measure this machine's CPU and write its device and cluster file into `out`; returns the path of the latter.

    See `real.measure.calibrate` for machine and collectives (for every number of ranks in `ranks`, by default 2 to 4;
    with `hosts` between the hosts of a lab), and `sims.study.calibrated` for operators. GPUs are measured by
    `calibrate_gpu_to` and `add_host`.
    """
    if not quiet:
        show([f"measuring this machine ({'one to four minutes' if quick else 'some minutes'}; keep it idle)"], stderr())
    path = calibrate_to(out, quick=quick, threads=threads, hosts=hosts, ranks=ranks or LINK_RANKS)
    threads = threads or max(1, core_count() // RANKS)
    add_operators(path.with_name("device.toml"), threads=threads, quick=quick)
    add_contention(out, threads=threads, hosts=hosts and hosts.unshaped)
    return path
