"""`haloscope what-if`: the same runs under other bandwidths, latencies, devices, libraries and bits, with crossovers.

Every method is simulated once and recorded; each point is a replay of the recording on a changed cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.commands.arguments import config_of, settings_given
from harness.commands.arguments.what_if import BANDWIDTH
from harness.commands.curves.epochs import BAND_POINTS, Curve, Knob, band_replays, display_name, sentences
from harness.commands.curves.recorded import assumed_notes, comma_list, configs_of, recording_of
from harness.commands.live import content as live
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import said_once, table, unlike_lines
from harness.config import RunConfig
from harness.errors import InputError
from harness.machine import write_atomically
from harness.numbers import count_text, significant, time_unit
from harness.running.intervals import epoch_ends, ratio_ends
from harness.running.summary import TREATMENTS, UNLIKE, notes_of, settings_of_run, standing_apart
from reports.draw.what_if import what_if as draw_what_if
from sims.replay import Replay, settled_epochs
from sims.study import open_driver, variants
from sims.uncertainty import Draws
from sims.units import parse

SHOWN_POINTS = 6


@dataclass(frozen=True, kw_only=True)
class Variation:
    """What is varied: a range of one link's bandwidth or latency, bits, devices, libraries. Texts as the flags'."""

    methods: str
    bandwidth: str = BANDWIDTH
    latency: str | None = None
    bits: str | None = None
    devices: str | None = None
    transports: str | None = None
    points: int = 25
    recorded: int | None = None
    replays: int | None = None


@dataclass(frozen=True, eq=False)
class Explored:
    """Epoch times of all methods over a range, replayed from one recording of each.

    Attributes:
        xs: points of the range, in B/s or s; `nominal` is the cluster's own value.
        said: sentences on crossovers and on what changes nothing.
    """

    curves: list[Curve]
    xs: list[float]
    nominal: float
    knob: Knob
    said: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """One row for every method and point, the cluster's own value among them, in SI units."""
        places = sorted({*self.xs, self.nominal})
        return [_row(curve, self.curves[0], x, self.knob) for curve in self.curves for x in places]

    def report(self) -> list[Any]:
        """What is true of all methods, the table, the methods that stand apart, sentences and notes."""
        settings = [_settings(curve) for curve in self.curves]
        common, apart = standing_apart(settings)
        which = f"all rows but {UNLIKE}" if apart else "all rows"
        return [
            f"{which}: {said_once(settings)}",
            _table(self.curves, self.xs, self.knob, apart),
            *unlike_lines(settings, common, apart),
            *self.said,
            *(f"note: {note}" for note in _notes(self.curves, self.nominal)),
        ]

    def drawing(self) -> dict[str, Any]:
        """What `reports.draw.what_if` needs beside the rows."""
        return {
            "knob": (f"{self.knob.link} {self.knob.what}", self.nominal),
            "ticks": self.knob.ticks(),
            "written": self.knob.formatted,
            "caption": [
                *_caption(self.curves[0]),
                *self.said,
                *assumed_notes(curve.variant for curve in self.curves),
                *_bands(self.curves),
            ],
        }


def main(args: argparse.Namespace) -> int:
    """Record, replay, draw, and report crossovers."""
    question = Variation(**{f.name: getattr(args, f.name) for f in fields(Variation)})
    args.mode = "sim"  # before the config is checked: it may be shapes only
    for flag in ("ranks", "results"):
        if getattr(args, flag) is not None and args.html is None:
            raise InputError(f"--{flag} is of the page with sliders: give --html FILE with it, or use haloscope serve")
    writable(args.out, folder=True)
    writable(args.html, folder=False)
    json_target(args.json)
    found = explore(config_of(args), question, args.out, settings_given(args), force=args.force, quiet=args.quiet)
    if args.html is not None:
        known = {curve.config.run_id(): curve.replay for curve in found.curves}
        live.write_page(live.opened(args, known), found.knob, found.xs, args.html, args.quiet)
    rows = found.rows()
    args.out.mkdir(parents=True, exist_ok=True)
    csv = args.out / "what-if.csv"
    write_atomically(csv, pd.DataFrame(rows).to_csv(index=False).encode())
    drawn = draw_what_if(rows, args.out / "what-if.png", **found.drawing())
    written = [csv, drawn, *([args.html] if args.html is not None else [])]
    content = {"knob": found.knob.key, "nominal": found.nominal, "said": found.said, "rows": rows}
    deliver(content, [*found.report(), f"written: {', '.join(map(str, written))}"], args.json, args.quiet)
    return 0


