"""The figure of a study: a row per sentence of the paper, and in it a mark per graph that the sentence is claimed of.

A mark is coloured by its verdict, so that a row shows at a glance what became of a sentence; the numbers on the right
count the verdicts. Size and order of one difference are one mark, that of the order.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.draw.drawing import AS_PRINTED, COLOURS
from reports.draw.figures import INCHES, STYLE
from reports.study._study import ClaimFinding

HOLDS = "#DCEFE6"
SMALL = "#F3F1E4"
"""Where a claim's order holds, by less than the smallest difference that counts."""
VERDICT_COLOURS = {
    "reproduced": COLOURS[2],
    "contradicted": COLOURS[1],
    "undecided": "#8C8C8C",
    "not enough runs": "#D0D0D0",
}
COUNTED = ("reproduced", "contradicted", "undecided")
UNITS = {"points": "first minus second (points)", "%": "bytes or epochs: first over second (%)"}
LINEAR = {"points": 1.0, "%": 10.0}
"""Up to here the axis is linear, beyond it logarithmic."""
MOST_TICKS = 3  # on one side of 0
MARKERS = ("o", "s", "^", "v", "P", "X")  # not the diamond: it marks what is printed
LANE, GAP, FRAME = 0.13, 0.09, 0.62  # inches: of a mark, between sentences, of a panel's axis
SHORTEST = 0.34  # inches of a sentence's row, for two lines of text
WRAP = 46  # characters in a line of a sentence

SentenceRows = dict[str, list[ClaimFinding]]
"""Sentence -> its claims."""


def shown_findings(found: Sequence[ClaimFinding], unit: str) -> list[ClaimFinding]:
    """Those that a panel shows: claims with an interval; the size of an effect is seen beside its order."""
    ordered = {one.claim.text for one in found if one.claim.judge != "size"}
    return [
        one for one in found
        if one.claim.unit == unit and one.half_width is not None
        and (one.claim.judge != "size" or one.claim.text not in ordered)
    ]  # fmt: skip


def sentence_rows(found: Sequence[ClaimFinding]) -> SentenceRows:
    """Claims by their sentence, in the order of the file."""
    rows: SentenceRows = {}
    for one in found:
        rows.setdefault(one.claim.text.rpartition(": ")[0], []).append(one)
    return rows


def draw_effects(found: Sequence[ClaimFinding], paths: tuple[Path, Path]) -> None:
    """One panel for scores and one below it for bytes and epochs, as far as there are such claims."""
    panels = {unit: sentence_rows(shown_findings(found, unit)) for unit in UNITS}
    panels = {unit: rows for unit, rows in panels.items() if rows} or {"points": {}}
    heights = [sum(map(_height, rows.values())) + FRAME for rows in panels.values()]
    graphs = list(dict.fromkeys(_graph(one) for rows in panels.values() for each in rows.values() for one in each))
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "path"}):
        figure = Figure(figsize=(INCHES, max(1.6, sum(heights) + 0.5)), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, (unit, rows) in zip(axes, panels.items(), strict=True):
            draw_panel(panel, rows, unit, graphs)
        named: dict[str, Any] = {}
        for panel in axes:
            named.update({label: line for line, label in zip(*panel.get_legend_handles_labels(), strict=True)})
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=6, frameon=False, columnspacing=1)
        png, svg = paths
        figure.savefig(png, dpi=200, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})


def _height(claims: Sequence[ClaimFinding]) -> float:
    """Inches of a sentence's row."""
    return max(SHORTEST, LANE * len(claims)) + GAP


def draw_panel(panel: Axes, rows: SentenceRows, unit: str, graphs: Sequence[str]) -> None:
    """The sentences from the top down, with places in inches below the top."""
    shown = [one for claims in rows.values() for one in claims]
    limit, top, places = axis_limit(shown, LINEAR[unit]), 0.0, []
    for claims in rows.values():
        height = _height(claims)
        places.append(top + height / 2)
        first = places[-1] - LANE * (len(claims) - 1) / 2
        for at, one in enumerate(claims):
            _mark(panel, one, first + LANE * at, limit, MARKERS[graphs.index(_graph(one)) % len(MARKERS)])
        _counts(panel, claims, places[-1])
        top += height
        panel.axhline(top, color="#E0E0E0", linewidth=0.6)
    panel.axvline(0, color="#404040", linewidth=0.6)
    panel.set_xscale("symlog", linthresh=LINEAR[unit])
    panel.set_xlim(-limit, limit)
    ticks = axis_ticks(LINEAR[unit], limit)
    panel.set_xticks([*(-tick for tick in reversed(ticks)), 0, *ticks])
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.minorticks_off()
    panel.set_yticks(places, [textwrap.fill(text, WRAP) for text in rows], fontsize=8)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(max(top, SHORTEST), 0)
    panel.set_xlabel(UNITS[unit])


def _mark(panel: Axes, one: ClaimFinding, at: float, limit: float, marker: str) -> None:
    """Effect, interval, printed effect, and where the claim holds."""
    assert one.found is not None
    band = one.claim.band
    low, least, high = (min(max(end, -limit), limit) for end in (band.low, band.fails_below, band.high))
    panel.barh(at, high - least, left=least, height=LANE, color=HOLDS, linewidth=0, zorder=0, label="claim holds here")
    if least > low:
        label = "its order holds, too small to count"
        panel.barh(at, least - low, left=low, height=LANE, color=SMALL, linewidth=0, zorder=0, label=label)
    colour = VERDICT_COLOURS[one.judgement.verdict]
    panel.errorbar(one.found.mean, at, xerr=one.half_width, fmt="none", color=colour, linewidth=1.3)
    panel.plot(one.found.mean, at, marker, color=colour, markersize=4)
    panel.plot([], [], marker, color="#404040", markersize=4, label=_graph(one))
    panel.plot([], [], "-", color=colour, linewidth=3, label=one.judgement.verdict)
    if one.claim.difference is not None:
        style = {**AS_PRINTED, "s": 13}
        panel.scatter([min(max(one.claim.difference, -limit), limit)], [at], **style, marker="D", label="printed")


def _counts(panel: Axes, claims: Sequence[ClaimFinding], at: float) -> None:
    """How many claims of a sentence have which verdict, each number in its verdict's colour, right of the panel."""
    for column, verdict in enumerate(COUNTED):
        count = sum(one.judgement.verdict == verdict for one in claims)
        panel.annotate(
            str(count) if count else "", (1.0, at), xycoords=("axes fraction", "data"), xytext=(8 + 13 * column, 0),
            textcoords="offset points", ha="center", va="center", fontsize=9, fontweight="bold",
            color=VERDICT_COLOURS[verdict],
        )  # fmt: skip


def _graph(one: ClaimFinding) -> str:
    """The name of the claim's graph in the file of claims."""
    return one.claim.text.rpartition(": ")[2].partition(",")[0]


def axis_ticks(linear: float, limit: float) -> list[float]:
    """Ticks above 0 of an axis up to `limit`; of powers of ten only, where the labels of more would overlap."""
    steps = [linear * step * 10**power for power in range(4) for step in (1, 3)]
    ticks = [tick for tick in steps if tick < limit]
    return ticks if len(ticks) <= MOST_TICKS else ticks[::2]


def axis_limit(found: Sequence[ClaimFinding], linear: float) -> float:
    """Half the width of the axis: what the effects and printed ones need, not what the widest interval would."""
    ends = [abs(one.claim.difference or 0.0) for one in found]
    ends += [abs(one.found.mean) for one in found if one.found is not None]
    return 1.6 * max([2 * linear, *ends])
