"""`haloscope run`: one config, one result file, one page of tables."""

from __future__ import annotations

import argparse

from harness.commands.arguments import config_of
from harness.commands.cells import deliver, json_target, run_or_reuse, writable
from harness.commands.tables import run_report


def main(args: argparse.Namespace) -> int:
    """Run, or reuse; 1 when training diverged."""
    config = config_of(args)
    writable(args.out, folder=True)
    json_target(args.json)
    cell = run_or_reuse(config, args.out, force=args.force, quiet=args.quiet)
    deliver(cell.record, [*run_report(cell.record), cell.where()], args.json, args.quiet)
    return 0 if cell.record["state"] == "done" else 1
