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
        """Factors on operators: every one that was timed deviates from the fit of its cost by itself."""
        found = np.ones(len(works))
        for at, work in enumerate(works):
            cost = profile.cost_of(work)
            if cost is not None:
                z = self.normal(f"{profile.name}: {work}")[number]
                found[at] = math.exp(MEDIAN * cost.error.value * z)
        return found


def _factor(each: Input, z: float) -> float:
    """The factor at a standard normal value: log-normal on either side of 1, with the range's ends at 90 %."""
    end = each.high if z > 0 else each.low
    return float(end ** (abs(z) / NORMAL_90))
