"""Tables and figures of a report as text: a frame of their rows, Markdown, CSV, LaTeX, and the paper's own layout."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from harness.numbers import DASH, significant
from reports.core.table import COLUMNS, Item, Row, finite


def rows_frame(item: Item) -> pd.DataFrame:
    """A line per row, columns `COLUMNS`; errors as fractions."""
    lines = [
        (r.label, r.quantity, r.unit, finite(r.published), finite(r.ours), r.error)
        + (r.how, r.verdict, r.data, r.conflict, r.note, r.low, r.high)
        for r in item.rows
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS))


def shown_frame(item: Item) -> pd.DataFrame:
    """The frame as text: numbers to four digits, errors in per cent, columns without content left out."""
    frame = rows_frame(item)
    frame["published"] = [shown_number(finite(value)) for value in frame["published"]]
    frame["ours"] = [with_interval(row) for row in item.rows]
    frame["error"] = [DASH if math.isnan(v) else f"{100 * v:+.0f} %" for v in frame["error"].astype(float)]
    empty = [name for name in ("data", "conflict", "note") if not frame[name].any()]
    return frame.drop(columns=[*empty, "low", "high"])


def table_csv(item: Item) -> str:
    """Comma-separated, full precision."""
    return str(rows_frame(item).to_csv(index=False))


def table_latex(item: Item) -> str:
    """A `tabular` of the shown columns, escaped; no longer notes, which are in the other formats."""
    frame = shown_frame(item)
    text: str = (
        frame.drop(columns=[name for name in ("note", "data", "conflict") if name in frame])
        .style.hide(axis="index")
        .format(escape="latex")
        .to_latex(hrules=True)
    )
    return text


def table_markdown(item: Item) -> str:
    """Title, the paper's layout where there is one, all rows, orderings, assumptions, null models and commands."""
    parts = [f"# {_cell(item.title)}"]
    layout = paper_layout(item)
    if layout is not None:
        lines = [[name, *(_joined(layout.cells.get((name, c), ())) for c in layout.columns)] for name in layout.rows]
        parts += ["Every cell: printed / ours.", _grid(["", *layout.columns], lines)]
    frame = shown_frame(item)
    parts.append(_grid(list(frame.columns), frame.itertuples(index=False)))
    lists = (
        ("Orderings", [ordering.line() for ordering in item.orderings]),
        ("Null models", [skill.text() for skill in item.skills()]),
        ("Fitted constants", [fitted.text() for fitted in item.fits]),
        ("Assumptions", item.assumptions),
    )
    parts += [f"## {name}\n\n" + "\n".join(f"* {_cell(line)}" for line in lines) for name, lines in lists if lines]
    if item.commands:
        parts.append("## Commands\n\n" + "\n".join(f"    {command}" for command in item.commands))
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class PaperLayout:
    """The paper's own rows and columns, in their order, and the rows of ours that belong into each cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[Row, ...]]


def paper_layout(item: Item) -> PaperLayout | None:
    """The paper's table; None where no row says where it stands."""
    cells: dict[tuple[str, str], tuple[Row, ...]] = {}
    for row in item.rows:
        if row.at is not None:
            cells[row.at] = (*cells.get(row.at, ()), row)
    if not cells:
        return None
    names, columns = (tuple(dict.fromkeys(at[side] for at in cells)) for side in (0, 1))
    return PaperLayout(names, columns, cells)


def both_numbers(row: Row) -> str:
    """A cell: the printed number and ours."""
    return f"{shown_number(finite(row.published))} / {with_interval(row)}"


def with_interval(row: Row) -> str:
    """Our number, with its interval or range where it has one."""
    ours = shown_number(finite(row.ours))
    if row.low is not None and row.high is not None:
        return f"{ours} ({significant(row.low)} to {significant(row.high)})"
    return ours if row.interval is None or row.ours is None else f"{ours} \u00b1 {significant(row.interval, 2)}"


def shown_number(value: float | None) -> str:
    """Four significant digits; counts keep all their digits."""
    if value is None:
        return DASH
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    shown = significant(value, 4)
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _joined(rows: Iterable[Row]) -> str:
    return "; ".join(map(both_numbers, rows)) or DASH


def _grid(columns: Iterable[object], lines: Iterable[Iterable[object]]) -> str:
    head = [*map(_cell, columns)]
    body = ["| " + " | ".join(_cell(value) for value in line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body])


def _cell(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
