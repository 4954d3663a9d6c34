"""What a communication library costs in software, as cluster files say it: per collective, per message, per byte."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import ClassVar

from harness.registry import Registry
from sims.units import Quantity, Table


class HostMemory:
    """A library whose messages start and end in host memory, as clusters know it."""

    staged: ClassVar[bool] = True


class DeviceMemory(HostMemory):
    """A library that moves device memory."""

    staged = False


TRANSPORTS: Registry[type[HostMemory]] = Registry(
    "transport", "haloscope.transports", {"gloo": HostMemory, "nccl": DeviceMemory, "grpc": HostMemory}
)
"""Libraries as clusters know them; `sims.transport.LIBRARIES`, of the same entry-point group, has what they do."""

OPERATIONS = ("all_to_all", "counted", "all_reduce", "ring", "broadcast", "pair", "started")
"""Collectives whose software may be measured apart: counted is an all-to-all of which only the senders know how much
they send, so that counts travel first; all_reduce adds in rank order, ring is the library's own, pair is a
send with its receive. started is what a rank itself spends on an exchange that is hidden behind compute."""


@dataclass(frozen=True)
class TransportSpec:
    """How messages travel.

    Attributes:
        kind: a name in TRANSPORTS. gloo and grpc move host memory over sockets (device tensors are copied whole
            before and after); nccl moves device memory.
        operation: seconds of software that a rank pays once per collective.
        message: seconds of software that a rank pays for every message it sends, one after the other.
        process: bytes/s that one process can move in each direction, or None for no such ceiling.
        measured: kind of collective (a member of OPERATIONS) -> number of ranks -> seconds of one without bytes, its
            messages and latencies included; empty where only `operation` and `message` are known.
    """

    kind: str
    operation: Quantity
    message: Quantity
    process: Quantity | None
    measured: dict[str, dict[int, Quantity]] = field(default_factory=dict)

    def seconds(self, kind: str, ranks: int) -> float:
        """Seconds of software of one collective: between two measured numbers of ranks, and beyond them, on a line."""
        known = self.measured.get(kind) or (self.measured.get("all_to_all") if kind == "counted" else None)
        if not known:
            return 0.0 if kind == "started" else self.operation.value
        counts = sorted(known)
        at = min(max(bisect.bisect_left(counts, ranks), 1), len(counts) - 1) if len(counts) > 1 else 0
        low, high = counts[max(at - 1, 0)], counts[at]
        slope = (known[high].value - known[low].value) / max(high - low, 1)
        return max(known[low].value + slope * (ranks - low), min(q.value for q in known.values()))

    @property
    def staged(self) -> bool:
        """Messages start and end in host memory, away from the devices."""
        return TRANSPORTS.find(self.kind).staged


def read_transport(table: Table) -> TransportSpec:
    """`[transport]` of a cluster file. Raises InputError for an unknown key or kind, or a bad unit."""
    none, measured = Quantity(0.0), table.table("measured")
    process = table.quantity("process", "bandwidth", none)
    rows = {} if measured is None else {kind: measured.table(kind) for kind in OPERATIONS}
    if measured is not None:
        measured.close()
    spec = TransportSpec(
        kind=table.text("kind", choices=tuple(TRANSPORTS.names())),
        operation=table.quantity("operation", "time", none),
        message=table.quantity("message", "time", none),
        process=process if process.value else None,
        measured={kind: row.numbered("time") for kind, row in rows.items() if row is not None},
    )
    table.close()
    return spec
