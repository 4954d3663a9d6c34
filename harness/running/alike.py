"""Which runs may be compared in time: those that differ in their method alone.

A speed-up, or an order of two methods, says something only between runs of the same graph, model, precision, machine
and number of parts. Results that are loaded from a folder may differ in any of these.
"""

from __future__ import annotations

import platform
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from harness.config import is_lab, parse_lab
from harness.machine import HERE

LIKE = (
    "split", "protocol", "features", "seed",
    "model", "layers", "linear_layers", "hidden", "heads", "hidden_heads", "dropout", "norm", "attention", "precision",
    "partitioner", "hosts", "renumber",
    "mode", "cuda_graphs", "deterministic", "shapes_only",
)  # fmt: skip
"""Settings that must be equal beside the graph, the place and the number of parts. Not among them: what the methods of
one table may treat differently, which the table marks (`summary.TREATMENTS`), and what changes no epoch's time
(learning rate, number of epochs, evaluation, deadlines). The seed does: graphs are split and cut by it."""

THIS_MACHINE = "this machine"
"""Where a real run was measured that names no lab."""

PRESET = "local"
"""The cluster that is the default of `--mode sim`."""

_Run = Mapping[str, Any]


def likeness(record: _Run) -> dict[str, Any]:
    """Setting -> value of what two runs must share to be compared, without their numbers of parts."""
    config, graph = record["config"], record.get("graph", {})
    inputs = record.get("environment", {}).get("inputs", {})
    counted = config.get("shapes_only")  # then the fingerprint is of one number of parts
    found = {
        "dataset": (None if counted else graph.get("fingerprint")) or (config.get("dataset"), inputs.get("workload")),
        **{name: config.get(name) for name in LIKE},
    }
    if config.get("mode") == "sim":
        return {**found, "cluster": (config.get("cluster"), inputs.get("cluster"))}
    if config.get("mode") == "real":
        place = {"cluster": place_of(record), "machine": _machine(inputs.get("host", ""))}
        return {**found, **place, **{name: config.get(name) for name in ("device", "backend", "threads")}}
    return found


def place_of(record: _Run) -> str | None:
    """Where a run's ranks were: on a modelled cluster, a lab, or machines; None without a clock (loopback)."""
    config = record["config"]
    if config["mode"] == "sim" or (config["mode"] == "real" and is_lab(config["cluster"])):
        return str(config["cluster"])
    if config["mode"] != "real":
        return None
    if any("ethernet" in epoch["bytes"]["tiers"] for epoch in record.get("epochs", ())[:1]):
        return "several machines"
    node = str(record.get("environment", {}).get("inputs", {}).get("host", "")).partition(",")[0]
    return THIS_MACHINE if node in ("", platform.node()) else f"machine {node}"


def bases_of(records: Sequence[_Run]) -> list[_Run | None]:
    """For every run the one that it is as many times as fast as: the first that it may be compared with.

    A method that keeps the graph whole runs on one part: where it comes first it is the base of any number of parts,
    and elsewhere it is compared only if all others have the same number.
    """
    buckets = _buckets(records)
    return [_base(record, buckets[_key(record)]) for record in records]


def _base(record: _Run, alike: Sequence[_Run]) -> _Run | None:
    if keeps_graph_whole(alike[0]):
        return alike[0]
    if keeps_graph_whole(record):
        return alike[0] if len(_sizes(alike)) == 1 else None
    return next(each for each in alike if _parts(each) == _parts(record) and not keeps_graph_whole(each))


def groups_of(records: Sequence[_Run]) -> list[list[_Run]]:
    """The records by what may be compared; methods that keep the graph whole stand beside every number of parts."""
    groups: list[list[_Run]] = []
    for members in _buckets(records).values():
        sizes = _sizes(members)
        groups += [[r for r in members if keeps_graph_whole(r) or _parts(r) == size] for size in sizes] or [members]
    return groups


def group_names(groups: Sequence[Sequence[_Run]]) -> list[str]:
    """For every group the settings in which it differs from the others, in words; empty for a single group."""
    whole = [{**likeness(group[0]), "parts": max(map(_parts, group))} for group in groups]
    names = _said(_differing(whole), [group[0] for group in groups])
    return [", ".join(_worded(name, group[0], settings) for name in names)
            for group, settings in zip(groups, whole, strict=True)]  # fmt: skip


