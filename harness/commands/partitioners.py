"""`haloscope partitioners`: which partitioners there are, what they assign, which options they take."""

from __future__ import annotations

import argparse
import inspect

from harness.commands.tables import entry_lines, table
from harness.console import show, stdout
from harness.partition import PARTITIONERS
from harness.registry import syntax

ASSIGNED = {"edge": "nodes (cuts edges)", "vertex": "edges (cuts vertices)"}


def main(args: argparse.Namespace) -> int:
    """The table of all partitioners, or everything about one."""
    if args.name is None:
        rows = []
        for name, kind in PARTITIONERS.known().items():
            first = (inspect.getdoc(kind) or "").partition("\n")[0]
            rows.append([name, ASSIGNED[kind.cuts], first])
        hint = "options, their defaults and meaning: haloscope partitioners NAME"
        show([table("", ["partitioner", "assigns", "how"], rows, left=3), hint], stdout())
        return 0
    kind = PARTITIONERS.find(args.name)
    head, doc = f"{args.name}: assigns {ASSIGNED[kind.cuts]}", inspect.getdoc(kind) or ""
    show(entry_lines(head, doc, "--partitioner", syntax(args.name, kind)), stdout())
    return 0
