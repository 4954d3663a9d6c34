"""`haloscope calibrate`: measures this machine and shows the cluster file that came of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.commands import clusters
from harness.commands.cells import writable
from harness.console import show, stderr, stdout
from harness.cores import core_count
from harness.errors import InputError
from harness.lab_spec import LabSpec, parse_lab


def main(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    writable(args.out, folder=True)
    if args.device == "cuda":
        if args.lab:
            raise InputError("--device cuda measures the GPUs of this host; --lab has none")
        show([f"measuring a GPU ({'one to two minutes' if args.quick else 'some minutes'}; keep it idle)"], stderr())
        path = import_module("real.calibrate").calibrate_gpu_to(args.out, quick=args.quick)
        import_module("sims.calibrated").add_host(args.out, quick=args.quick)
    else:
        path = measure(args.out, quick=args.quick, hosts=parse_lab(args.lab) if args.lab else None)
    cluster: Any = import_module("sims.topology").load_cluster(path)
    show([*clusters.report(cluster), f"written: {path}; use it with --mode sim --cluster {path}"], stdout())
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
    """Write device and cluster file of this machine into `out`; answers the path of the latter.

    See `real.calibrate` for machine and collectives (among every number in `ranks`, 2 to 4 by default; `hosts`: between
    those of a lab), `sims.calibrated` for operators. Of a CPU; a GPU's are `calibrate_gpu_to` and `add_host`.
    """
    if not quiet:
        show([f"measuring this machine ({'one to four minutes' if quick else 'some minutes'}; keep it idle)"], stderr())
    machine = import_module("real.calibrate")
    path: Path = machine.calibrate_to(out, quick=quick, threads=threads, hosts=hosts, ranks=ranks or machine.LINK_RANKS)
    threads = threads or max(1, core_count() // machine.RANKS)
    model: Any = import_module("sims.calibrated")
    model.add_operators(path.with_name("device.toml"), threads=threads, quick=quick)
    model.add_company(out, threads=threads, hosts=hosts and hosts.unshaped)
    return path
