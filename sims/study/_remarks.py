"""Notes on a simulated result: how many inputs are assumed, what could not be priced, which links carried nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sims.cluster import LINKS, Cluster
from sims.device import STRENGTH, load_device
from sims.transport import LIBRARIES
from sims.units import Quantity


class Run(Protocol):
    """The fields of a simulation that notes need."""

    @property
    def link_bytes(self) -> Mapping[str, int]:
        """Directed link -> bytes that crossed it."""
        ...


def quantities(cluster: Cluster, precision: str = "fp32") -> list[Quantity]:
    """Every number that a prediction on this cluster uses: links, transport, library, devices.

    `precision`: what bfloat16 makes faster is used in bf16 alone.
    """
    found = [quantity for _, quantity in cluster.quantities()]
    for name in dict.fromkeys(cluster.profiles):
        numbers = load_device(name).quantities()
        found += [quantity for key, _, quantity in numbers if precision == "bf16" or not key.startswith("bf16.")]
    tuning = LIBRARIES.find(cluster.transport.kind).tuning()
    return found + (tuning.quantities() if tuning is not None else [])


def source_shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Source -> share of the compute seconds with costs from it, the most reliable first; empty without compute."""
    total = sum(seconds.values())
    return {source: seconds[source] / total for source in reversed(STRENGTH) if seconds.get(source)}


def link_kind(name: str) -> str:
    """The kind of a directed link (a member of LINKS, or "process") by its name, such as "host0.nic1.tx"."""
    kinds = (part.rstrip("0123456789") for part in reversed(name.split(".")))
    return next((kind for kind in kinds if kind in LINKS), "process")


def idle_links(run: Run) -> list[str]:
    """Kinds of links that no byte crossed: their bandwidth and latency do not affect the result."""
    crossed: dict[str, int] = {}
    for name, nbytes in run.link_bytes.items():
        kind = link_kind(name)
        crossed[kind] = crossed.get(kind, 0) + nbytes
    return [kind for kind in LINKS if crossed.get(kind) == 0]


def notes(
    cluster: Cluster,
    run: Run,
    source_seconds: Mapping[str, float],
    unknown_ops: Mapping[str, int],
    precision: str = "fp32",
) -> list[str]:
    """The notes, one line each, that every table of the result shows."""
    known, name = quantities(cluster, precision), cluster.name
    assumed = sum(quantity.source == "assumed" for quantity in known)
    found = []
    if assumed:
        found.append(f"cluster {name}: {assumed} of {len(known)} values are assumed (haloscope clusters show {name})")
    slow = cluster.stragglers
    if slow.ranks or slow.hosts or slow.jitter:
        held = (("rank", slow.ranks), ("host", slow.hosts))
        factors = [f"{what} {number} x {factor:g}" for what, by in held for number, factor in by.items()]
        factors += [f"jitter {slow.jitter:g}"] if slow.jitter else []
        found.append(f"compute slowed by choice: {', '.join(factors)}")
    weak = [f"{share:.0%} {source}" for source, share in source_shares(source_seconds).items() if source != "measured"]
    if weak:
        found.append(f"compute time that does not rest on measured numbers: {', '.join(weak)}")
    idle = idle_links(run)
    if "nic" in idle:
        found.append("no bytes went between hosts: their network changes nothing")
    if unknown_ops:
        calls = ", ".join(f"{op} x {count}" for op, count in sorted(unknown_ops.items()))
        found.append(f"operators of unknown kind, priced by their bytes: {calls}")
    return found
