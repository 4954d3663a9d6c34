"""What one operator costs on a device: a roofline per operator class, read from and written to TOML.

The ledger says how much work an operator is (`Work`, from shapes); a `DeviceProfile` says how many seconds that takes.
Every number carries its source. Nothing here looks at tensors.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from harness.kernels.work import FORMS, UNKNOWN, Work
from harness.kernels.work import FREE as FREE
from sims import records, units
from sims.device._cache import EVEN, Popularity, RowCache
from sims.device._costs import OperatorCost
from sims.records import TEXT, choice, dimensioned, factor, filled, integer, key, listed, named, numbered, subtable
from sims.units import Quantity, quoted

DEVICES = Path(__file__).with_name("presets")

STREAMS = {
    "elementwise": "sums, products, activations and whatever has no class of its own",
    "gather": "rows picked by index, and rows added up by index",
    "reduction": "sums, means and softmax over a dimension",
    "copy": "copies in the device's memory, concatenation",
    "dropout": "dropout, with its random numbers",
}
"""Classes whose cost is bytes over the class's bandwidth -> what belongs to them."""

HALF = {"gemm": "matrix products", "spmm": "neighbour sums"}
"""Classes whose speed `--precision bf16` changes beyond what half as many bytes do -> what belongs to them."""

OVERLAP = {
    "compute": "operators while the rank communicates",
    "communication": "exchanges while the rank computes",
    "background": "operators, and those that convert rows in the background, while both are busy: 1 has room for both, "
    "without a number they share the rank's cores or the GPU, which is 2",
}
"""What a device does at once, each slower while the other is busy: they share its memory and its multiprocessors."""

SHARED = 2.0  # `overlap.background` of two threads on the cores of one

STRENGTH = ("assumed", "datasheet", "extrapolated", "published", "measured")
"""Sources from the weakest to the strongest."""


DEPTHS = ("brief", "quick", "full")
"""How much a calibration measures, the least first."""

