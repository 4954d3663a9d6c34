"""Clusters described on one line: `hosts=4,devices=8,device=a100-80gb,nic=100Gb/s,bus=24GB/s,peer=240GB/s`.

The line becomes the tables of a cluster file; everything that it does not say is assumed, as in a shipped cluster with
the same library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import InputError, unknown
from sims.cluster._software import TRANSPORTS
from sims.units import MARKED, quoted

KEYS = ("hosts", "nodes", "devices", "device", "nic", "nics", "latency", "bus", "peer", "loopback", "library")
LATENCIES = {"nic": "10 us", "bus": "0.5 us", "peer": "0.3 us", "loopback": "1 us"}
TIERS = {"nic": "ethernet", "bus": "pcie", "peer": "nvlink", "loopback": "loopback"}
LOOPBACK = "10 GB/s"  # host memory between processes, copied by one core
EXAMPLE = "hosts=4,devices=8,device=a100-80gb,nic=100Gb/s,bus=24GB/s"
MOST_NODES = 1 << 20
SUMMARY = "described on one line; what it does not say is assumed"


def is_described(text: str) -> bool:
    """Whether a cluster's name is such a line."""
    return "=" in text.partition(":")[0]


def tables_of(line: str, lent: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of a cluster file.

    Args:
        lent: the table `[transport]` of a shipped cluster.

    Raises:
        InputError: an unknown or repeated key, an unknown library, a missing device, hosts without links between them.
    """
    given = _pairs(line)
    if "device" not in given:
        raise InputError(
            f"cluster {line!r}: say which device, such as {EXAMPLE} (sims/device/presets, or a .toml file)"
        )
    hosts = _nodes(given["nodes"]) if "nodes" in given else given.get("hosts", "1")
    if "nodes" in given and "hosts" in given:
        raise InputError(f"cluster {line!r}: nodes are the hosts; leave hosts= out")
    library = given.get("library", "nccl" if {"bus", "peer"} & given.keys() else "gloo")
    if library not in TRANSPORTS:
        raise unknown("library of a cluster", library, TRANSPORTS.names())
    known = TRANSPORTS.find(library)
    links = {kind: _link(kind, given[kind]) for kind in TIERS if kind in given}
    if "nic" in links and "latency" in given:
        links["nic"]["latency"] = {"value": given["latency"], "from": "datasheet"}
    if "nic" not in links and str(hosts) != "1":
        raise InputError(
            f"cluster {line!r}: {hosts} hosts without links between them; add nic=10Gb/s, or what they have"
        )
    if known.staged:
        links.setdefault("loopback", _link("loopback", LOOPBACK, "assumed"))
    numbers = {"count": hosts, "devices": given.get("devices", "1"), "nics": given.get("nics", "1")}
    return {
        "name": line,
        "summary": SUMMARY,
        "hosts": {**{key: _count(line, key, value) for key, value in numbers.items()}, "device": given["device"]},
        "links": links,
        "transport": {**lent(known.software), "kind": library},
    }


def cluster_text(tables: Mapping[str, Any]) -> str:
    """The text of a cluster file with these tables: plain values before tables, a number and its source on one line."""
    lines: list[str] = []
    for key, value in tables.items():
        if not isinstance(value, Mapping):
            lines.append(f"{key} = {_written(value)}")
    for key, value in tables.items():
        if isinstance(value, Mapping):
            lines += _table_lines(key, value)
    return "\n".join(lines) + "\n"


def _table_lines(name: str, table: Mapping[str, Any]) -> list[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) and not value.keys() <= {*MARKED}}
    own = [f"{key} = {_written(value)}" for key, value in table.items() if key not in inner]
    lines = ["", f"[{name}]", *own] if own else []
    for key, value in inner.items():
        lines += _table_lines(f"{name}.{key}", value)
    return lines


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_written(each)}" for key, each in value.items()) + " }"
    return quoted(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def _pairs(line: str) -> dict[str, str]:
    """The line's values by key; commas in the brackets of node lists do not separate."""
    given: dict[str, str] = {}
    for word in re.split(r",(?![^\[]*\])", line):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals and "nodes" in given and key:
            given["nodes"] += f",{key}"  # node lists have commas too
            continue
        if key not in KEYS:
            raise unknown("key of a cluster", key, KEYS)
        if not value or key in given:
            raise InputError(f"cluster {line!r}: {key} needs one value, as in {EXAMPLE}")
        given[key] = value
    return given


def _link(kind: str, bandwidth: str, source: str = "datasheet") -> dict[str, Any]:
    """What the line says is nominal; the latency is assumed unless it says that too."""
    return {"bandwidth": {"value": bandwidth, "from": source}, "latency": LATENCIES[kind], "tier": TIERS[kind]}


def _count(line: str, key: str, value: str | int) -> int:
    if isinstance(value, int):
        return value
    if not (value.isascii() and value.isdigit() and len(value) < 8):
        raise InputError(f"cluster {line!r}: {'hosts' if key == 'count' else key}={value} must be a whole number")
    return int(value)


def _nodes(text: str) -> int:
    """How many nodes a list of Slurm's names: `gpu[01-04,07],login1` names six."""
    count = 0
    for item in re.split(r",(?![^\[]*\])", text):
        found = re.fullmatch(r"[A-Za-z0-9_.-]*(?:\[([0-9,-]+)\])?", item.strip())
        if found is None or not item.strip():
            raise InputError(f"node list {text!r}: {item!r} is no name, such as gpu[01-04]")
        for piece in (found[1] or "1").split(","):
            first, dash, last = piece.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
                raise InputError(f"node list {text!r}: {piece!r} is no range, such as 01-04")
            count += int(last) - int(first) + 1 if dash else 1
    if count > MOST_NODES:
        raise InputError(f"node list {text!r} names {count} nodes; at most {MOST_NODES}")
    return count
