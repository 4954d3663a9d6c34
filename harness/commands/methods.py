"""`haloscope methods`: the registered methods, their properties and options."""

from __future__ import annotations

import argparse

from harness.commands.tables import entry_lines, table
from harness.console import show, stdout
from harness.methods.base import Facts, options_text
from harness.methods.registry import METHODS


def main(args: argparse.Namespace) -> int:
    """Show the table of all methods, or the details of one."""
    if args.name is None:
        rows = [[name, *_facts(m.facts), m.facts.paper] for name, m in METHODS.known().items()]
        columns = ["method", "cut", "exact", "received rows", "source"]
        hint = "options, their defaults and meaning: haloscope methods NAME"
        show([table("", columns, rows, left=5), hint], stdout())
        return 0
    method = METHODS.find(args.name)
    cut, exact, received = _facts(method.facts)
    head = f"{args.name}: cut {cut}; exact: {exact}; received rows: {received}"
    lines = entry_lines(head, "--method", args.name, method)
    show([*lines, f"source: {method.facts.paper}"], stdout())
    return 0


def _facts(facts: Facts) -> tuple[str, str, str]:
    exact = f"if {options_text(facts.exact_when)}" if facts.exact_when else "yes" if facts.exact else "no"
    quality = "exact" if not facts.lossy else "unbiased" if facts.unbiased else "approximate"
    stale = f", {facts.staleness} epoch old" if facts.staleness else ""
    return facts.cut, exact, quality + stale
