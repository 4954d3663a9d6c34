"""`haloscope what-if`: the same runs under other bandwidths, latencies and bits, and where a method overtakes another.

Every method is simulated once and recorded; each point is a replay of the recording on a changed cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from harness.commands.arguments import config_of
from harness.commands.cells import deliver, json_target, writable
from harness.commands.tables import table
from harness.console import byte_text, progress_of, significant, time_unit
from harness.crossings import comparison, levels
from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.prepare import prepare
from harness.results import environment, write_atomically
from harness.runner import check_driver
from harness.spec import RunConfig
from harness.summary import notes_of

WHERE = ("mode", "cluster", "timeout", "backend", "device")  # settings that a recording does not depend on
SHOWN_POINTS = 6
SAME = 1e-9
MUCH = 0.01  # share of an epoch that a ceiling must cost to be called the bottleneck
RATES = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


@dataclass(frozen=True)
class Knob:
    """What is varied: bandwidth or latency of one kind of link, from `low` to `high` in B/s or s."""

    link: str
    what: str
    low: float
    high: float

    @property
    def key(self) -> str:
        """Its name in the cluster's file."""
        return f"links.{self.link}.{self.what}"

    def written(self, value: float) -> str:
        """A value of it with its unit: bandwidths in bits, as networks are sold."""
        units = TIMES if self.what == "latency" else RATES
        size, unit = next((found for found in units if self.scale * value >= 0.9995 * found[0]), units[-1])
        return f"{self.scale * value / size:.3g} {unit}"

    @property
    def scale(self) -> float:
        """From base units to those that are written."""
        return 1.0 if self.what == "latency" else 8.0

    def ticks(self) -> list[float]:
        """Values inside the range that are powers of ten as written."""
        first, last = (math.log10(self.scale * end) for end in (self.low, self.high))
        return [10.0**power / self.scale for power in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)]


class Curve:
    """Epoch seconds of one method along the knob, replayed where asked and remembered."""

    def __init__(self, name: str, config: RunConfig, replay: Any, place: Callable[[float], Any]) -> None:
        self.name, self.config, self.replay, self.place = name, config, replay, place
        self.settles = parse_method(config.method, layer0=config.layer0).facts.settles
        self._known: dict[float, tuple[dict[str, float], int, Any]] = {}

    def __call__(self, x: float) -> float:
        return self.seconds(x)["epoch"]

    def seconds(self, x: float) -> dict[str, float]:
        """Components of the epoch after the first: the median one, of methods that settle later the mean."""
        return self._at(x)[0]

    def sent(self, x: float) -> int:
        """Bytes of that epoch."""
        return self._at(x)[1]

    def too_large(self, x: float) -> str:
        """How many ranks do not fit, and by how much; empty where all do."""
        return str(self._at(x)[2].too_large)

    def held_back(self, x: float) -> bool:
        """Whether a process that could move any number of bytes per second would make the epoch shorter."""
        cluster = self.place(x)
        free = replace(cluster, transport=replace(cluster.transport, process=None))
        seconds, _ = self.replay.time(free).typical(self.config, self.settles > 0)
        return bool(seconds["epoch"] < self(x) * (1 - MUCH))

    def crosses(self, x: float, link: str) -> bool:
        """Whether any byte crosses a link of that kind."""
        return link not in import_module("sims.remarks").idle_links(self._at(x)[2].simulation)

    def _at(self, x: float) -> tuple[dict[str, float], int, Any]:
        if x not in self._known:
            timed = self.replay.time(self.place(x))
            self._known[x] = *timed.typical(self.config, self.settles > 0), timed
        return self._known[x]


def main(args: argparse.Namespace) -> int:
    """Record, replay, draw, say what crosses where."""
    knob = _knob(args)
    base = _base(args)
    variants = _variants(args.methods, args.bits, args.recorded, base)
    writable(args.out, folder=True)
    json_target(args.json)
    cluster = import_module("sims.topology").load_cluster(base.cluster)
    if knob.link not in cluster.links:
        raise InputError(
            f"cluster {cluster.name} has no {knob.link} link, so {knob.key} changes nothing there; "
            f"its links: {', '.join(cluster.links)}"
        )
    overrides = import_module("sims.overrides")
    curves = []
    for name, config in variants.items():
        replay = import_module("sims.replay").Replay(_recording(config, args))
        curves.append(Curve(name, config, replay, lambda x: overrides.varied(cluster, knob.link, knob.what, x)))
    xs = np.geomspace(knob.low, knob.high, max(2, args.points)).tolist()
    nominal = getattr(cluster.links[knob.link], knob.what).value
    said = _said(curves, xs, knob)
    return _publish(curves, xs, nominal, knob, said, args)


