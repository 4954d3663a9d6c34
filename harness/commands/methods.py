"""`haloscope methods`: the registered methods, their properties and options.

What the built-in methods state is kept (`kept`), since importing them imports torch; those of other packages are
imported every time.
"""

from __future__ import annotations

import argparse
import inspect

import msgspec

from harness.commands.shared.kept import kept
from harness.commands.shared.listing import show_list
from harness.commands.shared.tables import entry_lines, table
from harness.methods.registry import METHODS
from harness.registry import syntax


class Stated(msgspec.Struct, frozen=True):
    """What a method states about itself, as text."""

    cut: str
    exact: str
    received: str
    paper: str
    doc: str
    syntax: str


def main(args: argparse.Namespace) -> int:
    """Show the table of all methods, or the details of one."""
    if args.name is not None:
        METHODS.check(args.name)
    stated = kept("methods", Stated, lambda: {name: _stated(name) for name in METHODS.builtin})
    others = [name for name in METHODS.names() if name not in stated and args.name in (None, name)]
    stated |= {name: _stated(name) for name in others}
    if args.name is None:
        rows = [[name, of.cut, of.exact, of.received, of.paper] for name, of in stated.items()]
        columns = ["method", "cut", "exact", "received rows", "source"]
        hint = "options, their defaults and meaning: haloscope methods NAME"
        content = {"methods": [_content(name, of) for name, of in stated.items()]}
        show_list(content, [table("", columns, rows, left=5), hint], args.json)
        return 0
    of = stated[args.name]
    head = f"{args.name}: cut {of.cut}; exact: {of.exact}; received rows: {of.received}"
    lines = [*entry_lines(head, of.doc, "--method", of.syntax), f"source: {of.paper}"]
    show_list(_content(args.name, of), lines, args.json)
    return 0


def _content(name: str, of: Stated) -> dict[str, str]:
    return {"name": name, **msgspec.structs.asdict(of)}


def _stated(name: str) -> Stated:
    """What the method of this name states; imports it."""
    from harness.methods.bases.base import options_text

    kind = METHODS.find(name)
    facts = kind.facts
    exact = f"if {options_text(facts.exact_when)}" if facts.exact_when else "yes" if facts.exact else "no"
    quality = "exact" if not facts.lossy else "unbiased" if facts.unbiased else "approximate"
    stale = f", {facts.staleness} epoch old" if facts.staleness else ""
    return Stated(facts.cut, exact, quality + stale, facts.paper, inspect.getdoc(kind) or "", syntax(name, kind))
