"""Cores that several ranks, or the two threads of a rank, share, as a system's scheduler shares them.

A job stays on its core until another core, which has nothing to do, takes it over at a tick of the system's clock. So
of three ranks on two cores one has a core for itself, and the other two share the other until it waits, and up to a
tick longer (`python -m benchmarks.idle_core` measures that). Threads that compute count, and those of a library that
carry out exchanges and copy their bytes; a rank that waits for an exchange uses no core. A GPU is one core.

Ranks on one core run in turns, as Linux (EEVDF) deals them. Whoever has been given a core keeps it for a slice. After
that a rank that an exchange awakens takes the core from it at once, unless the running one has run less: one that has
slept begins with the mean of what the others have run. Among those that go on computing, the core passes to the one
that has run least at a tick of the system's clock. So work shorter than a slice is not divided: whoever comes second
waits, and has not returned from its exchange until it runs. A rank that loses its core in the middle of its work goes
on later, and that work takes longer. The two threads of one rank run at once, each slower, as what shares a GPU does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter

import simpy

from sims.device import DeviceProfile
from sims.engine._idle_core import IdleCore

SAME = 1e-12
"""Relative difference between times that counts as rounding."""

TICK_S = 4e-3
"""Between two ticks of Linux kernels with 250 a second. All cores have theirs at the same moments."""

SLICE_S, MOST_SLICES = 0.7e-3, 4
"""For how long a job keeps its core on a machine with one core (Linux: `base_slice`), and how many times that at most
on machines with more: one more for every doubling of the cores."""


class Turns:
    """When a core that others want changes hands.

    Args:
        tick: seconds between two ticks of the system's clock; the first is at 0.
        kept: seconds for which a job keeps its core.
    """

    def __init__(self, tick: float, kept: float) -> None:
        self.tick, self.kept = tick, kept

    @classmethod
    def of(cls, cores: float) -> Turns:
        """Those of Linux on a machine with so many cores."""
        return cls(TICK_S, SLICE_S * min(MOST_SLICES, 1 + int(math.log2(max(cores, 1)))))

    def over(self, picked: float, now: float) -> bool:
        """Whether a job that was given its core at `picked` may lose it now."""
        return now - picked >= self.kept - SAME * (now + 1.0)

    def next_tick(self, now: float) -> float:
        """The first tick later than `now`."""
        return self.tick * (math.floor(now / self.tick + 1e-9) + 1)

    def ends(self, picked: float, now: float) -> float:
        """The next tick, later than `now`, at which a job that was given its core at `picked` may lose it."""
        at = self.tick * math.ceil(max(picked + self.kept, now) / self.tick - 1e-9)
        return at if at > now + 1e-9 * self.tick else at + self.tick


class CoreJob(simpy.Event):
    """The end of some work.

    Attributes:
        left: seconds of work that are left of it, at the time when its place was last brought up to date.
        load: the share of its cores that it uses.
        begun: when it first ran; None before.
        runtime: by which jobs of one place are compared: what it has run, beginning with the mean of those that it met.
        work: seconds of work in all.
        pauses: (seconds of work done before, seconds of the pause) of every time that it lost its core to another job.
    """

    def __init__(self, env: simpy.Environment, seconds: float, load: float) -> None:
        super().__init__(env)
        self.left, self.load = seconds, load
        self.begun: float | None = None
        self.runtime = 0.0
        self.work, self.pauses = seconds, list[tuple[float, float]]()
        self._lost: float | None = None

    def more(self, seconds: float) -> None:
        """Add work."""
        self.left += seconds
        self.work += seconds

    def runs(self, now: float) -> None:
        """It has a core from now on."""
        if self.begun is None:
            self.begun = now
        if self._lost is not None:
            self.pauses.append((self.work - self.left, now - self._lost))
            self._lost = None

    def waits(self, now: float) -> None:
        """It has none from now on."""
        if self.begun is not None and self._lost is None:
            self._lost = now


class Cores:
    """`number` cores for jobs that use up to `width` cores each: places for as many jobs as fit side by side.

    Work is measured in seconds of a job that has its cores to itself.

    Args:
        turns: when a core passes from one job of a place to the next; None: they run at once, equally slowed.
        longer: factor on all work here.
        profile: of the device whose cores they are, for what idling costs them; None: nothing.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: float,
        width: int,
        turns: Turns | None = None,
        longer: float = 1.0,
        profile: DeviceProfile | None = None,
    ) -> None:
        self.env, self.longer, places = env, longer, max(1, int(number // width))
        self._turns = turns
        self._places = [
            _Place(env, number / width / places, self._idle, turns, IdleCore(profile) if profile else None)
            for _ in range(places)
        ]

    def job(self, seconds: float, load: float = 1.0) -> CoreJob:
        """Begin `seconds` of work, which uses the share `load` of its cores; returns the event of its end."""
        job = CoreJob(self.env, seconds * self.longer, load)
        min(self._places, key=attrgetter("load")).awaken(job)
        return job

    def software(self, seconds: float) -> CoreJob:
        """Begin `seconds` of a library's work, which were measured among ranks that share cores: `longer` is no factor
        on them."""
        return self.job(seconds / self.longer)

    def leave(self, job: CoreJob) -> float:
        """Remove a job before its end; returns the seconds of work that it had left."""
        place = next(place for place in self._places if job in place.jobs)
        place.remove(job)
        if not place.jobs:
            self._idle(place)
        return job.left / self.longer

    def _idle(self, place: _Place) -> None:
        """Have a place without jobs take one over from the fullest, if one waits there: at the next tick of the clock
        where jobs take turns, else at once."""
        if self._turns is None:
            self._take_over(place)
        elif len(self._fullest().jobs) > 1:
            tick = self.env.timeout(self._turns.next_tick(self.env.now) - self.env.now)
            assert tick.callbacks is not None
            tick.callbacks.append(lambda _: self._take_over(place))

    def _take_over(self, place: _Place) -> None:
        """Move the job that has most left, of those that wait at the fullest place, to one that has none."""
        fullest = self._fullest()
        if not place.jobs and len(fullest.jobs) > 1:
            job = max(fullest.movable(), key=attrgetter("left"))
            fullest.remove(job)
            place.awaken(job)

    def _fullest(self) -> _Place:
        return max(self._places, key=attrgetter("load"))


class _Place:
    """Cores that jobs share.

    Args:
        capacity: jobs that it can run at full speed at once.
        idle: called with this place when its last job has ended.
        turns: when jobs change; None: they run at once.
        core: what idling costs them; None: nothing.

    Attributes:
        jobs: the first runs, or all do.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity: float,
        idle: Callable[[_Place], None],
        turns: Turns | None = None,
        core: IdleCore | None = None,
    ) -> None:
        self._core = core
        self.env, self.capacity, self.turns, self.jobs = env, capacity, turns, list[CoreJob]()
        self._idle = idle
        self._since = self._picked = self._emptied = 0.0
        self._turn_ends = math.inf
        self._version = 0

    @property
    def load(self) -> float:
        """Jobs here, each by its share."""
        return sum(job.load for job in self.jobs)

    def movable(self) -> list[CoreJob]:
        """The jobs that another place may take over."""
        self._advance()
        return self.jobs[1:] if self.turns else self.jobs

    def awaken(self, job: CoreJob) -> None:
        """Begin or go on with a job: at once if the core is free, or whoever has it has kept it for a slice and has not
        run less than others."""
        self._advance()
        if self._core is not None:
            if not self.jobs:
                self._core.idled(self.env.now - self._emptied)
            job.more(self._core.longer(job.left))
        job.runtime = sum(other.runtime for other in self.jobs) / max(len(self.jobs), 1)
        now = not self.jobs or (
            self.turns is not None
            and self.turns.over(self._picked, self.env.now)
            and job.runtime <= self.jobs[0].runtime * (1 + SAME)
        )
        self.jobs.insert(0 if now else len(self.jobs), job)
        self._run(anew=now)

    def remove(self, job: CoreJob) -> None:
        """Remove a job, and bring what it has left up to date."""
        self._advance()
        first = self.jobs[0] is job
        self.jobs.remove(job)
        if first:
            self._pick()
        self._run(anew=first)

    @property
    def _running(self) -> list[CoreJob]:
        return self.jobs[:1] if self.turns else self.jobs

    def _pace(self) -> float:
        load = sum(job.load for job in self._running)
        return min(1.0, self.capacity / load) if load else 1.0

    def _advance(self) -> None:
        done = (self.env.now - self._since) * self._pace()
        for job in self._running:
            job.left = max(0.0, job.left - done)
            job.runtime += done
        self._since = self.env.now

    def _pick(self) -> None:
        """Give the core to the job that has run least; of several, to the one that has waited longest."""
        if self.turns and self.jobs:
            self.jobs.insert(0, self.jobs.pop(min(range(len(self.jobs)), key=lambda at: self.jobs[at].runtime)))

    def _run(self, anew: bool) -> None:
        """Run what is to run until the next job ends or, if others wait for the core, it changes hands.

        Args:
            anew: whether the job that runs is given its core now.
        """
        self._version += 1
        if not self.jobs:
            self._emptied = self.env.now
            return
        running = self._running
        for job in running:
            job.runs(self.env.now)
        for job in self.jobs[len(running) :]:
            job.waits(self.env.now)
        if anew:
            self._picked = self.env.now
        version, wait = self._version, min(job.left for job in self._running) / self._pace()
        if self.turns and len(self.jobs) > 1:
            self._turn_ends = self.turns.ends(self._picked, self.env.now)
            wait = min(wait, self._turn_ends - self.env.now)
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
        over = bool(ended) or self.env.now >= self._turn_ends - slack
        if over:
            if not ended:
                self.jobs.append(self.jobs.pop(0))
            self._pick()
        self._run(anew=over)
        if not self.jobs:
            self._idle(self)
