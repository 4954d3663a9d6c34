"""A fluid network on SimPy's clock: flows share directed links max-min fairly.

One network object holds all flows in arrays and one pending SimPy event, its next change; there is no process and no
event per flow. `_in_flight` computes how flows share; links and segments of routes are numbers (see `sims.cluster`).
The network adds groups of flows, whose ends the simulation waits for, and the reuse of busy periods. Steps 6 and 7 of
`docs/network.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy
from simpy.events import EventPriority

from sims.network._busy_periods import BusyPeriod, PeriodMemory
from sims.network._completions import EXACT_FLOWS, MERGE, WINDOW, same_time
from sims.network._groups import Groups
from sims.network._in_flight import Batch, InFlight
from sims.network._link_bytes import LinkBytes
from sims.network._routes import RouteTable

LATE = EventPriority(2)  # SimPy's own are 0 and 1


class _LateCall(simpy.Event):
    """A `simpy.Timeout` of a lower priority than SimPy's own; like every timeout it is triggered from the start."""

    def __init__(self, env: simpy.Environment, call: Callable[[simpy.Event], None], delay: float) -> None:
        super().__init__(env)
        self._ok, self._value = True, None  # how SimPy's own subclasses of Event are triggered
        self.callbacks = [call]
        env.schedule(self, priority=LATE, delay=delay)


def call_late(env: simpy.Environment, call: Callable[[simpy.Event], None], delay: float = 0.0) -> simpy.Event:
    """Schedule a call in `delay` seconds, after all other events of that instant, so that it sees all of its changes.

    Returns the event that is passed to `call`.
    """
    return _LateCall(env, call, delay)


class Watch(Protocol):
    """Interface of an object that is notified of every transfer (`sims.replay`)."""

    def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers begin: links int32 [flows, width] padded with -1, bytes and seconds [flows]."""
        ...

    def ended(self, finish: np.ndarray) -> None:
        """All transfers begun since the last call have ended, at `finish` seconds [flows]."""
        ...

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed a link that carries copies only and is timed by `sims.transport`."""
        ...


