"""Clusters with other bandwidths, as texts for `--cluster`."""

from __future__ import annotations

from sims.cluster import load_cluster, place
from sims.units import format_quantity


def link_bandwidth(cluster: str, link: str) -> float:
    """Bytes per second of one kind of link of a cluster file."""
    return float(load_cluster(cluster).links[link].bandwidth.value)


def all_faster(cluster: str, factor: float) -> str:
    """The cluster with every bandwidth (links and the ceiling of a process) multiplied."""
    if factor == 1.0:
        return cluster
    quantities = load_cluster(cluster).quantities()
    chosen = [(name, quantity) for name, quantity in quantities if name.endswith((".bandwidth", ".process"))]
    changes = [f"{name}={format_quantity(quantity.value * factor, 'bandwidth')}" for name, quantity in chosen]
    return ":".join([cluster, *changes])


def hosts_slowed(cluster: str, parts: int, factor: float) -> str:
    """The cluster with compute on every host that `parts` ranks are on taking `factor` times as long."""
    if factor == 1.0:
        return cluster
    hosts = int(place(load_cluster(cluster), parts).host.max()) + 1
    return ":".join([cluster, *(f"stragglers.hosts.{host}={factor:.6g}" for host in range(hosts))])


def link_changed(cluster: str, link: str, bandwidth: float) -> str:
    """The cluster with another bandwidth (bytes per second) of one kind of link."""
    return f"{cluster}:links.{link}.bandwidth={format_quantity(bandwidth, 'bandwidth')}"
