"""Draws a traced run: one lane per rank and stream, every span in the colour of its component."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from harness.numbers import time_unit
from harness.rank import COMPONENTS
from harness.running.trace import STREAMS, Span, Stream, Trace, lanes_of
from reports.draw.figures import COMPONENT_COLOURS, INCHES, STYLE

MOST_RANKS = 16  # drawn; more would be lines, not lanes
LANE, GAP = 0.42, 0.2  # height of a lane, extra distance between ranks
LETTER_SHARE = 0.006  # of the width that a span needs for every letter of its name


def timeline(
    trace: Trace,
    path: Path,
    window: tuple[float, float] | None = None,
    line: Sequence[tuple[int, float, float, str]] = (),
) -> Path:
    """Draw `path` (PNG): time to the right, ranks downwards. Exchanges that overlap share the height of their lane.

    Args:
        window: seconds to show, all by default. Of more than 16 ranks the first 16 are shown, and the title says so.
        line: a path to draw over the lanes: rank, start, end and component of every piece.
    """
    begin, end = window or (0.0, trace.end_s)
    shown = [s for s in trace.spans if s.end_s > begin and s.start_s < end and s.rank < MOST_RANKS]
    factor, unit = time_unit([end - begin])
    placed = lanes_of(shown)
    places = _places(placed)
    with matplotlib.rc_context(STYLE):
        bottom = max((low + LANE for low in places.values()), default=LANE)
        figure = Figure(figsize=(1.4 * INCHES, 0.55 * bottom + 1.2), layout="constrained")
        axes = figure.subplots()
        boxes = _boxes(placed, places)
        _fill(axes, boxes, begin, factor)
        _label(axes, boxes, (begin, end), factor)
        _trail(axes, line, places, begin, factor)
        names = [f"rank {rank}  compute" if stream == "compute" else stream for rank, stream in places]
        axes.set_yticks([place + LANE / 2 for place in places.values()], names)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.set_ylim(bottom + GAP, -GAP)
        axes.set_xlim(0, (end - begin) * factor)
        axes.set_xlabel(f"time ({unit})" + (f", from {begin * factor:.4g} {unit} on" if begin else ""))
        axes.set_title(_title(trace, shown), loc="left", fontsize=8)
        used = [name for name in COMPONENTS if any(s.component == name for s in shown)]
        handles = [Patch(facecolor=COMPONENT_COLOURS[n], edgecolor="#404040", linewidth=0.4, label=n) for n in used]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) or 1, frameon=False)
        figure.savefig(path, dpi=200, metadata={"Software": None})
    return path


def after_first_epoch(trace: Trace) -> tuple[float, float]:
    """The window without the first epoch, if there are others: compilation and loading in it dominate the rest."""
    later = [span.start_s for span in trace.spans if span.details.get("epoch", 0) >= 1]
    return min(later, default=0.0), trace.end_s


def _places(placed: Sequence[tuple[Span, int]]) -> dict[tuple[int, Stream], float]:
    """Upper edge of every rank's streams, with a gap between ranks."""
    used = sorted({(span.rank, STREAMS.index(span.stream)) for span, _ in placed})
    places: dict[tuple[int, Stream], float] = {}
    place, last = 0.0, None
    for rank, stream in used:
        if last is not None:
            place += LANE + (GAP if rank != last else 0.0)
        places[rank, STREAMS[stream]], last = place, rank
    return places


def _boxes(
    placed: Sequence[tuple[Span, int]], places: dict[tuple[int, Stream], float]
) -> list[tuple[Span, float, float]]:
    """Every span with upper edge and height: spans that overlap, also indirectly, share the height."""
    clusters: dict[tuple[int, Stream], list[tuple[Span, int]]] = {}
    ends: dict[tuple[int, Stream], float] = {}
    finished = []
    for span, lane in placed:
        key = span.rank, span.stream
        if span.start_s >= ends.get(key, span.start_s):
            finished.append(clusters.pop(key, []))
        clusters.setdefault(key, []).append((span, lane))
        ends[key] = max(ends.get(key, span.end_s), span.end_s)
    boxes = []
    for cluster in [*finished, *clusters.values()]:
        height = (LANE - 0.06) / (1 + max((lane for _, lane in cluster), default=0))
        boxes += [(s, places[s.rank, s.stream] + 0.03 + lane * height, height) for s, lane in cluster]
    return boxes


def _fill(axes: Axes, boxes: Sequence[tuple[Span, float, float]], begin: float, factor: float) -> None:
    """All spans as one collection per component, so that thousands draw quickly."""
    edge: Any = {"edgecolors": "#40404080", "linewidths": 0.3}
    for component in COMPONENTS:
        corners = []
        for span, top, height in boxes:
            if span.component == component:
                left, right = (span.start_s - begin) * factor, (span.end_s - begin) * factor
                corners.append([(left, top), (right, top), (right, top + height), (left, top + height)])
        axes.add_collection(PolyCollection(corners, facecolors=COMPONENT_COLOURS[component], zorder=2, **edge))


def _label(axes: Axes, boxes: Sequence[tuple[Span, float, float]], window: tuple[float, float], factor: float) -> None:
    """The names of exchanges that are long enough to hold them."""
    for span, top, height in boxes:
        left, right = max(span.start_s, window[0]), min(span.end_s, window[1])
        room = (right - left) / (window[1] - window[0])
        if span.stream != "compute" and room > LETTER_SHARE * len(span.name) and height > LANE / 5:
            x, y = ((left + right) / 2 - window[0]) * factor, top + height / 2
            axes.text(x, y, span.name, ha="center", va="center", fontsize=min(5.5, 30 * height), clip_on=True, zorder=3)


def _trail(
    axes: Axes,
    line: Sequence[tuple[int, float, float, str]],
    places: dict[tuple[int, Stream], float],
    begin: float,
    factor: float,
) -> None:
    """A path through the lanes: along what a rank computes, or exchanges, from one rank to the next."""
    xs: list[float] = []
    ys: list[float] = []
    for rank, start, end, component in line:
        computes = component in ("compute", "codec", "sample", "wait")
        streams: tuple[Stream, ...] = ("compute", "communication") if computes else ("communication", "copy", "compute")
        lane = next((places[rank, stream] for stream in streams if (rank, stream) in places), None)
        if lane is not None:
            xs += [(start - begin) * factor, (end - begin) * factor]
            ys += [lane + LANE / 2] * 2
    axes.plot(xs, ys, color="black", linewidth=1.4, solid_capstyle="butt", zorder=4)


def _title(trace: Trace, shown: Sequence[Span]) -> str:
    ranks = len({span.rank for span in shown})
    title = str(trace.facts.get("title", "timeline"))
    return fill(title if ranks == len(trace.hosts) else f"{title}; {ranks} of {len(trace.hosts)} ranks", 150)
