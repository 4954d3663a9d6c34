"""`haloscope what-if`: the same runs under other bandwidths, latencies, devices, libraries and bits, with crossovers.

Every method is simulated once and recorded; each point is a replay of the recording on a changed cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from harness.commands.arguments import config_of
from harness.commands.cells import deliver, json_target, writable
from harness.commands.curves import Curve, Knob, display_name, sentences
from harness.commands.tables import table
from harness.config import RunConfig
from harness.console import progress_of, significant, time_unit
from harness.errors import InputError
from harness.machine import write_atomically
from harness.methods.base import Method
from harness.methods.registry import parse_method
from harness.running import data_inputs, plan_of, prepare
from harness.running.results import environment
from harness.running.summary import notes_of
from reports.draw.what_if import what_if as draw_what_if
from sims.cluster import Placement
from sims.replay import RECORDING_FORMAT, Replay, load_recording, record_placed, refusal
from sims.study import Variant, open_driver, quantities, variants
from sims.units import parse

# settings that a recording does not depend on
WHERE = ("mode", "cluster", "timeout", "startup_timeout", "prepare_timeout", "backend", "device")
SHOWN_POINTS = 6


def main(args: argparse.Namespace) -> int:
    """Record, replay, draw, and report crossovers."""
    if args.points < 2:
        raise InputError(f"--points {args.points}: at least 2, the ends of the range")
    knob = _knob(args)
    base = base_config(args)
    modelled = open_driver(base)
    configs = configs_of(args.methods, args.bits, args.recorded, base)
    writable(args.out, folder=True)
    writable(args.html, folder=False)
    json_target(args.json)
    cluster = modelled.cluster
    if knob.link not in cluster.links:
        raise InputError(
            f"cluster {cluster.name} has no {knob.link} link, so {knob.key} changes nothing there; "
            f"its links: {', '.join(cluster.links)}"
        )
    chosen = variants(cluster, listed(args.devices), listed(args.transports))
    replays = [Replay(recording_of(config, modelled.placement, args)) for config in configs]
    curves = [
        Curve(config, variant, knob, replay)
        for variant in chosen
        for config, replay in zip(configs, replays, strict=True)
    ]
    xs = np.geomspace(knob.low, knob.high, args.points).tolist()
    nominal = getattr(cluster.links[knob.link], knob.what).value
    if args.html is not None:
        from harness.commands import live  # imports this module

        live.write_page(live.opened(args), knob, xs, args.html, args.quiet)
    return _publish(curves, xs, nominal, knob, sentences(curves, xs, knob), args)


def listed(text: str | None) -> list[str]:
    """The parts of a text that commas separate."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _knob(args: argparse.Namespace) -> Knob:
    """The range to vary. Raises InputError unless it is `LINK=LOW..HIGH` with units."""
    what = "latency" if args.latency else "bandwidth"
    text = str(args.latency or args.bandwidth)
    link, found, between = text.partition("=")
    low, dots, high = between.partition("..")
    if not found or not dots:
        raise InputError(f"--{what} {text!r} is not LINK=LOW..HIGH, such as nic=1Gb/s..400Gb/s or nic=1us..1ms")
    dimension = "time" if what == "latency" else "bandwidth"
    knob = Knob(link, what, *(parse(end, dimension, f"--{what}") for end in (low, high)))
    if not 0 < knob.low < knob.high:
        raise InputError(f"--{what} {text!r}: the range must rise, from more than zero")
    return knob


def base_config(args: argparse.Namespace) -> RunConfig:
    """The config that all methods share: simulated, not evaluated."""
    args.mode = "sim"  # before the config is checked: it may be shapes only
    return config_of(args).changed(eval_every=-1)


def configs_of(methods: str, bits: str | None, recorded: int | None, base: RunConfig) -> list[RunConfig]:
    """The config of every method, or of each of its bits. Raises InputError for bad methods or bits.

    `epochs` are those to record: the first, which is more expensive and not shown, and as many more as it takes until
    stale rows are in use and the traffic has settled; whole cycles for a method with periodic epochs.
    """
    if recorded is not None and recorded < 2:
        raise InputError(f"--recorded {recorded}: at least 2, for times are those of epochs after the first")
    widths = listed(bits)
    found: dict[str, RunConfig] = {}
    useless = bool(widths)
    for text in listed(methods):
        method = parse_method(text, layer0=base.training.layer0)
        takes = "bits" in {f.name for f in fields(method)}
        free, useless = takes and ":bits=" not in text, useless and not takes
        if method.facts.timed:
            raise refusal(text)
        for each in [f"{text}:bits={width}" for width in widths] if free and widths else [text]:
            found[each] = base.changed(
                method=each, epochs=recorded or _enough(parse_method(each, layer0=base.training.layer0))
            )
    if not found:
        raise InputError("--methods names no method, e.g. --methods vanilla,sylvie-s")
    if useless:
        raise InputError("--bits changes nothing: none of the methods has bits")
    return list(found.values())


