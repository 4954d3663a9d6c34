"""`haloscope collect`: many result files into one table for pandas or a spreadsheet, a row per epoch."""

from __future__ import annotations

import argparse
import io

from harness.commands.cells import writable
from harness.console import show, stdout
from harness.errors import InputError
from harness.running.results import collect, write_atomically


def main(args: argparse.Namespace) -> int:
    """Collect and write."""
    if args.to.suffix not in (".parquet", ".csv"):
        raise InputError(f"{args.to}: write to a .parquet or a .csv file")
    if not args.folder.is_dir():
        raise InputError(f"{args.folder}: no such folder of results")
    writable(args.to, folder=False)
    frame = collect(args.folder)
    if frame.empty:
        raise InputError(f"{args.folder}: no result files in it")
    buffer = io.BytesIO()
    if args.to.suffix == ".csv":
        frame.to_csv(buffer, index=False)
    else:
        frame.to_parquet(buffer, index=False)
    args.to.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.to, buffer.getvalue())
    show([f"{frame['run_id'].nunique()} runs, {len(frame)} epochs -> {args.to}"], stdout())
    return 0