class FluidNetwork:
    """Flows over links of `capacity` [links], B/s.

    Args:
        segments: segments of routes for `add_by_segments`, int32 [segments, width], such as `Placement.segments`.
        window, exact_flows: see `schedule`.

    Attributes:
        capacity: float64 [links], B/s.
        watch: notified of every flow; None for nobody.
        timing: whether flows take time: until `stop_timing`.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity: np.ndarray,
        segments: np.ndarray | None = None,
        window: float = WINDOW,
        exact_flows: int = EXACT_FLOWS,
    ) -> None:
        self.env, self.capacity = env, np.ascontiguousarray(capacity, np.float64)
        self.watch: Watch | None = None
        self._table = RouteTable(self.capacity, segments)
        self._bytes = LinkBytes(self._table, len(self.capacity))
        self._groups = Groups(env)
        self._flight = InFlight(self._table, self._groups.pending, window, exact_flows)
        self._memory, self._period = PeriodMemory(), BusyPeriod(env.now)
        self._alarm: tuple[float, simpy.Event | None] = np.inf, None  # time and event of the valid wake
        self.timing = True

    @property
    def solves(self) -> int:
        """Number of times that rates were computed."""
        return self._flight.solves

    @property
    def resolution(self) -> float:
        """Seconds by which flows may have begun later than they should; 0 where every time is exact."""
        return MERGE * self._flight.widest[0]

    @property
    def link_bytes(self) -> np.ndarray:
        """Bytes that crossed each link or are in flight, int64 [links]; fractions are rounded."""
        return self._bytes.total()

    def group(self, flows: int) -> tuple[int, simpy.Event]:
        """Make a group of `flows` flows; returns its number, for `add`, and the event of the last one's end."""
        before = self._groups.pending
        made = self._groups.make(flows)
        if self._groups.pending is not before:
            self._flight.count_in(self._groups.pending)
        return made

    def add(self, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray, groups: np.ndarray) -> None:
        """Begin flows now.

        Args:
            routes: int32 [flows, width], links, padded with -1.
            nbytes: [flows]; a flow of 0 bytes ends after its latency.
            latency: [flows], seconds.
            groups: int32 or int64 [flows, 2], numbers from `group` that count the flow, or -1.
        """
        head = self.segment(routes)
        self.add_by_segments(head, np.zeros(len(head), np.int32), nbytes, latency, groups)

    def segment(self, routes: np.ndarray) -> np.ndarray:
        """Segment numbers, int32, of whole routes int32 [flows, width] padded with -1, as heads for
        `add_by_segments`."""
        return self._table.intern(routes)

    def add_by_segments(
        self,
        head: np.ndarray,
        tail: np.ndarray,
        nbytes: np.ndarray,
        latency: np.ndarray,
        groups: np.ndarray,
        *,
        last: bool = False,
    ) -> None:
        """`add` for routes given by two segments each, int32 [flows]; 0 is the empty segment.

        `last`: all other changes of this instant are scheduled as events of the simulation.
        """
        if not len(head):
            return
        self._bytes.add(head, tail, nbytes)
        if not self.timing:
            self._groups.end_flows(groups)
            return
        if self._next_time() == np.inf:
            self._start_period()
        batch = Batch(head, tail, nbytes, latency, groups)
        self._begin(self.env.now - self._period.origin, batch, self._free_until() if last else -np.inf)
        if self.watch is not None:
            segments = self._table.fabric().segments
            links = np.concatenate([segments[head], segments[tail]], axis=1)
            self.watch.begun(self.env.now, links, nbytes, latency)
        self._schedule_wake()

    def stop_timing(self) -> None:
        """End all flows now, and from now on flows as they begin: for a simulation whose further times are known.

        Bytes of links are still counted. There must be no watch.
        """
        assert self.watch is None
        if self._period.followed is None:  # otherwise flows were counted down as they began
            self._groups.end_flows(self._flight.groups())
        self._groups.end_counted()
        self.timing, self._alarm = False, (np.inf, None)

    def account(self, routes: np.ndarray, nbytes: np.ndarray) -> None:
        """Count bytes on the links of routes [flows, width] without moving them."""
        head = self.segment(routes)
        self._bytes.add(head, np.zeros(len(head), np.int32), np.broadcast_to(nbytes, len(head)))

    def count(self, link: int, nbytes: int) -> None:
        """Count bytes of a link whose transfers `sims.transport` times."""
        self._bytes.add_link(link, nbytes)

    def report(self) -> None:
        """Notify the watch of the ends of the flows that it saw begin, if all have ended."""
        if self.watch is not None and self._next_time() == np.inf:
            self.watch.ended(self._period.origin + self._flight.finish)

    def facts(self) -> dict[str, float]:
        """Accuracy of the times: the longest window in which completions were combined, and its bound."""
        window, bound = self._flight.widest
        return {"network_window_s": window, "network_bound_s": bound, "network_solves": float(self.solves)}

    def _start_period(self) -> None:
        """Begin a busy period; nothing is in flight."""
        self.report()
        self._groups.start_period()
        self._period = BusyPeriod(self.env.now)
        self._flight.reset(recording=self.watch is not None)

    def _begin(self, now: float, batch: Batch, free: float) -> None:
        """Begin flows: follow an earlier period, or compute them."""
        period, slack = self._period, self._slack()
        if self.watch is not None or (period.journal.full and period.followed is None):
            period.journal.batches.clear()
            self._flight.add(now, free, slack, batch)
            return
        first = not period.journal.begun
        period.journal.begin(now, batch, self._groups.pending)
        if first:
            period.follow(self._memory.find(period.journal, now, slack))
        elif not period.as_followed(now, slack):
            self._compute_anew(now)
            return
        if period.followed is not None:
            self._groups.count_ended(batch)
        else:
            period.journal.batches.clear()  # only a period that is followed may have to be computed from its beginning
            self._flight.add(now, free, slack, batch)

    def _compute_anew(self, now: float) -> None:
        """The period deviates from the one it followed: follow another that fits, or recompute it from its beginning.

        Groups that have ended so far ended in every period that fitted; their events are not triggered again.
        """
        period, slack = self._period, self._slack()
        self._groups.rewind()
        period.follow(self._memory.find(period.journal, now, slack))
        for (time, _), batch in zip(period.journal.begun, period.journal.batches, strict=True):
            if period.followed is not None:
                self._groups.count_ended(batch)
            else:
                period.late += self._flight.run_to(time, slack, -np.inf)
                self._flight.add(time, -np.inf, slack, batch)
        if period.followed is None:
            period.journal.batches.clear()

    def _next_time(self) -> float:
        period = self._period
        if period.followed is None:
            return self._flight.next_time
        return period.followed.next_time(len(period.journal.begun), period.passed, self._slack())

    def _slack(self) -> float:
        return same_time(self.env.now, self._period.origin)

    def _free_until(self) -> float:
        """The time before which nothing begins, if the current event is the last of its instant."""
        return self.env.peek() - self._period.origin

    def _schedule_wake(self) -> None:
        """Schedule a wake at the next change, unless there is one."""
        time = self._period.origin + self._next_time()
        if time != self._alarm[0] and time != np.inf:
            self._alarm = time, call_late(self.env, self._wake, max(time - self.env.now, 0.0))

    def _wake(self, alarm: simpy.Event) -> None:
        """Advance the flows to the current time, and trigger the events of the groups that have ended."""
        if alarm is not self._alarm[1]:
            return
        period, now = self._period, self.env.now - self._period.origin
        self._alarm = np.inf, alarm
        if not period.as_followed(now, self._slack()):
            self._compute_anew(now)
        forgetful = self.watch is not None or period.journal.full
        for number in self._run_to(now):
            event = self._groups.end(number)  # None when it ended in a window that is counted down only now
            if event is not None:
                if not forgetful:
                    period.journal.end(now, number)
                event.succeed()
        if self._next_time() == np.inf and period.followed is None and not forgetful:
            self._memory.keep(period.journal, now)
        self._schedule_wake()

    def _run_to(self, now: float) -> list[int]:
        """Advance to `now`; returns groups that have ended, which may repeat earlier ones."""
        period = self._period
        late, period.late = period.late, []
        if period.followed is not None:
            return late + period.pass_to(now, self._slack())
        free = -np.inf if late else self._free_until()  # who waits for a group may begin something now
        return late + self._flight.run_to(now, self._slack(), free)
