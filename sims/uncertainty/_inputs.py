"""The uncertain numbers of a prediction, the ranges that are stated for them, and a cluster with others in their place.

A number of a file has the range that the file states, or that of its source (`sims.units.SPREADS`). What a user sets
(`NAME:links.nic.bandwidth=...`, the rate of a lab's shaper) is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sims.cluster import ACKNOWLEDGED_BYTES, FRAMING, SHAPED, Cluster, dimension_of
from sims.device import DeviceProfile, load_device
from sims.records import scaled
from sims.transport import LIBRARIES
from sims.units import NORMAL_90, SPREADS, STATED, Quantity, format_quantity

MEDIAN = 1.4826
"""Standard deviation of normal residuals over the median of their absolute values."""

PACE, FITS, LIBRARY, ROWS = "pace", "fits", "transport.library", "workload.rows"

UNTIMED = ("memory", "fresh.above", "crowding", "idle_factor")
"""Numbers of a device that are no cost; the range of `crowding` is that of the device's pace."""

COPIED = ("loopback", "spine")
"""Links that are copies by the cores of one machine."""

SHARING = "sharing"
"""A device's number that counts where ranks share cores."""

HALF = "bf16."
"""Prefix of a device's keys that matter in bfloat16 only."""

OF_BOUNDARY = tuple(
    f"parts.{name}" for name in ("boundary", "ratio", "degrees", "replication", "mirrors", "mirrors_per_shared_master")
)
"""Numbers of a workload that decide how many rows travel."""


@dataclass(frozen=True)
class Input:
    """One uncertain number, or several that are off together.

    Attributes:
        name: its key, such as "links.nic.latency" or "device.h100-80gb.launch".
        value: with its unit.
        source: as in the file.
        low, high: ends of the 90 % range over the value.
        basis: where the range is from.
    """

    name: str
    value: str
    source: str
    low: float
    high: float
    basis: str

    @property
    def width(self) -> float:
        """The range as a ratio: high over low."""
        return self.high / self.low

    @property
    def is_scatter(self) -> bool:
        """Whether it is no factor on one number, but one on every operator of its own."""
        return self.name.endswith(f".{FITS}")


def inputs_of(
    cluster: Cluster, graph: Mapping[str, Any], exact: Collection[str] = (), precision: str = "fp32"
) -> list[Input]:
    """Every uncertain input of a prediction on a cluster.

    Args:
        graph: the description of the graph in a recording or a result.
        exact: names of numbers that are given (`links.nic.bandwidth`).
        precision: of the run; what bfloat16 makes faster counts in bf16 alone.
    """
    known = {change.partition("=")[0] for change in cluster.name.split(":")[1:]} | set(exact)
    if cluster.nic_rates:
        known |= {"links.nic.bandwidth"}
    found = [*_of_cluster(cluster), *_of_rows(graph)]
    for name in dict.fromkeys(cluster.profiles):
        found += _of_device(load_device(name), shared=bool(cluster.cores), half=precision == "bf16")
    return [each for each in found if each.name not in known and each.high > each.low]


def _of_cluster(cluster: Cluster) -> Iterator[Input]:
    software = cluster.transport
    for name, quantity in cluster.quantities():
        if quantity.value and not name.startswith(tuple(f"transport.{key}." for key in software.costs())):
            yield _input(name, quantity, dimension_of(name))
    for kind in software.measured:
        values = [q for costs in software.costs().values() for q in costs.get(kind, {}).values() if q.value]
        if values:
            yield replace(_widest(f"transport.measured.{kind}", values, "time"), value=_span(values, "time"))
    tuning = LIBRARIES.find(software.kind).tuning()
    if tuning is not None:
        values = tuning.latencies()
        widest = _widest(LIBRARY, values, "time")
        yield replace(widest, value=f"{len(values)} starts and hops of {software.kind}")


