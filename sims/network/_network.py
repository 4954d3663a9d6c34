"""A fluid network on SimPy's clock: transfers share directed links max-min fairly.

One network object holds all transfers in arrays and keeps one pending SimPy event, its next change; there is no process
and no event per transfer. How transfers share is the business of `_inflight`; the network knows links and half
routes by number only (see `sims.cluster`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy
from simpy.events import EventPriority

from sims.network._fluid import EXACT_FLOWS, SAME_TIME, WINDOW, count_bytes, count_down
from sims.network._inflight import InFlight
from sims.network._memo import Batch, Journal, Memo, Period
from sims.network._rows import Rows

LATE = EventPriority(2)  # SimPy's own are 0 and 1

GROUPS = 128
"""Room for groups of transfers from the start; it doubles."""

COUNT_AT = 1 << 16
"""Transfers whose bytes are counted at a time: a call for each batch would take longer than many a batch."""


def call_late(env: simpy.Environment, call: Callable[[simpy.Event], None], delay: float = 0.0) -> simpy.Event:
    """Call in `delay` seconds, behind everything else of that instant, so that all of its changes meet.

    Answers the event that `call` will be given.
    """
    event = simpy.Event(env)
    event._ok, event._value, event.callbacks = True, None, [call]
    env.schedule(event, priority=LATE, delay=delay)
    return event


class Watch(Protocol):
    """Whoever wants to know of every transfer (`sims.replay`)."""

    def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers begin: links int32 [flows, width] padded with -1, bytes and seconds [flows]."""
        ...

    def ended(self, finish: np.ndarray) -> None:
        """All transfers begun since the last call have ended, at these times [flows]."""
        ...

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed a link that carries copies alone, without the network's help (`sims.transport`)."""
        ...


