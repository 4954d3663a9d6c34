"""What became of the claims of each paper: a sentence, a table on top of the page, and the lists it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from harness.numbers import DASH
from reports.core.claims import ClaimPlace, distinct_claims
from reports.core.rendering import both_numbers
from reports.core.table import OUTCOMES, Outcome, Row
from reports.whole.page._anchors import Anchors, list_anchor, slug, state_of
from reports.whole.page._markup import Markup, bullets, collapsed, link, wide
from reports.whole.papers import Paper
from reports.whole.produce import Entry
from reports.whole.verdicts import claim_counts

MEANINGS: dict[Outcome, str] = {
    "reproduced": "it came out as printed, and could have come out otherwise",
    "contradicted": "it came out otherwise",
    "undecided": "our runs cannot tell: an interval that holds both, fewer than 5 seeds, or nothing was learnt",
    "theory": "it follows from inputs, a fit or a formula, or holds whatever the uncertain inputs are: no evidence",
    "cannot be judged": "without data, without a result, or the paper contradicts itself",
}
Mine = Sequence[tuple[Paper, Sequence[Entry]]]


def short_title(paper: Paper) -> str:
    """The name of a paper without what it is about."""
    return paper.title.partition(":")[0].partition(",")[0]


def glance(entries: Sequence[Entry]) -> str:
    """What the report says, in a sentence."""
    counts = claim_counts(entries)
    decided = counts["reproduced"] + counts["contradicted"]
    text = f"<strong>{sum(counts.values()):,} claims.</strong> "
    if decided:
        share = f"{100 * counts['reproduced'] / decided:.0f} %"
        text += f"Of the {decided:,} that our runs could decide, {counts['reproduced']:,} are reproduced ({share}) and "
        text += f"{counts['contradicted']:,} contradicted. "
    rest: dict[Outcome, str] = {
        "undecided": "are undecided",
        "theory": "follow from theory and count for nothing",
        "cannot be judged": "cannot be judged",
    }
    others = [f"{counts[outcome]:,} {said}" for outcome, said in rest.items() if counts[outcome]]
    return text + (f"Of the others, {', '.join(others)}." if others else "")


def claims_table(papers: Mine, entries: Sequence[Entry]) -> str:
    """A line per paper and one for all: how many claims have each outcome. Every number leads to its rows."""
    head = "".join(f'<th class="number v-{slug(outcome)}">{outcome}</th>' for outcome in OUTCOMES)
    lines = []
    for paper, mine in papers:
        counts = {outcome: len(found) for outcome, found in _by_outcome(mine).items()}
        cells = [
            link(list_anchor(paper, o), f"{n:,}", state_of(paper.key, slug(o), list_anchor(paper, o))) if n else DASH
            for o, n in counts.items()
        ]
        lines.append(_line(link(paper.key, short_title(paper), state_of(paper.key, at=paper.key)), counts, cells))
    if len(papers) > 1:
        counts = claim_counts(entries)
        cells = [
            link("papers", f"{n:,}", state_of(verdict=slug(outcome), at="papers")) if n else DASH
            for outcome, n in counts.items()
        ]
        lines.append(_line(Markup("all"), counts, cells))
    return wide(
        f'<table class="summary"><thead><tr><th>paper</th><th class="bars">share</th><th class="number">claims</th>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _line(name: str, counts: Mapping[Outcome, int], cells: Sequence[str]) -> str:
    numbers = "".join(f'<td class="number" data-label="{o}">{cell}</td>' for o, cell in zip(counts, cells, strict=True))
    total = f'<td class="number" data-label="claims">{sum(counts.values()):,}</td>'
    return f'<tr><td>{name}</td><td class="bars">{_bar(counts)}</td>{total}{numbers}</tr>'


def _bar(counts: Mapping[Outcome, int]) -> str:
    """The shares of the outcomes, drawn; the numbers stand beside it."""
    total, at, parts = sum(counts.values()) or 1, 0.0, []
    for outcome, count in counts.items():
        width = 100 * count / total
        parts.append(f'<rect class="b-{slug(outcome)}" x="{at:.2f}" width="{width:.2f}" height="10"/>')
        at += width
    return f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def meanings() -> str:
    """What the outcomes mean."""
    parts = [f'<dt class="v-{slug(name)}">{name}</dt><dd>{escape(text)}</dd>' for name, text in MEANINGS.items()]
    return f'<dl class="meanings">{"".join(parts)}</dl>'


def claims_of(paper: Paper, entries: Sequence[Entry], anchors: Anchors) -> str:
    """The claims of a paper by outcome, each with a link to its row or ordering."""
    parts = []
    for outcome, found in _by_outcome(entries).items():
        if found:
            lines = [_claim(place, anchors) for place in found]
            title = Markup(f'<span class="v-{slug(outcome)}">{outcome}</span>: {len(found):,}')
            more = f' data-list="{slug(outcome)}"'
            parts.append(collapsed(title, bullets(lines), anchor=list_anchor(paper, outcome), more=more))
    return f'<div class="claims">{"".join(parts)}</div>'


def _claim(place: ClaimPlace, anchors: Anchors) -> Markup:
    key, claim = place
    if isinstance(claim, Row):
        text = f"{claim.label}, {claim.quantity}: {both_numbers(claim)} {claim.unit}; {claim.verdict}"
    else:
        text = f"{claim.text}: {claim.verdict}"
    return link(anchors.of(claim), f"{key.partition('/')[2]}: {text}")


def _by_outcome(entries: Sequence[Entry]) -> dict[Outcome, list[ClaimPlace]]:
    found: dict[Outcome, list[ClaimPlace]] = {outcome: [] for outcome in OUTCOMES}
    for outcome, place in distinct_claims(entry.item for entry in entries if entry.item is not None):
        found[outcome].append(place)
    return found
