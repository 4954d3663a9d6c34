"""`haloscope validate`: predicts and measures the same runs, component by component, and reports the errors.

Cells are made and kept by `validation_cells`; here they are chosen, gone through within a budget of time, and shown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from harness import running
from harness.commands.cells import deliver, json_target, writable
from harness.commands.tables import table
from harness.commands.validation_cells import CellFailed, Validator
from harness.commands.validation_tables import summaries
from harness.config import RunConfig, check, is_lab
from harness.console import duration, show, significant, stderr, time_unit
from harness.errors import InputError
from harness.running import validation
from harness.running.sweep import seconds_of
from harness.running.validation_study import ValidationCell, study_cells
from reports.draw.validation import write_validation


def main(args: argparse.Namespace) -> int:
    """Calibrate, measure and predict every cell, show and write the records; returns 1 if bytes differ or a run
    failed."""
    if ":" in str(args.out):
        raise InputError(f"--out {args.out}: clusters are named by their files in there, so it must have no colon")
    writable(args.out, folder=True)
    json_target(args.json)
    budget = seconds_of(args.budget)
    cells, refused = _runnable(_cells(args), chosen=args.methods is not None)
    validator = Validator(
        args.out, args.calibration, args.replays, args.force, args.reuse == "any", args.ablation, args.quiet
    )  # fmt: skip
    records, failed, late = _run(cells, validator, budget)
    if not records:
        why = [*failed, *refused, f"a budget of {duration(budget)} is not enough for {_few(late)}"]
        raise InputError(f"no cell can be judged: {why[0]}")
    paths = write_validation(records, args.out)
    lines: list[Any] = [*_tables(records), *summaries(records), f"{validation.verdict(records)}"]
    lines += [f"left out: {why}" for why in (*failed, *refused)]
    if late:
        lines.append(f"not begun, since they would end after the budget of {duration(budget)}: {_few(late)}; the same "
                     "command goes on with them")  # fmt: skip
    deliver(records, [*lines, "written: " + ", ".join(map(str, paths))], args.json, args.quiet)
    return 0 if not failed and all(found["bytes_equal"] for found in records) else 1


def _cells(args: argparse.Namespace) -> list[ValidationCell]:
    if args.epochs <= validation.WARM_UP:
        raise InputError(f"--epochs must be more than the {validation.WARM_UP} that warm up; 25 measure 20")
    base = RunConfig.of(epochs=args.epochs, eval_every=-1, lr=0.02)
    if args.study:
        return study_cells(base)
    given = {name: getattr(args, name) for name in ("model", "layers", "hidden", "partitioner")}
    workloads = {name: validation.WORKLOADS.get(name, {"dataset": name, **given}) for name in args.datasets}
    for cluster in args.cluster:
        if cluster != "local" and not is_lab(cluster):
            raise InputError(f"--cluster {cluster}: only this machine (local) and its labs (lab:3x1gbit) are measured")
    return [
        ValidationCell(config) for config in validation.cells(args.cluster, workloads, args.methods, args.parts, base)
    ]


def _runnable(cells: Sequence[ValidationCell], *, chosen: bool) -> tuple[list[ValidationCell], list[str]]:
    """The cells that can run, and why the others cannot: methods need not take every model and graph.

    Raises:
        InputError: none can run, or one of `chosen` methods cannot.
    """
    found, refused = [], dict[str, InputError]()
    for cell in cells:
        config = cell.config
        check(config)
        try:
            opened = running.open_run(config)
            running.make_job(opened.plan)
        except InputError as error:
            if chosen:
                raise
            refused[f"{config.training.method} on {_graph_of(config.data.dataset)}: {error}"] = error
            continue
        opened.driver.check()
        found.append(cell)
    if not found:
        raise next(iter(refused.values()))
    return found, list(refused)


def _run(
    cells: list[ValidationCell], validator: Validator, budget: float
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """The records of all cells, with a line of progress after each; the messages of those that failed; and those that
    were not begun, since they would have ended after `budget` seconds, calibrations not counted. Cells whose
    measurement is kept are always shown."""
    begin, done, calibrating = time.monotonic(), list[tuple[RunConfig, float]](), 0.0
    if not validator.quiet:
        expected = duration(validation.seconds_left(done, validator.ahead(cells)))
        show([f"{len(cells)} cells: about {expected} after calibrating, of at most {duration(budget)}"], stderr())
    records, failed, late = [], list[str](), list[str]()
    for number, cell in enumerate(cells, 1):
        ahead = validator.ahead([cell])
        if ahead and time.monotonic() - begin - calibrating + validation.seconds_left(done, ahead) > budget:
            late.append(_words(cell.config))
            continue
        try:
            asked = time.monotonic()
            validator.calibration(cell.config)  # which serves many cells, so that its time is none of this one
            start = time.monotonic()
            calibrating += start - asked
            records.append(validator.record(cell))
        except CellFailed as error:
            failed.append(str(error))
            show([f"[{number}/{len(cells)}] {error}"], stderr())
            continue
        done += [(cell.config, time.monotonic() - start)] * len(ahead)
        if not validator.quiet:
            left = validation.seconds_left(done, validator.ahead(cells[number:]))
            show([_progress(records[-1], number, len(cells), left)], stderr())
    return records, failed, late


def _few(cells: Sequence[str]) -> str:
    """The first cell, and how many more there are."""
    return f"{''.join(cells[:1])}{f' and {len(cells) - 1} more' if len(cells) > 1 else ''}"


def _words(config: RunConfig) -> str:
    return f"{config.training.method} on {_graph_of(config.data.dataset)}, {config.cluster.name}"


def _progress(record: dict[str, Any], number: int, of: int, left: float) -> str:
    times = [record[side]["epoch"] for side in ("predicted", "measured")]
    factor, unit = time_unit(times)
    predicted, measured = (significant(seconds * factor) for seconds in times)
    rest = f"; about {duration(left)} left" if number < of else ""
    name = f"[{number}/{of}] {record['method']}, {_graph_of(str(record['dataset']))}, {record['cluster']}"
    return f"{name}: predicted {predicted}, measured {measured} {unit} ({100 * record['error']:+.0f} %){rest}"


def _graph_of(dataset: str) -> str:
    known = {str(values["dataset"]): name for name, values in validation.WORKLOADS.items()}
    return known.get(dataset, dataset)


def _tables(records: list[dict[str, Any]]) -> list[Any]:
    """One table per graph and cluster: every component predicted / measured, then the error of the epoch."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((_graph_of(str(record["dataset"])), record["cluster"]), []).append(record)
    made = []
    for (graph, cluster), group in groups.items():
        factor, unit = time_unit([record["measured"]["epoch"] for record in group])
        columns = [f"{name} {unit}" for name in validation.VALIDATED_COMPONENTS]
        heading = ["method", *columns, f"90 % {unit}", f"spread {unit}", "error", "bytes", "others"]
        made.append(table(f"{graph}, {cluster}: predicted / measured", heading, [_row(r, factor) for r in group]))
    return made


def _row(record: dict[str, Any], factor: float) -> list[str]:
    pairs = [(record["predicted"][name], record["measured"][name]) for name in validation.VALIDATED_COMPONENTS]
    times = [f"{significant(p * factor)} / {significant(m * factor)}" for p, m in pairs]
    load = record["foreign_load"]
    others = f"{100 * load:.0f} %" + (" busy: left out" if record["disturbed"] else "")
    rest = [f"{100 * record['error']:+.1f} %", "equal" if record["bytes_equal"] else "DIFFER", others]
    ends = record["interval"].get("epoch")
    held = "-" if ends is None else " to ".join(significant(end * factor) for end in ends)
    return [record["method"], *times, held, significant(record["measured"]["spread"] * factor), *rest]
