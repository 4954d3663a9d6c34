"""`haloscope demo`: a first result in one command, offline, on two cores, in one to two minutes.

Measures this machine briefly (or takes what is kept of it), predicts three methods on it, runs the same three for real,
compares both, and says how far apart they are and what to try next.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

from harness.commands.calibrate import keep
from harness.commands.compare import cells_of, publish, run_all
from harness.commands.shared.cells import deliver, writable
from harness.commands.welcome import NEXT
from harness.config import RunConfig
from harness.console import show, stderr
from harness.machine import FOREIGN, HERE, KeptCalibration, kept_calibration
from harness.numbers import significant, time_unit
from harness.running.drift import Load, reference_seconds, watching
from sims.uncertainty import REPLAYS

MEASURED_ROUNDS = 3
"""How often every method is measured, all of them in turn."""

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

NOTED_PACE = 1.1
"""By which factor the pace may have changed without a word: two looks in a row differ by less."""

DRIFT = 4 / 3
"""By which factor the machine may be faster or slower than at a brief calibration before that is made again."""


def main(args: argparse.Namespace) -> int:
    """Calibrate if need be, simulate, run, compare."""
    writable(args.out, folder=True)
    calibrated(args.quiet)
    runs = cells_of(CONFIG, METHODS, ("sim", "real"))
    with watching() as load:
        cells = run_all(runs, args.out / "runs", force=True, quiet=args.quiet, replays=REPLAYS, rounds=MEASURED_ROUNDS)
        pace = pace_now(kept_calibration())
    tables, content = publish(cells, args.out)
    errors = [*prediction_lines(content["rows"]), *(disturbance_lines(kept_calibration(), load) or pace_lines(pace))]
    lines = [*tables[:-1], *errors, tables[-1], f"the figure: {args.out / 'figure.png'}", *NEXT]
    deliver(content, lines, None, args.quiet)
    return 0 if all(cell.record["state"] == "done" for cell in cells) else 1


def calibrated(quiet: bool = False) -> None:
    """Measure this machine briefly, unless what is kept of it still holds. Says which, and why."""
    known = kept_calibration()
    if known is None:
        keep("brief", quiet=quiet)
        return
    change = changed_since(known)
    again = bool(change) and known.depth == "brief"  # what took minutes is not replaced unasked
    if not quiet:
        rest = (
            "" if not change else f"; {change}: " + ("measured again" if again else "haloscope calibrate does it again")
        )
        show([f"this machine as the {known.text()} has it{rest}"], stderr())
    if again:
        keep("brief", quiet=quiet)


def changed_since(known: KeptCalibration) -> str:
    """Why a calibration says little of the machine as it is now; empty where it does not."""
    if known.disturbed:
        return known.disturbed
    pace = reference_seconds() / known.reference
    if max(pace, 1 / pace) <= DRIFT:
        return ""
    return f"it is {pace if pace > 1 else 1 / pace:.1f} times as {'slow' if pace > 1 else 'fast'} now"


def pace_now(known: KeptCalibration | None) -> float:
    """How many times as long the reference work takes as when the machine was calibrated; 1 if it was not."""
    return reference_seconds() / known.reference if known is not None else 1.0


def pace_lines(pace: float) -> list[str]:
    """What the machine's pace after the runs says of predictions from a calibration, where it is another."""
    if max(pace, 1 / pace) < NOTED_PACE:
        return []
    changed = f"{pace if pace > 1 else 1 / pace:.2f} times as {'slow' if pace > 1 else 'fast'}"
    too = "short" if pace > 1 else "long"
    return [f"the machine is {changed} as when it was calibrated, so predicted times are too {too} by about that"]


def disturbance_lines(known: KeptCalibration | None, load: Load) -> list[str]:
    """What other programs used during the calibration and the runs, where that was much."""
    said = [known.disturbed] if known is not None and known.disturbed else []
    if load.foreign > FOREIGN:
        said.append(f"other programs used {load.foreign:.0%} of the cores during these runs")
    rest = "these times, and how far apart they are, tell little; run it again when the machine is idle"
    return [f"{' and '.join(said)}: {rest}"] if said else []


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
