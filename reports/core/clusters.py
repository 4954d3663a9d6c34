"""Clusters with other bandwidths, as texts for `--cluster`."""

from __future__ import annotations

from sims.cluster import load_cluster, place
from sims.units import format_quantity


def link_bandwidth(cluster: str, link: str) -> float:
    """Bytes per second of one kind of link of a cluster file."""
    return float(load_cluster(cluster).links[link].bandwidth.value)


def all_faster(cluster: str, links: float, process: float | None = None) -> str:
    """The cluster with the bandwidth of every link multiplied by `links`, and what one process moves at most by
    `process` (None: by the same)."""
    factors = {"bandwidth": links, "process": links if process is None else process}
    changes = []
    for name, quantity in load_cluster(cluster).quantities():
        faster = factors.get(name.rpartition(".")[2], 1.0)
        if faster != 1.0:
            changes.append(f"{name}={format_quantity(quantity.value * faster, 'bandwidth')}")
    return ":".join([cluster, *changes])


def hosts_slowed(cluster: str, parts: int, factor: float) -> str:
    """The cluster with compute on every host that `parts` ranks are on taking `factor` times as long."""
    if factor == 1.0:
        return cluster
    loaded = load_cluster(cluster)
    before, hosts = loaded.stragglers.hosts, int(place(loaded, parts).host.max()) + 1
    factors = (factor * before.get(host, 1.0) for host in range(hosts))
    return ":".join([cluster, *(f"stragglers.hosts.{host}={slow:.6g}" for host, slow in enumerate(factors))])


def messages_slowed(cluster: str, factor: float) -> str:
    """The cluster with the software's fixed time for operations and messages multiplied."""
    if factor == 1.0:
        return cluster
    quantities = dict(load_cluster(cluster).quantities())
    names = [name for name in ("transport.operation", "transport.message") if name in quantities]
    return ":".join(
        [cluster, *(f"{name}={format_quantity(quantities[name].value * factor, 'time')}" for name in names)]
    )
