"""`haloscope flows`: the network model alone, on transfers over links from a file."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import RenderableType

from harness.commands.shared.cells import deliver, json_target
from harness.commands.shared.tables import table
from harness.errors import InputError
from harness.numbers import significant, time_unit
from sims.study import run_file

SHOWN = 8  # transfers per scenario in the table


def main(args: argparse.Namespace) -> int:
    """Run every scenario of a file and show when each transfer ends."""
    if args.coalesce is not None and not 0 < args.coalesce <= 0.1:
        raise InputError("--coalesce: must be more than 0 and at most 0.1, such as 0.01")
    json_target(args.json)
    window = 0.0 if args.coalesce is None else args.coalesce
    outcomes = list(run_file(args.file, window, exact_flows=0))
    content = {"scenarios": [_content(outcome) for outcome in outcomes]}
    deliver(content, _tables(outcomes), args.json, args.quiet)
    return 0


def _content(outcome: Any) -> dict[str, Any]:
    schedule = outcome.schedule
    finish = schedule.finish_s.tolist()
    return {
        "name": outcome.name,
        "makespan_s": outcome.makespan_s,
        "bound_s": schedule.bound_s,
        "window_s": schedule.window_s,
        "solves": schedule.solves,
        "flows": [{"id": name, "finish_s": end} for name, end in zip(outcome.ids, finish, strict=True)],
    }


def _tables(outcomes: list[Any]) -> list[RenderableType]:
    factor, unit = time_unit([outcome.makespan_s for outcome in outcomes])
    columns = ["scenario", "transfers", f"makespan {unit}", f"lower bound {unit}", f"window {unit}", "solves"]
    rows, shown = [], []
    for outcome in outcomes:
        times = [factor * t for t in (outcome.makespan_s, outcome.schedule.bound_s, outcome.schedule.window_s)]
        cells = [f"{len(outcome.ids):,}", *(significant(t, 6) for t in times), f"{outcome.schedule.solves:,}"]
        rows.append([outcome.name, *cells])
        finish = outcome.schedule.finish_s[:SHOWN].tolist()
        shown += [
            [outcome.name, name, significant(factor * end, 6)] for name, end in zip(outcome.ids, finish, strict=False)
        ]
        if len(outcome.ids) > SHOWN:
            shown.append([outcome.name, f"and {len(outcome.ids) - SHOWN:,} more (--json has all)", ""])
    exact = all(outcome.schedule.window_s == 0 for outcome in outcomes)
    kind = "every time is exact" if exact else "transfers that end within a window are combined"
    return [
        table("", columns, rows),
        table("", ["scenario", "transfer", f"ends {unit}"], shown, left=2),
        f"note: {kind}",
    ]