NONE = Quantity(0.0)
OF_SHARING = Quantity(1.15, "assumed", "1.11 to 1.22 were measured on one machine of two cores", (1.0, 1.3))
HOST = Quantity(1e9, "measured", "one core of an AMD EPYC: draws, and blocks of kept columns")


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """One device (of a CPU: the cores that one rank uses). The fields are the keys of a device file."""

    name: str = key("name of the profile", TEXT, shown="the file's name")
    summary: str = key("one line about the device", TEXT, default="")
    kind: str = key(
        "cpu: tensors live in host memory; gpu: they must be copied to reach the host", choice("cpu", "gpu")
    )
    cores: int = key("cores that one rank keeps busy (cpu)", integer(), default=1)
    depth: str = key(
        "how much the calibration measured that made this file: after a brief one predictions leave more open; empty "
        "where none did",
        choice(*DEPTHS, ""),
        default="",
    )
    memory: Quantity = key("bytes that fit", dimensioned("size"))
    launch: Quantity = key(
        "host work for every operator: before it on a CPU, beside the operators before it on a GPU", dimensioned("time")
    )
    gemm_peak: Quantity = key("flop/s of the largest matrix products", dimensioned("rate"), at="gemm.peak")
    gemm_efficiency: Quantity = key(
        "share of the peak that ordinary products reach", factor(most=1.0), at="gemm.efficiency"
    )
    gemm_bandwidth: Quantity = key("bytes/s that bound narrow products", dimensioned("bandwidth"), at="gemm.bandwidth")
    spmm: dict[int, Quantity] = key(
        "neighbour sums: seconds per stored entry and column; between two widths interpolated in log(width)",
        numbered("time", "COLUMNS"),
    )
    cache: RowCache | None = key(
        "second-level cache of a GPU; without it `spmm` is the price of all rows, wherever they come from, with it "
        "that of rows from memory",
        subtable(RowCache),
        default=None,
    )
    bandwidth: dict[str, Quantity] = key(
        "bytes/s of the classes of operators that stream through memory",
        named(STREAMS, dimensioned("bandwidth"), all_needed=True),
    )
    codec: dict[int, Quantity] = key(
        "bits per element: bytes/s of uncoded rows, coded or decoded; other bits take the nearest entry below",
        numbered("bandwidth", "BITS"),
    )
    fresh: Quantity | None = key(
        "bytes/s at which the system hands out new memory; without it an allocator recycles memory of any size",
        dimensioned("bandwidth"), default=None, at="fresh.bandwidth",
    )  # fmt: skip
    fresh_above: Quantity = key(
        "only tensors of more bytes pay for new memory", dimensioned("size", zero=True), default=NONE, at="fresh.above",
    )  # fmt: skip
    release: Quantity | None = key(
        "bytes/s at which memory of new tensors of any size goes back to the system and comes again",
        dimensioned("bandwidth"), default=None, at="fresh.release",
    )  # fmt: skip
    effect: Quantity = key(
        "seconds of a rank's program around every effect (the tape, segments of autograd; of the host on a GPU), and "
        "what a CPU rank that has waited computes longer, because other data went through its caches",
        dimensioned("time"),
        default=NONE,
    )
    step: Quantity = key(
        "seconds of a rank's program in every epoch beside operators and effects: optimiser, loss and records (of the "
        "host on a GPU)",
        dimensioned("time"),
        default=NONE,
    )
    graph: Quantity | None = key(
        "seconds of a GPU's host for every effect and for what is computed before it, as one CUDA graph, in epochs "
        "that are recorded (--cuda-graphs), which cannot be modelled without it",
        dimensioned("time"),
        default=None,
    )
    idle: dict[int, Quantity] = key(
        "milliseconds for which a CPU rank has waited for others: seconds that it computes longer then, because what "
        "it needs has left the caches; between two waits interpolated in log(wait)",
        numbered("time", "MILLISECONDS"),
        default={},
    )
    idle_factor: Quantity = key(
        "how many times as long the first work after a wait takes at most", factor(), default=Quantity(1.0)
    )
    crowding: Quantity = key(
        "how much longer operators other than codecs take in a real run, where other ranks and what they send go "
        "through the same caches, than where they were measured one by one",
        factor(),
        default=Quantity(1.0),
    )
    sharing: Quantity = key(
        "how much longer CPU ranks compute where several share their cores, whose caches the others use in between, "
        "beside taking turns",
        factor(),
        default=OF_SHARING,
    )
    host: Quantity = key(
        "bytes/s that one core of the host writes of random numbers and index arrays (sampling), whichever device "
        "computes",
        dimensioned("bandwidth"),
        default=HOST,
        at="host.bandwidth",
    )
    bf16: dict[str, Quantity] = key(
        "speed of what these operators compute in bfloat16, as a multiple of float32's; their bytes are half as many "
        "in any case",
        named(HALF, factor()),
        default={},
    )
    overlap: dict[str, Quantity] = key(
        "how much longer each takes while the other is busy too", named(OVERLAP, factor(least=1.0)), default={}
    )
    operators: dict[str, OperatorCost] = key(
        "operator by its name in torch: what it costs where it was timed; the others are priced by their class",
        listed(subtable(OperatorCost, bytes={}, work={})),
        default={},
    )

    @property
    def host_launch(self) -> float:
        """Seconds of host work per operator that run beside the device: a GPU's launches; 0 on a CPU."""
        return self.launch.value if self.kind == "gpu" else 0.0

    def graph_seconds(self) -> float:
        """`graph` in seconds. Raises InputError for a device without it."""
        if self.kind != "gpu" or self.graph is None:
            why = "is no GPU" if self.kind != "gpu" else "does not say what launching a graph takes: give it `graph`"
            raise InputError(f"--cuda-graphs: device {self.name} {why}")
        return self.graph.value

    def launches(self, work: Work) -> float:
        """Host time of an operator on a GPU, as a multiple of `launch`; 1 on a CPU, whose costs have it in them."""
        cost = self.cost_of(work) if self.kind == "gpu" else None
        return 1.0 if cost is None else 1.0 + cost.host.value / self.launch.value

    def slowdown(self, stream: str) -> float:
        """How much longer something (`stream`, of OVERLAP) takes while what it overlaps with is busy too."""
        usual = SHARED if stream == "background" else 1.0
        return self.overlap[stream].value if stream in self.overlap else usual

    def seconds(self, work: Work, popularity: Popularity = EVEN) -> float:
        """Seconds that one operator keeps the device busy.

        A CPU launches and works in turn, so its launch is in it; a GPU's host launches run ahead (`host_launch`).

        Args:
            popularity: how often rows are read in neighbour sums, which says what a cache is worth.
        """
        if work.kind == "free":
            return 0.0
        return self._alone(work, popularity) * (1.0 if work.kind == "codec" else self.crowding.value)

    def cost_of(self, work: Work) -> OperatorCost | None:
        """What the operator of this work costs where it was timed; a form of it that was not, as its plain form."""
        name = work.name
        found = self.operators.get(name)
        for form in reversed(FORMS):
            if found is None and name.endswith(form):
                name = name.removesuffix(form)
                found = self.operators.get(name)
        return found

    def _alone(self, work: Work, popularity: Popularity) -> float:
        """Seconds of an operator as it was watched."""
        if self.kind == "gpu" and work.empty:
            return 0.0
        total = self.launch.value - self.host_launch
        if self.fresh is not None and work.fresh > self.fresh_above.value:
            total += work.fresh / self.fresh.value
        if self.release is not None:
            total += work.fresh / self.release.value
        cost = self.cost_of(work) if self.kind == "cpu" or work.kind != "host" else None
        if cost is not None:
            return total + cost.seconds(work, self.faster(work))
        if work.kind == "host":
            return total + work.nbytes / self.host.value
        if work.kind == "gemm":
            compute = work.flops / (self.gemm_peak.value * self.gemm_efficiency.value * self.faster(work))
            return total + max(compute, work.nbytes / self.gemm_bandwidth.value)
        if work.kind == "spmm":
            written = work.nbytes / self.bandwidth["elementwise"].value
            return total + work.entries * self._row_cost(work, popularity) + written
        if work.kind == "codec":
            return total + work.nbytes / self.codec_rate(work.bits)
        kind = "elementwise" if work.kind == UNKNOWN else work.kind
        return total + work.nbytes / self.bandwidth[kind].value

    def _row_cost(self, work: Work, popularity: Popularity) -> float:
        """Seconds per stored entry and column of rows that come from memory and from the cache."""
        cost = self.spmm_cost(work.width) / self.faster(work)
        if self.cache is None or not work.rows:
            return cost
        missed = self.cache.missed(work, popularity)
        return missed * cost + (1 - missed) * min(cost, self.cache.row_cost(work))

    def faster(self, work: Work) -> float:
        """Factor on the speed of what an operator computes: 1 in float32."""
        return self.bf16[work.kind].value if work.half and work.kind in self.bf16 else 1.0

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

    def source_of(self, kind: str, half: bool = False) -> str:
        """The weakest source among the numbers that a class's cost rests on; `half`: in bfloat16."""
        cached = [] if self.cache is None else [self.cache.bandwidth, self.cache.entry]
        used: dict[str, list[Quantity]] = {
            "gemm": [self.gemm_peak, self.gemm_efficiency, self.gemm_bandwidth],
            "spmm": [*self.spmm.values(), *cached],
            "codec": [*self.codec.values()],
            "host": [self.host],
        }
        numbers = used.get(kind) or [self.bandwidth[kind]]
        if half and kind in self.bf16:
            numbers = [*numbers, self.bf16[kind]]
        return min((q.source for q in numbers), key=STRENGTH.index)

    def quantities(self) -> list[tuple[str, str, Quantity]]:
        """Every number as (key in the file, dimension, value), in the order of the file."""
        return records.quantities_of(self)


