"""The papers' claims on accuracy that small real graphs can judge, as rules over the study's table.

A claim's margin is in points, positive where it holds; a tolerance ("within 0.6 points") shifts it. Three seeds of a
graph are too few for a verdict on that graph. So a claim is judged over graphs: one number per graph, the mean margin
of its seeds and numbers of parts, and the interval of the mean over graphs (`reports.statistics`), corrected for all
claims. It says what holds on average over graphs like these, not on each of them. A run that diverged scores 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from reports.statistics import Estimate, Judgement, above, estimate, judged


def accuracy(frame: pd.DataFrame) -> pd.Series:
    """Test accuracy in percent, the quantity of most claims."""
    return frame.test


def fall_of_sent(frame: pd.DataFrame) -> pd.Series:
    """By how many points the share of rows sent is lower in the last quarter of the epochs than in the first."""
    return 100 * (frame.sent_early - frame.sent_late)


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, and the margin by which a graph (row -> values by seed) meets it.

    `margin` returns points per seed, positive if the claim holds; `value` selects the quantity.
    """

    text: str
    rows: tuple[str, ...]
    margin: Callable[[pd.DataFrame], pd.Series]
    value: Callable[[pd.DataFrame], pd.Series] = accuracy


@dataclass(frozen=True)
class GraphsFinding:
    """What the graphs say of a claim.

    Attributes:
        margins: graph -> mean margin over its seeds and numbers of parts.
        found: their mean over graphs; None without a graph.
    """

    claim: Claim
    margins: dict[str, float]
    found: Estimate | None
    judgement: Judgement


def better(first: str, second: str, by: float = 0.0) -> Callable[[pd.DataFrame], pd.Series]:
    """`first` is at least `by` points above `second`; a negative `by` is a tolerance."""
    return lambda cell: cell[first] - cell[second] - by


def worst(first: str, *others: str) -> Callable[[pd.DataFrame], pd.Series]:
    """`first` is below every other."""
    return lambda cell: cell[list(others)].min(axis=1) - cell[first]


CLAIMS = (
    Claim(
        "EC-Graph, Fig. 6: with 1 bit forwards, ReqEC-FP beats compression alone",
        ("EC ReqEC-FP-1", "EC Cp-fp-1"),
        better("EC ReqEC-FP-1", "EC Cp-fp-1"),
    ),
    Claim(
        "EC-Graph, Fig. 6: with 2 bits forwards, ReqEC-FP beats compression alone",
        ("EC ReqEC-FP-2", "EC Cp-fp-2"),
        better("EC ReqEC-FP-2", "EC Cp-fp-2"),
    ),
    Claim(
        "EC-Graph, Fig. 7: with 2 bits backwards, ResEC-BP beats compression alone",
        ("EC ResEC-BP-2", "EC Cp-bp-2"),
        better("EC ResEC-BP-2", "EC Cp-bp-2"),
    ),
    Claim(
        "EC-Graph, Table V: all of it stays within 0.5 points of no compression",
        ("ec-graph", "EC Non-cp"),
        better("ec-graph", "EC Non-cp", -0.5),
    ),
    Claim(
        "Sylvie, Table 2: 1 bit stays within 0.6 points of full precision",
        ("sylvie-s 1 bit", "vanilla"),
        better("sylvie-s 1 bit", "vanilla", -0.6),
    ),
    Claim(
        "Sylvie, Table 4: quantising everything costs at least 2 points more",
        ("sylvie-s 1 bit", "sylvie all 1 bit"),
        better("sylvie-s 1 bit", "sylvie all 1 bit", 2.0),
    ),
    Claim(
        "BNS-GCN, Table 4: p = 0 is the worst",
        ("bns p=0", "bns p=0.1", "vanilla"),
        worst("bns p=0", "bns p=0.1", "vanilla"),
    ),
    Claim(
        "BNS-GCN, Table 4: p = 0.1 matches p = 1 within 0.5 points",
        ("bns p=0.1", "vanilla"),
        better("bns p=0.1", "vanilla", -0.5),
    ),
    Claim(
        "Subgraph approximation, Table 2: isolation loses accuracy against one device",
        ("single", "overlap 0 %"),
        better("single", "overlap 0 %"),
    ),
    Claim(
        "Subgraph approximation, Table 2: 50 % overlap recovers half of it or more",
        ("single", "overlap 0 %", "overlap 50 %"),
        lambda cell: cell["overlap 50 %"] - (cell["single"] + cell["overlap 0 %"]) / 2,
    ),
    Claim(
        "the same where copies carry loss too",
        ("single", "overlap 0 %", "overlap 50 % loss on copies"),
        lambda cell: cell["overlap 50 % loss on copies"] - (cell["single"] + cell["overlap 0 %"]) / 2,
    ),
    Claim(
        "CDFGNN, Fig. 7: the cache leaves accuracy within 0.5 points",
        ("cdfgnn cache", "cdfgnn exact"),
        better("cdfgnn cache", "cdfgnn exact", -0.5),
    ),
    Claim(
        "CDFGNN, Fig. 8: cache and quantisation leave accuracy within 0.5 points",
        ("cdfgnn", "cdfgnn exact"),
        better("cdfgnn", "cdfgnn exact", -0.5),
    ),
    Claim("CDFGNN, Fig. 7: the sent fraction falls", ("cdfgnn",), lambda cell: cell["cdfgnn"], fall_of_sent),
)


def findings_of(frame: pd.DataFrame) -> list[GraphsFinding]:
    """All claims, corrected for each other."""
    margins = [graph_margins(frame, claim) for claim in CLAIMS]
    estimates = [estimate(list(each.values())) if each else None for each in margins]
    judgements = judged([(found, above()) for found in estimates])
    return [GraphsFinding(*each) for each in zip(CLAIMS, margins, estimates, judgements, strict=True)]


def graph_margins(frame: pd.DataFrame, claim: Claim) -> dict[str, float]:
    """The mean margin of every graph on which all rows of the claim were run with some seed."""
    lost = (frame.state != "done") | frame.test.isna()
    known = frame.assign(value=claim.value(frame).mask(lost, 0.0))
    found: dict[str, list[float]] = {}
    for (graph, _), group in known[known.row.isin(claim.rows)].groupby(["graph", "parts"]):
        values = group.pivot(index="seed", columns="row", values="value")
        if set(claim.rows) <= set(values.columns) and not (whole := values.dropna()).empty:
            found.setdefault(str(graph), []).append(float(claim.margin(whole).mean()))
    return {graph: sum(each) / len(each) for graph, each in found.items()}


def verdicts(frame: pd.DataFrame) -> str:
    """A line per claim, and the share of rows that CDFGNN's cache sends."""
    lines = ["| claim | graphs | mean margin, points | least and most | verdict |", "|---|---:|---:|---:|---|"]
    for each in findings_of(frame):
        margins = each.margins.values()
        mean = span = "-"
        if each.found is not None:
            half = f" ± {each.found.half_width(each.judgement.confidence):.2f}" if each.found.count > 1 else ""
            mean, span = f"{each.found.mean:+.2f}{half}", f"{min(margins):+.2f}, {max(margins):+.2f}"
        lines.append(f"| {each.claim.text} | {len(margins)} | {mean} | {span} | {each.judgement.verdict} |")
    sent = frame[frame.row.isin(["cdfgnn cache", "cdfgnn"])].groupby("row").sent.mean()
    lines += [
        "",
        *(f"Rows sent by {row}, mean over layers, epochs and runs: {share:.1%}" for row, share in sent.items()),
    ]
    return "\n".join(lines)
