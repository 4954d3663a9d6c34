"""`haloscope calibrate`: measures this machine and shows the cluster file that came of it."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.commands import clusters
from harness.commands.cells import writable
from harness.console import show, stderr, stdout


def main(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    writable(args.out, folder=True)
    path = measure(args.out, quick=args.quick)
    cluster: Any = import_module("sims.topology").load_cluster(path)
    show([*clusters.report(cluster), f"written: {path}; use it with --mode sim --cluster {path}"], stdout())
    return 0


def measure(out: Path, *, quick: bool, quiet: bool = False) -> Path:
    """Write a cluster file of this machine into `out`; answers its path. See `real.calibrate`."""
    if not quiet:
        show([f"measuring this machine ({'under a minute' if quick else 'some minutes'}; keep it idle)"], stderr())
    path: Path = import_module("real.calibrate").calibrate_to(out, quick=quick)
    return path
