"""`haloscope clusters`: the cluster models that come with haloscope, and every number of one with its source."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from harness.commands.shared.listing import show_list
from harness.commands.shared.questionnaire import ask_for_cluster
from harness.commands.shared.tables import table
from harness.console import show, stderr, stdout
from harness.errors import InputError
from harness.machine import HERE, calibration_folder
from harness.numbers import byte_text, significant
from sims.cluster import dimension_of, known_clusters, load_cluster
from sims.device import load_device
from sims.units import format_quantity

COLUMNS = ("quantity", "value", "source", "remark")
PER = (
    (r"links\..*\.latency", "per crossing"),
    (r"transport\.operation", "per collective"),
    (r"transport\.message", "per message"),
    (r"transport\.process", "per process"),
    (r"launch", "per operator"),
    (r"effect", "per effect"),
    (r"step", "per epoch"),
    (r"idle\.\d+", "per wait of so many ms"),
    (r"spmm\..*", "per stored entry and column"),
    (r"codec\..*", "of float32 rows"),
    (r"operators\..*\.call", "per call"),
    (r"operators\..*\.bytes\..*", "per byte from there on"),
    (r"operators\..*\.work\..*", "per flop, or stored entry and column"),
)
"""Patterns of quantities -> meaning of the unit, if the unit alone is ambiguous."""


def main(args: argparse.Namespace) -> int:
    """Show the list of clusters, or one of them (`show NAME`), optionally with a drawing; or ask for a new one."""
    if args.ask is not None:
        if args.action is not None:
            raise InputError(
                "--ask FILE.toml makes a new cluster; to see it afterwards: haloscope clusters show FILE.toml"
            )
        if args.json is not None:
            raise InputError("--json is of clusters that there are: haloscope clusters show FILE.toml --json FILE")
        cluster = load_cluster(ask_for_cluster(args.ask))
        show(_made(cluster, args.ask), stdout())
        if args.draw is not None:
            _draw(cluster, args.draw)
        return 0
    if args.action is None:
        if args.draw is not None:
            raise InputError("name a cluster: haloscope clusters show NAME --draw FILE.png")
        measured = [HERE] if (calibration_folder() / "cluster.toml").exists() else []
        found = {name: load_cluster(name) for name in [*measured, *known_clusters()]}
        rows = [_row(name, cluster) for name, cluster in found.items()]
        columns = ["cluster", "hosts x ranks", "slowest link", "fastest link", "assumed", "what"]
        hint = "assumed: values that are neither published nor measured; all values: haloscope clusters show NAME"
        content = {"clusters": [_content(name, cluster) for name, cluster in found.items()]}
        show_list(content, [table("", columns, rows, left=len(columns)), hint], args.json)
        return 0
    if args.name is None:
        raise InputError("name a cluster: haloscope clusters show NAME, or a TOML file")
    cluster = load_cluster(args.name)
    show_list(cluster_content(cluster), cluster_report(cluster), args.json)
    if args.draw is not None:
        _draw(cluster, args.draw)
        show([f"drawn: {args.draw}"], stderr())
    return 0


def _made(cluster: Any, path: Path) -> list[str]:
    """What became of the answers, and what to do with it."""
    from sims.study import quantities

    devices = [load_device(name) for name in dict.fromkeys(cluster.profiles)]
    sources = [quantity.source for quantity in quantities(cluster)]
    return [
        f"{path}: {cluster.summary}",
        *structure(cluster, devices),
        f"assumed: {sources.count('assumed')} of {len(sources)} numbers; all: haloscope clusters show {path}",
        f"next: haloscope advise --dataset FILE.npz --cluster {path}",
    ]


def cluster_report(cluster: Any) -> list[RenderableType]:
    """One `sims.cluster.Cluster` and its devices, number by number."""
    devices = [load_device(name) for name in dict.fromkeys(cluster.profiles)]
    name, *changes = [cluster.name] if cluster.one_machine else cluster.name.split(":")
    links = [[key, _said(key, q, dimension_of(key)), q.source, q.note] for key, q in cluster.quantities()]
    lines: list[RenderableType] = [
        f"{name}: {cluster.summary}",
        *([f"changed: {', '.join(changes)} (assumed; the line above is of the cluster as it was)"] if changes else []),
        f"reference: {cluster.reference or 'none'}",
        *structure(cluster, devices),
        table("links (each direction) and transport", COLUMNS, links, left=4),
    ]
    for device in devices:
        parts = [[key, _said(key, q, dimension), q.source, q.note] for key, dimension, q in device.quantities()]
        lines += [f"device {device.name}: {device.summary}", table(device.name, COLUMNS, parts, left=4)]
    return lines


def _content(name: str, cluster: Any) -> dict[str, Any]:
    """A cluster in the list; bandwidths in B/s."""
    bandwidths = [link.bandwidth.value for link in cluster.links.values()]
    return {
        "name": name,
        "summary": cluster.summary,
        "hosts": cluster.hosts,
        "ranks_per_host": cluster.ranks_per_host,
        "slowest_link": min(bandwidths),
        "fastest_link": max(bandwidths),
        "assumed": sum(quantity.source == "assumed" for _, quantity in cluster.quantities()),
    }


def cluster_content(cluster: Any) -> dict[str, Any]:
    """A cluster and its devices, number by number, in SI units."""
    devices = [load_device(name) for name in dict.fromkeys(cluster.profiles)]
    return {
        **_content(cluster.name, cluster),
        "reference": cluster.reference,
        "transport": cluster.transport.kind,
        "quantities": [_number(key, q, dimension_of(key)) for key, q in cluster.quantities()],
        "devices": [
            {
                "name": device.name,
                "summary": device.summary,
                "quantities": [_number(key, q, dimension) for key, dimension, q in device.quantities()],
            }
            for device in devices
        ],
    }


def _number(key: str, quantity: Any, dimension: str) -> dict[str, Any]:
    return {
        "name": key,
        "value": quantity.value,
        "dimension": dimension,
        "source": quantity.source,
        "remark": quantity.note,
    }


def _said(key: str, quantity: Any, dimension: str) -> str:
    """A value with its unit and its meaning."""
    if dimension == "number":
        return significant(quantity.value)
    per = next((words for pattern, words in PER if re.fullmatch(pattern, key)), "")
    return f"{format_quantity(quantity.value, dimension)} {per}".rstrip()


def _counted(count: int, what: str) -> str:
    return f"one {what}" if count == 1 else f"{count} {what}s"


def structure(cluster: Any, devices: list[Any]) -> list[str]:
    """The components of a cluster, one line each: hosts, memory, switches, adapters, racks, transport, stragglers."""
    names = ", ".join(f"{device.name} ({byte_text(device.memory.value)})" for device in devices)
    lines = [
        f"hosts: {cluster.hosts}, each with {_counted(cluster.devices, 'device')} and up to "
        + _counted(cluster.ranks_per_host, "rank")
        + (", over which the ranks are spread evenly" if cluster.spread else ""),
        f"devices: {cluster.hosts * cluster.devices}, {names}",
    ]
    if cluster.cores:
        lines.append(f"cores: {cluster.cores} per host, shared by its ranks")
    if cluster.devices_per_switch:
        lines.append(f"PCIe switches: {cluster.devices // cluster.devices_per_switch} per host")
    if "mesh" in cluster.links:
        each = cluster.devices // cluster.mesh_groups
        lines.append(f"NVLink: {cluster.mesh_groups} groups of {each} devices per host, joined pair by pair")
    if "nic" in cluster.links:
        on = "on the PCIe switches" if cluster.nics_on == "switch" else "on the host"
        lines.append(f"network adapters: {cluster.nics} per host, {on}")
    if cluster.racks > 1:
        lines.append(f"racks: {cluster.racks}, of up to {cluster.per_rack} hosts")
    lines.append(f"transport: {cluster.transport.kind}")
    slow = cluster.stragglers
    if slow.ranks or slow.hosts or slow.jitter:
        parts = [f"{what} {n}: x {f:g}" for what in ("rank", "host") for n, f in getattr(slow, f"{what}s").items()]
        lines.append("stragglers: " + ", ".join([*parts, *([f"jitter {slow.jitter:g}"] if slow.jitter else [])]))
    return lines


def _draw(cluster: Any, path: Path) -> None:
    """The picture of a cluster. Raises InputError when it cannot be written."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--draw {path}: write a .png, .svg or .pdf file")
    from reports.draw import topology  # matplotlib

    mesh = max(cluster.devices // cluster.mesh_groups, 1)
    ends = [tuple(_short(cluster.profile(host, device)) for device in range(cluster.devices))
            for host in (0, cluster.hosts - 1)]  # fmt: skip
    outline = topology.Outline(
        title=cluster.name,
        subtitle=f"{cluster.summary}; {cluster.hosts * cluster.devices} devices",
        hosts=cluster.hosts,
        racks=cluster.racks,
        per_rack=cluster.per_rack,
        devices=(ends[0], ends[1]),
        switches=cluster.devices // cluster.devices_per_switch if cluster.devices_per_switch else 0,
        nics=cluster.nics,
        nics_on_switches=cluster.nics_on == "switch",
        mesh=[range(first, first + mesh) for first in range(0, cluster.devices, mesh)],
        links={
            kind: f"{byte_text(link.bandwidth.value)}/s, {format_quantity(link.latency.value, 'time')}"
            for kind, link in cluster.links.items()
        },
    )
    try:
        topology.draw(outline, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _short(profile: str) -> str:
    """A profile's name on two lines, small enough for a box."""
    return Path(profile).stem.replace("-", "\n", 1)


def _row(name: str, cluster: Any) -> list[str]:
    bandwidths = [link.bandwidth.value for link in cluster.links.values()]
    assumed = sum(quantity.source == "assumed" for _, quantity in cluster.quantities())
    size = f"{cluster.hosts} x {cluster.ranks_per_host}"
    return [
        name,
        size,
        f"{byte_text(min(bandwidths))}/s",
        f"{byte_text(max(bandwidths))}/s",
        str(assumed),
        cluster.summary,
    ]
