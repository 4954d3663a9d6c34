"""What one operator costs on a device: a roofline per operator class, read from and written to TOML.

The ledger says how much work an operator is (`Work`, from shapes); a `DeviceProfile` says how many seconds that takes.
Every number carries its source. Nothing here looks at tensors.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import InputError
from harness.kernels.work import FREE as FREE
from harness.kernels.work import UNKNOWN, Work
from sims import units
from sims.device._costs import OperatorCost, read_costs
from sims.units import Quantity, Table

DEVICES = Path(__file__).with_name("presets")

STREAMS = ("elementwise", "gather", "reduction", "copy", "dropout")
"""Classes whose cost is bytes over the class's bandwidth."""

CLASSES = ("gemm", "spmm", *STREAMS, "codec")

OVERLAP = ("compute", "communication")
"""What a device does at once, each slower while the other is busy: they share its memory and its multiprocessors."""

STRENGTH = ("assumed", "datasheet", "extrapolated", "published", "measured")
"""Sources from the weakest to the strongest."""


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """One device (of a CPU: the cores that one rank uses).

    Attributes:
        kind: cpu (tensors live in host memory) or gpu (they must be copied to reach the host).
        cores: cores that one rank keeps busy (cpu).
        memory: bytes that fit.
        launch: seconds of host work for every operator: before it on a CPU, beside the operators before it on a GPU.
        gemm_peak, gemm_efficiency, gemm_bandwidth: flop/s of the largest products, the share of it that ordinary ones
            reach, and the bytes/s that bound narrow ones.
        spmm: columns -> seconds per stored entry and column; between two widths interpolated in log(width).
        bandwidth: stream class -> bytes/s.
        codec: bits per element -> bytes/s of uncoded rows; the nearest entry below serves other bits.
        fresh: bytes/s at which the system hands out new memory, paid on top for tensors above `fresh_above` bytes;
            None where an allocator recycles memory of any size.
        release: bytes/s at which memory of new tensors goes back to the system and comes again, paid for tensors of
            any size; None where that is not known.
        effect: seconds of a rank's program around every effect (the tape, segments of autograd), of the host on a GPU,
            and what a CPU rank that has waited computes longer (other data went through its caches, the network's
            threads want the core).
        crowding: how much longer operators other than codecs take in a real run, where other ranks and what they send
            go through the same caches, than where they were watched one by one.
        overlap: stream (of OVERLAP) -> factor; a stream without one is not slowed.
        operators: operator -> what it costs where it was timed; the others are priced by their class.
    """

    name: str
    summary: str = ""
    kind: str
    cores: int = 1
    memory: Quantity
    launch: Quantity
    gemm_peak: Quantity
    gemm_efficiency: Quantity
    gemm_bandwidth: Quantity
    spmm: dict[int, Quantity]
    bandwidth: dict[str, Quantity]
    codec: dict[int, Quantity]
    fresh: Quantity | None = None
    fresh_above: Quantity = field(default=Quantity(0.0))
    release: Quantity | None = None
    effect: Quantity = field(default=Quantity(0.0))
    crowding: Quantity = field(default=Quantity(1.0))
    overlap: dict[str, Quantity] = field(default_factory=dict)
    operators: dict[str, OperatorCost] = field(default_factory=dict)

    @property
    def host_launch(self) -> float:
        """Seconds of host work per operator that run beside the device: a GPU's launches; 0 on a CPU."""
        return self.launch.value if self.kind == "gpu" else 0.0

    def slowdown(self, stream: str) -> float:
        """How much longer compute or communication (`stream`, of OVERLAP) takes while the other is busy too."""
        return self.overlap[stream].value if stream in self.overlap else 1.0

    def seconds(self, work: Work) -> float:
        """Seconds that one operator keeps the device busy.

        A CPU launches and works in turn, so its launch is in it; a GPU's host launches run ahead (`host_launch`).
        """
        if work.kind == "free":
            return 0.0
        return self._alone(work) * (1.0 if work.kind == "codec" else self.crowding.value)

    def _alone(self, work: Work) -> float:
        """Seconds of an operator as it was watched."""
        total = self.launch.value - self.host_launch
        if self.fresh is not None and work.fresh > self.fresh_above.value:
            total += work.fresh / self.fresh.value
        if self.release is not None:
            total += work.fresh / self.release.value
        if work.name in self.operators:
            return total + self.operators[work.name].seconds(work)
        if work.kind == "gemm":
            compute = work.flops / (self.gemm_peak.value * self.gemm_efficiency.value)
            return total + max(compute, work.nbytes / self.gemm_bandwidth.value)
        if work.kind == "spmm":
            return total + work.entries * self.spmm_cost(work.width) + work.nbytes / self.bandwidth["elementwise"].value
        if work.kind == "codec":
            return total + work.nbytes / self.codec_rate(work.bits)
        kind = "elementwise" if work.kind == UNKNOWN else work.kind
        return total + work.nbytes / self.bandwidth[kind].value

    def spmm_cost(self, width: int) -> float:
        """Seconds per stored entry and column at this width."""
        widths = list(self.spmm)
        at = bisect.bisect_left(widths, width)
        if at == 0 or at == len(widths):
            return self.spmm[widths[min(at, len(widths) - 1)]].value
        low, high = widths[at - 1], widths[at]
        share = math.log(width / low) / math.log(high / low)
        return self.spmm[low].value * (1 - share) + self.spmm[high].value * share

    def codec_rate(self, bits: int) -> float:
        """Bytes/s of uncoded rows, coded or decoded."""
        known = list(self.codec)
        return self.codec[known[max(bisect.bisect_right(known, bits) - 1, 0)]].value

    def source_of(self, kind: str) -> str:
        """The weakest source among the numbers that a class's cost rests on."""
        used = {
            "gemm": [self.gemm_peak, self.gemm_efficiency, self.gemm_bandwidth],
            "spmm": [*self.spmm.values()],
            "codec": [*self.codec.values()],
        }.get(kind) or [self.bandwidth[kind]]
        return min((q.source for q in used), key=STRENGTH.index)

    def quantities(self) -> Iterator[tuple[str, str, Quantity]]:
        """Every number as (key in the file, dimension, value), in the order of the file."""
        yield "memory", "size", self.memory
        yield "launch", "time", self.launch
        if self.effect.value:
            yield "effect", "time", self.effect
        if self.crowding.value != 1:
            yield "crowding", "number", self.crowding
        yield "gemm.peak", "rate", self.gemm_peak
        yield "gemm.efficiency", "number", self.gemm_efficiency
        yield "gemm.bandwidth", "bandwidth", self.gemm_bandwidth
        if self.fresh is not None:
            yield "fresh.bandwidth", "bandwidth", self.fresh
            yield "fresh.above", "size", self.fresh_above
            if self.release is not None:
                yield "fresh.release", "bandwidth", self.release
        for stream, quantity in self.overlap.items():
            yield f"overlap.{stream}", "number", quantity
        for kind in STREAMS:
            yield f"bandwidth.{kind}", "bandwidth", self.bandwidth[kind]
        for width, quantity in self.spmm.items():
            yield f"spmm.{width}", "time", quantity
        for bits, quantity in self.codec.items():
            yield f"codec.{bits}", "bandwidth", quantity
        for name, cost in self.operators.items():
            yield f"operators.{_key(name)}.call", "time", cost.call
            yield f"operators.{_key(name)}.error", "number", cost.error
            for table in ("bytes", "work"):
                for step, quantity in getattr(cost, table).items():
                    yield f"operators.{_key(name)}.{table}.{step}", "time", quantity


