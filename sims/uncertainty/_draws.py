"""Draws of uncertain inputs: a Latin hypercube with a fixed seed, in which an input has the same draws wherever it is.

Two methods are therefore timed with the same errors of the same inputs, draw by draw, and their difference has the
uncertainty of the difference, not that of two independent predictions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from harness.kernels.work import Work
from sims.device import DeviceProfile
from sims.uncertainty._inputs import MEDIAN, Input
from sims.units import NORMAL_90


class Draws:
    """`count` draws of any input, by name."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._known: dict[str, np.ndarray] = {}

    def normal(self, name: str) -> np.ndarray:
        """Standard normal draws of a name, float64 [count]: one from every equally likely interval, in an order that
        belongs to the name."""
        if name not in self._known:
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            order = np.random.Generator(np.random.Philox(seed)).permutation(self.count)
            self._known[name] = ndtri((order + 0.5) / self.count)
        return self._known[name]

    def factors(self, inputs: Sequence[Input], number: int) -> dict[str, float]:
        """Draw `number` of every input: 90 % of all draws lie in its range, as many below the value as above."""
        return {each.name: _factor(each, float(self.normal(each.name)[number])) for each in inputs}

    def scatter(self, profile: DeviceProfile, works: Sequence[Work], number: int) -> np.ndarray:
        """Factors on operators, of mean 1: every one that was timed deviates from the fit of its cost.

        Deviations of one operator at one width are a continuous function of the logarithm of its bytes, independent
        from one doubling to the next: two ranks whose parts differ by a few rows deviate alike, and do not wait for
        each other because of it.
        """
        found = np.ones(len(works))
        for at, work in enumerate(works):
            cost = profile.cost_of(work)
            if cost is not None:
                deviation = MEDIAN * cost.error.value
                z = self._along(f"{profile.name}: {work.name} {work.kind} {work.width}", work.nbytes, number)
                found[at] = math.exp(deviation * z - deviation**2 / 2)
        return found

    def _along(self, name: str, nbytes: int, number: int) -> float:
        """A standard normal value that changes with the logarithm of a size: between the draws of two doublings."""
        doublings = math.log2(max(nbytes, 1))
        below = math.floor(doublings)
        part = doublings - below
        low, high = (float(self.normal(f"{name} {each}")[number]) for each in (below, below + 1))
        return ((1 - part) * low + part * high) / math.hypot(1 - part, part)


def _factor(each: Input, z: float) -> float:
    """The factor at a standard normal value: log-normal on either side of 1, with the range's ends at 90 %."""
    end = each.high if z > 0 else each.low
    return float(end ** (abs(z) / NORMAL_90))
