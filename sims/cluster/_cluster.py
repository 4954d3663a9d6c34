"""A cluster: hosts, devices, the kinds of links between them, and the transport that uses them. Values only.

`_load` reads clusters from files, `_placement` says which rank sits where and which links a transfer
crosses. Every value carries its source: published, datasheet, measured or assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sims.cluster._software import TransportSpec
from sims.cluster._stragglers import Stragglers
from sims.units import Quantity

LINKS = ("loopback", "bus", "switch", "peer", "mesh", "root", "nic", "rack", "spine")
"""Kinds of links.

loopback: host memory between processes of one host. bus: device to host, per device. switch: from a PCIe switch to the
root, shared by its devices. peer: device to device through a switch (NVSwitch), per device. mesh: device to device
directly (NVLink boards), one directed link per ordered pair of a group. root: shared by the buses of a host. nic: host
to network, per adapter. rack: from a rack to the others, shared by its hosts. spine: the core that all traffic between
racks shares, one link. All but loopback, mesh and spine are two directed links.
"""


@dataclass(frozen=True)
class LinkSpec:
    """One kind of link: bytes/s of one direction, seconds of one crossing, and the tier its bytes are counted under."""

    bandwidth: Quantity
    latency: Quantity
    tier: str


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster as its file describes it. What is shared is dealt to devices, or hosts, in equal contiguous blocks.

    Attributes:
        devices: devices per host.
        profiles: device profiles by name or path, one per device of a host, or one per device of all hosts.
        devices_per_switch: devices that share a PCIe switch; 0 for none.
        nics: network adapters per host.
        nics_on: what the adapters hang on: "root" (the host's root ports and PCIe switches are crossed on the way) or
            "switch" (they are not).
        mesh_groups: groups of devices per host that mesh links connect.
        per_rack: hosts per rack; 0 for one rack.
        ranks_per_host: how many ranks a host takes.
        spread: ranks are spread evenly over all hosts instead of filling one host after the other.
        cores: CPU cores per host that CPU ranks share, 0 when they do not compete.
        one_machine: the hosts are one machine's (a lab): `cores` are those of all of them.
        nic_rates: bytes/s of each host's adapters; empty where all have that of `links`.
        links: kind (a member of LINKS) -> link.
        stragglers: ranks and hosts that compute slowly, and everyone's jitter.
    """

    name: str
    summary: str
    reference: str
    hosts: int
    devices: int
    profiles: tuple[str, ...]
    devices_per_switch: int
    nics: int
    nics_on: str
    mesh_groups: int
    per_rack: int
    ranks_per_host: int
    spread: bool
    cores: int
    links: dict[str, LinkSpec]
    transport: TransportSpec
    stragglers: Stragglers = Stragglers()
    one_machine: bool = False
    nic_rates: tuple[float, ...] = ()

    @property
    def device(self) -> str:
        """Profile of the first device: of every device where all are alike."""
        return self.profiles[0]

    @property
    def capacity(self) -> int:
        """Ranks that fit."""
        return self.hosts * self.ranks_per_host

    @property
    def racks(self) -> int:
        """Racks that the hosts fill."""
        return -(-self.hosts // self.per_rack) if self.per_rack else 1

    def profile(self, host: int, device: int) -> str:
        """Name or path of the profile of one device."""
        return self.profiles[(host * self.devices + device) % len(self.profiles)]

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Every number of the cluster with its name, for lists of what is assumed."""
        for kind, link in self.links.items():
            yield f"links.{kind}.bandwidth", link.bandwidth
            yield f"links.{kind}.latency", link.latency
        for name, cost in (("operation", self.transport.operation), ("message", self.transport.message)):
            if cost.value or not self.transport.measured:
                yield f"transport.{name}", cost
        if self.transport.process is not None:
            yield "transport.process", self.transport.process
        for kind, known in self.transport.measured.items():
            for ranks, quantity in known.items():
                yield f"transport.measured.{kind}.{ranks}", quantity