def known_devices() -> list[str]:
    """Names of the profiles that come with haloscope, sorted."""
    return units.known(DEVICES)


def load_device(name_or_path: str | Path) -> DeviceProfile:
    """A profile by name, or from a TOML file.

    Raises:
        InputError: unknown name, unreadable file, unknown or missing key, bad unit.
    """
    path = units.find(name_or_path, "device", DEVICES)
    top = units.read_toml(path, "device")
    gemm, streams, fresh = top.needed("gemm"), top.needed("bandwidth"), top.table("fresh")
    spmm, codec = top.needed("spmm"), top.needed("codec")
    profile = DeviceProfile(
        name=top.text("name", path.stem),
        summary=top.text("summary", ""),
        kind=top.text("kind", choices=("cpu", "gpu")),
        cores=top.integer("cores", 1),
        memory=top.quantity("memory", "size"),
        launch=top.quantity("launch", "time"),
        gemm_peak=gemm.quantity("peak", "rate"),
        gemm_efficiency=gemm.quantity("efficiency", "number"),
        gemm_bandwidth=gemm.quantity("bandwidth", "bandwidth"),
        spmm=spmm.numbered("time"),
        bandwidth={kind: streams.quantity(kind, "bandwidth") for kind in STREAMS},
        codec=codec.numbered("bandwidth"),
        fresh=fresh.quantity("bandwidth", "bandwidth") if fresh else None,
        fresh_above=fresh.quantity("above", "size", zero=True) if fresh else Quantity(0.0),
        release=_optional(fresh, "release"),
        effect=top.quantity("effect", "time", Quantity(0.0)),
        crowding=top.quantity("crowding", "number", Quantity(1.0)),
        overlap=_overlap(top.table("overlap"), path),
        operators=read_costs(top.table("operators")),
    )
    for table in (gemm, streams, fresh, top):
        if isinstance(table, Table):
            table.close()
    if profile.gemm_efficiency.value > 1:
        raise InputError(f"device file {path.name}: gemm.efficiency: must be at most 1")
    return profile


def _optional(table: Table | None, key: str) -> Quantity | None:
    """A bandwidth that a table may have."""
    given = Quantity(0.0) if table is None else table.quantity(key, "bandwidth", Quantity(0.0))
    return given if given.value else None


def _overlap(table: Table | None, path: Path) -> dict[str, Quantity]:
    """The factors of [overlap] that are given. Raises InputError for a factor that would speed a stream up."""
    if table is None:
        return {}
    none = Quantity(1.0)
    read = {stream: table.quantity(stream, "number", none) for stream in OVERLAP}
    table.close()
    given = {stream: factor for stream, factor in read.items() if factor is not none}
    for stream, factor in given.items():
        if factor.value < 1:
            raise InputError(f"device file {path.name}: overlap.{stream}: must be at least 1")
    return given


def save_device(profile: DeviceProfile, path: Path) -> None:
    """Write a profile that `load_device` reads back unchanged. Raises InputError when the file cannot be written."""
    lines = [f"{key} = {_quoted(getattr(profile, key))}" for key in ("name", "summary", "kind")]
    lines.append(f"cores = {profile.cores}")
    section = ""
    for key, dimension, quantity in profile.quantities():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        value = repr(quantity.value) if dimension == "number" else _quoted(units.written(quantity.value, dimension))
        note = f", note = {_quoted(quantity.note)}" if quantity.note else ""
        lines.append(f"{name} = {{ value = {value}, from = {_quoted(quantity.source)}{note} }}")
    try:
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise InputError(f"cannot write device file {path}: {error.strerror}") from None


def _key(name: str) -> str:
    """An operator's name as a key of a TOML table."""
    return _quoted(name)


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = "".join(c if c.isprintable() else " " for c in text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
