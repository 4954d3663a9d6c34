"""Figures of runs: epoch time by component, simulated beside real, and test accuracy against training time.

Draws values of the records only. Uses no pyplot and no global state: equal records give equal SVG files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.numbers import percent, significant, time_unit
from harness.rank import COMPONENTS
from harness.running.alike import place_of
from harness.running.intervals import ends_in, rounds_of
from harness.running.summary import score_name

Record = dict[str, Any]

# Light fills for areas (Paul Tol), strong colours for lines (Okabe and Ito): safe for colour-blind eyes.
COMPONENT_COLOURS = {
    "compute": "#77AADD",
    "codec": "#EEDD88",
    "sample": "#BBCC33",
    "swap": "#99DDFF",
    "halo": "#EE8866",
    "reduce": "#FFAABB",
    "wait": "#DDDDDD",
}
METHOD_COLOURS = {
    "single": "#595959",
    "vanilla": "#0072B2",
    "bns-gcn": "#D55E00",
    "sylvie-s": "#009E73",
    "sylvie-a": "#7A9A01",
    "ec-graph": "#CC79A7",
    "cdfgnn": "#E69F00",
    "pipegcn": "#56B4E9",
    "subgraph-approximation": "#882255",
}
OTHER_COLOURS = ("#332288", "#44AA99", "#AA4499", "#999933", "#661100")
MARKERS = "osD^vPX<>ph*"
HATCH = {"sim": "/////", "real": ""}
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "haloscope",
}
INCHES = 7.2  # inches: two columns of a paper
CAPTION_COLUMNS = 132
VARIANTS = (0.0, 0.45, -0.45, 0.62, -0.65)  # share of white in the colours of a method's variants; negative: of black


def breakdown_and_accuracy(records: Sequence[Record], out_stem: Path) -> list[Path]:
    """Draw `<out_stem>.png` and `.svg`: epoch time by component on the left, test accuracy against time on the right.

    Args:
        records: results as `harness.running.results.load_result` returns them; runs without a clock (loopback) have no
            bar and no line.
        out_stem: path without suffix; its folder must exist.
    """
    figure = breakdown_figure(records)
    paths = [out_stem.with_name(out_stem.name + suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context(STYLE):
        figure.savefig(paths[0], dpi=200, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def breakdown_figure(records: Sequence[Record]) -> Figure:
    """The figure of `breakdown_and_accuracy`."""
    timed = [record for record in records if record["summary"]["seconds"]]
    with matplotlib.rc_context(STYLE):
        names = {record["config"]["method"] for record in timed}
        columns = 5 if max(map(len, names), default=0) <= 16 else 3
        rows = -(-(len(names) + 2) // columns)
        heights = (1.5 + 0.21 * max(len(timed), 5), 0.25, 0.3 + 0.17 * rows)  # inches: plots, two legends
        figure = Figure(figsize=(INCHES, sum(heights)), layout="constrained")
        plots, upper, lower = figure.subfigures(3, 1, squeeze=False, height_ratios=heights)[:, 0]
        figure.suptitle(_caption(timed or records), x=0.01, ha="left", fontsize=7, color="#606060")
        left, right = plots.subplots(1, 2, width_ratios=(1.25, 1))
        upper.legend(handles=_breakdown(left, timed), loc="center", ncols=9, columnspacing=1.4, frameon=False)
        lines = _accuracy(right, timed)
        legend = f"test {score_name(timed or records)} at the best validation"
        lower.legend(handles=lines, loc="upper center", ncols=columns, frameon=False, title=legend)
    return figure


def _caption(records: Sequence[Record]) -> str:
    """Settings of the runs, where they ran, and the notes of their graphs (a stand-in is named in every output)."""
    configs, graphs = [record["config"] for record in records], [record["graph"] for record in records]
    models = (f"{c['model']} {c['layers']} x {c['hidden']}, {c['order']}" for c in configs)
    places = (f"{c['mode']} {place}" for r, c in zip(records, configs, strict=True) if (place := _place(r)))
    told = [
        _either(graph["name"] for graph in graphs), _either(models), f"{_either(c['parts'] for c in configs)} ranks",
        f"layer0 = {_either(record['facts'].get('layer0') for record in records)}",
        ", ".join(dict.fromkeys(places)),
    ]  # fmt: skip
    notes = dict.fromkeys(str(note) for graph in graphs for note in graph["notes"])
    return "\n".join(fill(line, CAPTION_COLUMNS) for line in (*_lines(filter(None, told)), *notes))


def _lines(pieces: Iterable[str]) -> list[str]:
    """Pieces with "; " between them, in lines that are broken between pieces."""
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + len(piece) + 3 <= CAPTION_COLUMNS:
            lines[-1] += f"; {piece}"
        else:
            lines[-1:] = [f"{line};" for line in lines[-1:]]
            lines.append(piece)
    return lines


def _either(values: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))


def _place(record: Record) -> str:
    """Where a run with a clock had its ranks, as `sim on cluster NAME` and `real on this machine` say it."""
    place = place_of(record)
    modelled = record["config"]["mode"] == "sim"
    return "" if place is None else f"on {'cluster ' * modelled}{place}"


def method_colours(methods: Iterable[str]) -> dict[str, tuple[float, float, float]]:
    """A colour for every method text: fixed by the method's name; those with further options are lighter or darker."""
    colours: dict[str, tuple[float, float, float]] = {}
    seen: dict[str, int] = {}
    strangers: dict[str, str] = {}
    for text in dict.fromkeys(methods):
        name = text.partition(":")[0]
        base = METHOD_COLOURS.get(name)
        if base is None:
            base = strangers.setdefault(name, OTHER_COLOURS[len(strangers) % len(OTHER_COLOURS)])
        at = seen.get(name, 0)
        seen[name] = at + 1
        colours[text] = _mixed(base, VARIANTS[at % len(VARIANTS)] + 0.06 * (at // len(VARIANTS)))
    return colours


def shades(method: str, count: int) -> list[tuple[float, float, float]]:
    """`count` shades of a method's colour from dark to light, for variants that have an order."""
    return [_mixed(METHOD_COLOURS[method], -0.6 + 1.1 * at / max(count - 1, 1)) for at in range(count)]


def _mixed(colour: str, white: float) -> tuple[float, float, float]:
    """A colour with a share of white, or of black where it is negative."""
    red, green, blue = (c + (1 - c) * white if white > 0 else c * (1 + white) for c in to_rgb(colour))
    return red, green, blue


def _said_of_lines(records: Sequence[Record]) -> str:
    """What the lines of bars are."""
    of_rounds = [bool(rounds_of(record)) for record in records if ends_in(record)]
    said = ["90 % intervals of predictions"] * (not all(of_rounds)) + ["ranges of rounds"] * any(of_rounds)
    return ", ".join(said)


def _breakdown(axes: Axes, records: Sequence[Record]) -> list[Patch]:
    """Draw horizontal stacked bars, the modes of one method next to each other; returns the legend's entries."""
    sure = any(ends_in(record) for record in records)
    axes.set_title("Epoch time by component", loc="left")
    if not records:
        _empty(axes, "no run has a clock")
        return []
    factor, unit = time_unit([r["summary"]["seconds"]["epoch"] for r in records])
    places = _places(records)
    used = [name for name in COMPONENTS if any(r["summary"]["seconds"][name] for r in records)]
    tops = [max(r["summary"]["seconds"]["epoch"], *(ends_in(r) or (0.0,))) for r in records]
    longest = max(tops) * factor
    for place, record, top in zip(places, records, tops, strict=True):
        seconds, start = record["summary"]["seconds"], 0.0
        for name in used:
            width = seconds[name] * factor
            colour, hatch = COMPONENT_COLOURS[name], HATCH.get(record["config"]["mode"], "")
            axes.barh(place, width, 0.8, start, facecolor=colour, hatch=hatch, edgecolor="#404040", linewidth=0.4)
            start += width
        if (ends := ends_in(record)) is not None:
            low, high = (end * factor for end in ends)
            axes.errorbar((low + high) / 2, place, xerr=(high - low) / 2, color="#202020", linewidth=0.7, capsize=1.6)
        axes.text(
            top * factor + 0.015 * longest, place, significant(seconds["epoch"] * factor), va="center", fontsize=7
        )
    axes.set_yticks(places, [_bar_label(records, at) for at in range(len(records))])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.12 * longest)
    spare = max(0.0, 3.0 - max(places)) / 2  # a single bar does not fill the panel
    axes.set_ylim(max(places) + 0.6 + spare, -0.6 - spare)
    axes.set_xlabel(f"epoch time, median ({unit})" + (f"; lines: {_said_of_lines(records)}" if sure else ""))
    handles = [Patch(facecolor=COMPONENT_COLOURS[n], edgecolor="#404040", linewidth=0.4, label=n) for n in used]
    for mode in dict.fromkeys(r["config"]["mode"] for r in records):
        handles.append(
            Patch(facecolor="white", edgecolor="#404040", linewidth=0.4, hatch=HATCH.get(mode, ""), label=mode)
        )
    return handles


def _places(records: Sequence[Record]) -> list[float]:
    """Positions of the bars: a wider gap between methods than between the modes of one."""
    places, place = [], 0.0
    for at, record in enumerate(records):
        if at:
            place += 0.9 if record["config"]["method"] == records[at - 1]["config"]["method"] else 1.35
        places.append(place)
    return places


def _bar_label(records: Sequence[Record], at: int) -> str:
    """Method and mode; the method only where it changes."""
    config = records[at]["config"]
    first = at == 0 or records[at - 1]["config"]["method"] != config["method"]
    return f"{config['method']}  {config['mode']}" if first else config["mode"]


def _accuracy(axes: Axes, records: Sequence[Record]) -> list[Line2D]:
    """Draw test accuracy against the training seconds that led to it; returns the legend's entries."""
    score = score_name(records)
    axes.set_title(f"Test {score} over training time", loc="left")
    curves = [(record, *_curve(record)) for record in records]
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        _empty(axes, "no run was evaluated")
        return []
    methods = list(dict.fromkeys(record["config"]["method"] for record, _, _ in curves))
    colours = method_colours(methods)
    factor, unit = time_unit([seconds[-1] for _, seconds, _ in curves])
    modes = list(dict.fromkeys(record["config"]["mode"] for record, _, _ in curves))
    for record, seconds, scores in curves:
        method, simulated = record["config"]["method"], record["config"]["mode"] == "sim"
        axes.plot(
            [s * factor for s in seconds],
            [100 * score for score in scores],
            color=colours[method],
            linestyle=(0, (3, 2)) if simulated else "-",
            linewidth=0.9 if simulated else 1.2,
            marker="" if simulated and len(modes) > 1 else MARKERS[methods.index(method) % len(MARKERS)],
            markersize=3.2,
        )
    axes.set_xlim(left=0)
    axes.set_xlabel(f"training time ({unit})")
    axes.set_ylabel(f"test {score} (%)")
    axes.grid(axis="y", linewidth=0.4, color="#E0E0E0")
    axes.set_axisbelow(True)
    final = {record["config"]["method"]: record["summary"]["test_at_best_val"] for record, _, _ in curves}
    labels = [f"{method}, {percent(final[method])}" for method in methods]
    handles = [
        Line2D([], [], color=colours[method], marker=MARKERS[at % len(MARKERS)], markersize=3.2, label=labels[at])
        for at, method in enumerate(methods)
    ]
    for mode in modes:
        handles.append(Line2D([], [], color="#404040", linestyle=(0, (3, 2)) if mode == "sim" else "-", label=mode))
    return handles


def _curve(record: Record) -> tuple[list[float], list[float]]:
    """Cumulative seconds and test accuracy of the evaluated epochs."""
    ends = accumulate(epoch["seconds"]["epoch"] for epoch in record["epochs"])
    points = [(end, e["test"]) for end, e in zip(ends, record["epochs"], strict=True) if e["test"] is not None]
    return [end for end, _ in points], [score for _, score in points]


def _empty(axes: Axes, reason: str) -> None:
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, color="#808080")
    axes.set_xticks([])
    axes.set_yticks([])