class FluidNetwork:
    """Transfers in flight over `capacity` [links], B/s.

    Args:
        halves: half routes for `add_lanes`, int32 [rows, width], such as `Placement.halves`.
        window, exact_flows: see `_flows.schedule`.

    Attributes:
        capacity: float64 [links], B/s.
        watch: is told of every transfer; None where nobody looks.
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity: np.ndarray,
        halves: np.ndarray | None = None,
        window: float = WINDOW,
        exact_flows: int = EXACT_FLOWS,
    ) -> None:
        self.env, self.capacity = env, np.ascontiguousarray(capacity, np.float64)
        self._link_bytes = np.zeros(len(capacity), np.int64)
        self._uncounted: list[tuple[np.ndarray, ...]] = []  # heads, tails and bytes of what is not in it yet
        self._uncounted_flows = 0
        self._rows = Rows(self.capacity, halves)
        self._pending = np.zeros(GROUPS, np.int64)  # flows that each group still waits for
        self._before = self._pending  # as of the last idle moment, for groups made since as they were made
        self._events: dict[int, simpy.Event] = {}
        self._free, self._used_up = list(range(GROUPS - 1, -1, -1)), list[int]()
        self._flight = InFlight(self._rows, self._pending, window, exact_flows)
        self._memo, self._journal = Memo(), Journal()
        self._replay: Period | None = None  # what the flight would do, known from before
        self._replayed = 0  # ends of it that are past
        self._owed: list[int] = []  # groups that have ended, most of them known to have
        self.watch: Watch | None = None
        self._origin = env.now
        self._wake_at = np.inf
        self._alarm: simpy.Event | None = None  # the wake that counts: it is for `_wake_at`

    @property
    def solves(self) -> int:
        """How often rates were computed."""
        return self._flight.solves

    @property
    def link_bytes(self) -> np.ndarray:
        """Bytes that crossed each link or are on their way, int64 [links]; fractions are rounded once per COUNT_AT."""
        self._count_up()
        return self._link_bytes

    def group(self, flows: int) -> tuple[int, simpy.Event]:
        """A counter of `flows` transfers, to be named in `add`, and the event of its last one's end."""
        if not self._free:
            size = len(self._pending)
            self._pending = np.concatenate([self._pending, np.zeros(size, np.int64)])
            self._before = np.concatenate([self._before, np.zeros(size, np.int64)])
            self._flight.count_in(self._pending)
            self._free = list(range(2 * size - 1, size - 1, -1))
        number, event = self._free.pop(), self.env.event()
        self._pending[number] = self._before[number] = flows
        self._events[number] = event
        return number, event

    def add(self, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray, groups: np.ndarray) -> None:
        """Begin transfers now.

        Args:
            routes: int32 [flows, width], links, padded with -1.
            nbytes: [flows]; a transfer of 0 bytes ends after its latency.
            latency: [flows], seconds.
            groups: int64 [flows, 2], numbers from `group` that count the transfer, or -1.
        """
        head = self.row(routes)
        self.add_lanes(head, np.zeros(len(head), np.int32), nbytes, latency, groups)

    def row(self, routes: np.ndarray) -> np.ndarray:
        """Numbers of whole routes int32 [flows, width], padded with -1, to be given as heads to `add_lanes`: int32."""
        return self._rows.intern(routes)

    def add_lanes(
        self,
        head: np.ndarray,
        tail: np.ndarray,
        nbytes: np.ndarray,
        latency: np.ndarray,
        groups: np.ndarray,
        *,
        last: bool = False,
    ) -> None:
        """`add` for routes given as two half routes each, int32 [flows], the empty one being 0.

        `last`: whatever else happens now is on the simulation's list of events.
        """
        if not len(head):
            return
        self._count_bytes(head, tail, nbytes)
        if self._next_time() == np.inf:
            self._awake()
        batch = Batch(head, tail, nbytes, latency, groups)
        self._begin(self.env.now - self._origin, batch, self._free_until() if last else -np.inf)
        if self.watch is not None:
            rows = self._rows.fabric().rows
            self.watch.begun(self.env.now, np.concatenate([rows[head], rows[tail]], axis=1), nbytes, latency)
        self._schedule()

    def account(self, routes: np.ndarray, nbytes: np.ndarray) -> None:
        """Count bytes on the links of routes [flows, width] without moving them."""
        head = self._rows.intern(routes)
        self._count_bytes(head, np.zeros(len(head), np.int32), np.broadcast_to(nbytes, len(head)))

    def count(self, link: int, nbytes: int) -> None:
        """Count bytes of a link that are moved by others (`sims.transport`)."""
        self._link_bytes[link] += nbytes

    def report(self) -> None:
        """Tell the watch when the transfers that it saw begin have ended, if all have."""
        if self.watch is not None and self._next_time() == np.inf:
            self.watch.ended(self._origin + self._flight.finish)

    def facts(self) -> dict[str, float]:
        """How exact the times are: the longest window in which completions were taken together, and its bound."""
        window, bound = self._flight.widest
        return {"network_window_s": window, "network_bound_s": bound, "network_solves": float(self.solves)}

    def _count_bytes(self, head: np.ndarray, tail: np.ndarray, nbytes: np.ndarray) -> None:
        self._uncounted.append((head, tail, np.asarray(nbytes)))
        self._uncounted_flows += len(head)
        if self._uncounted_flows > COUNT_AT:
            self._count_up()

    def _count_up(self) -> None:
        if self._uncounted:
            head, tail, nbytes = (np.concatenate(column) for column in zip(*self._uncounted, strict=True))
            count_bytes(self._rows.fabric(), head, tail, nbytes, self._link_bytes)
            self._uncounted, self._uncounted_flows = [], 0

    def _awake(self) -> None:
        """Begin to count time anew: nothing is in flight."""
        self.report()
        self._free += self._used_up
        self._used_up, self._owed, self._before = [], [], self._pending.copy()
        self._origin, self._journal, self._replay, self._replayed = self.env.now, Journal(), None, 0
        self._flight.reset(recording=self.watch is not None)

    def _begin(self, now: float, batch: Batch, free: float) -> None:
        """Begin transfers, as remembered or in fact."""
        if self.watch is not None or (self._journal.full and self._replay is None):
            self._journal.batches.clear()
            self._flight.add(now, free, self._slack(), batch)
            return
        first = not self._journal.begun
        self._journal.begin(now, batch, self._pending)
        if first:
            self._replay = self._memo.find(self._journal, now, self._slack())
        elif not self._as_known(now):
            self._restart(now)
            return
        if self._replay is not None:
            count_down(batch.groups, np.arange(len(batch.head)), self._pending)
        else:
            self._flight.add(now, free, self._slack(), batch)

    def _restart(self, now: float) -> None:
        """The period is not what it seemed: go on with another that fits, or compute it from its beginning."""
        self._pending[:] = self._before
        self._replayed = 0
        self._replay = self._memo.find(self._journal, now, self._slack())
        for (time, _), batch in zip(self._journal.begun, self._journal.batches, strict=True):
            if self._replay is not None:
                count_down(batch.groups, np.arange(len(batch.head)), self._pending)
            else:
                self._owed += self._flight.run_to(time, self._slack(), -np.inf)
                self._flight.add(time, -np.inf, self._slack(), batch)

    def _as_known(self, now: float) -> bool:
        """Whether what has begun until now is what is being replayed, if anything is."""
        return self._replay is None or self._replay.fits(
            self._journal, now, self._slack(), len(self._journal.begun) - 1
        )

    def _next_time(self) -> float:
        if self._replay is None:
            return self._flight.next_time
        return self._replay.next_time(len(self._journal.begun), self._replayed, self._slack())

    def _slack(self) -> float:
        return self.env.now * SAME_TIME

    def _free_until(self) -> float:
        """Nothing begins before, while this event is the last thing that happens now."""
        return self.env.peek() - self._origin

    def _schedule(self) -> None:
        """Wake at the next change unless that is planned already."""
        time = self._origin + self._next_time()
        if time == self._wake_at or time == np.inf:
            return
        self._wake_at = time
        self._alarm = call_late(self.env, self._wake, max(time - self.env.now, 0.0))

    def _wake(self, alarm: simpy.Event) -> None:
        """Bring the transfers to the present, and tell whom they were for."""
        if alarm is not self._alarm:
            return
        self._wake_at, now = np.inf, self.env.now - self._origin
        if not self._as_known(now):
            self._restart(now)
        for number in self._run_to(now):
            event = self._events.pop(number, None)  # a group ends on time, and is counted down later in its window
            if event is not None:
                self._used_up.append(number)
                if self.watch is None and not self._journal.full:
                    self._journal.end(now, number)
                event.succeed()
        if self._next_time() == np.inf and self._replay is None and self.watch is None and not self._journal.full:
            self._memo.keep(self._journal, now)
        self._schedule()

    def _run_to(self, now: float) -> list[int]:
        """Let time pass; answers groups that have ended, some of them again."""
        owed, self._owed = self._owed, []
        period = self._replay
        if period is None:
            free = -np.inf if owed else self._free_until()  # whom a group is owed may begin something now
            return owed + self._flight.run_to(now, self._slack(), free)
        while self._replayed < len(period.ended) and period.ended[self._replayed][0] <= now + self._slack():
            label = period.ended[self._replayed][1]
            owed += [self._journal.number_of[label]] if label >= 0 else []
            self._replayed += 1
        return owed
