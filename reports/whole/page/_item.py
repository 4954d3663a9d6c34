"""One table or figure on the page: the paper's own layout, then our list of rows, orderings, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from reports.core.claims import verdict_line
from reports.core.rendering import paper_layout
from reports.core.table import Item, Plot
from reports.whole.page._anchors import Anchors, item_anchor, slug
from reports.whole.page._markup import Markup, bullets, collapsed, heading, item_link, mark, paragraph, title_of
from reports.whole.page._pictures import Picture, picture
from reports.whole.page._rows import as_printed, rows_table
from reports.whole.produce import Entry

MOST_NAMED = 12  # damaged tables and figures that are named in the line itself; of more, a click shows the names


def item_section(entry: Entry, anchors: Anchors, pictures: Mapping[str, Picture]) -> str:
    """The section of an item, or why there is none."""
    item, anchor = entry.item, item_anchor(entry.key)
    parts = [heading(3, title_of(entry), anchor)]
    if item is None:
        parts.append(paragraph(f"{entry.key} is not here: {entry.message}", "absent"))
    else:
        parts.append(paragraph(f"{entry.key}: {verdict_line(item)}", "soft"))
        if entry.message:
            parts.append(paragraph(f"{entry.key}: {entry.message}", "absent"))
        if isinstance(item, Plot):
            parts.append(_figure(item, pictures[entry.key]))
        layout = paper_layout(item)
        if layout is not None:
            parts.append(as_printed(layout, anchors))
        if item.rows:
            rows = rows_table(entry.key, item, anchors)
            parts.append(
                rows if layout is None else collapsed(f"All rows ({len(item.rows)})", rows, css="all-rows")
            )  # fmt: skip
        parts += [_orderings(entry.key, item, anchors), _basis(item)]
    return f'<section class="item" data-key="{escape(entry.key)}">{"".join(parts)}</section>'


def _figure(plot: Plot, drawn: Picture) -> str:
    parts = [paragraph(f"{plot.key}: {drawn.wrong}", "absent")] if drawn.wrong else []
    if drawn.source:
        size = ' width="{}" height="{}"'.format(*drawn.size) if all(drawn.size) else ""
        parts.append(
            f'<button type="button" class="enlarge" aria-label="Enlarge: {escape(plot.title)}" aria-haspopup="dialog">'
            f'<img alt="{escape(plot.title)}" src="{drawn.source}"{size}></button>'
        )
    return f"<figure>{''.join(parts)}<figcaption>{escape(plot.caption)}</figcaption></figure>"


def _orderings(key: str, item: Item, anchors: Anchors) -> str:
    """The orderings; those that follow from theory are no evidence, and often many: a click shows them."""
    lists: dict[bool, list[str]] = {False: [], True: []}
    for ordering, anchor in zip(item.orderings, anchors.orderings(key), strict=True):
        lists[ordering.outcome == "theory"].append(
            f"<li{anchors.attributes(ordering, anchor)}>{mark(anchor, 'this ordering')}"
            f'<span class="v-{slug(ordering.outcome)}">{escape(ordering.outcome)}</span> {escape(ordering.line())}</li>'
        )
    open_, implied = (f'<ul class="orderings">{"".join(lists[which])}</ul>' for which in (False, True))
    shown = f"<h4>Orderings</h4>{open_}" if lists[False] else ""
    title = f"Orderings that follow from theory ({len(lists[True])})"
    return shown + (collapsed(title, implied, css="by-theory") if lists[True] else "")


def _basis(item: Item) -> str:
    """How to make it, fitted constants, null models, assumptions, and the commands of its runs."""
    parts, named = [], []
    lists = (
        ("Fitted constants", [fitted.text() for fitted in item.fits]),
        ("Assumptions", item.assumptions),
        ("Null models", [skill.text() for skill in item.skills()]),
    )
    for name, lines in lists:
        if lines:
            parts.append(f"<h4>{name}</h4>{bullets(lines)}")
            named.append(f"{name.lower()} ({len(lines)})")
    made = f"<h4>Made by</h4><pre>haloscope report all --only {escape(item.key)} --html</pre>"
    if item.commands:
        named.append(f"commands ({len(item.commands)})")
        made += (
            f"<h4>Its runs</h4><pre>{''.join(f'<code>{escape(line)}{chr(10)}</code>' for line in item.commands)}</pre>"
        )
    title = "What it rests on: " + ", ".join(named) if named else "What it rests on"
    return collapsed(title, made + "".join(parts), css="basis")


def pictures_of(entries: Sequence[Entry]) -> dict[str, Picture]:
    """Of every figure its data URL, and what is wrong with its files."""
    return {entry.key: picture(entry.item) for entry in entries if isinstance(entry.item, Plot)}


def damage_line(entries: Sequence[Entry], pictures: Mapping[str, Picture]) -> str:
    """One line that names everything that is missing or damaged; "" for a whole report."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        said = entry.message or ("it was not made" if entry.item is None else "")
        said = said or (pictures[entry.key].wrong if entry.key in pictures else "")
        if said:
            found.setdefault(said, []).append(item_link(entry.key))
    if not found:
        return ""
    count = sum(map(len, found.values()))
    which = "; ".join(f"{', '.join(links)} ({escape(said)})" for said, links in found.items())
    lead = f"<strong>This page is not whole.</strong> {count} of {len(entries)} tables and figures are missing, "
    lead += "damaged or out of date"
    if count > MOST_NAMED:
        return f'<div class="damage" role="alert">{collapsed(Markup(lead), which)}</div>'
    return f'<p class="damage" role="alert">{lead}: {which}.</p>'
