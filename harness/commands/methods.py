"""`haloscope methods`: the registered methods, their properties and options.

What the built-in methods state is kept in the cache folder for the source code that states it: importing them imports
torch, which takes seconds, and is done only after a change.
"""

from __future__ import annotations

import argparse
import inspect
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any

import msgspec

from harness.commands.tables import entry_lines, table
from harness.console import show, stdout
from harness.errors import InputError, unknown
from harness.machine import cache_root, code_version, write_atomically

GROUP = "haloscope.methods"
"""The entry points of methods of other packages, as in `harness.methods.registry`, which imports torch."""


class Stated(msgspec.Struct, frozen=True):
    """What a method states about itself, as text."""

    cut: str
    exact: str
    received: str
    paper: str
    doc: str
    syntax: str


class KeptMethods(msgspec.Struct, frozen=True):
    """The built-in methods by name, and the hash of the code that they are of."""

    code: str
    methods: dict[str, Stated]


def main(args: argparse.Namespace) -> int:
    """Show the table of all methods, or the details of one."""
    stated = _builtin()
    others = [point.name for point in entry_points(group=GROUP) if point.name not in stated]
    if args.name is not None and args.name not in (*stated, *others):
        raise unknown("method", args.name, [*stated, *others])
    stated |= {name: _stated(name) for name in others if args.name in (None, name)}
    if args.name is None:
        rows = [[name, of.cut, of.exact, of.received, of.paper] for name, of in stated.items()]
        columns = ["method", "cut", "exact", "received rows", "source"]
        hint = "options, their defaults and meaning: haloscope methods NAME"
        show([table("", columns, rows, left=5), hint], stdout())
        return 0
    of = stated[args.name]
    head = f"{args.name}: cut {of.cut}; exact: {of.exact}; received rows: {of.received}"
    show([*entry_lines(head, of.doc, "--method", of.syntax), f"source: {of.paper}"], stdout())
    return 0


def _builtin() -> dict[str, Stated]:
    """The built-in methods: those kept for this code, or imported now and kept, where the cache can be written."""
    path, code = cache_root() / "methods.json", code_version("harness")
    with suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(path.read_bytes(), type=KeptMethods)
        if kept.code == code:
            return kept.methods
    from harness.methods.registry import METHODS

    found = {name: _stated(name) for name in METHODS.builtin}
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(KeptMethods(code, found)))
    return found


def _stated(name: str) -> Stated:
    """What the method of this name states; imports it."""
    from harness.methods.base import options_text
    from harness.methods.registry import METHODS
    from harness.registry import syntax

    kind: Any = METHODS.find(name)
    facts = kind.facts
    exact = f"if {options_text(facts.exact_when)}" if facts.exact_when else "yes" if facts.exact else "no"
    quality = "exact" if not facts.lossy else "unbiased" if facts.unbiased else "approximate"
    stale = f", {facts.staleness} epoch old" if facts.staleness else ""
    return Stated(facts.cut, exact, quality + stale, facts.paper, inspect.getdoc(kind) or "", syntax(name, kind))
