"""`haloscope sweep`: every cell of a grid, in parallel, resumable after a kill at any time.

The process that ran a cell writes its result and renames it into place; finished cells are not run again.
"""

from __future__ import annotations

import argparse
import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from harness import running
from harness.commands.arguments.engines import real_jobs, telling
from harness.commands.shared.cells import (
    Reuse,
    deliver,
    finished,
    json_target,
    record_with_interval,
    run_or_reuse,
    without_interval,
    writable,
)
from harness.commands.shared.tables import BELOW, ROW_SETTINGS, gain_text, note_lines, said_once, span_text, table
from harness.config import RUN_SETTINGS
from harness.console import show, stderr
from harness.errors import HaloscopeError
from harness.machine import Died, remove_scratch, write_atomically
from harness.methods.registry import parse_method
from harness.numbers import DASH, duration, megabytes, percent, significant, time_unit
from harness.running.engines import CellEngine, opened_engine
from harness.running.intervals import speedup_interval
from harness.running.summary import UNLIKE, row_of, unlike_their_bases
from harness.running.sweep import Cell, Stopwatch, keeps_whole, read_sweep, seconds_of, time_left
from sims.uncertainty import replays_for

FINAL = ("done", "diverged", "out_of_memory")  # states that another run of the same cell would reproduce
PROBED_EPOCHS = 2
SHOWN_ROWS = 40
SHOWN_NOTES = 12


class CellOutcome(NamedTuple):
    """The end of one cell: its record, or why there is none, and its seconds."""

    record: dict[str, Any] | None
    failure: str
    seconds: float


RunCell = Callable[[Cell], CellOutcome]


def main(args: argparse.Namespace) -> int:
    """Run all unfinished cells; returns 1 if a cell failed, diverged or ran out of memory."""
    cells = read_sweep(args.file)
    out: Path = args.out or Path("sweeps", args.file.stem)
    writable(out, folder=True)
    json_target(args.json)
    budget = None if args.budget is None else seconds_of(args.budget)
    found = {cell: None if args.force else _kept(cell, out, args.reuse) for cell in cells}
    asked = {cell: replays_for(cell.config.cut.parts, args.replays) for cell in cells}
    todo = [cell for cell in cells if _unfinished(found[cell], asked[cell])]
    watch = Stopwatch(out)
    outcomes = {
        cell: CellOutcome(record if asked[cell] else without_interval(record), "", 0.0)
        for cell in cells
        if cell not in todo and (record := found[cell])
    }
    with opened_engine(args.on, _jobs(todo, args), out, telling(args.quiet)) as engine:
        jobs = engine.places(len(todo)) if todo else 1
        if args.dry_run:
            return _foretell(cells, todo, jobs, watch, args)
        out.mkdir(parents=True, exist_ok=True)
        remove_scratch(out)
        begin = time.monotonic()
        if budget is not None and todo and watch.expect(todo[0].config) is None:
            _probe(todo[0], watch)  # an estimate is needed, because no cell may begin that cannot end in time
        call = partial(run_cell, out=out.absolute(), replays=args.replays, force=args.force)
        for cell, outcome in _run(todo, partial(_outcomes, engine, call), jobs, watch, budget, begin, args.quiet):
            outcomes[cell] = outcome
    if budget is not None and todo and not any(cell in outcomes for cell in todo):
        shortest = min(watch.expect(cell.config) or 0.0 for cell in todo)
        show([f"--budget {args.budget} begins no cell: the shortest may take {duration(shortest)}"], stderr())
    return _publish(cells, outcomes, out, args)


def _kept(cell: Cell, out: Path, reuse: Reuse) -> dict[str, Any] | None:
    """The finished result of a cell."""
    return finished(_path(out, cell), partial(running.open_run, cell.config), FINAL, reuse)


def _unfinished(record: dict[str, Any] | None, replays: int) -> bool:
    """Whether a cell has no result, or one without the interval that is asked for and can be had."""
    if record is None:
        return True
    config = record["config"]
    if config["mode"] != "sim" or record["state"] != "done" or not replays:
        return False
    timed = parse_method(config["method"]).facts.timed
    return not timed and record["facts"].get("interval", {}).get("replays") != replays


