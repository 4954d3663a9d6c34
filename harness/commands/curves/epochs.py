"""Epoch times as functions of a bandwidth or a latency, and sentences that describe them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.commands.curves.bands import Drawn, interpolated
from harness.commands.curves.crossings import crossover_lines, levels
from harness.config import RunConfig
from harness.numbers import byte_text
from harness.running.intervals import LeftOpen
from sims.cluster import varied
from sims.study import idle_links
from sims.uncertainty import FEWEST_REPLAYS, Draws, RecordedPrediction, inputs_of, left_open_on, replays_for

BAND_POINTS = 5
"""Values of the knob at which uncertain inputs are drawn."""

SAME = 1e-9
MUCH = 0.01  # share of an epoch that a ceiling must cost to count as the bottleneck
RATES = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def band_replays(ranks: int, asked: int | None) -> int:
    """Replays at each of the values at which bands are drawn: half as many as those of one interval, at least 8."""
    count = replays_for(ranks, asked)
    return max(FEWEST_REPLAYS, count // 2) if count and asked is None else count


@dataclass(frozen=True)
class Knob:
    """The varied quantity: bandwidth or latency of one kind of link, from `low` to `high` in B/s or s."""

    link: str
    what: str
    low: float
    high: float

    @property
    def key(self) -> str:
        """Its name in the cluster's file."""
        return f"links.{self.link}.{self.what}"

    def formatted(self, value: float) -> str:
        """A value with its unit; bandwidths in bits per second."""
        units = TIMES if self.what == "latency" else RATES
        size, unit = next((found for found in units if self.scale * value >= 0.9995 * found[0]), units[-1])
        return f"{self.scale * value / size:.3g} {unit}"

    @property
    def scale(self) -> float:
        """Factor from base units to those of `formatted`."""
        return 1.0 if self.what == "latency" else 8.0

    def ticks(self) -> list[float]:
        """Powers of ten, in the units of `formatted`, inside the range."""
        first, last = (math.log10(self.scale * end) for end in (self.low, self.high))
        return [10.0**power / self.scale for power in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)]


class Curve:
    """Epoch seconds of one method on one variant of the cluster as a function of the knob, replayed on demand and
    cached.

    Attributes:
        variant: a `sims.study.Variant`.
    """

    def __init__(self, config: RunConfig, variant: Any, knob: Knob, replay: Any) -> None:
        self.method, self.variant, self.config, self.knob, self.replay = (
            config.training.method,
            variant,
            config,
            knob,
            replay,
        )
        self._known: dict[float, tuple[dict[str, float], int, Any]] = {}
        self._factors: Drawn | None = None

    @property
    def label(self) -> str:
        """Method and variant."""
        return " ".join([self.method, *self._where])

    @property
    def display_name(self) -> str:
        """The label for sentences."""
        return " ".join([display_name(self.method), *self._where])

    @property
    def _where(self) -> list[str]:
        return [self.variant.label] if self.variant.label else []

    def cluster_at(self, x: float) -> Any:
        """The cluster with one value of the knob."""
        return varied(self.variant.cluster, self.knob.link, self.knob.what, x)

    def __call__(self, x: float) -> float:
        return self.seconds(x)["epoch"]

    def seconds(self, x: float) -> dict[str, float]:
        """Components of a settled epoch: the median one, or the means of periodic ones."""
        return self._at(x)[0]

    def sent(self, x: float) -> int:
        """Bytes of that epoch."""
        return self._at(x)[1]

    def add_band(self, xs: Sequence[float], draws: Draws) -> None:
        """Draw the uncertain inputs but the knob, which is given, at BAND_POINTS of the range `xs`.

        Between these points the factors on the curve are interpolated.
        """
        places = [xs[at] for at in sorted(set(np.linspace(0, len(xs) - 1, BAND_POINTS).round().astype(int).tolist()))]
        rows = []
        for x in places:
            cluster = self.cluster_at(x)
            graph, precision = self.replay.recording.graph, self.config.model.precision
            inputs = inputs_of(cluster, graph, [self.knob.key], precision)
            prediction = RecordedPrediction(self.config, self.replay, cluster, inputs)
            rows.append([each["epoch"] / self(x) for each in prediction.draws(draws)])
        self._factors = interpolated(places, np.asarray(rows))

    @property
    def left_open(self) -> LeftOpen:
        """What its predictions leave open beside the draws."""
        return left_open_on(self.variant.cluster)

    @property
    def has_band(self) -> bool:
        """Whether the curve has draws."""
        return self._factors is not None

    def drawn(self, x: float) -> np.ndarray:
        """Epoch seconds in every draw, float64 [draws]."""
        assert self._factors is not None
        return self(x) * self._factors(x)

    def too_large(self, x: float) -> str:
        """Message on ranks that do not fit their devices; empty if all fit."""
        return str(self._at(x)[2].simulation.too_large)

    def held_back(self, x: float) -> bool:
        """Whether the epoch would be shorter without the bandwidth ceiling of a process."""
        cluster = self.cluster_at(x)
        free = replace(cluster, transport=replace(cluster.transport, process=None))
        seconds, _ = self.replay.time(free).typical(self.config)
        return bool(seconds["epoch"] < self(x) * (1 - MUCH))

    def crosses(self, x: float, link: str) -> bool:
        """Whether any byte crosses a link of this kind."""
        return link not in idle_links(self._at(x)[2].simulation)

    def _at(self, x: float) -> tuple[dict[str, float], int, Any]:
        if x not in self._known:
            timed = self.replay.time(self.cluster_at(x))
            self._known[x] = *timed.typical(self.config), timed
        return self._known[x]


