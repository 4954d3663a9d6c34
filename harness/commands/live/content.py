"""The content of the live what-if page: sliders, methods, and for a page that is a file the points of its grid."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.progress import track

from harness.commands.arguments import config_of, settings_given
from harness.commands.arguments.numbers import whole_numbers
from harness.commands.curves.epochs import Knob, band_replays
from harness.commands.curves.recorded import assumed_notes, comma_list, configs_of, recording_of
from harness.commands.live.scores import scores_of
from harness.console import stderr
from harness.machine import write_atomically
from harness.rank import COMPONENTS
from harness.running.alike import preset_notes
from harness.running.summary import score_name
from reports.draw.figures import COMPONENT_COLOURS
from reports.live import live_page
from sims.cluster import Cluster, place
from sims.replay import Replay
from sims.study import Explorer, LinkSetting, RecordedRun, open_driver, variants
from sims.uncertainty import Draws, prediction_of

SPEEDS = (0.5, 1.0, 2.0, 4.0)
"""Speeds of compute of a page that is a file."""

MOST_TIMELINES = 400
"""A file holds the timelines of so many points; with more, those of the cluster itself at its own speed."""

REACH = 100.0
"""How far the server's sliders go from the cluster's own value, either way."""

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#595959")
HEAT = ("#FEE8C8", "#FDD49E", "#FDBB84", "#FC8D59", "#EF6548", "#D7301F")


@dataclass(frozen=True)
class Opened:
    """Recorded runs, ready to be explored, and what is said of them; `score` is what `scores` are."""

    explorer: Explorer
    title: str
    caption: str
    notes: list[str]
    families: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    score: str
    first_ranks: int
    draws: Draws


def opened(args: argparse.Namespace, known: Mapping[str, Replay] = MappingProxyType({})) -> Opened:
    """Record every method at every number of ranks, or load what was recorded.

    `known`: what is at hand already, by the hash of its config.

    Raises:
        InputError: as `haloscope what-if`; a number of ranks that the cluster cannot hold.
    """
    args.mode = "sim"  # before the config is checked: it may be shapes only
    base = config_of(args).changed(eval_every=-1)
    modelled = open_driver(base)
    runs = []
    for parts in sorted(set(whole_numbers(args.ranks, "--ranks", "ranks"))) or [base.cut.parts]:
        each = base.changed(parts=parts)
        placement = open_driver(each).placement
        for config in configs_of(args.methods, args.bits, args.recorded, each, settings_given(args)):
            replay = known.get(config.run_id())
            if replay is None:
                replay = Replay(recording_of(config, placement, args.out / "recordings", args.force, args.quiet))
            runs.append(RecordedRun(config, replay))
    chosen = variants(modelled.cluster, comma_list(args.devices), comma_list(args.transports))
    explorer = Explorer(runs, chosen)
    graph, facts = runs[0].replay.recording.graph, runs[0].replay.recording.facts
    model = f"{base.model.name} {base.model.layers} x {base.model.hidden}"
    caption = f"{graph['name']}; {model}; layer0 = {facts.get('layer0')}; cluster {modelled.cluster.name}"
    notes = [*graph["notes"], *assumed_notes(chosen), *preset_notes(base.cluster.name)]
    title = "What if the cluster were another one?"
    first = base.cut.parts if base.cut.parts in explorer.ranks else explorer.ranks[0]
    scores, said = scores_of(args.results, runs) if args.results else ([], [])
    notes += said
    draws = Draws(band_replays(max(explorer.ranks), args.replays))
    if draws.count:
        notes.append(f"90 %: of {draws.count} replays with uncertain inputs drawn anew, the same for all methods")
    families, score = _families(explorer.methods), score_name([{"graph": graph}])
    return Opened(explorer, title, caption, notes, families, scores, score, first, draws)


def _families(methods: Sequence[str]) -> list[dict[str, Any]]:
    """Methods of one name: a slider goes through their options."""
    found: dict[str, list[str]] = {}
    for method in methods:
        found.setdefault(method.partition(":")[0], []).append(method)
    return [
        {"name": name, "methods": texts, "labels": [text.partition(":")[2] or "its defaults" for text in texts]}
        for name, texts in found.items()
    ]


def page_content(made: Opened) -> dict[str, Any]:
    """What page and server share: methods, colours and words, without axes."""
    explorer = made.explorer
    return {
        "title": made.title,
        "caption": made.caption,
        "notes": made.notes,
        "cluster": explorer.cluster.name,
        "ranks": explorer.ranks,
        "first_ranks": made.first_ranks,
        "variants": explorer.variants,
        "methods": explorer.methods,
        "families": made.families,
        "scores": made.scores,
        "score": made.score,
        "components": list(COMPONENTS),
        "colours": COMPONENT_COLOURS,
        "lines": LINES,
        "heat": HEAT,
    }


def epoch_ratios(explorer: Explorer, state: LinkSetting, draws: Draws) -> dict[str, list[float]]:
    """Method -> its epoch over the predicted one in every draw of the uncertain inputs; links that are set are exact.

    Methods share the draws, so that two of them are compared draw by draw. Empty without draws.
    """
    if not draws.count:
        return {}
    placement = place(explorer.cluster_at(state), state.ranks)
    exact = [
        f"links.{kind}.{what}"
        for kind, given in state.links.items()
        for what, value in zip(("bandwidth", "latency"), given, strict=True)
        if value is not None
    ]
    found = {}
    for method, run in explorer.runs_at(state.ranks).items():
        made = prediction_of(run.config, run.replay, placement, exact)
        own = made.seconds({})["epoch"]
        found[method] = [float(f"{each['epoch'] / own:.5g}") for each in made.draws(draws)]
    return found


def axes_of(cluster: Cluster) -> list[dict[str, Any]]:
    """The server's sliders: bandwidth and latency of every kind of link, and the speed of compute."""
    found = []
    for kind, spec in cluster.links.items():
        for what in ("bandwidth", "latency"):
            own = getattr(spec, what).value
            if own > 0:
                found.append(_axis(Knob(kind, what, own / REACH, own * REACH), own))
    return [*found, {**_SPEED, "low": 0.1, "high": 10.0, "values": None}]