def _path(out: Path, cell: Cell) -> Path:
    return out / f"{cell.config.run_id()}.json"


def _jobs(todo: Sequence[Cell], args: argparse.Namespace) -> int:
    """Cells at a time that are asked for: one where cells measure real time here, beside which nothing may run."""
    if any(cell.config.run.mode == "real" for cell in todo):
        return real_jobs(args.on, args.jobs, telling(args.quiet))
    return int(args.jobs)


def _outcomes(
    engine: CellEngine, call: RunCell, cells: Sequence[Cell], go_on: Callable[[Cell], bool]
) -> Iterator[tuple[Cell, CellOutcome]]:
    """The outcome of every cell, also if the process that ran it left no result."""
    for cell, outcome in engine.map(call, cells, go_on):
        yield cell, CellOutcome(None, outcome.why, 0.0) if isinstance(outcome, Died) else outcome


def _foretell(cells: list[Cell], todo: list[Cell], jobs: int, watch: Stopwatch, args: argparse.Namespace) -> int:
    """`--dry-run`: show the number of cells, how many are finished, and the estimated time of the others."""
    basis = "from the cells that were run"
    if todo and watch.expect(todo[0].config) is None:
        basis = _probe(todo[0], watch)
    left = time_left(todo, watch.expect, jobs)
    estimate = (
        "nothing is left" if not todo else f"about {duration(left)} on {jobs} workers, {basis}" if left else basis
    )
    content = {"cells": len(cells), "finished": len(cells) - len(todo), "to_run": len(todo), "seconds_left": left}
    lines = [f"{len(cells)} cells: {len(cells) - len(todo)} finished, {len(todo)} to run; {estimate}"]
    lines += [f"  {cell.title}" for cell in todo[:SHOWN_ROWS]]
    lines += [f"  and {len(todo) - SHOWN_ROWS} more"] if len(todo) > SHOWN_ROWS else []
    deliver(content, lines, args.json, args.quiet)
    return 0


def _probe(cell: Cell, watch: Stopwatch) -> str:
    """Time two epochs of a cell if there is no measurement yet; returns a description of the basis of the estimate."""
    short = cell.config.changed(epochs=min(PROBED_EPOCHS, cell.config.training.epochs))
    ends = [time.monotonic()]
    try:
        running.run_opened(running.open_run(short), lambda _: ends.append(time.monotonic()))
    except Exception as error:
        return f"time unknown: {cell.title} fails ({_said(error)})"
    epoch = (ends[-1] - ends[1]) / (short.training.epochs - 1) if len(ends) > 2 else ends[-1] - ends[0]
    watch.add(
        cell.config, ends[-1] - ends[0] + epoch * (cell.config.training.epochs - short.training.epochs), keep=False
    )
    return f"from a probe of {cell.title}"


def _run(
    todo: list[Cell],
    outcomes_of: Callable[[Sequence[Cell], Callable[[Cell], bool]], Iterator[tuple[Cell, CellOutcome]]],
    jobs: int,
    watch: Stopwatch,
    budget: float | None,
    begin: float,
    quiet: bool,
) -> Iterator[tuple[Cell, CellOutcome]]:
    """Run cells and return their outcomes; begins none that would not end within `budget` seconds of `begin`."""
    left = list(todo)

    def fits(cell: Cell) -> bool:
        spent = time.monotonic() - begin
        return budget is None or spent + (watch.expect(cell.config) or 0.0) < budget

    for cell, outcome in outcomes_of(todo, fits):
        left.remove(cell)
        if not outcome.failure:
            watch.add(cell.config, outcome.seconds)
        yield cell, outcome
        rest = time_left(left, watch.expect, jobs)
        ending = f"; about {duration(rest)} left" if rest else ""
        said = outcome.failure or (outcome.record or {})["state"]
        if not quiet:
            show([f"[{len(todo) - len(left)}/{len(todo)}] {cell.title}: {said}{ending}"], stderr())