def known_devices() -> list[str]:
    """Names of the profiles that come with haloscope, sorted."""
    return units.toml_names(DEVICES)


def load_device(name_or_path: str | Path) -> DeviceProfile:
    """A profile by name, or from a TOML file.

    Raises:
        InputError: unknown name, unreadable file, unknown or missing key, bad unit.
    """
    path = units.find(name_or_path, "device", DEVICES)
    profile = filled(DeviceProfile, units.read_toml(path, "device"), name=path.stem)
    if profile.kind == "gpu" and not profile.launch.value:
        raise InputError(f"device file {path.name}: a GPU's `launch` must be above 0, if only 0.001 us")
    return profile


def save_device(profile: DeviceProfile, path: Path) -> None:
    """Write a profile that `load_device` reads back unchanged. Raises InputError when the file cannot be written."""
    lines = [f"{text} = {quoted(getattr(profile, text))}" for text in ("name", "summary", "kind")]
    lines.append(f"cores = {profile.cores}")
    if profile.depth:
        lines.append(f"depth = {quoted(profile.depth)}")
    section = ""
    for name, dimension, number in profile.quantities():
        inside, _, last = name.rpartition(".")
        if inside != section:
            section = inside
            lines += ["", f"[{inside}]"]
        value = repr(number.value) if dimension == "number" else quoted(units.format_quantity(number.value, dimension))
        note = f", note = {quoted(number.note)}" if number.note else ""
        if number.range is not None:
            note += f", range = {quoted(units.format_range(number.range, dimension))}"
        lines.append(f"{last} = {{ value = {value}, from = {quoted(number.source)}{note} }}")
    try:
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise InputError(f"cannot write device file {path}: {error.strerror}") from None
