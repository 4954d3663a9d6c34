"""Which claims get the next seeds: those that gain most power per second of training; none that cannot reach much.

Power follows from how much the differences scatter and from what the paper prints, never from where the differences
lie: seeds for claims that are not decided yet, until they are, would decide some by chance.
"""

from __future__ import annotations

from reports.statistics import Estimate, power
from reports.study._claims import AccuracyClaim

WORTH_IT = 0.5
"""The power that all seeds a budget affords have to reach; claims that stay below get none."""


def supposed_truth(claim: AccuracyClaim) -> float:
    """The difference for which power is reckoned: none for "no worse" and "level", else the printed one.

    Where none is printed, one as large as the interval that is asked for.
    """
    if claim.judge in ("no worse", "level"):
        return 0.0
    return claim.width if claim.difference is None else claim.difference


def power_with(claim: AccuracyClaim, found: Estimate, seeds: int) -> float:
    """The probability that so many seeds, which scatter as those found, reproduce a claim that is true."""
    return power(supposed_truth(claim), found.deviation, seeds, claim.band)


def gain_per_second(claim: AccuracyClaim, found: Estimate, more: int, seconds: float) -> float:
    """What more seeds add to the power, per second of training."""
    gain = power_with(claim, found, found.count + more) - power_with(claim, found, found.count)
    return gain / max(seconds, 1e-9)
