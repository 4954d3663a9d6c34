"""Curves of `haloscope what-if`: epoch time and speed-up along a bandwidth or latency, and along the bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.numbers import time_unit
from reports.draw.figures import INCHES, MARKERS, STYLE, method_colours

Record = dict[str, Any]
CAPTION_COLUMNS = 140
MUCH = 4  # longest over shortest epoch from which times are drawn on a log scale
PLACES = 3  # values of the knob at which curves along the bits are drawn: both ends and the cluster's own
STROKES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))  # of variants of the cluster
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))


def what_if(
    rows: Sequence[Record],
    path: Path,
    *,
    knob: tuple[str, float],
    ticks: Sequence[float],
    written: Callable[[float], str],
    caption: Sequence[str],
) -> Path:
    """Draw `what_if_figure` to `path` (PNG)."""
    figure = what_if_figure(rows, knob=knob, ticks=ticks, written=written, caption=caption)
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata={"Software": None})
    return path


def what_if_figure(
    rows: Sequence[Record],
    *,
    knob: tuple[str, float],
    ticks: Sequence[float],
    written: Callable[[float], str],
    caption: Sequence[str],
) -> Figure:
    """Epoch times and speed-ups along the knob, and along the bits where there are several.

    Args:
        rows: a point each: method, bits (None without), variant (of the cluster, "" for itself), value (of the knob,
            SI units), epoch_seconds, speedup; ends of the 90 % band (epoch_low_seconds, epoch_high_seconds,
            speedup_low, speedup_high), None without.
        knob: its name, and the value that the cluster has.
        ticks: values of the knob to mark.
        written: a value of the knob with its unit.
        caption: lines under the panels.
    """
    name, nominal = knob
    with_bits = len({row["bits"] for row in rows if row["bits"]}) > 1
    with matplotlib.rc_context(STYLE):
        lines = [part for line in caption for part in fill(line, CAPTION_COLUMNS).splitlines()]
        panels = 2.6 * (1 + with_bits)
        figure = Figure(figsize=(INCHES, panels + 0.5 + 0.13 * len(lines)), layout="constrained")
        heights = (panels + 0.4, 0.1 + 0.13 * len(lines))
        upper, under = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        grid = upper.subplots(1 + with_bits, 2, squeeze=False)
        factor, unit = time_unit([max(row["epoch_seconds"] for row in rows)])
        handles = _along_knob(grid[0], rows, factor)
        for axes in grid[0]:
            axes.set_xlabel(name)
            axes.set_xticks(ticks, [written(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
            axes.axvline(nominal, color="#909090", linewidth=0.7, linestyle=":", zorder=0)
        grid[0][0].set_ylabel(f"epoch ({unit})")
        grid[0][0].set_title(f"Epoch time; dotted: this cluster, {written(nominal)}", loc="left")
        grid[0][1].set_title(f"Speed-up over {_label(rows[0])}", loc="left")
        if with_bits:
            _along_bits(grid[1], rows, factor, unit, written, nominal)
        upper.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
        under.text(0.01, 1.0, "\n".join(lines), va="top", fontsize=6.5, color="#404040", linespacing=1.35)
    return figure


def _along_knob(pair: Sequence[Axes], rows: Sequence[Record], factor: float) -> list[Line2D]:
    """Draw both upper panels; returns the legend's entries."""
    labels = list(dict.fromkeys(map(_label, rows)))
    colours, variants = method_colours([row["method"] for row in rows]), _variants(rows)
    handles = []
    for at, label in enumerate(labels):
        mine = sorted((row for row in rows if _label(row) == label), key=lambda row: row["value"])
        xs = [row["value"] for row in mine]
        style: dict[str, Any] = {"color": colours[mine[0]["method"]], "marker": MARKERS[at % len(MARKERS)]}
        style |= {"markersize": 2.6, "linestyle": STROKES[variants.index(mine[0]["variant"]) % len(STROKES)]}
        style |= {"linewidth": 1.1, "markevery": max(1, len(xs) // 8)}
        pair[0].plot(xs, [row["epoch_seconds"] * factor for row in mine], **style)
        pair[1].plot(xs, [row["speedup"] for row in mine], **style)
        _band(pair, mine, xs, style["color"], factor)
        handles.append(Line2D([], [], label=label, **{**style, "markevery": None}))
    for axes in pair:
        axes.set_xscale("log")
        axes.grid(linewidth=0.3, color="#E0E0E0")
        axes.set_axisbelow(True)
    _upwards(pair, rows)
    return handles


def _band(pair: Sequence[Axes], rows: Sequence[Record], xs: Sequence[float], colour: str, factor: float) -> None:
    """Shade the 90 % intervals of a curve in both panels."""
    for axes, low, high, scale in (
        (pair[0], "epoch_low_seconds", "epoch_high_seconds", factor),
        (pair[1], "speedup_low", "speedup_high", 1.0),
    ):
        if all(row.get(low) is not None for row in rows):
            lower, upper = ([row[end] * scale for row in rows] for end in (low, high))
            axes.fill_between(xs, lower, upper, color=colour, alpha=0.15, linewidth=0, zorder=0.5)


def _upwards(pair: Sequence[Axes], rows: Sequence[Record]) -> None:
    """Axes that do not magnify small differences: from 0, or logarithmic where times differ much."""
    seconds = [row["epoch_seconds"] for row in rows]
    if max(seconds) > MUCH * min(seconds):
        pair[0].set_yscale("log")
    else:
        pair[0].set_ylim(bottom=0)
    pair[1].set_ylim(bottom=0)


def _along_bits(
    pair: Sequence[Axes],
    rows: Sequence[Record],
    factor: float,
    unit: str,
    written: Callable[[float], str],
    nominal: float,
) -> None:
    """Draw both lower panels, of the first variant: methods with bits as curves, others as levels; dashes by value."""
    places = sorted({row["value"] for row in rows})
    chosen = list(dict.fromkeys([places[0], nominal, places[-1]]))[:PLACES]
    colours = method_colours([row["method"] for row in rows])
    widths = sorted({row["bits"] for row in rows if row["bits"]})
    for dash, place in zip(DASHES, chosen, strict=False):
        here = [row for row in rows if row["value"] == place and row["variant"] == rows[0]["variant"]]
        for name in dict.fromkeys(_without_bits(row["method"]) for row in here):
            mine = sorted(
                (row for row in here if _without_bits(row["method"]) == name), key=lambda row: row["bits"] or 0
            )
            many = len(mine) > 1
            xs = [row["bits"] for row in mine] if many else [widths[0], widths[-1]]
            mine = mine if many else [mine[0], mine[0]]
            style: dict[str, Any] = {"color": colours[mine[0]["method"]], "linestyle": dash, "linewidth": 1.0}
            style |= {"marker": "o" if many else "", "markersize": 2.6}
            pair[0].plot(xs, [row["epoch_seconds"] * factor for row in mine], **style)
            pair[1].plot(xs, [row["speedup"] for row in mine], **style)
    for axes in pair:
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.set_xlabel("bits per element (methods without bits: level)")
        axes.grid(linewidth=0.3, color="#E0E0E0")
    _upwards(pair, rows)
    pair[0].set_ylabel(f"epoch ({unit})")
    pair[0].set_title("Along the bits", loc="left")
    handles = [
        Line2D([], [], color="#404040", linestyle=d, label=written(p)) for d, p in zip(DASHES, chosen, strict=False)
    ]
    pair[1].legend(handles=handles, frameon=False, fontsize=6.5)


def _label(row: Record) -> str:
    return " ".join(part for part in (row["method"], row["variant"]) if part)


def _variants(rows: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(row["variant"] for row in rows))


def _without_bits(method: str) -> str:
    return ":".join(part for part in method.split(":") if not part.startswith("bits="))
