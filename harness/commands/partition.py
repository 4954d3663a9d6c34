"""`haloscope partition`: cuts a graph as `run` would and shows the quality of the cut, or puts partitioners side by
side."""

from __future__ import annotations

import argparse
from typing import Any

from harness.commands.arguments import config_of
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import cuts_table, quality_table
from harness.config import RunConfig
from harness.console import StepLines
from harness.errors import InputError
from harness.partition import Folder, PartitionFolder, parse_partitioner
from harness.registry import short_text
from harness.running import comparable_partitioners, cuts_by, prepare


def main(args: argparse.Namespace) -> int:
    """Partition (or find the partition in the cache), show, export."""
    config = config_of(args)
    writable(args.export, folder=True)
    json_target(args.json)
    if args.compare is not None:
        if args.export is not None:
            raise InputError("--compare shows several cuts, --export writes one: give one of them")
        return _compare(config, [name for name in args.compare.split(",") if name], args)
    prepared = prepare(config)
    folder = prepared.train
    summary, rows = folder.quality.summary(), folder.quality.rows()
    graph = prepared.graph
    size = f"{graph['num_nodes']:,} nodes, {graph['num_edges']:,} directed edges"
    head = f"{graph['name']}: {size}, by {folder.settings['partitioner']}"
    lines = [f"note: {note}" for note in graph["notes"]]
    lines.append(f"partitioned in {folder.seconds:.2f} s, kept in {folder.path}")
    lines += _memory(folder)
    if args.export is not None:
        folder.export(args.export)
        lines.append(f"exported: {args.export}")
    content = {"graph": graph, "settings": folder.settings, "quality": summary, "parts": rows}
    deliver(content, [head, *quality_table(summary, rows), *lines], args.json, args.quiet)
    return 0


def _memory(folder: Folder) -> list[str]:
    """What the parts of an edge cut took that were made now, beside what was said before."""
    found = folder.memory if isinstance(folder, PartitionFolder) else None
    if found is None:
        return []
    measured, stated, later = (size / 2**30 for size in (found.measured, found.stated.peak, found.of_parts.peak))
    beside = f" (beside what {found.stated.unknown} takes)" if found.stated.unknown else ""
    return [f"memory {measured:.2f} GiB at most; up to {stated:.2f} stated{beside}, {later:.2f} once the cut was known"]


def _short(partitioner: str) -> str:
    return short_text(parse_partitioner(partitioner))


def _compare(config: RunConfig, names: list[str], args: argparse.Namespace) -> int:
    """Cut the graph by every partitioner, and show time, volume and balance of each."""
    names = comparable_partitioners(config, names)
    steps, rows = StepLines([1.0] * len(names), args.quiet), list[dict[str, Any]]()
    cuts = cuts_by(config, names)
    for name in names:
        steps.begin(name)
        cut = next(cuts)
        short = _short(cut.settings["partitioner"])
        rows.append({"partitioner": short, "seconds": cut.seconds, **cut.quality.summary()})
    head = f"{config.data.dataset} in {config.cut.parts} parts; seconds are those that each took when it was made"
    deliver({"partitioners": rows}, [head, cuts_table(rows)], args.json, args.quiet)
    return 0
