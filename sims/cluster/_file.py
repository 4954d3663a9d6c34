"""The keys of a cluster file, a record for each of its tables. `_load` makes a `Cluster` of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sims.cluster._software import TransportSpec
from sims.cluster._stragglers import Stragglers
from sims.records import FLAG, TEXT, choice, dimensioned, integer, key, subtable
from sims.units import Quantity


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """`[hosts]`: all alike. What devices, adapters or ranks share is dealt to them in equal contiguous blocks."""

    count: int = key("hosts of the cluster", integer())
    device: str = key(
        "device profile: a name, or the path of a device file, from this file's folder; `NAME x COUNT, NAME x COUNT` "
        "for the devices of one host, or of all hosts in order",
        TEXT,
    )
    devices: int = key("devices per host", integer(), default=1)
    devices_per_switch: int = key("devices that share a PCIe switch; 0: no switches", integer(0), default=0)
    nics: int = key("network adapters per host", integer(), default=1)
    nics_on: str = key(
        "what the adapters hang on: the host's root ports (root ports and PCIe switches are crossed on the way), or "
        "the PCIe switches (they are not)",
        choice("root", "switch"),
        default="root",
    )
    per_rack: int = key("hosts per rack; 0: one rack", integer(0), default=0)
    ranks_per_host: int | None = key("ranks that a host takes", integer(), default=None, shown="`devices`")
    spread: bool = key(
        "ranks are spread evenly over all hosts instead of filling one host after the other", FLAG, default=False
    )
    cores: int = key("CPU cores per host that CPU ranks share; 0: they do not compete", integer(0), default=0)


@dataclass(frozen=True, kw_only=True)
class Link:
    """`[links.KIND]`: one kind of link."""

    bandwidth: Quantity = key("of one direction", dimensioned("bandwidth"))
    latency: Quantity = key("of one crossing", dimensioned("time"))
    tier: str = key("what its bytes are counted under", TEXT, default="pcie")


@dataclass(frozen=True, kw_only=True)
class Mesh(Link):
    """`[links.mesh]`: a link with one key more."""

    groups: int = key("groups of devices per host that mesh links connect", integer(), default=1)


@dataclass(frozen=True, kw_only=True)
class Peer(Link):
    """`[links.peer]`: a link with one key more."""

    sharp: bool = key("the switch adds what devices send it and sends to many (NVLink SHARP)", FLAG, default=False)


@dataclass(frozen=True, kw_only=True)
class Links:
    """`[links]`: those that the cluster has. All but loopback, mesh and spine are two directed links."""

    loopback: Link | None = key(
        "host memory between processes of one host", subtable(Link, tier="loopback"), default=None
    )
    bus: Link | None = key("device to host, per device", subtable(Link), default=None)
    switch: Link | None = key("from a PCIe switch to the root, shared by its devices", subtable(Link), default=None)
    peer: Peer | None = key(
        "device to device through a switch (NVSwitch), per device", subtable(Peer, tier="nvlink"), default=None
    )
    mesh: Mesh | None = key(
        "device to device directly (NVLink boards), one directed link per ordered pair of a group",
        subtable(Mesh, tier="nvlink"),
        default=None,
    )
    root: Link | None = key("shared by the buses of a host", subtable(Link), default=None)
    nic: Link | None = key("host to network, per adapter", subtable(Link, tier="ethernet"), default=None)
    rack: Link | None = key("from a rack to the others, shared by its hosts", subtable(Link, tier="rack"), default=None)
    spine: Link | None = key(
        "the core that all traffic between racks shares, one link", subtable(Link, tier="rack"), default=None
    )


LINKS = tuple(member.name for member in fields(Links))
"""Kinds of links, in the order in which a message from device to device meets them."""


@dataclass(frozen=True, kw_only=True)
class ClusterFile:
    """A whole file."""

    name: str = key("name of the cluster", TEXT, shown="the file's name")
    summary: str = key("one line about the cluster", TEXT, default="")
    reference: str = key("paper and section that describe it", TEXT, default="")
    hosts: Hosts = key("hosts and what is in them", subtable(Hosts))
    links: Links = key("what joins devices and hosts", subtable(Links))
    transport: TransportSpec = key("the communication library and what its software costs", subtable(TransportSpec))
    stragglers: Stragglers = key(
        "ranks and hosts that compute slowly, and everyone's jitter", subtable(Stragglers), default=Stragglers()
    )
