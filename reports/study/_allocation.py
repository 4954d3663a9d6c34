"""Which claims get the next seeds: those that gain most power per second of training; none that cannot reach much.

Power follows from how much the differences scatter and from what the paper prints, never from where the differences
lie: seeds for claims that are not decided yet, until they are, would decide some by chance. A finer precision asks for
more seeds of all claims alike, decided ones too, whose verdicts may change by them.
"""

from __future__ import annotations

from reports.statistics import Estimate, power
from reports.study._claims import USUAL_PRECISION, AccuracyClaim

WORTH_IT = 0.5
"""The power that all seeds a budget affords have to reach; claims that stay below get none."""


def supposed_truth(claim: AccuracyClaim, precision: float = USUAL_PRECISION) -> float:
    """The difference for which power is reckoned: none for "no worse" and "level", else the printed one.

    Where none is printed, one as large as the interval that is asked for. A finer precision is to tell differences that
    are closer to the edge of the band: at half of the usual one they are half as far from it.
    """
    usual = claim.width if claim.difference is None else claim.difference
    if claim.judge in ("no worse", "level"):
        usual = 0.0
    return claim.band.low + (usual - claim.band.low) * precision / USUAL_PRECISION


def power_with(claim: AccuracyClaim, found: Estimate, seeds: int, precision: float = USUAL_PRECISION) -> float:
    """The probability that so many seeds, which scatter as those found, reproduce a claim that is true."""
    return power(supposed_truth(claim, precision), found.deviation, seeds, claim.band)


def gain_per_second(
    claim: AccuracyClaim, found: Estimate, more: int, seconds: float, precision: float = USUAL_PRECISION
) -> float:
    """What more seeds add to the power, per second of training."""
    now, then = (power_with(claim, found, found.count + added, precision) for added in (0, more))
    gain = then - now
    return gain / max(seconds, 1e-9)
