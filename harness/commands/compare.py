"""`haloscope compare`: several methods and modes on the same data, in one table, one figure, one JSON and one CSV."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import pandas as pd

from harness.commands.arguments import given_config, settings_given
from harness.commands.arguments.engines import real_jobs, telling
from harness.commands.shared.cells import FinishedRun, Reuse, as_json, deliver, json_target, run_or_reuse, writable
from harness.commands.shared.like import unified
from harness.commands.shared.tables import comparison_report, note_lines
from harness.config import Mode, RunConfig, check, in_modes
from harness.errors import HaloscopeError, InputError, unknown
from harness.machine import Died, ended_by_sigterm, write_atomically
from harness.numbers import duration
from harness.running import OpenedRun, open_run
from harness.running.alike import limit_lines
from harness.running.engines import CellEngine, opened_engine
from harness.running.intervals import order_lines
from harness.running.summary import comparison
from reports.draw.figures import breakdown_and_accuracy
from sims.uncertainty import replays_for


def main(args: argparse.Namespace) -> int:
    """Run every cell, then show and write the comparison; returns 1 if one of them diverged."""
    modes = [mode_named(text.strip()) for text in args.modes.split(",")] if args.modes else []
    base = given_config(args)  # checked mode by mode: not every setting is valid in every mode
    runs = cells_of(base, args.methods, modes or [base.run.mode], settings_given(args))
    writable(args.out, folder=True)
    json_target(args.json)
    how = {"force": args.force, "reuse": args.reuse, "replays": replays_for(base.cut.parts, args.replays)}
    real = any(opened.config.run.mode == "real" for opened in runs)
    if args.rounds > 1 and (args.on != "local" or (args.jobs or 1) > 1):
        raise InputError("--rounds measures run after run on this machine: without --on, and with one job")
    jobs = real_jobs(args.on, args.jobs, telling(args.quiet)) if real else args.jobs or int(args.on == "local")
    with opened_engine(args.on, jobs, args.out, telling(args.quiet)) as engine:
        if engine.here and engine.places() == 1:  # with a bar of each run's epochs
            with ended_by_sigterm():
                cells = run_all(runs, args.out, quiet=args.quiet, rounds=args.rounds, **how)
        else:
            cells = run_elsewhere(runs, args.out, engine, telling(args.quiet), **how)
    tables, content = publish(cells, args.out / "comparison")
    deliver(content, tables, args.json, args.quiet)
    return 0 if all(cell.record["state"] == "done" for cell in cells) else 1


def cells_of(base: RunConfig, methods: str, modes: Sequence[Mode], asked: Collection[str] = ()) -> list[OpenedRun]:
    """Every cell, opened, method by method, with the settings that `like.unified` chooses; `asked` as there.

    A setting that acts in some of the modes only, such as `backend` or `cluster`, is given to those.

    Raises:
        InputError: unknown method or option, or a setting that is not valid in a mode.
    """
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InputError("--methods names no method, e.g. --methods vanilla,bns-gcn:p=0.1")
    made: dict[RunConfig, OpenedRun] = {}
    for config in in_modes(base, modes):
        check(config)
    for one in unified(base.changed(mode=modes[0]), names, asked):
        for config in in_modes(one, modes):
            check(config)
            made[config] = open_run(config)
            made[config].driver.check()
    return list(made.values())


def mode_named(text: str) -> Mode:
    """The mode of this name. Raises InputError for another name; the nearest one is named."""
    for mode in get_args(Mode):
        if text == mode:
            return cast(Mode, mode)
    raise unknown("mode", text, get_args(Mode))


def run_all(
    runs: Sequence[OpenedRun], out: Path, *, force: bool = False, reuse: Reuse = "same", quiet: bool = False,
    replays: int = 0, rounds: int = 1,
) -> list[FinishedRun]:  # fmt: skip
    """Carry out or reuse every run; each result is written as soon as it is complete, with an interval of `replays`.

    Args:
        rounds: how often every real run is measured, all of them in turn, since a machine changes its pace; results of
            later rounds are in folders of `out`, and `in_rounds` says what is returned.

    Raises:
        InputError: several rounds, and none of the runs is real.
    """
    again = [opened for opened in runs if opened.config.run.mode == "real"]
    if rounds > 1 and not again:
        raise InputError("rounds repeat measurements, and no run here is real: add real to the modes")
    turns = [(turn, opened) for turn in range(rounds) for opened in (again if turn else runs)]
    found: dict[str, list[FinishedRun]] = {}
    for number, (turn, opened) in enumerate(turns, 1):
        config = opened.config
        which = f", round {turn + 1} of {rounds}" if rounds > 1 and config.run.mode == "real" else ""
        title = f"[{number}/{len(turns)}] {config.training.method}, {config.run.mode}{which}"
        folder = out / f"round{turn + 1}" if turn else out
        made = run_or_reuse(opened, folder, force=force, reuse=reuse, quiet=quiet, title=title, replays=replays)
        found.setdefault(config.run_id(), []).append(made)
    return [in_rounds(found[opened.config.run_id()]) for opened in runs]


def in_rounds(measured: Sequence[FinishedRun]) -> FinishedRun:
    """Of several rounds of a run the one with the median epoch (of an even number the faster of the two in the middle),
    with the epochs of all of them as `facts.rounds`; the first that did not reach its end, if there is one."""
    for run in measured:
        if len(measured) == 1 or run.record["state"] != "done":
            return run
    seconds = [run.record["summary"]["epoch_seconds"] for run in measured]
    run = sorted(measured, key=lambda each: float(each.record["summary"]["epoch_seconds"]))[(len(measured) - 1) // 2]
    return replace(run, record={**run.record, "facts": {**run.record["facts"], "rounds": seconds}})


def run_elsewhere(
    runs: Sequence[OpenedRun], out: Path, engine: CellEngine, say: Callable[[str], None], **how: Any
) -> list[FinishedRun]:
    """As `run_all`, on an engine. Raises the HaloscopeError of the first run that fails; others are kept."""
    found: dict[RunConfig, FinishedRun] = {}
    begin = time.monotonic()
    call = partial(_run_there, out=out.absolute(), **how)
    for config, answer in engine.map(call, [opened.config for opened in runs], lambda _: True):
        title = f"{config.training.method}, {config.run.mode}"
        if isinstance(answer, Died | str):
            raise HaloscopeError(f"{title}: {answer.why if isinstance(answer, Died) else answer}")
        found[config] = replace(answer, path=out / answer.path.name)
        left = (time.monotonic() - begin) / len(found) * (len(runs) - len(found))
        ending = f"; about {duration(left)} left" if left else ""
        say(f"[{len(found)}/{len(runs)}] {title}: {answer.record['state']}{ending}")
    return [found[opened.config] for opened in runs]


def _run_there(config: RunConfig, out: Path, **how: Any) -> FinishedRun | str:
    """A run in this process, or why it failed."""
    try:
        return run_or_reuse(open_run(config), out, quiet=True, **how)
    except HaloscopeError as error:
        return " ".join(str(error).split())


def publish(cells: Sequence[FinishedRun], folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Write `table.csv`, `table.json`, `figure.png`, `figure.svg`; returns the tables to show and the JSON content."""
    records = [cell.record for cell in cells]
    rows = comparison(records)
    warnings = limit_lines(records)
    content = {
        "rows": rows, "order": order_lines(records), "warnings": warnings, "runs": [str(cell.path) for cell in cells],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    tables = [folder / "table.csv", folder / "table.json"]
    write_atomically(tables[0], pd.DataFrame(rows).to_csv(index=False).encode())
    write_atomically(tables[1], as_json(content))
    drawn = breakdown_and_accuracy(records, folder / "figure")
    said = dict.fromkeys(note for record in records for note in note_lines(record))
    reused = sum(cell.reused for cell in cells)
    lines = [f"{reused} of {len(cells)} runs were finished earlier; --force runs them again"] if reused else []
    lines.append("written: " + ", ".join(str(path) for path in (*tables, *drawn)))
    return [*comparison_report(rows), *warnings, *order_lines(records), *said, *lines], content
