"""The papers' claims on accuracy that small real graphs can judge, as rules over the study's table.

A claim is judged cell by cell (graph x number of parts) by its margin: points per seed, positive where it holds. A cell
agrees where the mean over seeds is above the noise, is against where it is below minus the noise, and is undecided
between. Noise is the standard error of the seeds' margins, or `FLOOR` with one seed. A tolerance ("within 0.6 points")
is a margin of non-inferiority: the margin is shifted by it, and the rule is the same.

A run that diverged has 0 in place of its accuracy, so it counts against its row; noise is that of the others. A seed of
which all runs diverged is ignored.

A claim is reproduced where at least half of the cells, and `FEWEST` of them, agree and no more than a quarter as many
are against. Where nothing differs a cell of three seeds agrees in one of five studies, all of them hardly ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

FLOOR = 0.5
"""Points that a margin of one seed must exceed to count."""
FEWEST = 4
"""Cells that must agree, however few there are."""


def accuracy(frame: pd.DataFrame) -> pd.Series:
    """Test accuracy in percent, the quantity of most claims."""
    return frame.test


def fall_of_sent(frame: pd.DataFrame) -> pd.Series:
    """By how many points the share of rows sent is lower in the last quarter of the epochs than in the first."""
    return 100 * (frame.sent_early - frame.sent_late)


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, and the margin by which a cell (row -> values by seed) meets it.

    `margin` returns points per seed, positive if the claim holds; `value` selects the quantity.
    """

    text: str
    rows: tuple[str, ...]
    margin: Callable[[pd.DataFrame], pd.Series]
    value: Callable[[pd.DataFrame], pd.Series] = accuracy


class Cell(NamedTuple):
    """One graph on one number of parts."""

    judged: str  # agree, undecided, against
    margin: float  # mean over the seeds that finished; nan if none did


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


def verdicts(frame: pd.DataFrame) -> str:
    """A line per claim, and the share of rows that CDFGNN's cache sends."""
    lines = ["| claim | agree | undecided | against | mean margin, points | verdict |", "|---|---:|---:|---:|---:|---|"]
    for claim in CLAIMS:
        cells = judged(frame, claim)
        counts = [sum(cell.judged == name for cell in cells) for name in ("agree", "undecided", "against")]
        margins = [cell.margin for cell in cells if not np.isnan(cell.margin)]
        mean = f"{np.mean(margins):+.2f}" if margins else "-"
        lines.append(f"| {claim.text} | {' | '.join(map(str, counts))} | {mean} | {verdict(*counts)} |")
    sent = frame[frame.row.isin(["cdfgnn cache", "cdfgnn"])].groupby("row").sent.mean()
    lines += [
        "",
        *(f"Rows sent by {row}, mean over layers, epochs and runs: {share:.1%}" for row, share in sent.items()),
    ]
    return "\n".join(lines)


def judged(frame: pd.DataFrame, claim: Claim) -> list[Cell]:
    """The cells in which every row of the claim was run with some seed."""
    lost = (frame.state != "done") | frame.test.isna()
    known = frame.assign(value=claim.value(frame).mask(lost, 0.0), lost=lost)
    cells = []
    for _, group in known[known.row.isin(claim.rows)].groupby(["graph", "parts"]):
        values, lost = (group.pivot(index="seed", columns="row", values=name) for name in ("value", "lost"))
        if set(claim.rows) <= set(values.columns) and not (whole := values.dropna()).empty:
            cells.append(_cell(claim, whole, lost.loc[whole.index].astype(bool)))
    return cells


def _cell(claim: Claim, values: pd.DataFrame, lost: pd.DataFrame) -> Cell:
    """A cell from values and whether their runs diverged, seeds x rows."""
    margin, finished = claim.margin(values), ~lost.any(axis=1)
    told = margin[~lost.all(axis=1)] if len(claim.rows) > 1 else margin
    if told.empty:
        return Cell("undecided", float("nan"))
    mean, count = float(told.mean()), int(finished.sum())
    noise = float(margin[finished].std()) / count**0.5 if count > 1 else FLOOR
    name = "agree" if mean > noise else "against" if mean < -noise else "undecided"
    return Cell(name, float(margin[finished].mean()) if count else float("nan"))


def verdict(agree: int, undecided: int, against: int) -> str:
    """The verdict on all cells; `undecided` if most of them are."""
    cells = agree + undecided + against
    if not cells:
        return "not judged"
    if agree >= max(cells / 2, FEWEST) and 4 * against <= agree:
        return "reproduced"
    if against >= max(cells / 2, 1) or (against > agree and against > undecided):
        return "not reproduced"
    if undecided >= cells / 2 or agree < FEWEST:
        return "undecided"
    return "partly reproduced"