def run_cell(cell: Cell, out: Path, replays: int | None = None, force: bool = False) -> CellOutcome:
    """Run one cell in this process, a prediction with its interval; returns errors of the cell instead of raising."""
    begin = time.monotonic()
    try:
        count, path = replays_for(cell.config.cut.parts, replays), _path(out, cell)
        # If another sweep over the same folder has finished the cell in the meantime, its result is used.
        opened = running.open_run(cell.config)
        record = None if force else finished(path, lambda: opened, FINAL)
        if record is None:
            record = run_or_reuse(opened, out, force=True, quiet=True, replays=count).record
        elif _unfinished(record, count):
            record = record_with_interval(record, opened, path, count, quiet=True)
    except Exception as error:
        return CellOutcome(None, _said(error), time.monotonic() - begin)
    return CellOutcome(record, "", time.monotonic() - begin)


def _said(error: Exception) -> str:
    text = str(error) if isinstance(error, HaloscopeError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _publish(cells: list[Cell], outcomes: dict[Cell, CellOutcome], out: Path, args: argparse.Namespace) -> int:
    """Write `sweep.csv` and `sweep.parquet`, a row per cell, and show them; returns the exit code."""
    rows = [_row(cell, outcomes.get(cell)) for cell in cells]
    _compare(cells, rows, outcomes)
    tables = _write(rows, out)
    missing = sum(row["state"] == "not run" for row in rows)
    apart = unlike_their_bases(rows)
    lines: list[Any] = [*_said_of_all(cells, rows, apart), _table(cells, rows, apart)]
    lines += _said_of_some(rows, apart)
    lines += [f"the first {SHOWN_ROWS} of {len(rows)} rows; all are in the files"] if len(rows) > SHOWN_ROWS else []
    lines += _messages(cells, rows)
    lines += _notes(outcomes.values())
    lines += [f"{missing} cells were not begun; run the same command again for them"] if missing else []
    lines.append("written: " + ", ".join(map(str, tables)))
    deliver({"rows": rows, "folder": str(out)}, lines, args.json, args.quiet)
    return 0 if all(row["state"] in ("done", "not run") for row in rows) else 1


def _messages(cells: list[Cell], rows: list[dict[str, Any]]) -> list[str]:
    """The messages of cells that failed, each once."""
    said: dict[tuple[str, str], list[str]] = {}
    for cell, row in zip(cells, rows, strict=True):
        if row["message"]:
            said.setdefault((row["state"], row["message"]), []).append(cell.title)
    return [
        f"{titles[0]}{f' and {len(titles) - 1} more' if len(titles) > 1 else ''}: {state}: {message}"
        for (state, message), titles in said.items()
    ]


def _row(cell: Cell, outcome: CellOutcome | None) -> dict[str, Any]:
    """A cell's values on the axes and, if it ran, the columns of `harness.running.summary.row_of`."""
    if outcome is not None and outcome.record is not None:
        row = {**row_of(outcome.record), "message": outcome.record["message"] or None}
    else:
        config = cell.config
        known = {key: config.flat()[key] for key in ("method", "mode", "cluster", "dataset", "model", "parts")}
        state, message = ("not run", None) if outcome is None else ("error", outcome.failure)
        row = {**known, "state": state, "message": message, "run_id": config.run_id()}
    axes = {key: value for key, value in cell.axes.items() if key not in row}
    return {**axes, "seed": cell.config.training.seed, **row}


def _compare(cells: list[Cell], rows: list[dict[str, Any]], outcomes: Mapping[Cell, CellOutcome]) -> None:
    """Add `speedup`: epoch time of the first method over this one's, with equal values on all other axes; its interval
    where both are predicted; and `base`, the run id of the other. A first method that runs on one part is the base for
    any number of parts."""
    first: dict[str, tuple[float, Cell]] = {}
    options = {key for cell in cells for key in cell.axes} - RUN_SETTINGS.keys()
    shared = {key for key in options if not key.startswith("cluster.")} | {"method"}
    if keeps_whole(cells[0].config):
        shared.add("parts")
    for cell, row in zip(cells, rows, strict=True):
        place = repr(sorted((key, value) for key, value in cell.axes.items() if key not in shared))
        seconds = row.get("epoch_seconds")
        if cell.config.training.method == cells[0].config.training.method and seconds:
            first[place] = seconds, cell
        row |= dict.fromkeys(("speedup", "speedup_low", "speedup_high", "base"))
        if seconds and place in first:
            before, base = first[place]
            mine, others = outcomes[cell].record, outcomes[base].record
            row["speedup"], row["base"] = before / seconds, base.config.run_id()
            if mine and others:
                row["speedup_low"], row["speedup_high"] = speedup_interval(mine, others) or (None, None)


def _axes(cells: list[Cell]) -> list[str]:
    return list(dict.fromkeys(["method", *(key for cell in cells for key in cell.axes)]))


def _said_of_all(cells: list[Cell], rows: list[dict[str, Any]], apart: Mapping[int, str]) -> list[str]:
    """The settings that all finished rows share: a treatment that some have otherwise is said of the others."""
    done = [row for row in rows if "layers" in row]
    differing = [
        name for name in ROW_SETTINGS if len({row[name] for row in done}) > 1 and not (apart and name in BELOW)
    ]
    which = f"all rows but {UNLIKE}" if apart else "all rows"
    return [f"{which}: {said_once(done, [*_axes(cells), *differing])}"] if done else []


def _said_of_some(rows: list[dict[str, Any]], apart: Mapping[int, str]) -> list[str]:
    """A line on the rows that are not treated as the ones which their speed-ups are over."""
    said = dict.fromkeys(f"{rows[at]['method']}: {own}" for at, own in apart.items())
    return [f"{UNLIKE} not treated as the method that its speed-up is over: {'; '.join(said)}"] if said else []


def _notes(outcomes: Iterable[CellOutcome]) -> list[str]:
    """The notes on all cells, each once, the most common first."""
    found = Counter(note for outcome in outcomes if outcome.record for note in note_lines(outcome.record))
    notes = [note for note, _ in found.most_common()]
    more = len(notes) - SHOWN_NOTES
    return [*notes[:SHOWN_NOTES], *([f"and {more} more notes, in the result files"] if more > 0 else [])]


def _table(cells: list[Cell], rows: list[dict[str, Any]], apart: Mapping[int, str]) -> Any:
    """The rows as a table for the terminal: the axes, `layer0` where it differs, the results."""
    axes = _axes(cells)
    treated = ["layer0"] if len({row.get("layer0") for row in rows} - {None}) > 1 and "layer0" not in axes else []
    factor, unit = time_unit([row.get("epoch_seconds") for row in rows])
    sure = any(row.get("epoch_low_seconds") for row in rows)
    lines = []
    for at, (cell, row) in enumerate(list(zip(cells, rows, strict=True))[:SHOWN_ROWS]):
        method = f"{row['method']} {UNLIKE}" if at in apart else row["method"]
        place = [str(method if key == "method" else cell.axes.get(key, DASH)) for key in axes]
        place += [str(row.get(name) or DASH) for name in treated]
        seconds, speedup = row.get("epoch_seconds"), row["speedup"]
        numbers = [significant(seconds * factor if seconds else None), f"{speedup:.2f}x" if speedup else DASH]
        if sure:
            numbers.insert(1, span_text((row.get("epoch_low_seconds"), row.get("epoch_high_seconds")), factor))
            numbers.append(gain_text(row["speedup_low"], row["speedup_high"]))
        numbers += [megabytes(row.get("bytes_per_epoch")), percent(row.get("test")), row["state"]]
        lines.append([*place, *numbers])
    names = [key.removeprefix("cluster.") for key in [*axes, *treated]]
    interval = ["90 %"] if sure else []
    headings = [*names, f"epoch {unit}", *interval, "speed-up", *interval, "MB", "test", "state"]
    return table("", headings, lines, left=len(names))


def _write(rows: list[dict[str, Any]], out: Path) -> list[Path]:
    frame = pd.DataFrame(rows)
    for name in frame.columns:  # an axis may mix numbers and texts; Parquet columns have one type
        if frame[name].map(type).isin([str]).any():
            frame[name] = frame[name].map(lambda value: value if value is None else str(value))
    paths = [out / "sweep.csv", out / "sweep.parquet"]
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomically(paths[0], frame.to_csv(index=False).encode())
    write_atomically(paths[1], buffer.getvalue())
    return paths
