"""The rows of a table or figure: all of them as a list, and in the paper's own layout; each says how it is judged."""

from __future__ import annotations

from html import escape

from reports.core.null_models import NULLS
from reports.core.rendering import PaperLayout, both_numbers, shown_frame, shown_number
from reports.core.table import CLOSE, ENOUGH, POINTS, Item, Row
from reports.whole.page._anchors import Anchors, slug, verdict_of
from reports.whole.page._markup import NUMBER_COLUMNS, mark, wide

RULES = {
    "error": f"Judged by its error: reproduced within {100 * CLOSE:.0f} % of the printed number.",
    "bound": "Ours leaves out a cost that the printed number holds: it can only be too high.",
    "readings": "It depends on what is not printed, settings or which part a logged rank has: undecided where the "
    "printed number lies within or near what plausible settings or all ranks give, contradicted outside.",
    "points": f"Judged by its distance: reproduced within {POINTS:g} point of the printed score.",
    "difference": "A difference of scores, judged with its 95 % interval.",
    "order": "Only the order of such numbers is judged, below.",
    "none": "Shown, not judged here.",
}
ASIDE = {"error": "number less", "how": "less", "data": "aside", "note": "aside"}
"""Columns that a narrow screen leaves out: they stand in what the row opens."""
CELL_ORDER = ("contradicted", "undecided", "reproduced", "theory", "cannot be judged")


def rows_table(key: str, item: Item, anchors: Anchors) -> str:
    """All rows, a line each: a button that opens what is behind it, its numbers, its verdict."""
    frame = shown_frame(item)
    columns = [name for name in frame.columns if name != "conflict"]  # the verdict says it
    named = {name: ASIDE.get(name, "number" if name in NUMBER_COLUMNS else "") for name in columns}
    css = {name: f' class="{value}"' if value else "" for name, value in named.items()}
    head = "".join(f"<th{css[c]}>{escape(str(c))}</th>" for c in columns)
    lines = []
    for row, anchor, line in zip(item.rows, anchors.rows(key), frame.to_dict("records"), strict=True):
        cells = []
        for column in columns:
            text = escape(str(line[column]))
            if column == "row":
                text = f'{mark(anchor, "this row")}<button type="button" class="more" aria-expanded="false">{text}'
                text += "</button>"
            here = f' class="v-{slug(verdict_of(row))}"' if column == "verdict" else css[column]
            cells.append(f"<td{here}>{text}</td>")
        why = escape(why_of(row, anchors.repeats(row)))
        lines.append(f'<tr{anchors.attributes(row, anchor)} data-why="{why}">{"".join(cells)}</tr>')
    return wide(f'<table class="rows"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>')


def why_of(row: Row, repeats: bool) -> str:
    """How a row is judged, in sentences."""
    if row.how == "fitted":
        said = ["A constant was fitted on this number: it is no claim."]
    elif row.how == "quoted":
        said = ["An input of the model, no claim."]
    elif row.how == "needs data":
        said = ["It needs a graph that is not here."]
    elif row.decided is not None:
        said = ["Decided by a study of many seeds."]
    else:
        said = [RULES[row.judge]]
    if row.conflict:
        said.append(f"The paper contradicts itself here (CONSISTENCY.md, {row.conflict}): not counted.")
    if row.seeds is not None:
        said.append(f"{row.seeds} seeds" + (f", too few to be judged: {ENOUGH} are." if row.few else "."))
    if row.low is not None and row.high is not None:
        said.append("In brackets the 90 % range of the prediction.")
    elif row.interval is not None:
        said.append("Behind \u00b1 half the width of the 95 % interval.")
    nulls = [
        f"{text} {shown_number(value)} {row.unit}"
        for name, text in NULLS.items()
        if row.null is not None and (value := getattr(row.null, name)) is not None
    ]
    if nulls:
        said.append(f"Without a model one would say: {'; '.join(nulls)}.")
    if repeats:
        said.append("The paper makes the same claim in another place, where it counts.")
    return " ".join(said)


def as_printed(layout: PaperLayout, anchors: Anchors) -> str:
    """The paper's rows and columns; a cell holds printed / ours, coloured by its outcome, and leads to its row."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("printed / ours", *layout.columns))
    lines = []
    for name in layout.rows:
        cells = []
        for column in layout.columns:
            rows = layout.cells.get((name, column), ())
            held = " ".join(dict.fromkeys(slug(verdict_of(row)) for row in rows))
            content = "".join(_cell(row, anchors) for row in rows)
            cells.append(f'<td class="{_cell_class(rows)}" data-holds="{held}">{content}</td>' if rows else "<td></td>")
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    return wide(f'<table class="paper"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>')


def _cell(row: Row, anchors: Anchors) -> str:
    said = f"{row.quantity} ({row.unit}), {row.how}: {row.verdict}" + (f"; {row.note}" if row.note else "")
    return f'<a href="#{anchors.of(row)}" title="{escape(said)}">{escape(both_numbers(row))}</a>'


def _cell_class(rows: tuple[Row, ...]) -> str:
    outcomes = {row.outcome for row in rows}
    found = next((outcome for outcome in CELL_ORDER if outcome in outcomes), None)
    if found is not None:
        return f"v-{slug(found)}"
    return "input" if any(row.how in ("fitted", "quoted") for row in rows) else "none"