def _enough(method: Method) -> int:
    """Number of epochs to record."""
    facts = method.promises()
    later, cycle = max(facts.staleness + 1, facts.settles - 1), method.cycle()
    return 1 + cycle * max(1, round(later / cycle))


def recording_of(config: RunConfig, placement: Placement, args: argparse.Namespace) -> Any:
    """The config's recording, from the cache or made now."""
    decides = {key: value for key, value in config.flat().items() if key not in WHERE}
    plan = plan_of(config)
    graph = prepare(config, plan.cut).graph["fingerprint"]
    stamp = [RECORDING_FORMAT, environment()["versions"], decides, graph, data_inputs(config)]
    key = hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()
    path = args.out / "recordings" / f"{key}.rec"
    if path.exists() and not args.force:
        return load_recording(path)
    with progress_of(f"recording {config.training.method}", config.training.epochs, args.quiet) as progress:
        made = record_placed(plan, placement, progress)
    made.save(path)
    return made


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
    drawn = draw_what_if(
        rows,
        args.out / "what-if.png",
        knob=(f"{knob.link} {knob.what}", nominal),
        ticks=knob.ticks(),
        written=knob.formatted,
        caption=[*_caption(curves[0]), *said, *assumed_notes(curve.variant for curve in curves)],
    )
    content = {"knob": knob.key, "nominal": nominal, "said": said, "rows": rows}
    deliver(content, [_table(curves, xs, knob), *said, *notes, f"written: {csv}, {drawn}"], args.json, args.quiet)
    return 0


def _notes(curves: list[Curve], x: float) -> list[str]:
    """Notes on the graph, the input layer, memory, the recording and the cluster."""
    recording = curves[0].replay.recording
    config = {**recording.config, "mode": ""}
    known = {"config": config, "facts": recording.facts, "graph": recording.graph, "message": ""}
    large = [f"{curve.display_name} does not fit: {curve.too_large(x)}" for curve in curves if curve.too_large(x)]
    late = dict.fromkeys(_recorded(curve) for curve in curves if curve.cycles or curve.settles)
    return [*notes_of(known), *large, *late, *assumed_notes(curve.variant for curve in curves)]


def _recorded(curve: Curve) -> str:
    """Note on the recorded epochs of a method whose epochs differ."""
    found = f"{display_name(curve.method)}: {curve.config.training.epochs} epochs recorded"
    if curve.cycles:
        found += ", times are means of those after the first (a run's epoch_seconds is the median one's)"
    return f"{found}; shares of rows depend on how many (--recorded)" if curve.settles else found


def assumed_notes(chosen: Iterable[Variant]) -> list[str]:
    """Notes on assumed numbers of the clusters, and on values taken from other clusters."""
    found = []
    for variant in {variant.label: variant for variant in chosen}.values():
        sources = [quantity.source for quantity in quantities(variant.cluster)]
        name = " ".join([variant.cluster.name, *([variant.label] if variant.label else [])])
        found.append(f"cluster {name}: {sources.count('assumed')} of {len(sources)} values are assumed")
        found += variant.notes
    return list(dict.fromkeys(found))


def _row(curve: Curve, base: Curve, x: float, knob: Knob) -> dict[str, Any]:
    """One point: components of an epoch, in SI units."""
    seconds = curve.seconds(x)
    bits = next((int(o[5:]) for o in curve.method.split(":") if o.startswith("bits=")), None)
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
        **{f"{name}_seconds": value for name, value in seconds.items()},
    }


def _table(curves: list[Curve], xs: list[float], knob: Knob) -> Any:
    chosen = [
        xs[at] for at in dict.fromkeys(np.linspace(0, len(xs) - 1, min(SHOWN_POINTS, len(xs))).round().astype(int))
    ]
    factor, unit = time_unit([curve(x) for curve in curves for x in chosen])
    lines = [
        [
            curve.label,
            "no" if curve.too_large(xs[0]) else "yes",
            *(f"{significant(curve(x) * factor)} ({curves[0](x) / curve(x):.2f}x)" for x in chosen),
        ]
        for curve in curves
    ]
    return table("", [f"epoch {unit} (speed-up)", "fits", *(knob.formatted(x) for x in chosen)], lines)


def _caption(curve: Curve) -> list[str]:
    config, facts, graph = curve.config, curve.replay.recording.facts, curve.replay.recording.graph
    model, ranks = config.model, f"{config.cut.parts} ranks on {config.cluster.name}"
    shape = f"{model.name} {model.layers} x {model.hidden}; {ranks}"
    return [f"{graph['name']}; {shape}; layer0 = {facts.get('layer0')}", *graph["notes"]]
