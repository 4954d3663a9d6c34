"""`haloscope report`: the tables and figures of the five papers beside the published numbers, with verdicts.

Items that are finished and up to date are not made again; an item that fails is reported, and the others continue.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.commands.arguments.engines import telling
from harness.console import show, stderr
from harness.errors import InputError
from harness.numbers import DASH, duration, percent, significant
from harness.running.engines import CellEngine, opened_engine
from reports.core.claims import verdict_line
from reports.core.context import Context
from reports.core.table import OUTCOMES
from reports.whole import page, papers, produce, verdicts

SHARE = 1 / 14  # of the budget, on one core, for each table that trains: there are about 28, made two at a time. It is
# part of what a table is known by, so it depends neither on --only nor on --jobs: a table made alone is used again


def _named(only: str | None) -> list[str]:
    """The names that --only lists. Raises InputError where it is given and lists none: that means all to nobody."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise InputError(
            "--only names no table, figure or paper: give keys of `haloscope report list`, or leave it out"
        )
    return names


def main(args: argparse.Namespace) -> int:
    """Make the requested items, or a page of those that are there; returns 1 if one of them is missing."""
    from harness.commands.shared.cells import deliver, json_target
    from harness.running.sweep import seconds_of

    keys = papers.chosen(_named(args.only))
    seconds = seconds_of(args.budget) * SHARE
    context = Context(args.out, seconds, args.full, args.quiet)
    if args.what == "list":
        deliver(keys, [_listing(keys, context)], args.json, args.quiet)
        return 0
    begin = time.monotonic()
    kept = [produce.kept_entry(key, context) for key in keys] if args.what == "page" else []
    if kept and all(entry.item is None for entry in kept):
        raise InputError(f"{args.out} holds no table or figure of a report; haloscope report all makes them")
    produce.check_places(args.out)
    json_target(args.json)
    entries = kept
    if not kept:
        with opened_engine(args.on, args.jobs, args.out, telling(args.quiet)) as engine:
            entries = _made(keys, context, engine, args)
    summary, written = _write(entries, args)
    lines = [*_tables(summary), f"{duration(time.monotonic() - begin)}; written: {', '.join(map(str, written))}"]
    deliver(summary, lines, args.json, args.quiet)
    return 1 if summary["failed"] else 0


def _made(keys: Sequence[str], context: Any, engine: CellEngine, args: argparse.Namespace) -> list[Any]:
    """Every entry in the order of `keys`; prints a line for each as it is done, with the time left."""
    expected = {key: produce.expected_seconds(key, context) for key in keys}
    found: dict[str, Any] = {}
    total, jobs = 0, 1

    def begin(todo: int) -> None:
        nonlocal total, jobs
        total, jobs = todo, engine.places(todo) if todo else 1
        if not args.quiet:
            show([f"{len(keys)} tables and figures: {len(keys) - todo} finished, {todo} to make"], stderr())

    warnings.filterwarnings("ignore", "A worker stopped while some jobs")  # loky renews workers that have grown
    for entry in produce.produce(keys, context, engine, args.force, begin):
        found[entry.key] = entry
        if entry.reused or args.quiet:
            continue
        made = [key for key, done in found.items() if not done.reused]
        slower = sum(found[key].seconds for key in made) / max(sum(expected[key] for key in made), 1e-3)
        left = slower * sum(expected[key] for key in keys if key not in found) / jobs
        said = f"FAILED: {entry.message}" if entry.item is None else verdict_line(entry.item)
        ending = f"; about {duration(left)} left" if left else ""
        show([f"[{len(made)}/{total}] {entry.key} ({duration(entry.seconds)}): {said}{ending}"], stderr())
    return [found[key] for key in keys]


def _write(entries: list[Any], args: argparse.Namespace) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json and, with --html, the page; returns the summary and the files."""
    from harness.commands.shared.cells import as_json
    from harness.machine import write_atomically

    summary = verdicts.summary(entries)
    files = {args.out / "summary.json": as_json(summary)}
    if args.html or args.what == "page":
        made = f"haloscope report {args.what}" + (f" --only {args.only}" if args.only else "")
        made += " --full" if args.full else f" --budget {args.budget}"
        files[args.out / "index.html"] = page.page(entries, made).encode()
    for path, content in files.items():
        write_atomically(path, content)
    return summary, list(files)


def _tables(summary: dict[str, Any]) -> list[Any]:
    """The summary as tables for the terminal."""
    from harness.commands.shared.tables import table

    columns = ["paper", "tables", "figures", "failed", "rows", "times", "error", "within 15 %", "others", "error"]
    columns += ["scores", "orderings", "fitted"]
    lines = [
        [
            line["paper"],
            *(str(line[name]) for name in ("tables", "figures", "failed", "rows", "judged_times")),
            percent(line["median_error_of_times"]),
            f"{line['close_tables']} of {line['judged_tables']}",
            str(line["judged_others"]),
            percent(line["median_error_of_others"]),
            f"{line['close_scores']} of {line['scores']}",
            f"{line['orderings_right']} of {line['orderings']}",
            str(line["fitted_constants"]),
        ]
        for line in summary["papers"]
    ]
    claims = [[line["paper"], *map(str, line["claims"].values())] for line in summary["papers"]]
    made: list[Any] = [
        table("", columns, lines),
        "times: judged times and speed-ups with their median error; others: other judged numbers with theirs; "
        "fitted: constants",
        table("claims", ["paper", *OUTCOMES], claims),
    ]
    made += [
        f"off: {w['key']}, {w['row']}, {w['quantity']}: {significant(w['ours'])} {w['unit']} against "
        f"{significant(w['published'])} ({100 * w['error']:+.0f} %)"
        for w in summary["worst_rows"]
    ]
    made += [f"wrong: {line['key']}, {line['ordering']}" for line in summary["wrong_orderings"]]
    made += [f"not counted: {count} rows, {reason}" for reason, count in summary["unjudged"].items()]
    made += [f"not counted: {count} orderings, {reason}" for reason, count in summary["uncounted_orderings"].items()]
    return [*made, *(f"failed: {line['key']}: {line['reason']}" for line in summary["failed"])]


def _listing(keys: Sequence[str], context: Any) -> Any:
    from harness.commands.shared.tables import table

    makers = papers.everything()
    rows = []
    for key in keys:
        entry = produce.finished_item(key, context)
        said = (makers[key].__doc__ or DASH).strip().splitlines()[0]
        rows.append([key, "finished" if entry else "to make", said])
    return table("", ["key", "state", "what"], rows, left=3)