def _of_device(profile: DeviceProfile, shared: bool, half: bool) -> Iterator[Input]:
    """`shared`: whether several ranks may share cores; elsewhere that costs nothing. `half`: whether in bfloat16."""
    head = f"device.{profile.name}."
    measured = 0
    for key, dimension, quantity in profile.quantities():
        if key in UNTIMED or key.startswith("operators.") or key == SHARING or not quantity.value:
            continue
        if key.startswith(HALF) and not half:
            continue
        if _paced(key, quantity):
            measured += 1
        elif not key.startswith("overlap.") or quantity.value > 1:
            yield _input(head + key, quantity, dimension)
    if measured or profile.operators:
        stated = profile.crowding.range is not None
        low, high = profile.crowding.factors if stated else (1 / SPREADS["measured"], SPREADS["measured"])
        basis = STATED if stated else _basis("measured")
        value = f"{measured + len(profile.operators)} costs"
        yield Input(head + PACE, value, "measured", low, high, basis)
    if shared:
        yield _input(head + SHARING, profile.sharing, "number")
    errors = [cost.error.value for cost in profile.operators.values() if cost.error.value]
    if errors:
        end = math.exp(NORMAL_90 * MEDIAN * sorted(errors)[len(errors) // 2])
        value = f"{len(errors)} operators"
        yield Input(head + FITS, value, "measured", 1 / end, end, "residuals of each fit")


def _of_rows(graph: Mapping[str, Any]) -> Iterator[Input]:
    """The rows that parts exchange, where a description of counts assumes or estimates them."""
    sources: Mapping[str, Mapping[str, Any]] = graph.get("sources", {})
    weak = [name for name in OF_BOUNDARY if sources.get(name, {}).get("from") in ("assumed", "measured")]
    if weak:
        widest = max((str(sources[name]["from"]) for name in weak), key=SPREADS.__getitem__)
        spread = SPREADS[widest]
        yield Input(ROWS, ", ".join(weak), widest, 1 / spread, spread, _basis(widest))


def _paced(key: str, quantity: Quantity) -> bool:
    """Whether a number of a device is off as all that was measured with it is: it has no range of its own, and is no
    ratio of what was measured."""
    return quantity.source == "measured" and quantity.range is None and not key.startswith(("overlap.", HALF))


def _input(name: str, quantity: Quantity, dimension: str) -> Input:
    value = f"{quantity.value:g}" if dimension == "number" else format_quantity(quantity.value, dimension)
    basis = STATED if quantity.range is not None else _basis(quantity.source)
    return Input(name, value, quantity.source, *quantity.factors, basis)


def _widest(name: str, values: list[Quantity], dimension: str) -> Input:
    return max((_input(name, q, dimension) for q in values), key=lambda each: each.width)


def _span(values: list[Quantity], dimension: str) -> str:
    ends = [format_quantity(float(f"{end(q.value for q in values):.3g}"), dimension) for end in (min, max)]
    return " to ".join(dict.fromkeys(ends))


def _basis(source: str) -> str:
    return f"usual of what is {source}"


def changed_cluster(
    cluster: Cluster, factors: Mapping[str, float], load: Callable[[str], DeviceProfile] = load_device
) -> Cluster:
    """The cluster with every input that has a factor multiplied by it (devices: see `device_loader`).

    A factor on the pace of a CPU is one on all that was measured of its cores: the time of collectives' software too,
    and of copies between processes.
    """
    factors = _of_cores(cluster, factors, load)

    def by(name: str, quantity: Quantity) -> Quantity:
        factor = factors.get(name, 1.0)
        return quantity if factor == 1 else replace(quantity, value=quantity.value * factor)

    links = {
        kind: replace(
            link,
            bandwidth=by(f"links.{kind}.bandwidth", link.bandwidth),
            latency=by(f"links.{kind}.latency", link.latency),
        )
        for kind, link in cluster.links.items()
    }
    spec = cluster.transport
    spec = replace(
        spec,
        operation=by("transport.operation", spec.operation),
        message=by("transport.message", spec.message),
        process=None if spec.process is None else by("transport.process", spec.process),
        beside=None if spec.beside is None else by("transport.beside", spec.beside),
        copying=None if spec.copying is None else by("transport.copying", spec.copying),
        measured=_changed_software(spec.measured, by),
        following=_changed_software(spec.following, by),
        cores=_changed_software(spec.cores, by),
        cores_following=_changed_software(spec.cores_following, by),
    )
    constants, slower = cluster.constants, factors.get(LIBRARY, 1.0)
    if slower != 1:
        own = LIBRARIES.find(spec.kind).tuning()
        constants = None if own is None else own.slower(slower)
    return replace(
        cluster, links=links, transport=spec, constants=constants,
        framing=None if cluster.framing is None else by(FRAMING, cluster.framing),
        acknowledged=by(ACKNOWLEDGED_BYTES, cluster.acknowledged), shaped=by(SHAPED, cluster.shaped),
    )  # fmt: skip


def _of_cores(
    cluster: Cluster, factors: Mapping[str, float], load: Callable[[str], DeviceProfile]
) -> Mapping[str, float]:
    """The factors, with that on the pace of a calibrated cluster's cores on what else they do."""
    if not cluster.transport.measured:
        return factors
    profiles = [load(name) for name in dict.fromkeys(cluster.profiles)]
    paces = [factors.get(f"device.{profile.name}.{PACE}", 1.0) for profile in profiles if profile.kind == "cpu"]
    pace, found = max(paces, default=1.0), dict(factors)
    for kind in cluster.transport.measured:
        found[f"transport.measured.{kind}"] = found.get(f"transport.measured.{kind}", 1.0) * pace
    rates = [f"transport.{key}" for key in cluster.transport.rates()]
    rates += [FRAMING, *(f"links.{kind}.bandwidth" for kind in COPIED)]
    for rate, quantity in cluster.quantities():
        if rate in rates and quantity.source == "measured":  # what a user sets stays
            found[rate] = found.get(rate, 1.0) / pace
    return found


def _changed_software(
    known: Mapping[str, Mapping[int, Quantity]], by: Callable[[str, Quantity], Quantity]
) -> dict[str, dict[int, Quantity]]:
    """Costs of collectives by kind and ranks; those of one kind have one factor, whether they follow others or not,
    and whether all of it runs on cores."""
    return {
        kind: {ranks: by(f"transport.measured.{kind}", q) for ranks, q in costs.items()}
        for kind, costs in known.items()
    }


def device_loader(factors: Mapping[str, float], load: Callable[[str], DeviceProfile]) -> Callable[[str], DeviceProfile]:
    """A loader of devices with every input that has a factor multiplied by it; a factor on the pace is one on time."""

    def changed(name: str) -> DeviceProfile:
        profile = load(name)
        head = f"device.{profile.name}."
        if not any(key.startswith(head) and value != 1 for key, value in factors.items()):
            return profile
        pace = factors.get(head + PACE, 1.0)

        def factor(key: str, dimension: str, quantity: Quantity) -> float:
            if key in UNTIMED or (key.startswith("operators.") and dimension == "number"):
                return 1.0
            own = factors.get(head + key, 1.0)
            if key.startswith("overlap."):
                return max(own, 1 / quantity.value)
            if key.startswith("operators.") or _paced(key, quantity):
                return pace if dimension == "time" else 1 / pace if dimension != "number" else 1.0
            return own

        return scaled(profile, factor)

    return changed
