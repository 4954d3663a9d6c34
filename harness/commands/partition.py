"""`haloscope partition`: cuts a graph as `run` would, and shows the quality of the cut."""

from __future__ import annotations

import argparse

from harness.commands.arguments import config_of
from harness.commands.cells import deliver, json_target, writable
from harness.commands.tables import quality_table
from harness.running import prepare


def main(args: argparse.Namespace) -> int:
    """Partition (or find the partition in the cache), show, export."""
    config = config_of(args)
    writable(args.export, folder=True)
    json_target(args.json)
    prepared = prepare(config)
    folder = prepared.train
    summary, rows = folder.quality.summary(), folder.quality.rows()
    graph = prepared.graph
    size = f"{graph['num_nodes']:,} nodes, {graph['num_edges']:,} directed edges"
    head = f"{graph['name']}: {size}, by {folder.settings['partitioner']}"
    lines = [f"note: {note}" for note in graph["notes"]]
    lines.append(f"partitioned in {folder.seconds:.2f} s, kept in {folder.path}")
    if args.export is not None:
        folder.export(args.export)
        lines.append(f"exported: {args.export}")
    content = {"graph": graph, "settings": folder.settings, "quality": summary, "parts": rows}
    deliver(content, [head, *quality_table(summary, rows), *lines], args.json)
    return 0
