"""`haloscope validate`: predicts and measures the same runs, component by component, and reports the errors.

Cells are made and kept by `validation_cells`, and gone through within a budget of time by `validation_course`; here
they are chosen and shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import running
from harness.commands.arguments.calibrate import NOT_OF_STUDY, OF_NAMED_GRAPHS
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import table
from harness.commands.validation.cells import Validator
from harness.commands.validation.course import Course
from harness.commands.validation.tables import summaries
from harness.config import RunConfig, check, is_lab
from harness.errors import InputError
from harness.numbers import duration, significant, time_unit
from harness.running import validation
from harness.running.sweep import seconds_of
from harness.running.validation_study import study_rounds
from reports.draw.validation import write_validation


def main(args: argparse.Namespace) -> int:
    """Calibrate, measure and predict every cell, show and write the records; returns 1 if bytes differ or a run
    failed."""
    if ":" in str(args.out):
        raise InputError(f"--out {args.out}: clusters are named by their files in there, so it must have no colon")
    writable(args.out, folder=True)
    json_target(args.json)
    budget = seconds_of(args.budget)
    rounds, refused = _runnable(_rounds(args), chosen=args.methods is not None)
    validator = Validator(
        args.out, args.calibration, args.replays, args.runs, args.force, args.reuse == "any", args.ablation, args.study,
        args.quiet,
    )  # fmt: skip
    course = Course(validator, rounds, budget)
    course.run()
    records, failed, late = course.records, course.failed, course.late
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


def _rounds(args: argparse.Namespace) -> list[list[RunConfig]]:
    if args.epochs <= validation.WARM_UP:
        raise InputError(f"--epochs must be more than the {validation.WARM_UP} that warm up; 25 measure 20")
    base = RunConfig.of(epochs=args.epochs, eval_every=-1, lr=0.02, precision=args.precision)
    if args.study:
        if given := [name for name in NOT_OF_STUDY if getattr(args, name) is not None]:
            raise InputError(f"--study chooses its cells, so that --{given[0]} would change nothing: leave it out")
        return study_rounds(base)[args.from_round - 1 :]
    if args.from_round != 1:
        raise InputError("--from-round is of the rounds of --study")
    clusters = _several(args.cluster or ["local"], lambda text: text == "local" or is_lab(text))
    for cluster in clusters:
        if cluster != "local" and not is_lab(cluster):
            raise InputError(f"--cluster {cluster}: only this machine (local) and its labs (lab:3x1gbit) are measured")
    return [validation.cells(clusters, _workloads(args), args.methods, args.parts or 0, base)]


def _workloads(args: argparse.Namespace) -> dict[str, Mapping[str, Any]]:
    """What the cells train on, by name. Raises InputError for flags about other graphs where there is none."""
    names = _several(args.datasets or ["heavy", "balanced"], lambda text: text in validation.WORKLOADS)
    given = [name for name in OF_NAMED_GRAPHS if getattr(args, name) is not None]
    if given and all(name in validation.WORKLOADS for name in names):
        raise InputError(
            f"--{given[0]} is for graphs other than {', '.join(validation.WORKLOADS)}, which have their own: name one "
            "with --datasets"
        )
    asked = {name: getattr(args, name) if name in given else default for name, default in OF_NAMED_GRAPHS.items()}
    return {name: validation.WORKLOADS.get(name, {"dataset": name, **asked}) for name in names}


def _several(texts: Sequence[str], known: Callable[[str], bool]) -> list[str]:
    """The texts, and of one with commas between names that are known each; other commas belong to a name."""
    found = []
    for text in texts:
        pieces = [piece.strip() for piece in text.split(",")]
        found += pieces if all(map(known, pieces)) else [text]
    return found


def _runnable(rounds: Sequence[Sequence[RunConfig]], *, chosen: bool) -> tuple[list[list[RunConfig]], list[str]]:
    """The cells that can run, by round, and why the others cannot: methods need not take every model and graph.

    Raises:
        InputError: none can run, or one of `chosen` methods cannot.
    """
    found, refused = list[list[RunConfig]](), dict[str, InputError]()
    for number, config in [(number, config) for number, cells in enumerate(rounds) for config in cells]:
        check(config)
        try:
            opened = running.open_run(config)
            running.make_job(opened.plan)
        except InputError as error:
            if chosen:
                raise
            refused[f"{config.training.method} on {validation.workload_of(config.data.dataset)}: {error}"] = error
            continue
        opened.driver.check()
        found += [[] for _ in range(number + 1 - len(found))]
        found[number].append(config)
    if not found:
        raise next(iter(refused.values()))
    return found, list(refused)


def _few(cells: Sequence[str]) -> str:
    """The first cell, and how many more there are."""
    return f"{''.join(cells[:1])}{f' and {len(cells) - 1} more' if len(cells) > 1 else ''}"


def _tables(records: list[dict[str, Any]]) -> list[Any]:
    """One table per graph and cluster: every component predicted / measured, then the error of the epoch."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((validation.workload_of(str(record["dataset"])), record["cluster"]), []).append(record)
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
