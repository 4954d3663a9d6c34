"""A report as one HTML file that needs no network and no script: verdicts, tables, figures, assumptions.

Every text is escaped; figures are embedded as images, so that no script in them can run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from harness.console import DASH
from reports.core.rendering import shown_frame, shown_number
from reports.core.table import Item, Ordering, PaperTable, verdict_line
from reports.whole.papers import by_paper
from reports.whole.produce import Entry
from reports.whole.verdicts import paper_rows, uncounted_orderings, unjudged, worst_rows, wrong_orderings

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
RULES = (
    "A number is right within 15 % of the printed one, a score of the paper's own graph within one point. Fitted rows, "
    "inputs, and rows and orderings of which the paper contradicts itself count nowhere; nor do orderings that follow "
    "from theory."
)
NUMBERS = ("published", "ours", "error")
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d8dde3; --page: #ffffff; --band: #f4f6f8;
  --right: #0b6e4f; --off: #a33b00; --mark: #7a5c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa4b0; --line: #363d46; --page: #14171b;
  --band: #1d2127; --right: #5fc9a0; --off: #ff9b6a; --mark: #e0c060; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; }
h2 { border-bottom: 2px solid var(--line); } h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p { margin: .3rem 0 .8rem; } .soft, .verdict { color: var(--soft); } a { color: inherit; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; margin: .4rem 0 .8rem; }
th, td { padding: .22rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { background: var(--band); font-weight: 600; } .number { text-align: right; white-space: nowrap; }
td:first-child { min-width: 13rem; } td.right, td.off, td.soft { white-space: nowrap; }
.right { color: var(--right); } .off { color: var(--off); } .mark { color: var(--mark); }
img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 4px; padding: .4rem; }
pre { background: var(--band); padding: .6rem; overflow-x: auto; font-size: .8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
ul { margin: .2rem 0 .8rem; padding-left: 1.2rem; } nav ul { columns: 18rem; column-gap: 2.5rem; }
summary { cursor: pointer; }
figure { margin: .6rem 0; } figcaption { color: var(--soft); font-size: .86rem; }
@media print { body { max-width: none; font-size: 11px; } h3, figure, tr { break-inside: avoid; } }
"""


def page(entries: Sequence[Entry], made: str) -> str:
    """The whole page. `made` is the command and the settings that it was made with."""
    keys = [entry.key for entry in entries]
    done = {entry.key: entry for entry in entries}
    papers = [(paper, [done[key] for key in mine]) for paper, mine in by_paper(keys)]
    body = [
        "<h1>haloscope: published results, reproduced and judged</h1>",
        _p(f"Made by {made}. {RULES}", "soft"),
        _contents([(paper.title, mine) for paper, mine in papers]),
        _verdicts(entries),
    ]
    for paper, mine in papers:
        body.append(f"<h2>{escape(paper.title)}</h2>")
        body += [_section(entry) for entry in mine]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>haloscope report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _contents(papers: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    parts = ["<nav><h2>Contents</h2>"]
    for title, entries in papers:
        links = [f'<a href="#{_anchor(entry.key)}">{escape(_title(entry))}</a>' for entry in entries]
        parts.append(f"<p><strong>{escape(title)}</strong></p>" + _list(links, raw=True))
    return "\n".join([*parts, "</nav>"])


def _verdicts(entries: Sequence[Entry]) -> str:
    """Per paper, then the worst rows, the wrong orderings, and what was not judged."""
    parts = ["<h2>Verdicts</h2>", _grid(_verdict_lines(entries))]
    worst = [
        {
            "table": line["key"],
            "row": line["row"],
            "quantity": f"{line['quantity']} ({line['unit']})",
            "published": shown_number(line["published"]),
            "ours": shown_number(line["ours"]),
            "error": f"{100 * line['error']:+.0f} %",
            "note": line["note"],
        }
        for line in worst_rows(entries)
    ]
    if worst:
        parts += ["<h3>The rows that are furthest off</h3>", _grid(worst)]
    wrong = [f"{key}: {line}" for key, line in wrong_orderings(entries)]
    if wrong:
        parts += ["<h3>Orderings that came out otherwise</h3>", _list(wrong)]
    reasons = [f"{count} rows: {reason}" for reason, count in unjudged(entries).items()]
    reasons += [f"{count} orderings: {reason}" for reason, count in uncounted_orderings(entries).items()]
    if reasons:
        parts += ["<h3>Not counted</h3>", _list(reasons)]
    return "\n".join(parts)


def _verdict_lines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "paper": line["paper"],
            "tables": line["tables"],
            "figures": line["figures"],
            "failed": line["failed"],
            "rows": line["rows"],
            "times judged": line["judged_times"],
            "median error, times and speed-ups": _per_cent(line["median_error_of_times"]),
            "tables within 15 %": f"{line['close_tables']} of {line['judged_tables']}",
            "other numbers": line["judged_others"],
            "median error, others": _per_cent(line["median_error_of_others"]),
            "scores within a point": f"{line['close_scores']} of {line['scores']}",
            "orderings right": f"{line['orderings_right']} of {line['orderings']}",
        }
        for line in paper_rows(entries)
    ]


