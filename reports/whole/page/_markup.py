"""Pieces of HTML from text: every text is escaped here, figures are embedded as images."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from reports.core.table import Ordering, Row
from reports.whole.produce import Entry

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
NUMBERS = ("published", "ours", "error")


def paragraph(text: str, css: str) -> str:
    """A paragraph."""
    return f'<p class="{css}">{escape(text)}</p>'


def bullets(lines: Iterable[str], raw: bool = False) -> str:
    """A list; `raw` lines are markup already."""
    return "<ul>" + "".join(f"<li>{line if raw else escape(line)}</li>" for line in lines) + "</ul>"


def link(anchor: str, text: str) -> str:
    """A link to a place on the page."""
    return f'<a href="#{escape(anchor)}">{escape(text)}</a>'


def collapsed(title: str, content: str, *, anchor: str = "", opened: bool = False) -> str:
    """A collapsed element that a click opens."""
    named = f' id="{escape(anchor)}"' if anchor else ""
    return f"<details{named}{' open' * opened}><summary>{escape(title)}</summary>{content}</details>"


def html_table(
    lines: Sequence[dict[Any, Any]],
    css: Callable[[str, str], str] = lambda column, text: "",
    anchors: Sequence[str] = (),
) -> str:
    """A table of text; columns of numbers to the right. `anchors`: one per line, to link to. Values that are markup
    already are of type `Markup`."""
    columns = list(lines[0]) if lines else []
    right = {c for c in columns if c in NUMBERS or all(isinstance(line[c], int) for line in lines)}
    head = "".join(f'<th class="{"number" if c in right else ""}">{escape(str(c))}</th>' for c in columns)
    rows = []
    for at, line in enumerate(lines):
        cells = (
            f'<td class="{"number" if c in right else css(str(c), str(line[c]))}">{_text(line[c])}</td>'
            for c in columns
        )
        named = f' id="{escape(anchors[at])}"' if anchors else ""
        rows.append(f"<tr{named}>{''.join(cells)}</tr>")
    return wide(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")


class Markup(str):
    """Text that is escaped already."""


def _text(value: object) -> str:
    return value if isinstance(value, Markup) else escape(str(value))


def wide(content: str) -> str:
    """Scrolls sideways where it is wider than the page."""
    return f'<div class="wide">{content}</div>'


def embedded(path: Path) -> str:
    """An image as a data URL; as an image no script in it can run."""
    return f"data:{IMAGES[path.suffix]};base64,{b64encode(path.read_bytes()).decode()}"


def title_of(entry: Entry) -> str:
    """An item's title, or its key where it could not be made."""
    return entry.key if entry.item is None else entry.item.title


def anchor_of(key: str, claim: Row | Ordering | None = None, entry: Entry | None = None) -> str:
    """The anchor of an item, or of one of its rows or orderings."""
    name = key.replace("/", "-")
    if claim is None or entry is None or entry.item is None:
        return name
    kind, all_of = ("row", entry.item.rows) if isinstance(claim, Row) else ("ordering", entry.item.orderings)
    return f"{name}-{kind}-{next(at for at, one in enumerate(all_of) if one is claim)}"
