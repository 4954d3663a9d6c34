"""The figure of an advice: accuracy against time to the target, and validation scores as training goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from harness.numbers import time_unit
from reports.draw.figures import INCHES, MARKERS, STYLE, method_colours

CAPTION_COLUMNS = 150
MUCH = 30  # longest over shortest time from which a scale is logarithmic
CURVES = 6  # validation curves that are drawn: those of the quickest


def draw_advice(
    rows: Sequence[Mapping[str, Any]],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    target: float,
    caption: Sequence[str],
) -> Path:
    """Draw `path` (PNG), as `advice_figure`."""
    with matplotlib.rc_context(STYLE):
        figure = advice_figure(rows, curves, target, caption)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=200, metadata={"Software": None})
    return path


def advice_figure(
    rows: Sequence[Mapping[str, Any]],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    target: float,
    caption: Sequence[str],
) -> Figure:
    """Accuracy against time to the target (and cost), and validation scores.

    Args:
        rows: a candidate each: method, devices, seconds_to_target, accuracy, difference_half_width, cost, fits, pareto,
            chosen.
        curves: "method, devices" -> (modelled seconds, validation score in per cent).
        target: the validation score that counts as reached.
        caption: lines under the panels.
    """
    placed = [
        row for row in rows if row["seconds_to_target"] is not None and row["accuracy"] is not None and row["fits"]
    ]
    priced = any(row["cost"] is not None for row in placed)
    with matplotlib.rc_context(STYLE):
        lines = [part for line in caption for part in fill(line, CAPTION_COLUMNS).splitlines()]
        figure = Figure(figsize=(INCHES, 3.4 + 0.13 * len(lines)), layout="constrained")
        upper, under = figure.subfigures(2, 1, squeeze=False, height_ratios=(3.4, 0.1 + 0.13 * len(lines)))[:, 0]
        panels = upper.subplots(1, 2 + priced, squeeze=False)[0]
        looks = _looks(placed)
        _scatter(panels[0], placed, looks, "seconds_to_target")
        if priced:
            _scatter(panels[1], placed, looks, "cost")
        _curves(panels[-1], curves, looks, target)
        panels[0].set_ylabel("test score (%); bars: 95 %, beside exact")
        panels[0].set_title("Test score against time to the target", loc="left")
        named = {look["label"]: panels[0].plot([], [], linestyle="none", **_marker(look))[0] for look in looks.values()}
        front = panels[0].plot([], [], color="#404040", linewidth=0.8, linestyle="--")[0]
        star = panels[0].plot([], [], linestyle="none", marker="o", markersize=9, mfc="none", mec="#D00000")[0]
        handles, labels = (
            [*named.values(), front, star],
            [*named, "Pareto front", "recommended"],
        )
        upper.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        under.text(0.01, 1.0, "\n".join(lines), va="top", fontsize=6.5, color="#404040", linespacing=1.35)
    return figure


def _looks(placed: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By "method, devices": label, colour of the method and marker of the number of devices."""
    colours = method_colours([row["method"] for row in placed])
    counts = sorted({row["devices"] for row in placed})
    return {
        f"{row['method']}, {row['devices']}": {
            "label": f"{row['method']} on {row['devices']}",
            "color": colours[row["method"]],
            "marker": MARKERS[counts.index(row["devices"]) % len(MARKERS)],
        }
        for row in placed
    }


def _marker(look: Mapping[str, Any]) -> dict[str, Any]:
    return {"marker": look["marker"], "color": look["color"], "markersize": 4.5}


def _scatter(axes: Axes, placed: Sequence[Mapping[str, Any]], looks: Mapping[str, Any], key: str) -> None:
    """One point per candidate; the Pareto front in time is joined, the recommended one ringed."""
    factor, unit = time_unit([row[key] for row in placed]) if key != "cost" else (1.0, "")
    for row in placed:
        look = looks[f"{row['method']}, {row['devices']}"]
        axes.errorbar(
            row[key] * factor, row["accuracy"], yerr=row["difference_half_width"], linestyle="none", elinewidth=0.7,
            **_marker(look),
        )  # fmt: skip
        if row["chosen"]:
            axes.plot(row[key] * factor, row["accuracy"], marker="o", markersize=9, mfc="none", mec="#D00000", zorder=6)
    if key != "cost":
        front = sorted((row[key] * factor, row["accuracy"]) for row in placed if row["pareto"])
        axes.plot(
            [x for x, _ in front], [y for _, y in front], color="#404040", linewidth=0.8, linestyle="--", zorder=0
        )
    _spread(axes, [row[key] * factor for row in placed])
    axes.set_xlabel(f"predicted time to the target ({unit})" if unit else "cost of training to the target")
    axes.grid(linewidth=0.3, color="#E0E0E0")
    axes.set_axisbelow(True)


def _spread(axes: Axes, values: Sequence[float]) -> None:
    """A scale from 0, or a logarithmic one where values lie far apart; plain numbers at its marks."""
    if values and max(values) > MUCH * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)


def _curves(
    axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]], looks: Mapping[str, Any], target: float
) -> None:
    """Validation score of the first seed against modelled time, with the target."""
    shown = [name for name in looks if name in curves][:CURVES]
    factor, unit = time_unit([curves[name][-1][0] for name in shown])
    for name in shown:
        look = looks[name]
        axes.plot(
            [x * factor for x, _ in curves[name]], [y for _, y in curves[name]], color=look["color"],
            marker=look["marker"], markersize=2.2, markevery=max(1, len(curves[name]) // 8), linewidth=1.0,
        )  # fmt: skip
    axes.axhline(target, color="#909090", linewidth=0.7, linestyle=":")
    _spread(axes, [points[at][0] * factor for points in map(curves.__getitem__, shown) for at in (0, -1)])
    axes.set_xlabel(f"predicted time ({unit})")
    axes.set_ylabel("validation score (%)")
    axes.set_title("Training (dotted: target)", loc="left")
    axes.grid(linewidth=0.3, color="#E0E0E0")
