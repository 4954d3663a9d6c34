"""The whole page: claims, errors, fitted constants, then every paper with its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from harness.console import DASH
from reports.core.rendering import shown_number
from reports.core.table import CLOSE
from reports.whole.page._claims import claims_of, claims_table
from reports.whole.page._item import item_section
from reports.whole.page._markup import anchor_of, bullets, collapsed, html_table, link, paragraph, title_of
from reports.whole.page._style import PAGE_STYLE
from reports.whole.papers import Paper, by_paper
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
    "one point, a difference of scores where our 95 % interval lies within half a point or a quarter of it. Fitted "
    "rows and inputs are no claims. An ordering that follows from inputs, a fit or a formula, or that holds with "
    "bandwidths, device speed and boundary nodes off by 2 either way, is theory and counts nowhere; a claim that a "
    "paper repeats counts once."
)


def page(entries: Sequence[Entry], made: str) -> str:
    """The whole page. `made` is the command and the settings that it was made with."""
    done = {entry.key: entry for entry in entries}
    papers = [(paper, [done[key] for key in mine]) for paper, mine in by_paper(list(done))]
    body = [
        "<h1>haloscope: published results, reproduced and judged</h1>",
        paragraph(f"Made by {made}. {RULES}", "soft"),
        "<h2>Claims</h2>",
        claims_table(papers),
        _contents(papers),
        _errors(entries),
    ]
    for paper, mine in papers:
        body.append(f'<h2 id="{escape(paper.key)}">{escape(paper.title)}</h2>')
        body.append(claims_of(paper, mine))
        body += [item_section(entry) for entry in mine]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>haloscope report</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _contents(papers: Sequence[tuple[Paper, Sequence[Entry]]]) -> str:
    parts = ["<nav><h2>Contents</h2>"]
    for paper, entries in papers:
        links = [link(anchor_of(entry.key), title_of(entry)) for entry in entries]
        parts.append(f"<p><strong>{link(paper.key, paper.title)}</strong></p>" + bullets(links, raw=True))
    return "\n".join([*parts, "</nav>"])


def _errors(entries: Sequence[Entry]) -> str:
    """Errors per paper, skill per table, the ledger of fitted constants, the worst rows, and what was not judged."""
    parts = ["<h2>Errors</h2>", html_table(_error_lines(entries))]
    sections = (
        ("Skill: errors of times beside those of null models", skill_rows(entries)),
        ("Constants that were fitted", fitted_constants(entries)),
    )
    for title, lines in sections:
        if lines:
            parts.append(collapsed(f"{title} ({len(lines)})", html_table(lines)))
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
        parts += ["<h3>The rows that are furthest off</h3>", html_table(worst)]
    wrong = [f"{key}: {line}" for key, line in wrong_orderings(entries)]
    if wrong:
        parts.append(collapsed(f"Orderings that came out otherwise ({len(wrong)})", bullets(wrong)))
    reasons = [f"{count} rows: {reason}" for reason, count in unjudged(entries).items()]
    reasons += [f"{count} orderings: {reason}" for reason, count in uncounted_orderings(entries).items()]
    if reasons:
        parts += ["<h3>Not counted</h3>", bullets(reasons)]
    return "\n".join(parts)


def _error_lines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "paper": line["paper"],
            "tables": line["tables"],
            "figures": line["figures"],
            "failed": line["failed"],
            "rows": line["rows"],
            "times judged": line["judged_times"],
            "median error, times and speed-ups": _per_cent(line["median_error_of_times"]),
            "constants fitted": line["fitted_constants"],
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