def explore(
    base: RunConfig,
    question: Variation,
    out: Path,
    asked: Collection[str] = (),
    *,
    force: bool = False,
    quiet: bool = False,
) -> Explored:
    """Record every method once on the cluster of `base`, and replay it over the range that is asked for.

    Args:
        out: folder whose `recordings` are used again, unless `force`.
        asked: settings that the user gave, as in `like.unified`.

    Raises:
        InputError: a bad range, unknown names, a link that the cluster has not, or a method that cannot be re-timed.
    """
    if question.points < 2:
        raise InputError(f"--points {question.points}: at least 2, the ends of the range")
    knob, base = _knob(question), base.changed(mode="sim", eval_every=-1)
    modelled = open_driver(base)
    configs = configs_of(question.methods, question.bits, question.recorded, base, asked)
    cluster = modelled.cluster
    if knob.link not in cluster.links:
        raise InputError(
            f"cluster {cluster.name} has no {knob.link} link, so {knob.key} changes nothing there; "
            f"its links: {', '.join(cluster.links)}"
        )
    chosen = variants(cluster, comma_list(question.devices), comma_list(question.transports))
    replays = [Replay(recording_of(config, modelled.placement, out / "recordings", force, quiet)) for config in configs]
    curves = [
        Curve(config, variant, knob, replay)
        for variant in chosen
        for config, replay in zip(configs, replays, strict=True)
    ]
    xs = np.geomspace(knob.low, knob.high, question.points).tolist()
    if count := band_replays(base.cut.parts, question.replays):
        draws = Draws(count)
        for curve in curves:
            curve.add_band(xs, draws)
    nominal = getattr(cluster.links[knob.link], knob.what).value
    return Explored(curves, xs, nominal, knob, sentences(curves, xs, knob))


def _knob(question: Variation) -> Knob:
    """The range to vary. Raises InputError unless it is `LINK=LOW..HIGH` with units."""
    what = "latency" if question.latency else "bandwidth"
    text = str(question.latency or question.bandwidth)
    link, found, between = text.partition("=")
    low, dots, high = between.partition("..")
    if not found or not dots:
        raise InputError(f"--{what} {text!r} is not LINK=LOW..HIGH, such as nic=1Gb/s..400Gb/s or nic=1us..1ms")
    dimension = "time" if what == "latency" else "bandwidth"
    knob = Knob(link, what, *(parse(end, dimension, f"--{what}") for end in (low, high)))
    if not 0 < knob.low < knob.high:
        raise InputError(f"--{what} {text!r}: the range must rise, from more than zero")
    return knob


def _notes(curves: list[Curve], x: float) -> list[str]:
    """Notes on the graph, the input layer, memory, the recording and the cluster."""
    recording = curves[0].replay.recording
    config = {**recording.config, "mode": ""}
    known = {"config": config, "facts": recording.facts, "graph": recording.graph, "message": ""}
    large = [f"{curve.display_name} does not fit: {curve.too_large(x)}" for curve in curves if curve.too_large(x)]
    late = dict.fromkeys(_recorded(curve) for curve in curves if _differ(curve))
    return [*notes_of(known), *large, *late, *assumed_notes(curve.variant for curve in curves), *_bands(curves)]


def _bands(curves: list[Curve]) -> list[str]:
    """Note on what the bands are."""
    if not all(curve.has_band for curve in curves):
        return []
    return [
        f"bands and ranges: 90 % of draws of all uncertain inputs but {curves[0].knob.key}, made at "
        f"{BAND_POINTS} values of it and interpolated between (methods share the draws), and what the model left open "
        "in cells that it had not seen"
    ]