def unlike_settings(records: Sequence[_Run]) -> list[str]:
    """Names of the settings in which runs of one mode differ, so that they are not compared with each other."""
    found = dict[str, None]()
    for mode in dict.fromkeys(record["config"].get("mode") for record in records):
        mine = [record for record in records if record["config"].get("mode") == mode]
        sized = [{**likeness(r), **({} if keeps_graph_whole(r) else {"parts": _parts(r)})} for r in mine]
        found |= dict.fromkeys(_said(_differing(sized), mine))
    return list(found)


def preset_notes(cluster: str) -> list[str]:
    """A note where a modelled cluster is the default, or a lab that rests on it: neither is this machine."""
    what = "a model of one virtual machine with 2 cores, not of this machine"
    make = f"`haloscope demo` or `haloscope calibrate` measures this one, for --cluster {HERE}"
    if cluster.partition(":")[0] == PRESET:
        return [f"cluster {PRESET}: {what}; {make}"]
    if is_lab(cluster) and not parse_lab(cluster).calibration:
        return [
            f"cluster {cluster}: its processors and what is not shaped are those of cluster {PRESET}, {what}; with "
            f":calibration=DIR they are those of a folder of `haloscope calibrate`"
        ]
    return []


def place_warnings(records: Sequence[_Run]) -> list[str]:
    """A line where predicted and measured runs stand side by side that are not known to be of the same place. A
    cluster file may describe this machine, so of one it is only a note."""
    places: dict[str, list[str]] = {"sim": [], "real": []}
    for record in records:
        places.get(record["config"]["mode"], []).append(str(place_of(record)))
    pairs = [(a, b) for a in dict.fromkeys(places["sim"]) for b in dict.fromkeys(places["real"])]
    return [
        f"{'note' if a.partition(':')[0].endswith('.toml') else 'warning'}: predicted rows are of cluster {a}, "
        f"measured ones of {b}: unless that cluster describes {b}, they differ by more than the model's error; "
        f"--cluster {HERE} predicts {THIS_MACHINE} (`haloscope demo` or `haloscope calibrate` measures it)"
        for a, b in pairs
        if a != b and (a.partition(":")[0], b) != (HERE, THIS_MACHINE)
    ]


def limit_lines(records: Sequence[_Run]) -> list[str]:
    """Lines on what may not be compared with what: settings in which runs of one mode differ, and unlike places."""
    unlike = ", ".join(unlike_settings(records))
    apart = [f"runs differ in {unlike}: speed-ups and orders are between runs with the same of these"] if unlike else []
    return [*apart, *place_warnings(records)]


def keeps_graph_whole(record: _Run) -> bool:
    """Whether the run's method does not cut the graph, and so runs on one part."""
    return bool(record.get("facts", {}).get("cut") == "none")


def _buckets(records: Sequence[_Run]) -> dict[Hashable, list[_Run]]:
    """The records by their likeness."""
    found: dict[Hashable, list[_Run]] = {}
    for record in records:
        found.setdefault(_key(record), []).append(record)
    return found


def _key(record: _Run) -> Hashable:
    return tuple(likeness(record).values())  # of one mode the names are the same, and the mode is among the values


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for each in settings for name in each)
    values = {name: [each[name] for each in settings if name in each] for name in names}
    return [name for name, found in values.items() if any(value != found[0] for value in found)]


def _said(names: Sequence[str], records: Sequence[_Run]) -> list[str]:
    """The names without the dataset where only its content differs, by another setting: the split, the seed, ..."""
    same = len({record["config"].get("dataset") for record in records}) == 1
    return [name for name in names if name != "dataset" or not same or len(names) == 1]


def _worded(name: str, record: _Run, settings: Mapping[str, Any]) -> str:
    if name == "dataset":
        return str(record.get("graph", {}).get("name", record["config"].get("dataset")))
    if name == "cluster":
        return f"cluster {place_of(record)}"
    return f"{settings[name]} parts" if name == "parts" else f"{name.replace('_', '-')} {settings.get(name)}"


def _sizes(records: Sequence[_Run]) -> list[int]:
    return sorted({_parts(record) for record in records if not keeps_graph_whole(record)})


def _parts(record: _Run) -> int:
    return int(record["config"].get("parts", 1))


def _machine(host: str) -> str:
    """The machine without the threads of a rank, which depend on the number of ranks."""
    return ", ".join(word for word in host.split(", ") if not word.endswith(" threads a rank"))
