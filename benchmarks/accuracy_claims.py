"""The papers' claims on accuracy that small real graphs can judge, as rules over the study's table.

A claim is judged cell by cell (graph x number of parts) on means over seeds. A cell that misses by less than the noise,
one standard deviation of the seeds' difference, is counted as undecided. The verdict says how many cells agree; it may
be "not reproduced".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, and the margin by which a cell (row -> accuracies by seed) meets it.

    `margin` answers points per seed, positive where the claim holds.
    """

    text: str
    rows: tuple[str, ...]
    margin: Callable[[pd.DataFrame], pd.Series]


def better(first: str, second: str, by: float = 0.0) -> Callable[[pd.DataFrame], pd.Series]:
    """`first` is at least `by` points above `second`; negative `by` allows it to be so much below."""
    return lambda cell: cell[first] - cell[second] - by


def worst(first: str, *others: str) -> Callable[[pd.DataFrame], pd.Series]:
    """`first` lies below every other."""
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
)


def verdicts(frame: pd.DataFrame) -> str:
    """A line per claim, and the share of rows that CDFGNN's cache sends."""
    lines = ["| claim | agree | undecided | against | mean margin, points | verdict |", "|---|---:|---:|---:|---:|---|"]
    for claim in CLAIMS:
        agree, undecided, against, margins = _judged(frame, claim)
        cells = agree + undecided + against
        mean = f"{sum(margins) / cells:+.2f}" if cells else "-"
        lines.append(
            f"| {claim.text} | {agree} | {undecided} | {against} | {mean} | {_verdict(agree, undecided, against)} |"
        )
    sent = frame[frame.row.isin(["cdfgnn cache", "cdfgnn"])].groupby("row").sent.mean()
    lines += [
        "",
        *(f"Rows sent by {row}, mean over layers, epochs and runs: {share:.1%}" for row, share in sent.items()),
    ]
    return "\n".join(lines)


def _judged(frame: pd.DataFrame, claim: Claim) -> tuple[int, int, int, list[float]]:
    """Cells that agree, that are undecided, that are against, and the mean margin of each."""
    agree = undecided = against = 0
    margins = []
    for _, group in frame.groupby(["graph", "parts"]):
        cell = group.pivot_table(index="seed", columns="row", values="test")
        if not set(claim.rows) <= set(cell.columns):
            continue
        margin = claim.margin(cell).dropna()
        if margin.empty:
            continue
        mean, noise = float(margin.mean()), float(margin.std()) if len(margin) > 1 else 0.0
        margins.append(mean)
        if mean > 0:
            agree += 1
        elif mean + noise >= 0:
            undecided += 1
        else:
            against += 1
    return agree, undecided, against, margins


def _verdict(agree: int, undecided: int, against: int) -> str:
    cells = agree + undecided + against
    if not cells:
        return "not judged"
    if agree >= 0.8 * cells:
        return "reproduced"
    return "not reproduced" if agree < 0.5 * cells else "partly reproduced"
