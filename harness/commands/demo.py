"""`haloscope demo`: a first result in one command, offline, on two cores, in less than a minute.

Measures this machine briefly (or takes what is kept of it), predicts three methods on it, runs the same three for real,
compares both, and says how far apart they are and what to try next.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

from harness.commands.calibrate import keep, kept_calibration
from harness.commands.cells import deliver, writable
from harness.commands.compare import cells_of, publish, run_all
from harness.commands.welcome import NEXT
from harness.config import RunConfig
from harness.console import show, significant, stderr, time_unit
from harness.machine import HERE
from sims.uncertainty import REPLAYS

METHODS = "vanilla,bns-gcn:p=0.1,sylvie-s:bits=1"
GRAPH = "synthetic:nodes=12000,degree=10,classes=16,features=64,signal=0.7"
CONFIG = RunConfig.of(
    dataset=GRAPH,
    model="gcn",
    layers=3,
    hidden=128,
    lr=0.02,
    partitioner="hash",  # many cut edges: nearly every row is needed by the other rank, so that communication shows
    parts=2,
    epochs=18,
    eval_every=2,
    cluster=HERE,
)


def main(args: argparse.Namespace) -> int:
    """Calibrate if need be, simulate, run, compare."""
    writable(args.out, folder=True)
    known = kept_calibration()
    if known is None:
        keep("brief", quiet=args.quiet)
    elif not args.quiet:
        show([f"this machine as the {known.text()} has it"], stderr())
    runs = cells_of(CONFIG, METHODS, ("sim", "real"))
    cells = run_all(runs, args.out / "runs", force=True, quiet=args.quiet, replays=REPLAYS)
    tables, content = publish(cells, args.out)
    errors = prediction_lines(content["rows"])
    lines = [*tables[:-1], *errors, tables[-1], f"the figure: {args.out / 'figure.png'}", *NEXT]
    deliver(content, lines, None, args.quiet)
    return 0 if all(cell.record["state"] == "done" for cell in cells) else 1


def prediction_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Predicted beside measured epochs, with the error of each, and their median; whatever they are."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["epoch_seconds"]:
            times.setdefault(row["method"], {})[row["mode"]] = row["epoch_seconds"]
    both = {method: (of["sim"], of["real"]) for method, of in times.items() if {"sim", "real"} <= of.keys()}
    if not both:
        return []
    factor, unit = time_unit([seconds for pair in both.values() for seconds in pair])
    errors = {method: predicted / measured - 1 for method, (predicted, measured) in both.items()}
    said = [
        f"{method} {significant(predicted * factor)} / {significant(measured * factor)} {unit} ({errors[method]:+.0%})"
        for method, (predicted, measured) in both.items()
    ]
    middle = median(abs(error) for error in errors.values())
    return [f"predicted / measured: {', '.join(said)}; median error {middle:.0%}"]
