"""Correction for many tests at once: Holm, Scand. J. Statist. 6, 1979. It holds whatever the tests' dependence is."""

from __future__ import annotations

from collections.abc import Sequence


def adjusted(values: Sequence[float]) -> list[float]:
    """The p-value of every test corrected for all of them, in their order.

    Rejecting where it is at most some level keeps the probability of any false rejection below that level.
    """
    order = sorted(range(len(values)), key=lambda at: values[at])
    found, largest = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[at]))
        found[at] = largest
    return found
