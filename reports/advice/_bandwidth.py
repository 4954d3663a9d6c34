"""Which candidate is quickest at which bandwidth of a link, by replaying the recordings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.advice._intervals import EpochDraws
from reports.advice._pricing import Priced
from sims.cluster import LINKS, Cluster, varied
from sims.study import idle_links

OCTAVES = 7
"""The bandwidth is varied by so many factors of two either way."""

HALVINGS = 6
"""Bisections of the interval in which the quickest candidate changes: to 1 %."""


@dataclass(frozen=True)
class BandwidthRange:
    """A range of bandwidths (bytes/s) over which one candidate is the quickest; infinite or 0 at the range's ends.

    Attributes:
        high_span: 90 % interval of `high`; None where there is none, or nothing is known of it.
    """

    low: float
    high: float
    priced: Priced
    high_span: tuple[float, float] | None = None


def deciding_link(cluster: Cluster, priced: Sequence[Priced]) -> str | None:
    """The link to vary: between hosts where anything crosses it, else the first kind that carries bytes."""
    carrying = set[str]()
    for each in priced:
        if each.candidate.parts > 1:
            carrying |= set(cluster.links) - set(idle_links(each.replay.time(cluster).simulation))
    kinds = ["nic", *(kind for kind in LINKS if kind != "nic")]
    return next((kind for kind in kinds if kind in carrying), None)


def stretches(
    cluster: Cluster, link: str, contenders: Sequence[tuple[Priced, float]], drawn: EpochDraws
) -> list[BandwidthRange]:
    """The quickest of (candidate, epochs to the target) at every bandwidth around the cluster's own."""
    nominal = cluster.links[link].bandwidth.value
    quickest = _quickest(cluster, link, contenders)
    places = [nominal * 2.0**power for power in range(-OCTAVES, OCTAVES + 1)]
    found = [(places[0], quickest(places[0]))]
    borders: list[tuple[float, Priced]] = []
    for place in places[1:]:
        best = quickest(place)
        if best is not found[-1][1]:
            borders.append((_border(quickest, found[-1][0], place), best))
        found.append((place, best))
    lows = [0.0, *(border for border, _ in borders)]
    winners = [found[0][1], *(best for _, best in borders)]
    highs = [*lows[1:], math.inf]
    epochs = dict(contenders)
    pairs = [(best, epochs[best]) for best in winners]
    spans = [drawn.border(link, *each) for each in zip(highs[:-1], pairs[:-1], pairs[1:], strict=True)]
    return [BandwidthRange(*each) for each in zip(lows, highs, winners, [*spans, None], strict=True)]


def _quickest(cluster: Cluster, link: str, contenders: Sequence[tuple[Priced, float]]) -> Callable[[float], Priced]:
    def at(bandwidth: float) -> Priced:
        changed = varied(cluster, link, "bandwidth", bandwidth)
        return min(contenders, key=lambda each: each[0].epoch_on(changed) * each[1])[0]

    return at


def _border(quickest: Callable[[float], Priced], low: float, high: float) -> float:
    """Where the quickest of the low end stops being it."""
    before = quickest(low)
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if quickest(middle) is before else (low, middle)
    return math.sqrt(low * high)