def _differ(curve: Curve) -> bool:
    """Whether it takes more than an epoch or two until those are all alike."""
    settled = settled_epochs(curve.config)
    return settled.cycle > 1 or settled.first > 2


def _recorded(curve: Curve) -> str:
    """Note on the recorded epochs of a method whose epochs differ."""
    settled, recorded = settled_epochs(curve.config), curve.config.training.epochs
    counted = settled.of(recorded)
    found = f"{display_name(curve.method)}: {count_text(recorded, 'epoch')} recorded"
    if recorded < settled.recorded:
        wanted = f"settled epochs begin with number {settled.first} (--recorded {settled.recorded})"
        return f"{found}, too few: {wanted}; times are of all after the first"
    if settled.cycle == 1:
        return f"{found}; times are of epochs from number {settled.first} on, when the beginning is over"
    means = f"times are means of epochs {counted.start} to {counted.stop - 1}, whole periods"
    return f"{found}; {means} (a run's epoch_seconds is the median one's)"


def _row(curve: Curve, base: Curve, x: float, knob: Knob) -> dict[str, Any]:
    """One point: components of an epoch, in SI units."""
    seconds = curve.seconds(x)
    bits = next((int(o[5:]) for o in curve.method.split(":") if o.startswith("bits=")), None)
    low, high, slow, fast = (None,) * 4
    if curve.has_band:
        more = max(curve.left_open, base.left_open, key=lambda each: each.between)
        low, high = epoch_ends(curve.drawn(x), curve(x), curve.left_open)
        slow, fast = ratio_ends(base.drawn(x) / curve.drawn(x), more)
    return {
        "method": curve.method,
        "bits": bits,
        "parts": curve.config.cut.parts,
        "cluster": curve.config.cluster.name,
        "variant": curve.variant.label,
        "device": curve.variant.device,
        "transport": curve.variant.cluster.transport.kind,
        "knob": knob.key,
        "value": x,
        "speedup": base(x) / seconds["epoch"],
        "bytes_per_epoch": curve.sent(x),
        "fits": "no" if curve.too_large(x) else "yes",
        **{name: value for name, value in _settings(curve).items() if name in TREATMENTS},
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "epoch_low_seconds": low,
        "epoch_high_seconds": high,
        "speedup_low": slow,
        "speedup_high": fast,
    }


def _settings(curve: Curve) -> dict[str, Any]:
    """The settings of a curve, as `harness.running.summary.row_of` names them."""
    recording, config = curve.replay.recording, curve.config
    known = {"config": {**config.flat(), "mode": "sim"}, "facts": recording.facts, "graph": recording.graph}
    return {**settings_of_run(known), "method": curve.label}


def _table(curves: list[Curve], xs: list[float], knob: Knob, apart: Collection[int]) -> Any:
    chosen = [
        xs[at] for at in dict.fromkeys(np.linspace(0, len(xs) - 1, min(SHOWN_POINTS, len(xs))).round().astype(int))
    ]
    factor, unit = time_unit([curve(x) for curve in curves for x in chosen])
    lines = [
        [
            f"{curve.label} {UNLIKE}" if at in apart else curve.label,
            "no" if curve.too_large(xs[0]) else "yes",
            *(f"{significant(curve(x) * factor)} ({curves[0](x) / curve(x):.2f}x)" for x in chosen),
        ]
        for at, curve in enumerate(curves)
    ]
    return table("", [f"epoch {unit} (speed-up)", "fits", *(knob.formatted(x) for x in chosen)], lines)


def _caption(curve: Curve) -> list[str]:
    config, facts, graph = curve.config, curve.replay.recording.facts, curve.replay.recording.graph
    model, ranks = config.model, f"{config.cut.parts} ranks on {config.cluster.name}"
    shape = f"{model.name} {model.layers} x {model.hidden}; {ranks}"
    return [f"{graph['name']}; {shape}; layer0 = {facts.get('layer0')}", *graph["notes"]]
