"""A cluster: hosts, devices, the kinds of links between them, and the transport that uses them. Values only.

`_file` holds the keys of their files, `_load` reads them, `_placement` assigns ranks to devices and determines the
links that a transfer crosses. Every value has a source: published, datasheet, measured or assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sims.cluster._software import TransportSpec
from sims.cluster._stragglers import Stragglers
from sims.units import Quantity

ACKNOWLEDGED_BYTES = "links.nic.acknowledged"
"""The name of `Cluster.acknowledged` among the numbers of a cluster."""


FRAMING = "links.nic.framing"
"""The name of `Cluster.framing` among the numbers of a cluster."""

SHAPED = "links.nic.shaped"
"""The name of `Cluster.shaped` among the numbers of a cluster."""

OF_SHAPED = Quantity(1.0, "assumed", "rate of a shaped link over what frames leave of its nominal one", (0.975, 1.01))
OF_MANY_SHAPED = Quantity(
    0.95, "measured", "the same where more hosts share the machine than it has cores, which also forward every frame",
    (0.88, 1.01),
)  # fmt: skip


def dimension_of(name: str) -> str:
    """The dimension (a key of `sims.units.UNITS`, or "number") of what `Cluster.quantities` gives this name."""
    if name in (ACKNOWLEDGED_BYTES, SHAPED):
        return "number"
    return "bandwidth" if name.endswith((".bandwidth", ".process", ".beside", ".copying", ".framing")) else "time"


@dataclass(frozen=True)
class LinkSpec:
    """One kind of link: bytes/s of one direction, seconds of one crossing, and the tier its bytes are counted under."""

    bandwidth: Quantity
    latency: Quantity
    tier: str


@dataclass(frozen=True)
class Buffers:
    """What sockets, and the queues of links, hold of a message between hosts: its sender is done that much earlier.

    Attributes:
        seconds: at the rate of the slowest link on the way.
        nbytes: the most.
        copying: bytes/s at which the sender's core hands a message over.
    """

    seconds: float
    nbytes: float
    copying: float

    def hold(self, nbytes: int, rate: float, messages: int = 1) -> int:
        """Bytes of a message that are still on their way when its sender is done, over links of `rate` bytes/s, whose
        queue it shares with others of its sender: so many `messages` in all."""
        not_copied = nbytes * max(0.0, 1 - rate / self.copying)
        return int(min(self.nbytes, self.seconds * rate / messages, not_copied))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster as its file describes it; what is not said here is a key of the file (`_file`).

    Attributes:
        hosts: how many.
        profiles: device profiles by name or path, one per device of a host, or one per device of all hosts.
        mesh_groups: groups of devices per host that mesh links connect.
        sharp: the switch of the peer links adds (NVLink SHARP).
        one_machine: the hosts are one machine's (a lab): `cores` are those of all of them.
        nic_rates: bytes/s of each host's adapters; empty where all have that of `links`.
        links: kind (a member of LINKS) -> link.
        acknowledged: bytes that travel back between two hosts per byte of payload, and share a link with what goes that
            way (a lab's shaped links; elsewhere a link's bandwidth is what both ways get).
        shaped: factor on the rates of a lab's links: its shapers send in bursts, and senders may lose frames.
        framing: bytes/s that a core takes through a lab's shaped links, beside the copies at both ends; None where that
            is not the work of the ranks' cores.
        buffers: of a lab's shaped links; None where a sender is done when its receiver has the message.
        constants: of the communication library, in place of its own (`sims.transport.Tuning`).
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
    sharp: bool = False
    nic_rates: tuple[float, ...] = ()
    acknowledged: Quantity = Quantity(0.0)
    shaped: Quantity = OF_SHAPED
    framing: Quantity | None = None
    buffers: Buffers | None = None
    constants: Any = None

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
        if self.acknowledged.value:
            yield ACKNOWLEDGED_BYTES, self.acknowledged
        if self.framing is not None:
            yield FRAMING, self.framing
        if self.buffers is not None:
            yield SHAPED, self.shaped
        for name, cost in (("operation", self.transport.operation), ("message", self.transport.message)):
            if cost.value or not self.transport.measured:
                yield f"transport.{name}", cost
        for name, rate in self.transport.rates().items():
            yield f"transport.{name}", rate
        for name, collectives in self.transport.costs().items():
            for kind, known in collectives.items():
                for ranks, quantity in known.items():
                    yield f"transport.{name}.{kind}.{ranks}", quantity
