"""Cores that several ranks, or the two threads of a rank, share: processor sharing, slower while more are wanted than
there are.

Only threads that compute count; a rank that waits for an exchange uses no core. A GPU is one core.
"""

from __future__ import annotations

import heapq
from itertools import count

import simpy

SAME = 1e-12
"""Relative difference between times that counts as rounding."""


class Cores:
    """`number` cores for jobs that use up to `width` cores each.

    Work is measured in seconds of a job that has its cores to itself; every further job slows all of them equally.
    """

    def __init__(self, env: simpy.Environment, number: float, width: int) -> None:
        self.env, self.number, self.width = env, number, width
        self._ends: list[tuple[float, int, simpy.Event, float]] = []  # with the load of the job
        self._serial = count()
        self._work = 0.0  # seconds of work of a job that ran from the beginning
        self._since = 0.0
        self._version = 0

    def job(self, seconds: float, load: float = 1.0) -> simpy.Event:
        """Begin `seconds` of work, which uses the share `load` of its cores; returns the event of its end."""
        self._advance()
        event = self.env.event()
        heapq.heappush(self._ends, (self._work + seconds, next(self._serial), event, load))
        self._schedule()
        return event

    def leave(self, event: simpy.Event) -> float:
        """Remove a job before its end; returns the seconds of work that it had left."""
        self._advance()
        at = next(at for at, job in enumerate(self._ends) if job[2] is event)
        end = self._ends.pop(at)[0]
        heapq.heapify(self._ends)
        self._schedule()
        return max(0.0, end - self._work)

    def _pace(self) -> float:
        wanted = sum(job[3] for job in self._ends) * self.width
        return min(1.0, self.number / wanted) if wanted else 1.0

    def _advance(self) -> None:
        self._work += (self.env.now - self._since) * self._pace()
        self._since = self.env.now

    def _schedule(self) -> None:
        self._version += 1
        if not self._ends:
            return
        version, left = self._version, max(0.0, self._ends[0][0] - self._work)
        wake = self.env.timeout(left / self._pace())
        assert wake.callbacks is not None
        wake.callbacks.append(lambda _: self._wake(version))

    def _wake(self, version: int) -> None:
        """End jobs, unless others began or left since this was scheduled."""
        if version != self._version:
            return
        self._advance()
        slack = SAME * (self.env.now + self._work)
        self._work = max(self._work, self._ends[0][0])
        while self._ends and self._ends[0][0] <= self._work + slack:
            heapq.heappop(self._ends)[2].succeed()
        self._schedule()
