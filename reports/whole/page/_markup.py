"""Pieces of HTML from text: every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from reports.whole.page._anchors import item_anchor
from reports.whole.produce import Entry

NUMBER_COLUMNS = ("published", "ours", "error")


class Markup(str):
    """Text that is escaped already."""


def html_text(value: object) -> str:
    """A value as markup."""
    return value if isinstance(value, Markup) else escape(str(value))


def paragraph(text: object, css: str) -> str:
    """A paragraph."""
    return f'<p class="{css}">{html_text(text)}</p>'


def bullets(lines: Iterable[object]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{html_text(line)}</li>" for line in lines) + "</ul>"


def link(anchor: str, text: str, state: str = "") -> Markup:
    """A link to a place on the page. `state`: where it leads once the page's script runs (a filter)."""
    more = f' data-state="{escape(state)}"' if state else ""
    return Markup(f'<a href="#{escape(anchor)}"{more}>{html_text(text)}</a>')


def mark(anchor: str, of: str) -> str:
    """The mark beside a place that a pointer or the keyboard shows: the link to itself."""
    return f'<a class="at" href="#{escape(anchor)}" aria-label="Link to {escape(of)}">#</a>'


def heading(level: int, text: str, anchor: str) -> str:
    """A heading with an anchor and its mark."""
    name = escape(anchor)
    return f'<h{level} id="{name}">{escape(text)} {mark(anchor, text)}</h{level}>'


def collapsed(title: object, content: str, *, anchor: str = "", css: str = "", more: str = "") -> str:
    """A collapsed element that a click opens. `more`: further attributes."""
    named = (f' id="{escape(anchor)}"' if anchor else "") + (f' class="{css}"' if css else "") + more
    return f"<details{named}><summary>{html_text(title)}</summary>{content}</details>"


def html_table(lines: Sequence[dict[Any, Any]], css: str = "") -> str:
    """A table of text, a dictionary for every line; columns of numbers to the right."""
    columns = list(lines[0]) if lines else []
    right = {c for c in columns if c in NUMBER_COLUMNS or all(isinstance(line[c], int) for line in lines)}
    number = {column: ' class="number"' if column in right else "" for column in columns}
    head = "".join(f"<th{number[c]}>{escape(str(c))}</th>" for c in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td{number[c]}>{html_text(line[c])}</td>" for c in columns) + "</tr>" for line in lines
    )
    named = f' class="{css}"' if css else ""
    return wide(f"<table{named}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")


def wide(content: str) -> str:
    """Scrolls sideways where it is wider than the page."""
    return f'<div class="wide">{content}</div>'


def title_of(entry: Entry) -> str:
    """An item's title, or its key where it could not be made."""
    return entry.key if entry.item is None else entry.item.title


def item_link(key: str) -> Markup:
    """A link to a table or figure by its key."""
    return link(item_anchor(key), key)