def _per_cent(error: float | None) -> str:
    return DASH if error is None else f"{100 * error:.1f} %"


def _section(entry: Entry) -> str:
    head = f'<h3 id="{_anchor(entry.key)}">{escape(_title(entry))}</h3>'
    item = entry.item
    if item is None:
        return head + _p(f"{entry.key} could not be made: {entry.message}", "off")
    parts = [head, _p(f"{entry.key}: {verdict_line(item)}", "verdict")]
    if not isinstance(item, PaperTable):
        picture = next((path for path in item.paths if path.suffix == ".svg"), item.paths[0])
        parts.append(
            f'<figure><img alt="{escape(item.title)}" src="{_inlined(picture)}">'
            f"<figcaption>{escape(item.caption)}</figcaption></figure>"
        )
    if item.rows:
        parts.append(_grid(shown_frame(item).to_dict("records"), _verdict_class))
    return "\n".join([*parts, _orderings(item.orderings), _basis(item)])


def _orderings(orderings: Sequence[Ordering]) -> str:
    if not orderings:
        return ""
    classes = {"right": "right", "wrong": "off", "not judged": "soft"}
    lines = [f'<span class="{classes[o.verdict]}">{escape(o.verdict)}</span> {escape(o.line())}' for o in orderings]
    return "<p><strong>Orderings</strong></p>" + _list(lines, raw=True)


def _basis(item: Item) -> str:
    """Assumptions, and the commands in a collapsed element."""
    parts = []
    if item.assumptions:
        parts.append("<p><strong>Assumptions</strong></p>" + _list(item.assumptions))
    if item.commands:
        text = escape("\n".join(item.commands))
        parts.append(f"<details><summary>Commands ({len(item.commands)})</summary><pre>{text}</pre></details>")
    return "\n".join(parts)


def _verdict_class(column: str, text: str) -> str:
    if column != "verdict":
        return ""
    if "contradicts itself" in text:
        return "mark"
    if text.startswith("within"):
        return "right"
    return "off" if text.startswith(("off", "no result")) else "soft"


def _grid(lines: Sequence[dict[Any, Any]], css: Callable[[str, str], str] = lambda column, text: "") -> str:
    """A table of text; columns of numbers to the right."""
    columns = list(lines[0]) if lines else []
    right = {c for c in columns if c in NUMBERS or all(isinstance(line[c], int) for line in lines)}
    head = "".join(f'<th class="{"number" if c in right else ""}">{escape(str(c))}</th>' for c in columns)
    rows = []
    for line in lines:
        cells = (
            f'<td class="{"number" if c in right else css(str(c), str(line[c]))}">{escape(str(line[c]))}</td>'
            for c in columns
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _list(lines: Iterable[str], raw: bool = False) -> str:
    """Bullets; `raw` lines are markup already."""
    return "<ul>" + "".join(f"<li>{line if raw else escape(line)}</li>" for line in lines) + "</ul>"


def _p(text: str, css: str) -> str:
    return f'<p class="{css}">{escape(text)}</p>'


def _title(entry: Entry) -> str:
    return entry.key if entry.item is None else entry.item.title


def _anchor(key: str) -> str:
    return escape(key.replace("/", "-"))


def _inlined(path: Path) -> str:
    return f"data:{IMAGES[path.suffix]};base64,{b64encode(path.read_bytes()).decode()}"
