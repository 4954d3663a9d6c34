"""Cores that several ranks, or the two threads of a rank, share, as a system's scheduler shares them.

A job stays on its core, where jobs take equal turns, until another core has nothing to do and takes one over. So of
three ranks on two cores one has a core for itself, and the other two compute at half speed until it waits. Only threads
that compute count; a rank that waits for an exchange uses no core. A GPU is one core.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

import simpy

SAME = 1e-12
"""Relative difference between times that counts as rounding."""

_Job = tuple[float, int, simpy.Event, float]
"""Work of its core at which it ends, a number that orders equal ones, the event of its end, and its load."""


class Cores:
    """`number` cores for jobs that use up to `width` cores each: places for as many jobs as fit side by side.

    Work is measured in seconds of a job that has its cores to itself; further jobs in its place slow it equally.
    """

    def __init__(self, env: simpy.Environment, number: float, width: int) -> None:
        places = max(1, int(number // width))
        self._places = [_Place(env, number / width / places, self._idle) for _ in range(places)]

    def job(self, seconds: float, load: float = 1.0) -> simpy.Event:
        """Begin `seconds` of work, which uses the share `load` of its cores; returns the event of its end."""
        return min(self._places, key=lambda place: place.load).begin(seconds, load)

    def leave(self, event: simpy.Event) -> float:
        """Remove a job before its end; returns the seconds of work that it had left."""
        place = next(place for place in self._places if event in place)
        left, _ = place.remove(event)
        if not place.jobs:
            self._idle(place)
        return left

    def _idle(self, place: _Place) -> None:
        """Move a job from the fullest place to one that has none: the one that would end last."""
        fullest = max(self._places, key=lambda other: other.load)
        if len(fullest.jobs) > 1:
            event = max(fullest.jobs)[2]
            left, load = fullest.remove(event)
            place.begin(left, load, event)


class _Place:
    """Cores on which jobs take equal turns: processor sharing, slower while more is wanted than `capacity` jobs.

    Args:
        idle: called with this place when its last job has ended.

    Attributes:
        jobs: a heap.
    """

    def __init__(self, env: simpy.Environment, capacity: float, idle: Callable[[_Place], None]) -> None:
        self.env, self.capacity, self.jobs = env, capacity, list[_Job]()
        self._idle, self._serial = idle, count()
        self._work = 0.0  # seconds of work of a job that ran from the beginning
        self._since = 0.0
        self._version = 0

    def __contains__(self, event: simpy.Event) -> bool:
        return any(job[2] is event for job in self.jobs)

    @property
    def load(self) -> float:
        """Jobs that take turns here, each by its share."""
        return sum(job[3] for job in self.jobs)

    def begin(self, seconds: float, load: float, event: simpy.Event | None = None) -> simpy.Event:
        """Begin or go on with a job; returns the event of its end."""
        self._advance()
        event = event or self.env.event()
        heapq.heappush(self.jobs, (self._work + seconds, next(self._serial), event, load))
        self._schedule()
        return event

    def remove(self, event: simpy.Event) -> tuple[float, float]:
        """Remove a job; returns the seconds of work that it had left, and its load."""
        self._advance()
        end, _, _, load = self.jobs.pop(next(at for at, job in enumerate(self.jobs) if job[2] is event))
        heapq.heapify(self.jobs)
        self._schedule()
        return max(0.0, end - self._work), load

    def _pace(self) -> float:
        return min(1.0, self.capacity / self.load) if self.load else 1.0

    def _advance(self) -> None:
        self._work += (self.env.now - self._since) * self._pace()
        self._since = self.env.now

    def _schedule(self) -> None:
        self._version += 1
        if not self.jobs:
            return
        version, left = self._version, max(0.0, self.jobs[0][0] - self._work)
        wake = self.env.timeout(left / self._pace())
        assert wake.callbacks is not None
        wake.callbacks.append(lambda _: self._wake(version))

    def _wake(self, version: int) -> None:
        """End jobs, unless others began or left since this was scheduled."""
        if version != self._version:
            return
        self._advance()
        slack = SAME * (self.env.now + self._work)
        self._work = max(self._work, self.jobs[0][0])
        while self.jobs and self.jobs[0][0] <= self._work + slack:
            heapq.heappop(self.jobs)[2].succeed()
        self._schedule()
        if not self.jobs:
            self._idle(self)
