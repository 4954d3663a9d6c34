"""`haloscope methods`: the registered methods, their properties and options."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import fields

from harness.commands.tables import table
from harness.console import show, stdout
from harness.errors import unknown
from harness.methods.base import Facts, options_text
from harness.methods.registry import known_methods


def main(args: argparse.Namespace) -> int:
    """Show the table of all methods, or the details of one."""
    methods = known_methods()
    if args.name is None:
        rows = [[name, *_facts(m.facts), m.facts.paper] for name, m in methods.items()]
        columns = ["method", "cut", "exact", "received rows", "source"]
        hint = "options, their defaults and meaning: haloscope methods NAME"
        show([table("", columns, rows, left=5), hint], stdout())
        return 0
    if args.name not in methods:
        raise unknown("method", args.name, methods)
    method = methods[args.name]
    cut, exact, received = _facts(method.facts)
    head = f"{args.name}: cut {cut}; exact: {exact}; received rows: {received}"
    syntax = ":".join([args.name, *(f"{f.name}={f.default}" for f in fields(method))])
    show([head, "", inspect.getdoc(method) or "", "", f"--method {syntax}", f"source: {method.facts.paper}"], stdout())
    return 0


def _facts(facts: Facts) -> tuple[str, str, str]:
    exact = f"if {options_text(facts.exact_when)}" if facts.exact_when else "yes" if facts.exact else "no"
    quality = "exact" if not facts.lossy else "unbiased" if facts.unbiased else "approximate"
    stale = f", {facts.staleness} epoch old" if facts.staleness else ""
    return facts.cut, exact, quality + stale