def _knob(args: argparse.Namespace) -> Knob:
    """The range to vary. Raises InputError for what is not `LINK=LOW..HIGH` with units."""
    what = "latency" if args.latency else "bandwidth"
    text = str(args.latency or args.bandwidth)
    link, found, between = text.partition("=")
    low, dots, high = between.partition("..")
    if not found or not dots:
        raise InputError(f"--{what} {text!r} is not LINK=LOW..HIGH, such as nic=1Gb/s..400Gb/s or nic=1us..1ms")
    parse = import_module("sims.units").parse
    dimension = "time" if what == "latency" else "bandwidth"
    knob = Knob(link, what, *(parse(end, dimension, f"--{what}") for end in (low, high)))
    if not 0 < knob.low < knob.high:
        raise InputError(f"--{what} {text!r}: the range must rise, from more than zero")
    return knob


def _base(args: argparse.Namespace) -> RunConfig:
    """The config that all methods share: simulated, not evaluated."""
    config = replace(config_of(args), mode="sim", eval_every=-1)
    check_driver(config)
    return config


def _variants(methods: str, bits: str | None, recorded: int, base: RunConfig) -> dict[str, RunConfig]:
    """Name -> config of every curve: a method, or one of its bits. Raises InputError for methods and bits.

    Epochs are those that are recorded: as many as it takes until stale rows are stale and what is sent has settled.
    """
    widths = [text.strip() for text in bits.split(",") if text.strip()] if bits else []
    found: dict[str, RunConfig] = {}
    useless = bool(widths)
    for text in (part.strip() for part in methods.split(",") if part.strip()):
        method = parse_method(text, layer0=base.layer0)
        takes = "bits" in {f.name for f in fields(method)}
        free, useless = takes and ":bits=" not in text, useless and not takes
        for each in [f"{text}:bits={width}" for width in widths] if free and widths else [text]:
            chosen = parse_method(each, layer0=base.layer0)
            stale, settles = chosen.facts.staleness, chosen.facts.settles
            enough = max(stale + 2, settles) if stale or settles else 1
            found[each] = replace(base, method=each, epochs=recorded or enough)
    if not found:
        raise InputError("--methods names no method, e.g. --methods vanilla,sylvie-s")
    if useless:
        raise InputError("--bits changes nothing: none of the methods has bits")
    return found


def _recording(config: RunConfig, args: argparse.Namespace) -> Any:
    """The config's recording, from an earlier time or made now."""
    recording, sims = import_module("sims.recording"), import_module("sims.replay")
    decides = {key: value for key, value in asdict(config).items() if key not in WHERE}
    stamp = [recording.FORMAT, environment()["versions"], decides, prepare(config).graph["fingerprint"]]
    key = hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()
    path = args.out / "recordings" / f"{key}.rec"
    if path.exists() and not args.force:
        return recording.load(path)
    with progress_of(f"recording {config.method}", config.epochs, args.quiet) as progress:
        made = sims.record(config, progress)
    made.save(path)
    return made


def _said(curves: list[Curve], xs: list[float], knob: Knob) -> list[str]:
    """Everything worth a sentence: what changes nothing, what overtakes what, what is fastest where."""
    if not any(curve.crosses(xs[0], knob.link) for curve in curves):
        what = "no inter-host traffic" if knob.link == "nic" else f"no traffic on its {knob.link} links"
        return [f"this cluster has {what} with {curves[0].config.parts} ranks: {knob.key} changes nothing"]
    idle = [curve for curve in curves if max(map(curve, xs)) <= min(map(curve, xs)) * (1 + SAME)]
    if len(idle) == len(curves):
        return [
            f"{knob.key} changes nothing from {knob.written(xs[0])} to {knob.written(xs[-1])}: "
            f"{_ceiling(curves, xs[-1], knob) or 'never the bottleneck'}"
        ]
    said = [f"{_spoken(curve.name)}: {knob.key} changes nothing, it is never the bottleneck" for curve in idle]
    moved: dict[str, Callable[[float], float]] = {_spoken(curve.name): curve for curve in curves if curve not in idle}
    level, side = (xs[::-1], "below") if knob.what == "latency" else (xs, "above")  # where the knob may not matter
    for name, x in levels(moved, level):
        why = _ceiling([curve for curve in curves if name in ("", _spoken(curve.name))], level[-1], knob)
        said.append(
            f"{name}{': ' * bool(name)}{knob.key} changes nothing {side} {knob.written(x)}"
            + (f": {why}" if why else "")
        )
    return said + comparison({_spoken(curve.name): curve for curve in curves}, xs, knob.written)


