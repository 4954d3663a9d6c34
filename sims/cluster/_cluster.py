"""A cluster: hosts, devices, the kinds of links between them, and the transport that uses them. Values only.

`_load` reads clusters from files, `_placement` assigns ranks to devices and determines the links that a transfer
crosses. Every value has a source: published, datasheet, measured or assumed.
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
    """A cluster as its file describes it. Shared components serve equal contiguous blocks of devices or hosts.

    Attributes:
        devices: devices per host.
        profiles: device profiles by name or path, one per device of a host, or one per device of all hosts.
        devices_per_switch: devices that share a PCIe switch; 0 for none.
        nics: network adapters per host.
        nics_on: where adapters are attached: "root" (transfers cross the host's root ports and PCIe switches) or
            "switch" (they do not).
        mesh_groups: groups of devices per host that mesh links connect.
        per_rack: hosts per rack; 0 for one rack.
        ranks_per_host: most ranks on a host.
        spread: ranks are spread evenly over all hosts instead of filling one host after the other.
        cores: CPU cores per host that CPU ranks share; 0 if they do not compete.
        one_machine: the hosts are on one machine (a lab), whose cores are `cores`.
        nic_rates: bytes/s of each host's adapters; empty if all have the rate in `links`.
        links: kind (a member of LINKS) -> link.
        stragglers: ranks and hosts that compute slowly, and the jitter of all ranks.
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
        """Profile of the first device; of every device if all are equal."""
        return self.profiles[0]

    @property
    def capacity(self) -> int:
        """Most ranks on the cluster."""
        return self.hosts * self.ranks_per_host

    @property
    def racks(self) -> int:
        """Number of racks."""
        return -(-self.hosts // self.per_rack) if self.per_rack else 1

    def profile(self, host: int, device: int) -> str:
        """Name or path of the profile of one device."""
        return self.profiles[(host * self.devices + device) % len(self.profiles)]

    def quantities(self) -> Iterator[tuple[str, Quantity]]:
        """Every number of the cluster with its name."""
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
