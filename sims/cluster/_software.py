"""What a communication library costs in software, as cluster files say it: per collective, per message, per byte."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from harness.registry import Registry
from sims.records import dimensioned, key, known_name, named, numbered, numbered_tables
from sims.units import Quantity


class HostMemory:
    """A library whose messages start and end in host memory, as clusters know it.

    Attributes:
        software: the shipped cluster whose software costs other clusters get with this library: those described on a
            line, and those that what-if gives it. A cluster file has the costs that it says.
    """

    staged: ClassVar[bool] = True
    software: ClassVar[str] = "ethernet-10g"


class DeviceMemory(HostMemory):
    """A library that moves device memory."""

    staged = False
    software = "h100-8"


class Calls(HostMemory):
    """A library of remote procedure calls."""

    software = "ec-graph"


TRANSPORTS: Registry[type[HostMemory]] = Registry(
    "transport", "haloscope.transports", {"gloo": HostMemory, "nccl": DeviceMemory, "grpc": Calls}
)
"""Libraries as clusters know them; `sims.transport.LIBRARIES`, of the same entry-point group, has what they do."""

OPERATIONS = {
    "all_to_all": "an all-to-all whose rows every rank knows beforehand",
    "counted": "an all-to-all of which only the senders know how much they send, so that counts travel first",
    "all_reduce": "an all-reduce that adds in rank order",
    "ring": "an all-reduce of the library's own",
    "broadcast": "a broadcast",
    "pair": "a send with its receive",
    "started": "what a rank spends on an exchange that is hidden behind compute",
}
"""Collectives whose software may be measured apart -> what they are."""

NONE = Quantity(0.0)


@dataclass(frozen=True)
class TransportSpec:
    """How messages travel. The fields are the keys of `[transport]` in a cluster file."""

    kind: str = key(
        "library; gloo and grpc move host memory over sockets (device tensors are copied whole before and after), nccl "
        "moves device memory",
        known_name(TRANSPORTS),
    )
    operation: Quantity = key("software that a rank pays once per collective", dimensioned("time"), default=NONE)
    message: Quantity = key(
        "software that a rank pays for every message it sends, one after the other", dimensioned("time"), default=NONE
    )
    process: Quantity | None = key(
        "bytes/s that one process can move in each direction; without it there is no such ceiling",
        dimensioned("bandwidth"),
        default=None,
    )
    beside: Quantity | None = key(
        "bytes of hidden exchanges for every second by which the compute that hides them takes longer, since the "
        "kernel's and the library's copies need its cores; without it they take nothing",
        dimensioned("bandwidth"),
        default=None,
    )
    measured: dict[str, dict[int, Quantity]] = key(
        "seconds of a collective without bytes, messages and latencies included, by number of ranks; takes the place "
        "of `operation` and `message`",
        named(OPERATIONS, numbered("time", "RANKS")),
        default={},
    )
    following: dict[str, dict[int, Quantity]] = key(
        "the same of a collective that begins as soon as the rank is done with the one before, while threads and "
        "caches are warm; without it, as `measured`",
        named(OPERATIONS, numbered("time", "RANKS")),
        default={},
    )
    cores: dict[str, dict[int, Quantity]] = key(
        "seconds that a rank's threads run on its cores for a collective without bytes, by number of ranks; ranks that "
        "outnumber cores wait for one another's, and only what they do not explain of `measured` delays transfers; "
        "without it, all of `measured` runs on these cores",
        named(OPERATIONS, numbered("time", "RANKS")),
        default={},
    )
    cores_following: dict[str, dict[int, Quantity]] = key(
        "the same of a collective that begins as soon as the rank is done with the one before; without it, as `cores`",
        named(OPERATIONS, numbered("time", "RANKS")),
        default={},
    )
    copying: Quantity | None = key(
        "bytes that a rank sends, and as many that it receives, for every second in which its threads run on cores to "
        "move them; they take cores that ranks share; without it they take none",
        dimensioned("bandwidth"),
        default=None,
    )
    rested: Quantity = key(
        "seconds after the end of the collective before at which one takes as long as `measured` says",
        dimensioned("time"),
        default=Quantity(15e-3),
    )
    resting: dict[int, dict[int, Quantity]] = key(
        "by number of ranks, milliseconds after the end of the collective before: how much of the way its cost has "
        "come from `following` to `measured`, above 1 after more than `rested`, because compute in between leaves "
        "other data in the caches; in between on lines; without it, on a line up to `rested` and no further",
        numbered_tables("RANKS", numbered("number", "MILLISECONDS")),
        default={},
    )

    def rested_share(self, ranks: int) -> Callable[[float], float]:
        """How much of the way the cost of a collective has come from `following` to `measured`, by the seconds since
        the rank's last one; of so many ranks, or of the nearest number that was measured."""
        known = self.resting[min(self.resting, key=lambda known: (abs(known - ranks), known))] if self.resting else {}
        points = {0.0: 0.0} | {ms * 1e-3: share.value for ms, share in known.items()} | {self.rested.value: 1.0}
        after, shares = sorted(points), [points[at] for at in sorted(points)]

        def share(apart_s: float) -> float:
            at = bisect.bisect_right(after, apart_s)
            if at == len(after):
                return shares[-1]
            part = (apart_s - after[at - 1]) / (after[at] - after[at - 1])
            return shares[at - 1] + part * (shares[at] - shares[at - 1])

        return share

    def seconds(self, kind: str, ranks: int, *, following: bool = False) -> float:
        """Seconds of software of one collective: between two measured numbers of ranks, and beyond them, on a line.

        Args:
            following: of one that begins as soon as the rank is done with the one before.
        """
        known = self._known(self.measured, kind)
        if following:
            known = self.following.get(kind) or known
        if not known:
            return 0.0 if kind == "started" else self.operation.value
        return _between(known, ranks)

    def core_seconds(self, kind: str, ranks: int, *, following: bool = False) -> float:
        """Seconds of `seconds` that a rank's threads run on its cores; all of them where that is not known."""
        known = self._known(self.cores, kind)
        if following:
            known = self.cores_following.get(kind) or known
        return _between(known, ranks) if known else self.seconds(kind, ranks, following=following)

    @staticmethod
    def _known(costs: dict[str, dict[int, Quantity]], kind: str) -> dict[int, Quantity] | None:
        return costs.get(kind) or (costs.get("all_to_all") if kind == "counted" else None)

    def rates(self) -> dict[str, Quantity]:
        """The rates that are known, by key."""
        known = {"process": self.process, "beside": self.beside, "copying": self.copying}
        return {name: rate for name, rate in known.items() if rate is not None}

    def costs(self) -> dict[str, dict[str, dict[int, Quantity]]]:
        """What collectives cost: key -> kind -> number of ranks -> seconds."""
        return {
            "measured": self.measured, "following": self.following,
            "cores": self.cores, "cores_following": self.cores_following,
        }  # fmt: skip

    @property
    def staged(self) -> bool:
        """Messages start and end in host memory, away from the devices."""
        return TRANSPORTS.find(self.kind).staged


def _between(known: dict[int, Quantity], ranks: int) -> float:
    """What is known by number of ranks, between two of them and beyond them on a line, never below the smallest."""
    counts = sorted(known)
    at = min(max(bisect.bisect_left(counts, ranks), 1), len(counts) - 1) if len(counts) > 1 else 0
    low, high = counts[max(at - 1, 0)], counts[at]
    slope = (known[high].value - known[low].value) / max(high - low, 1)
    return max(known[low].value + slope * (ranks - low), min(q.value for q in known.values()))
