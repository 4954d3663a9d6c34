"""How many seeds a claim needs: more are added until its interval is narrow enough, or the budget ends.

The rule looks at the width of the interval only, never at where it lies: stopping as soon as a verdict is reached
would reach wrong ones too often.
"""

from __future__ import annotations

from scipy import stats

from reports.statistics._estimate import CONFIDENCE, Estimate
from reports.statistics._verdict import FEWEST_SEEDS

MANY = 10_000


def seeds_needed(deviation: float, width: float, confidence: float = CONFIDENCE) -> int:
    """The fewest seeds of which the interval is expected to be at most `width` wide from end to end; at most `MANY`."""
    low, high = FEWEST_SEEDS, MANY
    while low < high:
        middle = (low + high) // 2
        if 2 * float(stats.t.ppf(0.5 + confidence / 2, middle - 1)) * deviation / middle**0.5 <= width:
            high = middle
        else:
            low = middle + 1
    return low


def more_seeds(found: Estimate | None, width: float, affordable: int) -> int | None:
    """How many seeds to run next: 0 where the interval is narrow enough, None where there can be no more.

    No more than there are already are added at a time, because the deviation of few values is uncertain.

    Args:
        found: the estimate so far; None without any run.
        width: the interval that is asked for, from end to end.
        affordable: seeds that the budget has left.
    """
    have = 0 if found is None else found.count
    if have < FEWEST_SEEDS:
        return FEWEST_SEEDS - have if affordable >= FEWEST_SEEDS - have else None
    assert found is not None
    if 2 * found.half_width() <= width:
        return 0
    missing = max(1, seeds_needed(found.deviation, width) - have)
    return min(missing, have, affordable) if affordable else None
