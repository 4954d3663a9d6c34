"""Cores that several ranks, or the two threads of a rank, share, as a system's scheduler shares them.

A job stays on its core until another core has nothing to do and takes one over. So of three ranks on two cores one has
a core for itself, and the other two share the other until it waits. Only threads that compute count; a rank that waits
for an exchange uses no core. A GPU is one core.

Ranks on one core run in turns of a scheduler's tick, so that work shorter than a tick is not divided: whoever comes
second waits for the first, and a rank that an exchange has just awakened has not returned from it yet. The two threads
of one rank run at once, each slower, as what shares a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import simpy

SAME = 1e-12
"""Relative difference between times that counts as rounding."""

TURN_S = 4e-3
"""A turn on a core that others want: a tick of Linux kernels with 250 a second."""


class CoreJob(simpy.Event):
    """The end of some work.

    Attributes:
        left: seconds of work that are left of it, at the time when its place was last brought up to date.
        load: the share of its cores that it uses.
        begun: when it first ran; None before.
    """

    def __init__(self, env: simpy.Environment, seconds: float, load: float) -> None:
        super().__init__(env)
        self.left, self.load = seconds, load
        self.begun: float | None = None


class Cores:
    """`number` cores for jobs that use up to `width` cores each: places for as many jobs as fit side by side.

    Work is measured in seconds of a job that has its cores to itself.

    Args:
        turn: seconds of a turn of the jobs of one place; 0: they run at once, equally slowed.
    """

    def __init__(self, env: simpy.Environment, number: float, width: int, turn: float = 0.0) -> None:
        self.env, places = env, max(1, int(number // width))
        self._places = [_Place(env, number / width / places, self._idle, turn) for _ in range(places)]

    def job(self, seconds: float, load: float = 1.0) -> CoreJob:
        """Begin `seconds` of work, which uses the share `load` of its cores; returns the event of its end."""
        job = CoreJob(self.env, seconds, load)
        min(self._places, key=attrgetter("load")).begin(job)
        return job

    def leave(self, job: CoreJob) -> float:
        """Remove a job before its end; returns the seconds of work that it had left."""
        place = next(place for place in self._places if job in place.jobs)
        place.remove(job)
        if not place.jobs:
            self._idle(place)
        return job.left

    def _idle(self, place: _Place) -> None:
        """Move a job from the fullest place to one that has none: the one that has most left, of those that wait."""
        fullest = max(self._places, key=attrgetter("load"))
        if len(fullest.jobs) > 1:
            job = max(fullest.movable(), key=attrgetter("left"))
            fullest.remove(job)
            place.begin(job)


class _Place:
    """Cores that jobs share.

    Args:
        capacity: jobs that it can run at full speed at once.
        idle: called with this place when its last job has ended.
        turn: see `Cores`.

    Attributes:
        jobs: in the order of their turns: the first runs, or all do.
    """

    def __init__(
        self, env: simpy.Environment, capacity: float, idle: Callable[[_Place], None], turn: float = 0.0
    ) -> None:
        self.env, self.capacity, self.turn, self.jobs = env, capacity, turn, list[CoreJob]()
        self._idle = idle
        self._since = self._turn_ends = 0.0
        self._version = 0

    @property
    def load(self) -> float:
        """Jobs here, each by its share."""
        return sum(job.load for job in self.jobs)

    def movable(self) -> list[CoreJob]:
        """The jobs that another place may take over."""
        self._advance()
        return self.jobs[1:] if self.turn else self.jobs

    def begin(self, job: CoreJob) -> None:
        """Begin or go on with a job."""
        self._advance()
        self.jobs.append(job)
        self._run(anew=len(self.jobs) == 1)

    def remove(self, job: CoreJob) -> None:
        """Remove a job, and bring what it has left up to date."""
        self._advance()
        first = self.jobs[0] is job
        self.jobs.remove(job)
        self._run(anew=first)

    @property
    def _running(self) -> list[CoreJob]:
        return self.jobs[:1] if self.turn else self.jobs

    def _pace(self) -> float:
        load = sum(job.load for job in self._running)
        return min(1.0, self.capacity / load) if load else 1.0

    def _advance(self) -> None:
        done = (self.env.now - self._since) * self._pace()
        for job in self._running:
            job.left = max(0.0, job.left - done)
        self._since = self.env.now

    def _run(self, anew: bool) -> None:
        """Run what is to run until the next job ends or, if others wait for theirs, a turn.

        Args:
            anew: whether a turn begins.
        """
        self._version += 1
        if not self.jobs:
            return
        for job in self._running:
            job.begun = self.env.now if job.begun is None else job.begun
        if anew:
            self._turn_ends = self.env.now + self.turn
        version, wait = self._version, min(job.left for job in self._running) / self._pace()
        if self.turn and len(self.jobs) > 1:
            wait = min(wait, max(0.0, self._turn_ends - self.env.now))
        wake = self.env.timeout(wait)
        assert wake.callbacks is not None
        wake.callbacks.append(lambda _: self._wake(version))

    def _wake(self, version: int) -> None:
        """End jobs or a turn, unless jobs began or left since this was scheduled."""
        if version != self._version:
            return
        self._advance()
        slack = SAME * (self.env.now + 1.0)
        ended = [job for job in self._running if job.left <= slack]
        for job in ended:
            self.jobs.remove(job)
            job.succeed()
        over = self.turn > 0 and (bool(ended) or self.env.now >= self._turn_ends - slack)
        if over and not ended:
            self.jobs.append(self.jobs.pop(0))
        self._run(anew=over)
        if not self.jobs:
            self._idle(self)
