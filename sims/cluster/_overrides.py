"""Changes to a cluster file that fit on one line: `NAME:links.nic.bandwidth=10Gb/s:hosts.count=4`.

A change takes the place of the file's value, and of its source: what is tried out is assumed. Keys are those of the
file, dotted; an unknown one is refused where the file is read. Paths are relative to the current folder, not to the
cluster's file: who writes a change is not who wrote the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import InputError, unknown
from sims.cluster._cluster import Cluster
from sims.cluster._lab_links import with_shaped_links
from sims.units import Quantity, Table


def split(text: str) -> tuple[str, list[str]]:
    """Name (or path) and changes, `KEY=VALUE` each. Raises InputError for a change that is not one."""
    name, *changes = text.split(":")
    for change in changes:
        if "=" not in change:
            raise InputError(f"cluster {text!r}: {change!r} is not KEY=VALUE, such as links.nic.bandwidth=10Gb/s")
    return name, changes


def changed(table: Table, changes: Sequence[str]) -> Table:
    """The table with the changes made. Raises InputError where a key leads through a value that is not a table."""
    values: dict[str, Any] = dict(table.values)
    for change in changes:
        key, _, value = change.partition("=")
        whole = [known for known in _dotted(table.values) if known.endswith(f".{key}")]
        if key.partition(".")[0] not in table.values and whole:
            raise InputError(f"{table.where}: write {' or '.join(f'{known}={value}' for known in whole)}, not {change}")
        values = _put(values, key.split("."), _value(value), f"{table.where}: {key}")
    return Table(values, table.where)


def varied(cluster: Cluster, link: str, what: str, value: float) -> Cluster:
    """The cluster with another `bandwidth` (B/s) or `latency` (s) of one kind of link.

    The bandwidth of a lab's `nic` links is the rate that all its shapers are set to, of which frames take their share.

    Raises:
        InputError: the cluster has no such link.
    """
    if link not in cluster.links:
        raise unknown(f"link of cluster {cluster.name}", link, cluster.links)
    spec, quantity = cluster.links[link], Quantity(value)
    if link == "nic" and what == "bandwidth" and cluster.nic_rates:
        return with_shaped_links(cluster, spec.latency, [value] * cluster.hosts)
    if what == "latency":  # its source says whether it holds the launch of a copy (`sims.transport`)
        spec = replace(spec, latency=Quantity(value, spec.latency.source))
    else:
        spec = replace(spec, bandwidth=quantity)
    return replace(cluster, links={**cluster.links, link: spec})


def paths_from(changes: Sequence[str], file: Path) -> Path:
    """The folder that device files are looked up from: the current one where a change names them, else the file's."""
    return Path.cwd() if any(change.startswith("hosts.device=") for change in changes) else file.parent


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of nested tables, written as changes are; a quantity in a table of its own is one."""
    for key, value in values.items():
        if isinstance(value, Mapping) and "value" not in value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _put(values: Mapping[str, Any], path: Sequence[str], value: Any, where: str) -> dict[str, Any]:
    """A copy of nested tables with one value in its place."""
    first, *rest = path
    inner = values.get(first, {})
    if rest and not isinstance(inner, Mapping):
        raise InputError(f"{where}: {first} is not a table")
    return {**values, first: _put(inner, rest, value, where) if rest else value}


def _value(text: str) -> bool | int | float | str:
    """The type that TOML would give it."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
