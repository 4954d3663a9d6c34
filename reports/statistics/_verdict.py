"""Verdicts: whether an estimate lies inside the band of values at which a claim holds, outside, or on its edge.

A band covers all kinds of claims: "better" is above zero, "no worse" above minus a margin (non-inferiority), "level"
within a margin of zero (two one-sided tests: Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), "as large as printed"
within a margin of the printed difference. "Better" is refuted not only by a negative difference: an interval around 0
that reaches no difference worth claiming says that there is none (an equivalence test). The verdict of one claim is
that of its 95 % interval; of many claims at once the intervals are wider, so that at most 5 % of the decided claims are
wrong (`_discoveries`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from reports.statistics._discoveries import adjusted, interval_level
from reports.statistics._estimate import CONFIDENCE, Estimate

ClaimVerdict = Literal["reproduced", "contradicted", "undecided", "not enough runs"]
FEWEST_SEEDS = 5
"""Below so many there is no verdict: an interval of few values rests on the assumption that they are normal."""


@dataclass(frozen=True)
class Band:
    """The differences at which a claim holds: from `low` to `high`, of which one may be infinite.

    Attributes:
        least: the smallest difference that counts, at `low` or above; the claim is contradicted where the interval
            lies below it and not above `low`. None: `low`.
    """

    low: float = -math.inf
    high: float = math.inf
    least: float | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a band from {self.low} to {self.high} is empty")
        if self.least is not None and not self.low <= self.least < self.high:
            raise ValueError(f"a band from {self.low} to {self.high} cannot fail below {self.least}")

    @property
    def fails_below(self) -> float:
        """Where the upper end of an interval contradicts the claim."""
        return self.low if self.least is None else self.least


def above(limit: float = 0.0, least: float | None = None) -> Band:
    """Differences larger than a limit: "better" with 0, "no worse" with minus a margin."""
    return Band(low=limit, least=least)


def within(margin: float, centre: float = 0.0) -> Band:
    """Differences that are a margin from a centre at most."""
    return Band(centre - margin, centre + margin)


def p_value(found: Estimate, band: Band, level: float = 1 - CONFIDENCE) -> tuple[float, bool]:
    """(two-sided p-value, whether it speaks for the claim).

    The smaller of two p-values, doubled: against "outside" the estimate has to be inside both ends of the band, so the
    larger one-sided p-value counts; against "inside" it has to be beyond one of them, so the smaller counts. At most
    `level` exactly where the interval of confidence 1 - `level` lies on one side of all ends. Where it lies above
    `band.low` the claim holds, also where it does not reach `band.least`.
    """
    if found.count < 2:
        return 1.0, True
    ends = [(end, sign) for end, sign in ((band.low, 1.0), (band.high, -1.0)) if math.isfinite(end)]
    beyond = [(end, sign) for end, sign in ((band.fails_below, 1.0), (band.high, -1.0)) if math.isfinite(end)]
    inside = max(_one_sided(sign * (found.mean - end), found) for end, sign in ends) if ends else 0.0
    outside = min(_one_sided(sign * (end - found.mean), found) for end, sign in beyond) if beyond else 1.0
    return min(1.0, 2 * min(inside, outside)), inside <= outside or 2 * inside <= level


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
        verdict: the verdict after correction for all claims that were judged with it: that of the interval with
            `confidence`.
        p, corrected: the p-values behind them.
        confidence: of the interval that decides, for all claims that were judged together.
    """

    alone: ClaimVerdict
    verdict: ClaimVerdict
    p: float
    corrected: float
    confidence: float = CONFIDENCE


def judged(claims: Sequence[tuple[Estimate | None, Band]], rate: float = 1 - CONFIDENCE) -> list[Judgement]:
    """The verdicts on claims that are judged together; those without enough runs are not counted among them.

    Args:
        rate: of wrong verdicts among the decided ones, on average.
    """
    there = [at for at, (found, _) in enumerate(claims) if found is not None and found.count >= FEWEST_SEEDS]
    values = {at: p_value(found, band) for at, (found, band) in enumerate(claims) if at in there and found is not None}
    raw = [values[at][0] for at in there]
    corrected, confidence = dict(zip(there, adjusted(raw), strict=True)), 1 - interval_level(raw, rate)
    judgements = []
    for at, (found, band) in enumerate(claims):
        if at not in values or found is None:
            judgements.append(Judgement("not enough runs", "not enough runs", 1.0, 1.0, confidence))
            continue
        p = values[at][0]
        alone = _decided(found, band, rate) if p <= rate else "undecided"
        together = _decided(found, band, 1 - confidence) if corrected[at] <= rate else "undecided"
        judgements.append(Judgement(alone, together, p, corrected[at], confidence))
    return judgements


def _decided(found: Estimate, band: Band, level: float) -> ClaimVerdict:
    return "reproduced" if p_value(found, band, level)[1] else "contradicted"
