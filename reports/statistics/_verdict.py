"""Verdicts: whether an estimate lies inside the band of values at which a claim holds, outside, or on its edge.

A band covers all kinds of claims: "better" is above zero, "no worse" above minus a margin (non-inferiority), "level"
within a margin of zero (two one-sided tests: Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), "as large as printed"
within a margin of the printed difference. The verdict of one claim is that of its 95 % interval; of many claims at
once the p-values are corrected (`_holm`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from reports.statistics._estimate import CONFIDENCE, Estimate
from reports.statistics._holm import adjusted

ClaimVerdict = Literal["reproduced", "contradicted", "undecided", "not enough runs"]
FEWEST_SEEDS = 5
"""Below so many there is no verdict: an interval of few values rests on the assumption that they are normal."""


@dataclass(frozen=True)
class Band:
    """The differences at which a claim holds: from `low` to `high`, of which one may be infinite."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a band from {self.low} to {self.high} is empty")


def above(limit: float = 0.0) -> Band:
    """Differences larger than a limit: "better" with 0, "no worse" with minus a margin."""
    return Band(low=limit)


def within(margin: float, centre: float = 0.0) -> Band:
    """Differences that are a margin from a centre at most."""
    return Band(centre - margin, centre + margin)


def p_value(found: Estimate, band: Band) -> tuple[float, bool]:
    """(two-sided p-value, whether it speaks for the claim).

    The smaller of two p-values, doubled: against "outside" the estimate has to be inside both ends of the band, so the
    larger one-sided p-value counts; against "inside" it has to be beyond one of them, so the smaller counts. At most
    0.05 exactly where the 95 % interval lies on one side of all ends.
    """
    if found.count < 2:
        return 1.0, True
    ends = [(end, sign) for end, sign in ((band.low, 1.0), (band.high, -1.0)) if math.isfinite(end)]
    inside = max(_one_sided(sign * (found.mean - end), found) for end, sign in ends) if ends else 0.0
    outside = min(_one_sided(sign * (end - found.mean), found) for end, sign in ends) if ends else 1.0
    return min(1.0, 2 * min(inside, outside)), inside <= outside


def _one_sided(gap: float, found: Estimate) -> float:
    """The p-value of a mean that is `gap` beyond a limit."""
    if not found.error:
        return 0.0 if gap > 0 else 1.0
    return float(stats.t.sf(gap / found.error, found.count - 1))


@dataclass(frozen=True)
class Judgement:
    """What became of a claim.

    Attributes:
        alone: the verdict of its own 95 % interval.
        verdict: the verdict after correction for all claims that were judged with it.
        p, corrected: the p-values behind them.
    """

    alone: ClaimVerdict
    verdict: ClaimVerdict
    p: float
    corrected: float


def judged(claims: Sequence[tuple[Estimate | None, Band]], level: float = 1 - CONFIDENCE) -> list[Judgement]:
    """The verdicts on claims that are judged together; those without enough runs are not counted among them."""
    there = [at for at, (found, _) in enumerate(claims) if found is not None and found.count >= FEWEST_SEEDS]
    values = {at: p_value(found, band) for at, (found, band) in enumerate(claims) if at in there and found is not None}
    corrected = dict(zip(there, adjusted([values[at][0] for at in there]), strict=True))
    judgements = []
    for at in range(len(claims)):
        if at not in values:
            judgements.append(Judgement("not enough runs", "not enough runs", 1.0, 1.0))
            continue
        p, holds = values[at]
        decided: ClaimVerdict = "reproduced" if holds else "contradicted"
        alone: ClaimVerdict = decided if p <= level else "undecided"
        together: ClaimVerdict = decided if corrected[at] <= level else "undecided"
        judgements.append(Judgement(alone, together, p, corrected[at]))
    return judgements
