"""The figure of a study: every claim's effect with its interval, where it would have to lie, and the printed effect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from reports.draw.drawing import AS_PRINTED, COLOURS, panels
from reports.study._study import ClaimFinding

HOLDS = "#DCEFE6"
VERDICT_COLOURS = {
    "reproduced": COLOURS[2],
    "contradicted": COLOURS[1],
    "undecided": COLOURS[6],
    "not enough runs": "#B0B0B0",
}
UNITS = {"points": "first minus second (points)", "%": "bytes or epochs (%)"}
LINEAR = {"points": 1.0, "%": 10.0}
"""Up to here the axis is linear, beyond it logarithmic."""
MOST_TICKS = 3  # on one side of 0
ROW, FRAME = 0.17, 1.1  # inches of a claim, and of axis and legend


def shown_findings(found: Sequence[ClaimFinding], unit: str) -> list[ClaimFinding]:
    """Those that a panel shows: claims with an interval; the size of an effect is seen beside its order."""
    return [
        one for one in found
        if one.claim.unit == unit and one.claim.judge != "size" and one.found is not None and one.found.count > 1
    ]  # fmt: skip


def draw_effects(found: Sequence[ClaimFinding], paths: tuple[Path, Path]) -> None:
    """One panel for scores and one for bytes and epochs, as far as there are such claims."""
    rows = {unit: shown_findings(found, unit) for unit in UNITS}
    rows = {unit: each for unit, each in rows.items() if each} or {"points": []}
    tallest = max(len(each) for each in rows.values())
    with panels(paths, len(rows), height=max(1.6, ROW * tallest + FRAME), columns=2) as axes:
        for panel, (unit, each) in zip(axes, rows.items(), strict=True):
            _panel(panel, each, unit, tallest)


def _panel(panel: Axes, found: list[ClaimFinding], unit: str, rows: int) -> None:
    """One row per claim, the first at the top of `rows`."""
    limit, places = _limit(found, LINEAR[unit]), range(rows - 1, rows - 1 - len(found), -1)
    for at, one in zip(places, found, strict=True):
        assert one.found is not None
        low, high = (min(max(end, -limit), limit) for end in (one.claim.band.low, one.claim.band.high))
        panel.barh(at, high - low, left=low, height=0.9, color=HOLDS, linewidth=0, zorder=0, label="claim holds here")
        colour = VERDICT_COLOURS[one.judgement.verdict]
        style: Any = {"color": colour, "markersize": 3.5, "linewidth": 1.4}
        panel.errorbar(one.found.mean, at, xerr=one.found.half_width(), fmt="o", **style, label=one.judgement.verdict)
        if one.claim.difference is not None:
            panel.scatter([one.claim.difference], [at], **AS_PRINTED, marker="D", label="printed")
    panel.axvline(0, color="#404040", linewidth=0.6)
    panel.set_xscale("symlog", linthresh=LINEAR[unit])
    panel.set_xlim(-limit, limit)
    ticks = axis_ticks(LINEAR[unit], limit)
    panel.set_xticks([*(-tick for tick in reversed(ticks)), 0, *ticks])
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.minorticks_off()
    panel.set_yticks(places, [_label(one) for one in found], fontsize=6)
    panel.set_ylim(-0.7, max(rows, 1) - 0.3)
    panel.set_xlabel(UNITS[unit])


def axis_ticks(linear: float, limit: float) -> list[float]:
    """Ticks above 0 of an axis up to `limit`; of powers of ten only, where the labels of more would overlap."""
    steps = [linear * step * 10**power for power in range(4) for step in (1, 3)]
    ticks = [tick for tick in steps if tick < limit]
    return ticks if len(ticks) <= MOST_TICKS else ticks[::2]


def _limit(found: list[ClaimFinding], linear: float) -> float:
    """Half the width of the axis, a little more than what it shows."""
    ends = [abs(one.claim.difference or 0.0) for one in found]
    ends += [abs(one.found.mean) + one.found.half_width() for one in found if one.found is not None]
    return 1.5 * max([2 * linear, *ends])


def _label(one: ClaimFinding) -> str:
    """The claim's name and graph, without its paper and how it is judged."""
    return one.claim.key.partition("/")[2].rpartition(" (")[0]
