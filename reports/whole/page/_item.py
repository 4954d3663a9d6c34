"""One table or figure on the page: the paper's own layout, then our long list of rows, orderings, assumptions."""

from __future__ import annotations

from html import escape

from reports.core.claims import verdict_line
from reports.core.rendering import PaperLayout, both_numbers, paper_layout, shown_frame
from reports.core.table import Item, PaperTable, Row
from reports.whole.page._markup import anchor_of, bullets, collapsed, embedded, html_table, paragraph, title_of, wide
from reports.whole.produce import Entry


def item_section(entry: Entry) -> str:
    """The section of an item, or why there is none."""
    head = f'<h3 id="{escape(anchor_of(entry.key))}">{escape(title_of(entry))}</h3>'
    item = entry.item
    if item is None:
        return head + paragraph(f"{entry.key} could not be made: {entry.message}", "off")
    parts = [head, paragraph(f"{entry.key}: {verdict_line(item)}", "verdict")]
    if not isinstance(item, PaperTable):
        picture = next((path for path in item.paths if path.suffix == ".svg"), item.paths[0])
        parts.append(
            f'<figure><img alt="{escape(item.title)}" src="{embedded(picture)}">'
            f"<figcaption>{escape(item.caption)}</figcaption></figure>"
        )
    layout = paper_layout(item)
    if layout is not None:
        parts.append(_as_printed(layout, entry))
    if item.rows:
        rows = html_table(
            shown_frame(item).to_dict("records"), _verdict_class, [anchor_of(entry.key, r, entry) for r in item.rows]
        )
        parts.append(rows if layout is None else collapsed(f"All rows ({len(item.rows)})", rows))
    return "\n".join([*parts, _orderings(item, entry), _basis(item)])


def _as_printed(layout: PaperLayout, entry: Entry) -> str:
    """The paper's rows and columns; a cell holds printed / ours, coloured by its outcome, and links to its row."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("printed / ours", *layout.columns))
    lines = []
    for name in layout.rows:
        cells = []
        for column in layout.columns:
            rows = layout.cells.get((name, column), ())
            cells.append(f'<td class="{_cell_class(rows)}">{"".join(_cell(row, entry) for row in rows)}</td>')
        lines.append(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>")
    return wide(f'<table class="paper"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>')


def _cell(row: Row, entry: Entry) -> str:
    said = f"{row.quantity} ({row.unit}), {row.how}: {row.verdict}" + (f"; {row.note}" if row.note else "")
    anchor = escape(anchor_of(entry.key, row, entry))
    return f'<a href="#{anchor}" title="{escape(said)}">{escape(both_numbers(row))}</a>'


def _cell_class(rows: tuple[Row, ...]) -> str:
    if not rows:
        return "none"
    outcomes = {row.outcome for row in rows}
    for outcome in ("contradicted", "undecided", "reproduced"):
        if outcome in outcomes:
            return outcome
    return "input" if any(row.how in ("fitted", "quoted") for row in rows) else "none"


def _orderings(item: Item, entry: Entry) -> str:
    if not item.orderings:
        return ""
    classes = {"reproduced": "right", "contradicted": "off", "undecided": "mark"}
    lines = [
        f'<li id="{escape(anchor_of(entry.key, o, entry))}"><span class="{classes.get(o.outcome, "soft")}">'
        f"{escape(o.outcome)}</span> {escape(o.line())}</li>"
        for o in item.orderings
    ]
    return f"<p><strong>Orderings</strong></p><ul>{''.join(lines)}</ul>"


def _basis(item: Item) -> str:
    """Null models, fitted constants, assumptions, and the commands in a collapsed element."""
    parts = []
    lists = (
        ("Null models", [skill.text() for skill in item.skills()]),
        ("Fitted constants", [fitted.text() for fitted in item.fits]),
        ("Assumptions", item.assumptions),
    )
    for name, lines in lists:
        if lines:
            parts.append(f"<p><strong>{name}</strong></p>" + bullets(lines))
    if item.commands:
        text = escape("\n".join(item.commands))
        parts.append(collapsed(f"Commands ({len(item.commands)})", f"<pre>{text}</pre>"))
    return "\n".join(parts)


def _verdict_class(column: str, text: str) -> str:
    if column != "verdict":
        return ""
    if "contradicts itself" in text or text == "undecided":
        return "mark"
    if text.startswith(("within", "reproduced")):
        return "right"
    return "off" if text.startswith(("off", "no result", "contradicted")) else "soft"
