"""Kinds of panels that several figures draw: grouped bars, stacked epochs, curves; printed numbers hollow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from reports.core.predict import Seconds
from reports.draw.drawing import AS_PRINTED, DASHES
from reports.draw.figures import COMPONENT_COLOURS, MARKERS, method_colours

PARTS = ("communication", "all-reduce", "computation", "quantisation")
FILLS = dict(zip(PARTS, (COMPONENT_COLOURS[n] for n in ("halo", "reduce", "compute", "codec")), strict=True))
PRINTED = "printed"
RGB = tuple[float, float, float]


def colours_of(methods: Mapping[str, str]) -> dict[str, RGB]:
    """Name as printed -> colour of its method; DGL is vanilla, other names have their own.

    The variant with the fewest options has the method's own colour, in whatever order they come.
    """
    colours = method_colours(sorted(methods.values(), key=lambda method: method.count(":")))
    return {name: to_rgb(colours[method]) for name, method in methods.items()}


def paper_parts(seconds: Seconds) -> dict[str, float]:
    """An epoch divided into the parts that the papers draw."""
    compute = seconds.compute - seconds.codec
    return dict(zip(PARTS, (seconds.comm, seconds.reduce, compute, seconds.codec), strict=True))


def grouped(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    colours: Mapping[str, RGB],
    printed: Mapping[str, Sequence[float | None]] | None = None,
) -> None:
    """A group of bars per name in `groups`, a bar per series; a missing value leaves a gap."""
    width = 0.8 / len(series)
    for at, (name, values) in enumerate(series.items()):
        places = [group - 0.4 + width * (at + 0.5) for group in range(len(groups))]
        axes.bar(places, [value or 0.0 for value in values], 0.92 * width, color=colours[name], label=name)
        seen = [(x, y) for x, y in zip(places, (printed or {}).get(name, ()), strict=False) if y is not None]
        if seen:
            axes.scatter([x for x, _ in seen], [y for _, y in seen], **{**AS_PRINTED, "s": 12}, label=PRINTED)
    axes.set_xticks(range(len(groups)), groups)


def stacked(
    axes: Axes,
    bars: Mapping[str, Mapping[str, float]],
    printed: Mapping[str, float] | None = None,
    *,
    share: bool = False,
) -> None:
    """A bar per name, its parts on top of each other from the bottom; with `share`, in per cent of the bar."""
    names = list(bars)
    totals = [sum(bars[name].values()) if share else 1.0 for name in names]
    scale = [100 / total if share else 1.0 for total in totals]
    used = [part for part in PARTS if any(bars[name].get(part) for name in names)]
    heights = [[factor * bars[name].get(part, 0.0) for part in used] for name, factor in zip(names, scale, strict=True)]
    bottoms = [[0.0, *accumulate(column)] for column in heights]
    for at, part in enumerate(used):
        values, low = [column[at] for column in heights], [column[at] for column in bottoms]
        axes.bar(names, values, 0.62, bottom=low, color=FILLS[part], edgecolor="#404040", linewidth=0.4, label=part)
    seen = {name: value for name, value in (printed or {}).items() if name in bars}
    if seen:
        axes.scatter(list(seen), list(seen.values()), **AS_PRINTED, label=PRINTED)
    axes.set_ylabel("share of the epoch (%)" if share else "seconds per epoch")


def curves(
    axes: Axes,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    colours: Mapping[str, RGB],
    *,
    markers: bool = False,
) -> None:
    """A line per name, distinguished by colour and by dashes or markers."""
    for at, (name, (x, y)) in enumerate(lines.items()):
        style: dict[str, Any] = {"marker": MARKERS[at % len(MARKERS)], "markersize": 3.5} if markers else {}
        dashes = DASHES[at % len(DASHES)]
        axes.plot(x, y, color=colours[name], linestyle=dashes, linewidth=1.2, label=name, **style)
