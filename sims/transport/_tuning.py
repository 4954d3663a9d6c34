"""NCCL's own tuning model as constants: the keys of `presets/nccl.toml`, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from harness.errors import InputError
from sims import units
from sims.records import TEXT, Content, dimensioned, factor, filled, key, named, subtable
from sims.units import Quantity, Table

FILE = Path(__file__).with_name("presets") / "nccl.toml"
PROTOCOLS = {
    "LL": "a flag of 4 bytes with every 4 bytes",
    "LL128": "8 bytes of flags in every 128, over NVLink only",
    "Simple": "whole chunks, which wait for each other",
}
"""Protocol -> how it tells the receiver that bytes have arrived."""

HOPS = {"nvlink": "a hop over NVLink", "pci": "a hop over PCIe", "network": "a hop between hosts"}
_STEPS = {"base": "what a collective takes besides its hops", **HOPS}
_ALGORITHMS = {"ring": "all-reduce and broadcast along a ring", "tree": "all-reduce up and down two binary trees"}


def _factors(inside: Table, key: str) -> list[float]:
    given = inside.values.get(key)
    if not isinstance(given, list) or not all(isinstance(f, float) and f > 0 for f in given):
        raise InputError(f"{inside.at(key)}: must be a list of factors")
    return list(given)


_PER_PROTOCOL = named(PROTOCOLS, dimensioned("time"), all_needed=True)
_SECONDS = named(_STEPS, _PER_PROTOCOL, all_needed=True)
_SHARES = named(_ALGORITHMS, named(PROTOCOLS, factor(), all_needed=True), all_needed=True)
_CORRECTIONS = named(PROTOCOLS, Content("list of numbers", _factors), all_needed=True)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`[limits]`: where the model of time = base + hops + bytes / bandwidth bends."""

    LL: Quantity = key("most that LL moves inside a host", dimensioned("bandwidth"))
    LL_network: Quantity = key("most that LL moves between hosts", dimensioned("bandwidth"))
    plateau: Quantity = key("factor on the latency of a Simple ring between hosts", factor())
    plateau_from: Quantity = key("bytes of payload per rank from which `plateau` holds", dimensioned("size"))


@dataclass(frozen=True, kw_only=True)
class Channels:
    """`[channels]`: a collective uses fewer of them, the smaller it is."""

    speed: Quantity = key("bytes/s of NVLink for which a pair of them is made", dimensioned("bandwidth"))
    full: Quantity = key("how many move `limits.LL` together", factor())
    LL: Quantity = key("bytes of payload for which LL takes one more; of a ring, for every rank", dimensioned("size"))


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """`[grouped]`: sends and receives that start together, as in an all-to-all."""

    chunk_nvlink: Quantity = key("bytes of a chunk over NVLink", dimensioned("size"))
    chunk: Quantity = key("bytes of a chunk over anything else", dimensioned("size"))
    peers: Quantity = key("peers that a rank serves at once", factor())
    LL: Quantity = key("bytes up to which a message goes under LL, not Simple", dimensioned("size"))


@dataclass(frozen=True, kw_only=True)
class SwitchSums:
    """`[nvls]`: all-reduces that NVLink switches add up (NVLink SHARP), between hosts along trees."""

    efficiency: Quantity = key("share of a channel's bandwidth that it reaches", factor(most=1.0))
    inside: Quantity = key("seconds up to the switches and down again", dimensioned("time"))
    between: Quantity = key("seconds of one hop between hosts", dimensioned("time"))
    two_hosts: Quantity = key("most bus bandwidth of a channel between two hosts", dimensioned("bandwidth"))
    more_hosts: Quantity = key("and among more", dimensioned("bandwidth"))
    speeds: list[float] = key(
        "GB/s that a channel may have: a device has one for each device of its host and takes the largest that fits",
        Content("list of numbers", _factors),
    )


@dataclass(frozen=True, kw_only=True)
class TransportFile:
    """A whole file."""

    name: str = key("name of the library", TEXT, default="")
    ring: dict[str, dict[str, Quantity]] = key("seconds of rings, per protocol", _SECONDS)
    tree: dict[str, dict[str, Quantity]] = key("seconds of trees, per protocol", _SECONDS)
    efficiency: dict[str, dict[str, Quantity]] = key(
        "share of the links' bandwidth that carries payload, per protocol", _SHARES
    )
    correction: dict[str, list[float]] = key(
        "factors on a tree's bandwidth by powers of two of the payload, from 64 B up", _CORRECTIONS
    )
    limits: Limits = key("where the model bends", subtable(Limits))
    channels: Channels = key(
        "parts that a collective is cut into, each moved by a block of threads", subtable(Channels)
    )
    grouped: Grouped = key("grouped sends and receives", subtable(Grouped))
    nvls: SwitchSums = key("sums made by NVLink switches", subtable(SwitchSums))


@dataclass(frozen=True)
class Tuning:
    """NCCL's constants.

    Attributes:
        seconds: algorithm (ring, tree) -> base or hop -> protocol -> seconds.
        efficiency: algorithm -> protocol -> share of the wire's bytes that are payload.
        correction: protocol -> factors on a tree's bandwidth, by powers of two of the payload from 64 B.
        limits, grouped: by the names of the fields of `Limits` and `Grouped`.
        channels, nvls: the tables of the file.
    """

    seconds: dict[str, dict[str, dict[str, Quantity]]]
    efficiency: dict[str, dict[str, Quantity]]
    correction: dict[str, list[float]]
    limits: dict[str, Quantity]
    grouped: dict[str, Quantity]
    channels: Channels
    nvls: SwitchSums

    def quantities(self) -> list[Quantity]:
        """Every number that has a source."""
        rows = [row for algorithm in self.seconds.values() for row in algorithm.values()]
        nvls = {name: value for name, value in vars(self.nvls).items() if isinstance(value, Quantity)}
        tables = (*rows, *self.efficiency.values(), self.limits, vars(self.channels), self.grouped, nvls)
        return [q for row in tables for q in row.values()]

    def latencies(self) -> list[Quantity]:
        """Those that are seconds: starts and hops."""
        rows = [row for algorithm in self.seconds.values() for row in algorithm.values()]
        return [*(q for row in rows for q in row.values()), self.nvls.inside, self.nvls.between]

    def slower(self, factor: float) -> Tuning:
        """A copy with all seconds multiplied."""

        def times(q: Quantity) -> Quantity:
            return replace(q, value=q.value * factor)

        seconds = {
            algorithm: {step: {protocol: times(q) for protocol, q in row.items()} for step, row in steps.items()}
            for algorithm, steps in self.seconds.items()
        }
        nvls = replace(self.nvls, inside=times(self.nvls.inside), between=times(self.nvls.between))
        return replace(self, seconds=seconds, nvls=nvls)


@cache
def load_tuning(path: Path = FILE) -> Tuning:
    """The constants in a TOML file. Raises InputError for what does not belong or is missing."""
    file = filled(TransportFile, units.read_toml(path, "transport"))
    seconds = {"ring": file.ring, "tree": file.tree}
    limits, grouped = dict(vars(file.limits)), dict(vars(file.grouped))
    return Tuning(seconds, file.efficiency, file.correction, limits, grouped, file.channels, file.nvls)
