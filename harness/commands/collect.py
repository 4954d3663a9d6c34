"""`haloscope collect`: many result files into one table for pandas or a spreadsheet, a row per epoch."""

from __future__ import annotations

import argparse
import io

from harness.commands.shared.cells import writable
from harness.console import show, stdout
from harness.errors import InputError
from harness.machine import write_atomically
from harness.numbers import count_text
from harness.running.results import Collected, collect


def main(args: argparse.Namespace) -> int:
    """Collect and write."""
    if args.to.suffix not in (".parquet", ".csv"):
        raise InputError(f"{args.to}: write to a .parquet or a .csv file")
    if not args.folder.is_dir():
        raise InputError(f"{args.folder}: no such folder of results")
    writable(args.to, folder=False)
    found = collect(args.folder)
    frame = found.frame
    if frame.empty:
        counts = (
            f"{len(found.without_epochs)} results without epochs, {len(found.unreadable)} files that are not results"
        )
        raise InputError(f"{args.folder}: no result files with epochs in it ({counts})")
    buffer = io.BytesIO()
    if args.to.suffix == ".csv":
        frame.to_csv(buffer, index=False)
    else:
        frame.to_parquet(buffer, index=False)
    args.to.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.to, buffer.getvalue())
    counts = f"{count_text(frame['run_id'].nunique(), 'run')}, {count_text(len(frame), 'epoch')}"
    if not args.quiet:
        show([f"{counts} -> {args.to}{_left_out(found)}"], stdout())
    return 0


def _left_out(found: Collected) -> str:
    """What is not in the table: how many results, and a line for each; nothing where all are."""
    lines = [f"{run_id[:12]}: {state}" for run_id, state in found.without_epochs.items()]
    texts = [f"left out, without epochs: {len(lines)}", *lines] if lines else []
    texts += [f"left out, not results: {len(found.unreadable)}", *found.unreadable] if found.unreadable else []
    return "".join(f"\n{text}" for text in texts)