_SPEED: dict[str, Any] = {
    "key": "speed", "kind": None, "what": "speed", "label": "speed of compute and its host", "nominal": 1.0,
}  # fmt: skip


def _axis(knob: Knob, nominal: float, values: Sequence[float] | None = None) -> dict[str, Any]:
    described = {field.name: getattr(knob, field.name) for field in fields(knob)}
    name = f"{knob.link} {knob.what}"
    described |= {"key": f"{knob.link}.{knob.what}", "kind": described.pop("link"), "label": name}
    return {**described, "nominal": nominal, "values": list(values) if values else None}


def write_page(made: Opened, knob: Knob, xs: Sequence[float], path: Path, quiet: bool) -> None:
    """Write a page that needs no server: every combination of its sliders is computed now.

    Raises InputError if Plotly is not installed, or the file cannot be written.
    """
    explorer = made.explorer
    nominal = getattr(explorer.cluster.links[knob.link], knob.what).value
    places = sorted({*xs, nominal})
    axes = [
        _axis(knob, nominal, places),
        {**_SPEED, "low": SPEEDS[0], "high": SPEEDS[-1], "values": SPEEDS},
    ]
    points = list(product(explorer.ranks, explorer.variants, range(len(places)), range(len(SPEEDS))))
    all_timelines = len(points) * len(explorer.methods) <= MOST_TIMELINES
    grid, timelines = {}, {}
    for ranks, variant, spot, pace in track(points, "points", console=stderr(), transient=True, disable=quiet):
        links = {knob.link: {knob.what: places[spot]}}
        state = explorer.state({"ranks": ranks, "variant": variant, "speed": SPEEDS[pace], "links": links})
        key = f"{ranks}|{variant}|{spot}|{pace}"
        grid[key] = explorer.point(state)
        if all_timelines or (SPEEDS[pace] == 1.0 and not variant):
            timelines[key] = {row["method"]: explorer.timeline(state, row["method"]) for row in grid[key]}
    drawn = _drawn(made, knob, places, quiet)
    whole = {
        **page_content(made), "axes": axes, "grid": grid, "timelines": timelines, "drawn": drawn, "served": False,
    }  # fmt: skip
    write_atomically(path, live_page(whole, made.caption).encode())


def _drawn(made: Opened, knob: Knob, places: Sequence[float], quiet: bool) -> dict[str, Any]:
    """Draws at the ends of the range and its middle, between which the page interpolates; at the cluster's own speed.

    `at`: values of the knob; `ratios`: "ranks|variant" -> method -> value by value the ratios of `epoch_ratios`.
    """
    explorer = made.explorer
    at = sorted({places[0], places[len(places) // 2], places[-1]})
    keys = list(product(explorer.ranks, explorer.variants)) if made.draws.count else []
    ratios: dict[str, dict[str, list[list[float]]]] = {}
    for ranks, variant in track(keys, "intervals", console=stderr(), transient=True, disable=quiet):
        mine = ratios.setdefault(f"{ranks}|{variant}", {})
        for value in at:
            links = {knob.link: {knob.what: value}}
            state = explorer.state({"ranks": ranks, "variant": variant, "links": links})
            for method, found in epoch_ratios(explorer, state, made.draws).items():
                mine.setdefault(method, []).append(found)
    return {"axis": f"{knob.link}.{knob.what}", "at": at, "ratios": ratios}
