"""`haloscope clusters`: the cluster models that come with haloscope, and every number of one with its source."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from rich.console import RenderableType

from harness.commands.tables import table
from harness.console import byte_text, show, significant, stdout
from harness.errors import InputError

COLUMNS = ("quantity", "value", "source", "remark")


def main(args: argparse.Namespace) -> int:
    """The list, or `show NAME`."""
    topology = import_module("sims.topology")  # by name: harness never depends on the packages above it
    if args.action is None:
        rows = [_row(topology.load_cluster(name)) for name in topology.known_clusters()]
        columns = ["cluster", "what", "hosts x ranks", "slowest link", "fastest link", "assumed"]
        hint = "assumed: values that are neither published nor measured; all values: haloscope clusters show NAME"
        show([table("", columns, rows, left=3), hint], stdout())
        return 0
    if args.name is None:
        raise InputError("which cluster? haloscope clusters show NAME, or a TOML file")
    show(report(topology.load_cluster(args.name)), stdout())
    return 0


def report(cluster: Any) -> list[RenderableType]:
    """One `sims.topology.Cluster` and its device, number by number."""
    written = import_module("sims.units").written
    device = import_module("sims.device").load_device(cluster.device)
    links = [
        [name, written(q.value, "bandwidth" if name.endswith((".bandwidth", ".process")) else "time"), q.source, q.note]
        for name, q in cluster.quantities()
    ]
    parts = [
        [name, significant(q.value) if dimension == "number" else written(q.value, dimension), q.source, q.note]
        for name, dimension, q in device.quantities()
    ]
    return [
        f"{cluster.name}: {cluster.summary}",
        f"reference: {cluster.reference or 'none'}",
        f"hosts: {cluster.hosts}, each with {cluster.devices} x {device.name} and up to {cluster.ranks_per_host} ranks",
        f"transport: {cluster.transport.kind}",
        table("links and transport", COLUMNS, links, left=4),
        f"device {device.name}: {device.summary}",
        table("device", COLUMNS, parts, left=4),
    ]


def _row(cluster: Any) -> list[str]:
    bandwidths = [link.bandwidth.value for link in cluster.links.values()]
    assumed = sum(quantity.source == "assumed" for _, quantity in cluster.quantities())
    size = f"{cluster.hosts} x {cluster.ranks_per_host}"
    return [
        cluster.name,
        cluster.summary,
        size,
        f"{byte_text(min(bandwidths))}/s",
        f"{byte_text(max(bandwidths))}/s",
        str(assumed),
    ]
