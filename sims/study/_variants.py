"""The same cluster with other devices, or with another communication library over its links.

A cluster lacks the software costs of libraries that it was not defined with, and may lack the link between processes of
a host: these are taken from a shipped cluster, which the notes name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.errors import InputError
from sims.cluster import Cluster, is_described, load_cluster
from sims.device import DeviceProfile, load_device
from sims.transport import LIBRARIES

HOST_MEMORY = "sylvie-2x8"
"""The shipped cluster whose loopback link is used for hosts of several ranks."""

TYPICAL_BUS = "24GB/s"
"""What messages propose for a cluster of GPUs that does not say it: 16 lanes of PCIe 4.0, less what frames take."""


@dataclass(frozen=True)
class Variant:
    """A variant of the requested cluster.

    Attributes:
        label: the difference, such as "on l4" or "over gloo"; empty for the cluster itself.
        device: profile of its first device.
        notes: values taken from other clusters, one line each.
    """

    label: str
    cluster: Cluster
    device: str
    notes: tuple[str, ...] = ()


def variants(cluster: Cluster, devices: list[str], transports: list[str]) -> list[Variant]:
    """The cluster itself, then every valid combination of its own and the named devices and libraries.

    Raises:
        InputError: unknown device or library, or one for which the cluster lacks a link or a device.
    """
    for kind in transports:
        LIBRARIES.find(kind)
    found, refused = [Variant("", cluster, cluster.device)], list[InputError]()
    for kind in dict.fromkeys([cluster.transport.kind, *transports]):
        for device in dict.fromkeys([cluster.device, *devices]):
            try:
                found += _variant(cluster, device, kind)
            except InputError as error:
                refused.append(error)
    served = {variant.device for variant in found} | {variant.cluster.transport.kind for variant in found}
    if not served.issuperset([*devices, *transports]):
        raise refused[0]
    return found


def _variant(cluster: Cluster, device: str, kind: str) -> list[Variant]:
    """The cluster with another device, library or both; empty if these are its own."""
    other, label, notes = cluster, [], list[str]()
    if device != cluster.device:
        label.append(f"on {device}")
        other = replace(other, profiles=(device,))
    if kind != cluster.transport.kind:
        label.append(f"over {kind}")
        other, notes = _over(other, kind)
    if label:
        check_links(other)
    return [Variant(" ".join(label), other, device, tuple(notes))] if label else []


def _over(cluster: Cluster, kind: str) -> tuple[Cluster, list[str]]:
    """The cluster with another library, and notes on the values taken from other clusters."""
    lender = LIBRARIES.find(kind).software
    spec, links = replace(load_cluster(lender).transport, kind=kind), cluster.links
    notes = [f"{kind}: software costs are those of cluster {lender}"]
    if spec.staged and cluster.ranks_per_host > 1 and "loopback" not in links:
        links = {**links, "loopback": load_cluster(HOST_MEMORY).links["loopback"]}
        notes.append(f"{kind}: links.loopback, which {cluster.name} lacks, is that of cluster {HOST_MEMORY}")
    return replace(cluster, transport=spec, links=links), notes


def check_links(cluster: Cluster) -> None:
    """Raise InputError if the cluster lacks a link that tensors must cross to the library or the host."""
    kind, known = cluster.transport.kind, [load_device(name) for name in dict.fromkeys(cluster.profiles)]
    for device in known:
        if device.kind == "cpu" and not cluster.transport.staged:
            raise InputError(f"{kind} moves device memory, and {device.name} is a CPU; give gloo or grpc")
        if device.kind == "gpu" and "bus" not in cluster.links:
            raise _no_bus(cluster, device)


def _no_bus(cluster: Cluster, device: DeviceProfile) -> InputError:
    name, colon, changes = cluster.name.partition(":")
    if is_described(name):
        named = f"{name},bus={TYPICAL_BUS}{colon}{changes}"
    else:
        named = f"{cluster.name}:links.bus.bandwidth={TYPICAL_BUS}:links.bus.latency=0.5us"
    return InputError(
        f"cluster {cluster.name} has no links.bus, which the tensors of {device.name} must cross; say what it has "
        f"({TYPICAL_BUS} is typical of PCIe 4.0 x16), such as --cluster {named}"
    )
