"""What became of the claims of each paper: a table at the top of the page, and the lists that it links to."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from harness.console import DASH
from reports.core.claims import ClaimPlace, distinct_claims
from reports.core.rendering import both_numbers
from reports.core.table import OUTCOMES, Ordering, Outcome, Row
from reports.whole.page._markup import Markup, anchor_of, bullets, collapsed, html_table, link
from reports.whole.papers import Paper
from reports.whole.produce import Entry

MEANINGS: dict[Outcome, str] = {
    "reproduced": "it came out as printed, and could have come out otherwise",
    "contradicted": "it came out otherwise",
    "undecided": "our runs cannot tell: an interval that holds both, fewer than 5 seeds, or nothing was learnt",
    "theory": "it follows from inputs, a fit or a formula, or holds whatever the uncertain inputs are: no evidence",
    "cannot be judged": "without data, without a result, or the paper contradicts itself",
}


def claims_table(papers: Sequence[tuple[Paper, Sequence[Entry]]]) -> str:
    """A line per paper: how many of its claims, numbers and orderings, have each outcome."""
    lines = []
    for paper, entries in papers:
        found = _by_outcome(entries)
        line: dict[str, object] = {
            "paper": Markup(link(paper.key, paper.title)),
            "claims": sum(map(len, found.values())),
        }
        for outcome, places in found.items():
            line[outcome] = Markup(link(_anchor(paper, outcome), str(len(places)))) if places else DASH
        lines.append(line)
    meanings = [f"<strong>{outcome}</strong>: {escape(text)}" for outcome, text in MEANINGS.items()]
    return html_table(lines) + bullets(meanings, raw=True)


def claims_of(paper: Paper, entries: Sequence[Entry]) -> str:
    """The claims of a paper by outcome, each with a link to its row or ordering."""
    by_key = {entry.key: entry for entry in entries}
    parts = []
    for outcome, places in _by_outcome(entries).items():
        if places:
            lines = [_line(key, claim, by_key[key]) for key, claim in places]
            title = f"{outcome}: {len(places)}"
            parts.append(collapsed(title, bullets(lines, raw=True), anchor=_anchor(paper, outcome)))
    return "\n".join(parts)


def _line(key: str, claim: Row | Ordering, entry: Entry) -> str:
    if isinstance(claim, Row):
        text = f"{claim.label}, {claim.quantity}: {both_numbers(claim)} {claim.unit}; {claim.verdict}"
    else:
        text = claim.line()
    return link(anchor_of(key, claim, entry), f"{key}: {text}")


def _by_outcome(entries: Sequence[Entry]) -> dict[Outcome, list[ClaimPlace]]:
    found: dict[Outcome, list[ClaimPlace]] = {outcome: [] for outcome in OUTCOMES}
    for outcome, place in distinct_claims(entry.item for entry in entries if entry.item is not None):
        found[outcome].append(place)
    return found


def _anchor(paper: Paper, outcome: Outcome) -> str:
    return f"{paper.key}-{outcome.replace(' ', '-')}"
