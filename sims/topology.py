"""Clusters read from TOML: hosts, devices, the kinds of links between them, and the transport that uses them.

A cluster says what exists; `sims.placement` says which rank sits where and which links a transfer crosses. No time is
computed here. Every value carries its source: published, datasheet, measured or assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from sims import units
from sims.placement import Placement
from sims.units import Quantity, Table

CLUSTERS = Path(__file__).with_name("clusters")

LINKS = ("loopback", "bus", "peer", "root", "nic")
"""Kinds of links. loopback: host memory between processes of one host. bus: device to host, per device. peer: device to
device inside a host (NVLink), per device. root: shared by the buses of a host. nic: host to network, per host. All but
loopback are two directed links."""


@dataclass(frozen=True)
class LinkSpec:
    """One kind of link: bytes/s of one direction, seconds of one crossing, and the tier its bytes are counted under."""

    bandwidth: Quantity
    latency: Quantity
    tier: str


@dataclass(frozen=True)
class TransportSpec:
    """How messages travel.

    Attributes:
        kind: gloo moves host memory over sockets (device tensors are copied whole before and after); nccl moves device
            memory.
        operation: seconds of software that a rank pays once per collective.
        message: seconds of software that a rank pays for every message it sends, one after the other.
        process: bytes/s that one process can move in each direction, or None for no such ceiling.
    """

    kind: str
    operation: Quantity
    message: Quantity
    process: Quantity | None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster as its file describes it.

    Attributes:
        devices: devices per host.
        ranks_per_host: how many ranks a host takes.
        spread: ranks are spread evenly over all hosts instead of filling one host after the other.
        cores: CPU cores per host that CPU ranks share, 0 when they do not compete.
        device: name of a device profile, or the path of its file.
        links: kind (a member of LINKS) -> link.
    """

    name: str
    summary: str
    reference: str
    hosts: int
    devices: int
    ranks_per_host: int
    spread: bool
    cores: int
    device: str
    links: dict[str, LinkSpec]
    transport: TransportSpec

    @property
    def capacity(self) -> int:
        """Ranks that fit."""
        return self.hosts * self.ranks_per_host

    def place(self, size: int) -> Placement:
        """Ranks 0..size-1 on hosts and devices, hosts in order. Raises InputError when they do not fit."""
        if size > self.capacity:
            raise InputError(
                f"cluster {self.name} takes {self.capacity} ranks ({self.hosts} hosts x {self.ranks_per_host}), "
                f"not {size}; use fewer parts or another cluster"
            )
        return Placement(self, size)

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Every number of the cluster with its name, for lists of what is assumed."""
        for kind, link in self.links.items():
            yield f"links.{kind}.bandwidth", link.bandwidth
            yield f"links.{kind}.latency", link.latency
        yield "transport.operation", self.transport.operation
        yield "transport.message", self.transport.message
        if self.transport.process is not None:
            yield "transport.process", self.transport.process


def known_clusters() -> list[str]:
    """Names of the clusters that come with haloscope, sorted."""
    return units.known(CLUSTERS)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """A cluster by name, or from a TOML file.

    Raises:
        InputError: unknown name, unreadable file, unknown key, bad unit, or links that the transport lacks.
    """
    path = units.find(name_or_path, "cluster", CLUSTERS)
    top = units.read_toml(path, "cluster")
    hosts = top.needed("hosts")
    devices = hosts.integer("devices", 1)
    cluster = Cluster(
        name=top.text("name", path.stem),
        summary=top.text("summary", ""),
        reference=top.text("reference", ""),
        hosts=hosts.integer("count"),
        devices=devices,
        ranks_per_host=hosts.integer("ranks_per_host", devices),
        spread=hosts.flag("spread"),
        cores=hosts.integer("cores", 0, minimum=0),
        device=_device(hosts, path),
        links=_links(top.needed("links")),
        transport=_transport(top.needed("transport")),
    )
    hosts.close()
    top.close()
    _check(cluster, f"cluster file {path.name}")
    return cluster


def _device(hosts: Table, path: Path) -> str:
    """A profile's name as it is; a profile's path relative to the cluster file."""
    device = hosts.text("device")
    return str(path.parent / device) if device.endswith(".toml") else device


def _links(table: Table) -> dict[str, LinkSpec]:
    links = {}
    for kind in LINKS:
        row = table.table(kind)
        if row is None:
            continue
        default = {"loopback": "loopback", "peer": "nvlink", "nic": "ethernet"}.get(kind, "pcie")
        links[kind] = LinkSpec(
            row.quantity("bandwidth", "bandwidth"), row.quantity("latency", "time"), row.text("tier", default)
        )
        row.close()
    table.close()
    return links


def _transport(table: Table) -> TransportSpec:
    none = Quantity(0.0)
    process = table.quantity("process", "bandwidth", none)
    spec = TransportSpec(
        kind=table.text("kind", choices=("gloo", "nccl")),
        operation=table.quantity("operation", "time", none),
        message=table.quantity("message", "time", none),
        process=process if process.value else None,
    )
    table.close()
    return spec


def _check(cluster: Cluster, where: str) -> None:
    """Raise InputError when a pair of ranks would have no path."""
    missing = []
    if cluster.transport.kind == "nccl" and "bus" not in cluster.links:
        missing.append("bus (nccl moves device memory)")
    if cluster.transport.kind == "gloo" and cluster.ranks_per_host > 1 and "loopback" not in cluster.links:
        missing.append("loopback (gloo between ranks of one host)")
    if cluster.hosts > 1 and "nic" not in cluster.links:
        missing.append("nic (there are several hosts)")
    if missing:
        raise InputError(f"{where}: links: missing {', '.join(missing)}")