def _ceiling(curves: list[Curve], x: float, knob: Knob) -> str:
    """Which methods wait for what one process can move, if any does."""
    transport = curves[0].place(x).transport
    bounded = knob.what == "bandwidth" and transport.process is not None
    held = [_spoken(curve.name) for curve in curves if bounded and curve.held_back(x)]
    if not held:
        return ""
    whose = "" if len(held) == len(curves) else f" of {', '.join(held)}"
    return f"the process ceiling of {transport.kind} ({byte_text(transport.process.value)}/s) is the bottleneck{whose}"


def _spoken(text: str) -> str:
    """A method as one says it: 1-bit sylvie-s for sylvie-s:bits=1."""
    name, *options = text.split(":")
    bits = [option.removeprefix("bits=") for option in options if option.startswith("bits=")]
    rest = [option for option in options if not option.startswith("bits=")]
    return (f"{bits[0]}-bit " if bits else "") + ":".join([name, *rest])


def _publish(
    curves: list[Curve], xs: list[float], nominal: float, knob: Knob, said: list[str], args: argparse.Namespace
) -> int:
    """Write CSV and figure, show the table and the sentences."""
    places = sorted({*xs, nominal})
    rows = [_row(curve, curves[0], x, knob) for curve in curves for x in places]
    args.out.mkdir(parents=True, exist_ok=True)
    csv = args.out / "what-if.csv"
    write_atomically(csv, pd.DataFrame(rows).to_csv(index=False).encode())
    notes = [f"note: {note}" for note in _notes(curves, nominal)]
    drawn = import_module("reports.what_if").what_if(
        rows,
        args.out / "what-if.png",
        knob=(f"{knob.link} {knob.what}", nominal),
        ticks=knob.ticks(),
        written=knob.written,
        caption=[*_caption(curves[0]), *said, _assumed(curves[0].config.cluster)],
    )
    content = {"knob": knob.key, "nominal": nominal, "said": said, "rows": rows}
    deliver(content, [_table(curves, xs, knob), *said, *notes, f"written: {csv}, {drawn}"], args.json, args.quiet)
    return 0


def _notes(curves: list[Curve], x: float) -> list[str]:
    """What a reader must know of the graph, the input layer, memory, what was recorded, and the cluster."""
    recording = curves[0].replay.recording
    config = {**recording.config, "mode": ""}
    known = {"config": config, "facts": recording.facts, "graph": recording.graph, "message": ""}
    large = [f"{_spoken(curve.name)} does not fit: {curve.too_large(x)}" for curve in curves if curve.too_large(x)]
    means = "epochs recorded, times are means of those after the first; shares of rows depend on how many (--recorded)"
    settling = [f"{_spoken(curve.name)}: {curve.config.epochs} {means}" for curve in curves if curve.settles]
    return [*notes_of(known), *large, *settling, _assumed(curves[0].config.cluster)]


def _assumed(name: str) -> str:
    """How much of a cluster's numbers nobody has measured or published."""
    cluster = import_module("sims.topology").load_cluster(name)
    sources = [quantity.source for quantity in import_module("sims.remarks").quantities(cluster)]
    return f"cluster {cluster.name}: {sources.count('assumed')} of {len(sources)} values are assumed"


def _row(curve: Curve, base: Curve, x: float, knob: Knob) -> dict[str, Any]:
    """One point: SI units, components of an epoch."""
    seconds = curve.seconds(x)
    bits = next((int(o[5:]) for o in curve.name.split(":") if o.startswith("bits=")), None)
    return {
        "method": curve.name,
        "bits": bits,
        "parts": curve.config.parts,
        "cluster": curve.config.cluster,
        "knob": knob.key,
        "value": x,
        "speedup": base(x) / seconds["epoch"],
        "bytes_per_epoch": curve.sent(x),
        "fits": "no" if curve.too_large(x) else "yes",
        **{f"{name}_seconds": value for name, value in seconds.items()},
    }


def _table(curves: list[Curve], xs: list[float], knob: Knob) -> Any:
    chosen = [
        xs[at] for at in dict.fromkeys(np.linspace(0, len(xs) - 1, min(SHOWN_POINTS, len(xs))).round().astype(int))
    ]
    factor, unit = time_unit([curve(x) for curve in curves for x in chosen])
    lines = [
        [
            curve.name,
            "no" if curve.too_large(xs[0]) else "yes",
            *(f"{significant(curve(x) * factor)} ({curves[0](x) / curve(x):.2f}x)" for x in chosen),
        ]
        for curve in curves
    ]
    return table("", [f"epoch {unit} (speed-up)", "fits", *(knob.written(x) for x in chosen)], lines)


def _caption(curve: Curve) -> list[str]:
    config, facts, graph = curve.config, curve.replay.recording.facts, curve.replay.recording.graph
    shape = f"{config.model} {config.layers} x {config.hidden}; {config.parts} ranks on {config.cluster}"
    return [f"{graph['name']}; {shape}; layer0 = {facts.get('layer0')}", *graph["notes"]]
