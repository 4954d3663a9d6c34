"""The whole page: claims, filters, errors, fitted constants, then every paper with its tables and figures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from harness.numbers import DASH
from reports.core.rendering import shown_number
from reports.core.table import CLOSE, OUTCOMES
from reports.whole.page._anchors import NO_CLAIM, Anchors, item_anchor, slug
from reports.whole.page._claims import Mine, claims_of, claims_table, glance, meanings, short_title
from reports.whole.page._item import damage_line, item_section, pictures_of
from reports.whole.page._markup import (
    Markup,
    bullets,
    collapsed,
    heading,
    html_table,
    item_link,
    link,
    paragraph,
    title_of,
)
from reports.whole.papers import by_paper
from reports.whole.produce import Entry
from reports.whole.verdicts import (
    fitted_constants,
    paper_rows,
    skill_rows,
    uncounted_orderings,
    unjudged,
    worst_rows,
    wrong_orderings,
)

RULES = (
    f"A number is reproduced within {100 * CLOSE:.0f} % of the printed one, a score of the paper's own graph within "
    "one point, a difference of scores where our 95 % interval lies within half a point or a quarter of it. A number "
    "that depends on settings which are printed nowhere is undecided within what plausible ones give. Fitted "
    "rows and inputs are no claims. An ordering that follows from inputs, a fit or a formula, or that holds with "
    "bandwidths, device speed and boundary nodes off by 2 either way, is theory and counts nowhere; a claim that a "
    "paper repeats counts once."
)
ENLARGED = (
    '<dialog id="enlarged" aria-labelledby="enlarged-title"><header><h2 id="enlarged-title"></h2>'
    '<button type="button" class="size" aria-pressed="false">Full size</button>'
    '<button type="button" class="close" autofocus>Close</button></header>'
    '<div class="canvas" tabindex="0"></div></dialog>'
)


def page(entries: Sequence[Entry], made: str) -> str:
    """The whole page. `made` is the command and the settings that it was made with."""
    done = {entry.key: entry for entry in entries}
    papers = [(paper, [done[key] for key in mine]) for paper, mine in by_paper(list(done))]
    anchors, pictures = Anchors(entries), pictures_of(entries)
    parts = [
        "<header><h1>haloscope: published results, reproduced and judged</h1>",
        damage_line(entries, pictures),
        paragraph(Markup(glance(entries)), "glance"),
        "</header>",
        heading(2, "Claims", "claims"),
        claims_table(papers, entries),
        meanings(),
        collapsed("How claims are judged, and how this page was made", paragraph(f"{RULES} Made by {made}.", "soft")),
        _errors(entries, anchors),
        _contents(papers),
        _filters(papers),
        '<main id="papers">',
    ]
    for paper, mine in papers:
        body = [heading(2, paper.title, paper.key), claims_of(paper, mine, anchors)]
        body += [item_section(entry, anchors, pictures) for entry in mine]
        parts.append(f'<section class="of-paper" data-paper="{escape(paper.key)}">{"".join(body)}</section>')
    return _document("\n".join([*parts, "</main>", ENLARGED]))


def _document(body: str) -> str:
    """One file that loads nothing; only its own script and style run."""
    folder = files("reports.whole.page")
    style, script = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>haloscope report</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _filters(papers: Mine) -> str:
    """Check boxes by paper and by verdict; they appear where the script runs."""
    boxes = {
        "paper": [(paper.key, short_title(paper), "") for paper, _ in papers],
        "verdict": [(slug(name), name, f"v-{slug(name)}") for name in (*OUTCOMES, NO_CLAIM)],
    }
    sets = "".join(
        f"<fieldset><legend>{name}</legend>"
        + "".join(
            f'<label><input type="checkbox" name="{name}" value="{value}"><span class="{css}">{escape(text)}</span>'
            "</label>"
            for value, text, css in given
        )
        + "</fieldset>"
        for name, given in boxes.items()
    )
    return (
        f'<form id="filters" aria-label="Show only" autocomplete="off" hidden>{sets}'
        '<p><output id="shown" role="status"></output> <button type="reset">Show all</button></p></form>'
    )


def _contents(papers: Mine) -> str:
    parts = []
    for paper, entries in papers:
        links = [link(item_anchor(entry.key), title_of(entry)) for entry in entries]
        parts.append(f"<p><strong>{link(paper.key, paper.title)}</strong></p>{bullets(links)}")
    total = sum(len(entries) for _, entries in papers)
    return f'<nav aria-label="Contents">{collapsed(f"Contents: {total} tables and figures", "".join(parts))}</nav>'


def _errors(entries: Sequence[Entry], anchors: Anchors) -> str:
    """Errors per paper, skill per table, the ledger of fitted constants, the worst rows, and what was not judged."""
    parts = [heading(2, "Errors", "errors"), html_table(_error_lines(entries))]
    skills = [{**line, "table": item_link(line["table"])} for line in skill_rows(entries)]
    if skills:
        title = f"Skill: errors of times beside those of null models ({len(skills)})"
        parts.append(collapsed(title, html_table(skills), anchor="skill"))
    parts.append(_ledger(entries))
    if worst := _worst_lines(entries, anchors):
        parts += [heading(3, "The rows that are furthest off", "worst"), html_table(worst)]
    wrong = [Markup(f"{item_link(key)}: {escape(line)}") for key, line in wrong_orderings(entries)]
    if wrong:
        parts.append(collapsed(f"Orderings that came out otherwise ({len(wrong)})", bullets(wrong), anchor="wrong"))
    reasons = [f"{count} rows: {reason}" for reason, count in unjudged(entries).items()]
    reasons += [f"{count} orderings: {reason}" for reason, count in uncounted_orderings(entries).items()]
    if reasons:
        parts.append(collapsed("Not counted, and why", bullets(reasons), anchor="not-counted"))
    return "\n".join(parts)


def _ledger(entries: Sequence[Entry]) -> str:
    """Every constant that was fitted, the printed row it was fitted on, and what uses it."""
    lines = [
        {**line, "used by": Markup(", ".join(map(item_link, line["used by"].split(", "))))}
        for line in fitted_constants(entries)
    ]
    if not lines:
        return ""
    predicted = sum(row.counts and row.of_time for e in entries if e.item is not None for row in e.item.rows)
    text = f"{len(lines)} numbers were fitted to predict {predicted:,} times and speed-ups; all others are predicted."
    return heading(3, "Ledger of fitted constants", "constants") + paragraph(text, "soft") + html_table(lines)


def _worst_lines(entries: Sequence[Entry], anchors: Anchors) -> list[dict[str, Any]]:
    rows = {
        (entry.key, row.label, row.quantity): anchors.of(row)
        for entry in entries
        if entry.item is not None
        for row in entry.item.rows
    }
    return [
        {
            "table": item_link(line["key"]),
            "row": link(rows[line["key"], line["row"], line["quantity"]], line["row"]),
            "quantity": f"{line['quantity']} ({line['unit']})",
            "published": shown_number(line["published"]),
            "ours": shown_number(line["ours"]),
            "error": f"{100 * line['error']:+.0f} %",
            "note": line["note"],
        }
        for line in worst_rows(entries)
    ]


def _error_lines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "paper": line["paper"].partition(":")[0].partition(",")[0],
            "tables": line["tables"],
            "figures": line["figures"],
            "failed": line["failed"],
            "rows": line["rows"],
            "times judged": line["judged_times"],
            "their median error": _per_cent(line["median_error_of_times"]),
            "constants fitted": line["fitted_constants"],
            "tables within 15 %": _of(line["close_tables"], line["judged_tables"]),
            "other numbers": line["judged_others"],
            "median error, others": _per_cent(line["median_error_of_others"]),
            "scores within a point": _of(line["close_scores"], line["scores"]),
            "orderings right": _of(line["orderings_right"], line["orderings"]),
        }
        for line in paper_rows(entries)
    ]


def _per_cent(error: float | None) -> str:
    return DASH if error is None else f"{100 * error:.1f} %"


def _of(some: int, whole: int) -> str:
    return f"{some} of {whole}" if whole else DASH
