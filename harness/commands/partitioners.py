"""`haloscope partitioners`: which partitioners there are, what they assign, which options they take.

What the built-in ones state is kept (`kept`), since importing them imports torch.
"""

from __future__ import annotations

import argparse
import inspect
from importlib.metadata import entry_points

import msgspec

from harness.commands.shared.kept import kept
from harness.commands.shared.listing import show_list
from harness.commands.shared.tables import entry_lines, table
from harness.errors import unknown
from harness.registry import syntax

ASSIGNED = {"edge": "nodes (cuts edges)", "vertex": "edges (cuts vertices)"}
GROUP = "haloscope.partitioners"
"""The entry points of other packages, as in `harness.partition`, which imports torch."""


class StatedPartitioner(msgspec.Struct, frozen=True):
    """What a partitioner states about itself, as text."""

    cuts: str
    doc: str
    syntax: str


def main(args: argparse.Namespace) -> int:
    """The table of all partitioners, or everything about one."""
    stated = kept("partitioners", StatedPartitioner, _builtin)
    others = [point.name for point in entry_points(group=GROUP) if point.name not in stated]
    if args.name is not None and args.name not in (*stated, *others):
        raise unknown("partitioner", args.name, [*stated, *others])
    stated |= {name: _stated(name) for name in others if args.name in (None, name)}
    if args.name is None:
        rows = [[name, ASSIGNED[of.cuts], of.doc.partition("\n")[0]] for name, of in stated.items()]
        hint = "options, their defaults and meaning: haloscope partitioners NAME"
        content = {"partitioners": [_content(name, of) for name, of in stated.items()]}
        show_list(content, [table("", ["partitioner", "assigns", "how"], rows, left=3), hint], args.json)
        return 0
    of = stated[args.name]
    lines = entry_lines(f"{args.name}: assigns {ASSIGNED[of.cuts]}", of.doc, "--partitioner", of.syntax)
    show_list(_content(args.name, of), lines, args.json)
    return 0


def _content(name: str, of: StatedPartitioner) -> dict[str, str]:
    return {"name": name, **msgspec.structs.asdict(of)}


def _builtin() -> dict[str, StatedPartitioner]:
    from harness.partition import PARTITIONERS

    return {name: _stated(name) for name in PARTITIONERS.builtin}


def _stated(name: str) -> StatedPartitioner:
    """What the partitioner of this name states; imports it."""
    from harness.partition import PARTITIONERS

    kind = PARTITIONERS.find(name)
    return StatedPartitioner(kind.cuts, inspect.getdoc(kind) or "", syntax(name, kind))
