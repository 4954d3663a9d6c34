"""A link between a device and host memory that carries copies only.

If messages start and end in host memory they never cross a device's bus, so copies there affect no other transfer.
These links are not part of the fluid network: few copies overlap there, and their end times have a closed form (step 5
of `docs/network.md`).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from sims.network import FluidNetwork


@dataclass(eq=False, slots=True)
class _Copy:
    """A copy: when its bytes begin to move, and when it ends if no other copy joins."""

    start: float
    finish: float = math.inf


class Bus:
    """One directed link of a network that copies share fairly."""

    def __init__(self, network: FluidNetwork, link: int) -> None:
        self.env, self.network, self.link = network.env, network, link
        self.capacity = float(network.capacity[link])
        self._left: dict[_Copy, float] = {}  # copy -> bytes left at the last join
        self._as_of = 0.0

    def copy(self, latency: float, nbytes: int, after: float = 0.0) -> Generator[simpy.Event, Any, None]:
        """Wait for a copy that begins in `after` seconds and then waits for its latency, without using bandwidth.

        Copies that join later only delay it.
        """
        begin, awaited = self.env.now + after, -1.0
        copy = self._join(_Copy(begin + latency), nbytes)
        self.network.count(self.link, nbytes)
        while copy.finish != awaited:
            awaited = copy.finish
            yield self.env.timeout(max(awaited - self.env.now, 0.0))
        if self.network.watch is not None:
            self.network.watch.copied(begin, self.env.now, self.link, nbytes, latency)

    def _join(self, copy: _Copy, nbytes: int) -> _Copy:
        """Add a copy, and recompute the end of each."""
        now = self.env.now
        if all(one.finish <= now for one in self._left):
            self._left = {copy: nbytes}
            copy.finish = copy.start + nbytes / self.capacity
        else:
            self._drain(self._left, now)
            self._left[copy] = nbytes
        self._as_of = now
        if len(self._left) > 1:
            self._drain(self._left.copy(), math.inf)
        return copy

    def _drain(self, left: dict[_Copy, float], until: float) -> None:
        """Advance copies to `until`; those that end are removed from `left`."""
        time = self._as_of
        while left and time < until:
            moving = [one for one in left if one.start <= time]
            stop = min((one.start for one in left if one.start > time), default=math.inf)
            stop, share = min(stop, until), self.capacity / max(len(moving), 1)
            first = min(moving, key=left.__getitem__, default=None)
            if first is not None and time + left[first] / share <= stop:
                moved = left.pop(first)
                first.finish = time = time + moved / share
            else:
                moved, time = (stop - time) * share, stop
            for one in moving:
                if one is not first or one in left:
                    left[one] -= moved
