"""A device's own way to host memory, where nothing else moves: its copies share one link among themselves.

Where messages start and end in host memory they never cross a device's bus, so that what goes on there concerns no
other transfer. The fluid network is not asked; few copies of one device are ever under way together, and what the next
one changes is told in closed form.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from sims.network import FluidNetwork


@dataclass(eq=False, slots=True)
class _Copy:
    """Bytes left as of the bus's last change, and the second at which it ends if no other joins it."""

    left: float
    finish: float = 0.0


class Bus:
    """One directed link of a network that copies share fairly; each waits `latency` seconds first, using nothing."""

    def __init__(self, network: FluidNetwork, link: int, latency: float) -> None:
        self.env, self.network, self.link, self.latency = network.env, network, link, latency
        self.capacity = float(network.capacity[link])
        self._moving: list[_Copy] = []  # the one that ends first stands first
        self._as_of = 0.0

    def copy(self, nbytes: int) -> Generator[simpy.Event, Any, None]:
        """Wait for a copy that begins now. Others that join it only delay it."""
        start, copy, awaited = self.env.now, self._join(nbytes), -1.0
        self.network.link_bytes[self.link] += nbytes
        while copy.finish != awaited:
            awaited = copy.finish
            yield self.env.timeout(max(awaited - self.env.now, 0.0))
        if self.network.watch is not None:
            self.network.watch.copied(start, self.env.now, self.link, nbytes, self.latency)

    def _join(self, nbytes: float) -> _Copy:
        """A copy more, from the end of its latency on: nothing that begins later moves before."""
        start = self.env.now + self.latency
        self._move_to(start)
        copy = _Copy(nbytes)
        self._moving.append(copy)
        self._moving.sort(key=lambda one: one.left)
        time, moved = start, 0.0
        for ahead, one in enumerate(self._moving):
            time += (one.left - moved) * (len(self._moving) - ahead) / self.capacity
            one.finish, moved = time, one.left
        return copy

    def _move_to(self, time: float) -> None:
        """Take what moves until `time` from what is left."""
        while self._moving and self._moving[0].finish <= time:
            first = self._moving.pop(0)
            self._as_of = first.finish
            for one in self._moving:
                one.left -= first.left
        for one in self._moving:
            one.left -= (time - self._as_of) * self.capacity / len(self._moving)
        self._as_of = time
