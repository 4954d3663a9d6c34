"""Correction for many claims at once: at most 5 % of those that are decided are wrong, on average.

What is reported is a list of verdicts, of which each is read by itself; a reader asks how many of them are wrong. This
is the false discovery rate (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995). Control of the probability that any
verdict of the list is wrong (Bonferroni, Holm) promises more than such a list needs, and at 5 seeds, where Student's t
has 4 degrees of freedom, leaves differences undecided that are five times their standard error.

A claim is decided by an interval, and the interval is shown: with R of m claims decided at rate q, all intervals have
the confidence 1 - R q / m (Benjamini and Yekutieli, J. Am. Stat. Assoc. 100, 2005), at which at most a share q of the
decided claims' intervals misses its true value. The claims that these intervals decide are those that the procedure of
1995 decides, so that verdict and interval always agree.

Both hold for independent tests and for tests that depend on each other positively, as those do that share the runs of
one side; a test checks the rate by simulation for claims that share runs and that are judged twice, order and size.
"""

from __future__ import annotations

from collections.abc import Sequence


def adjusted(values: Sequence[float]) -> list[float]:
    """The p-value of every test, corrected for all of them, in their order: at most q where it is decided at rate q."""
    order = sorted(range(len(values)), key=lambda at: values[at], reverse=True)
    found, smallest = [1.0] * len(values), 1.0
    for below, at in enumerate(order):
        smallest = min(smallest, len(values) * values[at] / (len(values) - below))
        found[at] = smallest
    return found


def interval_level(values: Sequence[float], rate: float) -> float:
    """1 - confidence of the intervals that decide the same claims: R q / m, with R of at least 1.

    Where no claim is decided the intervals are those that would have decided one: none of them does.
    """
    decided = sum(value <= rate for value in adjusted(values))
    return rate * max(decided, 1) / max(len(values), 1)
