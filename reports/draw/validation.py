"""Predicted against measured epoch times: a scatter plot, and the records as Markdown and CSV tables.

Draws records of `harness.running.validation` as they are: horizontal bars are the quartiles of measured epochs,
vertical ones the 90 % intervals of predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.machine import write_atomically
from harness.numbers import significant
from harness.running.validation import VALIDATED_COMPONENTS, Verdict, verdict
from reports.draw.figures import MARKERS, STYLE, method_colours

Record = dict[str, Any]

BANDS = ((0.2, "#F0F0F0"), (0.1, "#DDDDDD"))
"""Relative errors that are shaded, widest first."""


def write_validation(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write `scatter.png`, `scatter.svg`, `table.md` and `table.csv` into `folder`; returns their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(record) for record in records]
    write_atomically(folder / "table.md", _markdown(rows, records).encode())
    write_atomically(folder / "table.csv", pd.DataFrame(rows).to_csv(index=False).encode())
    return [*scatter(records, folder / "scatter"), folder / "table.md", folder / "table.csv"]


def scatter(records: Sequence[Record], out_stem: Path) -> list[Path]:
    """Draw predicted against measured epoch time of every cell; returns the paths of the PNG and the SVG."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 4.0), layout="constrained")
        axes = figure.subplots()
        times = [record[side]["epoch"] * 1e3 for record in records for side in ("predicted", "measured")]
        low, high = min(times) / 1.4, max(times) * 1.4
        _bands(axes, low, high)
        handles = _points(axes, records)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        axes.set_xlabel("measured epoch time, median (ms)")
        axes.set_ylabel("predicted epoch time (ms)")
        axes.set_title(_title(verdict(records)), loc="left")
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
        paths = [out_stem.with_name(out_stem.name + suffix) for suffix in (".png", ".svg")]
        figure.savefig(paths[0], dpi=200, bbox_inches="tight", metadata={"Software": None})
        figure.savefig(paths[1], bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return paths


def _title(judgement: Verdict) -> str:
    judged = judgement.cells - judgement.disturbed
    if not judged:
        return f"{judgement.cells} cells, all disturbed by others"
    hollow = f" (hollow: {judgement.disturbed} disturbed)" if judgement.disturbed else ""
    return f"{judged} cells{hollow}\nmedian error {judgement.median:.1%}, 90 % within {judgement.p90:.1%}"


def _bands(axes: Axes, low: float, high: float) -> None:
    """The diagonal, and a band around it for each error."""
    line = np.asarray([low, high])
    for error, colour in BANDS:
        axes.fill_between(line, line * (1 - error), line * (1 + error), color=colour, linewidth=0)
    axes.plot(line, line, color="#808080", linewidth=0.8)


def _points(axes: Axes, records: Sequence[Record]) -> list[Line2D]:
    """A colour per method, a marker per cluster; hollow where other load disturbed it. Returns the legend's entries."""
    colours = method_colours(record["method"] for record in records)
    places = list(dict.fromkeys((record["cluster"], record["parts"]) for record in records))
    for record in records:
        at = places.index((record["cluster"], record["parts"]))
        colour, quiet = colours[record["method"]], not record["disturbed"]
        predicted = record["predicted"]["epoch"]
        low, high = record["interval"].get("epoch", (predicted, predicted))
        axes.errorbar(
            record["measured"]["epoch"] * 1e3,
            predicted * 1e3,
            yerr=[[max(0.0, predicted - low) * 1e3], [max(0.0, high - predicted) * 1e3]],
            xerr=record["measured"]["spread"] * 1e3 / 2,
            color=colour,
            marker=MARKERS[at % len(MARKERS)],
            markersize=4,
            markerfacecolor=colour if quiet else "white",
            linewidth=0.6,
        )
    handles = [Line2D([], [], color=colour, marker="o", linestyle="", label=name) for name, colour in colours.items()]
    for at, (cluster, parts) in enumerate(places):
        marker, label = MARKERS[at % len(MARKERS)], f"{cluster}, {parts} ranks"
        handles.append(Line2D([], [], color="#606060", marker=marker, linestyle="", label=label))
    return handles


def _row(record: Record) -> dict[str, Any]:
    """One record as a flat row; seconds."""
    named = {
        name: record[name] for name in ("method", "dataset", "model", "precision", "partitioner", "parts", "cluster")
    }
    for name in VALIDATED_COMPONENTS:
        named |= {f"{side}_{name}": record[side][name] for side in ("predicted", "measured")}
    rest = ("error", "bytes_equal", "foreign_load", "disturbed", "epochs")
    low, high = record["interval"].get("epoch", (None, None))
    named |= {"predicted_epoch_low": low, "predicted_epoch_high": high}
    return named | {"spread": record["measured"]["spread"]} | {name: record[name] for name in rest}


def _markdown(rows: Sequence[dict[str, Any]], records: Sequence[Record]) -> str:
    """The table, in milliseconds, and the verdict on all records."""
    heading = ["method", "dataset", "cluster", "parts", *(f"{name} ms" for name in VALIDATED_COMPONENTS)]
    heading += ["90 % ms", "spread ms", "error", "bytes", "others"]
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for row in rows:
        pairs = [(row[f"predicted_{name}"], row[f"measured_{name}"]) for name in VALIDATED_COMPONENTS]
        times = [" / ".join(significant(1e3 * seconds) for seconds in pair) for pair in pairs]
        cells = [row["method"], f"{row['dataset']}, {row['model']}, {row['partitioner']}", row["cluster"]]
        ends = [row["predicted_epoch_low"], row["predicted_epoch_high"]]
        held = "-" if None in ends else " to ".join(significant(1e3 * end) for end in ends)
        cells += [str(row["parts"]), *times, held, significant(1e3 * row["spread"]), f"{100 * row['error']:+.1f} %"]
        cells += [
            "equal" if row["bytes_equal"] else "differ",
            f"{100 * row['foreign_load']:.0f} %" + (" (left out)" if row["disturbed"] else ""),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    head = (
        f"{verdict(records)}. Milliseconds, predicted / measured: medians of {rows[0]['epochs']} epochs after the "
        "warm-up; 90 %: interval of the predicted epoch; spread: interquartile range; others: share of the cores that "
        "other programs kept busy"
    )
    return f"{head}.\n\n" + "\n".join(lines) + "\n"