def sentences(curves: list[Curve], xs: list[float], knob: Knob) -> list[str]:
    """The sentences of the report: quantities without effect, crossovers, the fastest method by interval.

    They are about curves that fit their devices; the others are named in the notes.
    """
    curves = [curve for curve in curves if not curve.too_large(xs[0])]
    if not curves:
        return ["nothing fits its devices, so that nothing is compared"]
    if not any(curve.crosses(xs[0], knob.link) for curve in curves):
        what = "no inter-host traffic" if knob.link == "nic" else f"no traffic on its {knob.link} links"
        nothing = [f"this cluster has {what} with {curves[0].config.cut.parts} ranks: {knob.key} changes nothing"]
        return nothing + _variants_compared(curves, xs, knob)
    idle = [curve for curve in curves if max(map(curve, xs)) <= min(map(curve, xs)) * (1 + SAME)]
    if len(idle) == len(curves):
        nothing = [
            f"{knob.key} changes nothing from {knob.formatted(xs[0])} to {knob.formatted(xs[-1])}: "
            f"{_ceiling(curves, xs[-1], knob) or 'never the bottleneck'}"
        ]
        return nothing + _variants_compared(curves, xs, knob)
    said = [f"{curve.display_name}: {knob.key} changes nothing, it is never the bottleneck" for curve in idle]
    moved: dict[str, Callable[[float], float]] = {curve.display_name: curve for curve in curves if curve not in idle}
    level, side = (xs[::-1], "below") if knob.what == "latency" else (xs, "above")  # where the knob may have no effect
    for name, x in levels(moved, level):
        why = _ceiling([curve for curve in curves if name in ("", curve.display_name)], level[-1], knob)
        said.append(
            f"{name}{': ' * bool(name)}{knob.key} changes nothing {side} {knob.formatted(x)}"
            + (f": {why}" if why else "")
        )
    for label in dict.fromkeys(curve.variant.label for curve in curves):
        mine = [curve for curve in curves if curve.variant.label == label]
        said += _crossings(mine, xs, knob)
    return said + _variants_compared(curves, xs, knob)


def _variants_compared(curves: list[Curve], xs: list[float], knob: Knob) -> list[str]:
    """Every method on other devices or libraries, against itself on the unchanged cluster."""
    said: list[str] = []
    for method in dict.fromkeys(curve.method for curve in curves):
        mine = [curve for curve in curves if curve.method == method]
        said += _crossings(mine, xs, knob)
    return said


def _crossings(curves: list[Curve], xs: list[float], knob: Knob) -> list[str]:
    drawn = {curve.display_name: curve.drawn for curve in curves} if all(c.has_band for c in curves) else None
    more = max((curve.left_open for curve in curves), key=lambda each: each.between)
    return crossover_lines({curve.display_name: curve for curve in curves}, xs, knob.formatted, drawn, more)


def _ceiling(curves: list[Curve], x: float, knob: Knob) -> str:
    """Which curves are limited by the bandwidth ceiling of a process, by library; empty if none is."""
    held: dict[str, list[str]] = {}
    for curve in curves if knob.what == "bandwidth" else []:
        transport = curve.variant.cluster.transport
        if transport.process is not None and curve.held_back(x):
            whose = f"{transport.kind} ({byte_text(transport.process.value)}/s)"
            held.setdefault(whose, []).append(curve.display_name)
    return "; ".join(
        f"the process ceiling of {whose} is the bottleneck"
        + ("" if len(names) == len(curves) else f" of {', '.join(names)}")
        for whose, names in held.items()
    )


def display_name(text: str) -> str:
    """A method's name in sentences: 1-bit sylvie-s for sylvie-s:bits=1."""
    name, *options = text.split(":")
    bits = [option.removeprefix("bits=") for option in options if option.startswith("bits=")]
    rest = [option for option in options if not option.startswith("bits=")]
    return (f"{bits[0]}-bit " if bits else "") + ":".join([name, *rest])
