"""90 % intervals of what an advice predicts: replays of candidates with all uncertain inputs drawn anew.

All candidates have the same draws, so that two of them are compared draw by draw (`sims.uncertainty`). What the model
leaves out is in the intervals too (`harness.running.intervals`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.running.intervals import epoch_ends, ratio_ends
from reports.advice._pricing import Priced
from reports.advice._progress import AdviceProgress
from sims.cluster import Cluster, place, varied
from sims.uncertainty import FEWEST_REPLAYS, Draws, left_open_on, prediction_of, replays_for

BUDGET_SHARE = 0.1
"""Share of the budget that replays for intervals may take; where they would take more, fewer are made, or none."""

LowHigh = tuple[float, float]


@dataclass(eq=False)
class EpochDraws:
    """Epochs of candidates under drawn inputs, made when they are asked for.

    Attributes:
        count: draws; 0 for none, then there are no intervals.
    """

    cluster: Cluster
    count: int
    _known: dict[tuple[Priced, float | None], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draws, self._more = Draws(self.count), left_open_on(self.cluster)

    def of(self, priced: Priced, link: str = "", bandwidth: float | None = None) -> np.ndarray:
        """Seconds of an epoch in every draw, float64 [draws]; with a link of a bandwidth that is known exactly."""
        key = priced, bandwidth
        if key not in self._known:
            cluster, exact = self.cluster, list[str]()
            if bandwidth is not None:
                cluster, exact = varied(cluster, link, "bandwidth", bandwidth), [f"links.{link}.bandwidth"]
            self._known[key] = self._drawn(priced, cluster, exact)
        return self._known[key]

    def _drawn(self, priced: Priced, cluster: Cluster, exact: Collection[str]) -> np.ndarray:
        candidate = priced.candidate
        made = prediction_of(candidate.config, priced.replay, place(cluster, candidate.parts), exact)
        return np.asarray([seconds["epoch"] for seconds in made.draws(self._draws)])

    def epoch(self, priced: Priced) -> LowHigh | None:
        """The interval of an epoch."""
        return epoch_ends(self.of(priced), priced.epoch, self._more) if self.count else None

    def share(self, mine: tuple[Priced, float], other: tuple[Priced, float]) -> LowHigh | None:
        """The interval of the time of one (candidate, epochs) as a share of the other's."""
        if not self.count:
            return None
        return ratio_ends(self.of(mine[0]) * mine[1] / (self.of(other[0]) * other[1]), self._more)

    def border(self, link: str, at: float, below: tuple[Priced, float], above: tuple[Priced, float]) -> LowHigh | None:
        """The interval of the bandwidth at which two (candidate, epochs) are level, about `at`.

        The ratio of their times is taken to be a power of the bandwidth there. None without draws, or where the
        bandwidth hardly changes the ratio.
        """
        if not self.count:
            return None

        def ratio(bandwidth: float) -> float:
            cluster = varied(self.cluster, link, "bandwidth", bandwidth)
            return math.log(above[0].epoch_on(cluster) * above[1] / (below[0].epoch_on(cluster) * below[1]))

        slope = (ratio(at * 1.25) - ratio(at / 1.25)) / (2 * math.log(1.25))
        if slope > -FLAT:
            return None
        drawn = self.of(above[0], link, at) * above[1] / (self.of(below[0], link, at) * below[1])
        low, high = (math.log(end) / -slope for end in ratio_ends(drawn, self._more))
        return (at * math.exp(low), at * math.exp(high)) if high - low < MOST_OCTAVES * math.log(2) else None


FLAT = 0.02
"""A ratio of times that changes with a lower power of the bandwidth has no border to speak of."""

MOST_OCTAVES = 10
"""A border that lies anywhere in more octaves than so many is not known."""


def draws_for(cluster: Cluster, timed: Sequence[Priced], progress: AdviceProgress) -> EpochDraws:
    """Draws for these candidates, as many as a share of the budget allows."""
    most = max(each.candidate.parts for each in timed)
    begin = time.monotonic()
    for each in timed:
        each.epoch_on(cluster)
    once = time.monotonic() - begin
    allowed = BUDGET_SHARE * progress.budget / max(2 * once, 1e-9)  # borders take about as many as candidates
    count = min(replays_for(most), int(allowed))
    return EpochDraws(cluster, count if count >= FEWEST_REPLAYS else 0)
