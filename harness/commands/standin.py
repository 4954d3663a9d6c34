"""`haloscope standin`: list the designs of stand-ins, fit one to two printed scores, draw what its parameters do."""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import table
from harness.console import show, stderr
from harness.datasets import STANDINS, read_standin, read_standins
from harness.errors import InputError
from harness.machine import core_count
from harness.numbers import DASH, duration
from harness.running.sweep import seconds_of
from reports import study

FOLDER = Path("standins")
KNOBS = "signal,label_noise,homophily,agreement,degree,train"
"""Parameters that a figure shows by default."""


def main(args: argparse.Namespace) -> int:
    """List, fit or draw; returns 1 if a fit did not reach the printed scores."""
    json_target(args.json)
    if args.what == "list":
        return _list(args)
    if not args.name:
        raise InputError(f"name a design: {', '.join(study.designs())}")
    if not 0 < args.scale <= 100:
        raise InputError("--scale must be above 0, and at most 100")
    study.design_of(args.name)
    if args.what == "fit" and args.knobs is not None:
        raise InputError("--knobs belongs to haloscope standin figure: what a fit moves is in the design")
    path: Path = args.file or FOLDER / f"{args.name}.csv"
    writable(path, folder=False)
    say = (lambda _: None) if args.quiet else (lambda line: show([line], stderr()))
    deadline = time.monotonic() + seconds_of(args.budget)
    runs = study.Runs(study.Store.open(path), args.jobs or core_count(), deadline, say)
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")  # loky renews workers that have grown
    with study.passing_cache():
        return _fit(args, runs) if args.what == "fit" else _figure(args, runs)


def _fit(args: argparse.Namespace, runs: Any) -> int:
    begin, out = time.monotonic(), args.out or STANDINS
    writable(out, folder=True)
    fitting = study.Fitting(args.name, runs, args.seeds, args.evaluations, args.scale)
    reached = fitting.search()
    if not fitting.points:
        raise InputError(f"--budget {args.budget} ended before the first point of {args.name}")
    scale = f" --scale {args.scale:g}" if args.scale != 1 else ""
    command = f"haloscope standin fit {args.name} --seeds {args.seeds} --evaluations {args.evaluations}{scale}"
    path = fitting.write(command, out)
    fitted = read_standin(path)
    state = "reached" if reached else "nearest so far; a larger --budget or more --evaluations go on from here"
    content = {"standin": args.name, "reached": reached, "file": str(path), "fitted": fitted.fitted}
    lines = [
        fitted.described(),
        f"{state}; {len(fitting.points)} points, {duration(time.monotonic() - begin)}; written: {path}",
    ]
    deliver(content, lines, args.json, args.quiet)
    return 0 if reached else 1


def _figure(args: argparse.Namespace, runs: Any) -> int:
    out: Path = args.out or FOLDER
    writable(out, folder=True)
    knobs = [knob.strip() for knob in (KNOBS if args.knobs is None else args.knobs).split(",") if knob.strip()]
    if not knobs:
        raise InputError("--knobs names no parameter of a stand-in")
    sweeps = study.sweep(args.name, knobs, runs, args.seeds, args.scale)
    if not sweeps:
        raise InputError(f"--budget {args.budget} ended before the first parameter; the same command goes on from here")
    out.mkdir(parents=True, exist_ok=True)
    paths = (out / f"{args.name}.png", out / f"{args.name}.svg")
    study.draw_parameters(args.name, sweeps, paths)
    rows = study.moved(sweeps)
    cells = [
        [str(row["parameter"]), *(f"{row[key]:.4g}" for key in ("value", "full", "isolated", "loss"))] for row in rows
    ]
    columns = ["parameter", "value", "full (%)", "isolated (%)", "loss (points)"]
    deliver(rows, [table("", columns, cells), f"written: {paths[0]}, {paths[1]}"], args.json, args.quiet)
    return 0


def _list(args: argparse.Namespace) -> int:
    fitted = read_standins()
    rows = []
    for name, design in study.designs().items():
        full, isolated = design.goal.scores
        state = fitted[name].fit.state if name in fitted else "not fitted"
        knobs = " and ".join(design.search)
        values = ", ".join(f"{k} {v:g}" for k, v in fitted[name].fitted.items()) if name in fitted else DASH
        rows.append([name, design.paper, f"{full:.2f}", f"{isolated:.2f}", knobs, state, values])
    columns = ["name", "paper", "full", "isolated", "searched", "state", "found"]
    content = [dict(zip(columns, row, strict=True)) for row in rows]
    deliver(content, [table("printed scores in per cent", columns, rows, left=2)], args.json, args.quiet)
    return 0
