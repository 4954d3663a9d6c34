"""A fluid network on SimPy's clock: transfers share directed links max-min fairly, exactly.

One network object holds all transfers in arrays and keeps one pending SimPy event, its next change; there is no process
and no event per transfer. A transfer first waits its latency, using nothing, then drains at its fair rate; rates are
solved anew once per instant at which transfers begin or end. It knows links by number only (see `sims.placement`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import simpy
from simpy.events import EventPriority

from harness.errors import InputError
from sims.fluid import SAME_TIME, drain, event_loop, fair_rates, next_completion, take_finished

LATE = 2  # SimPy's own priorities are 0 and 1


def call_late(env: simpy.Environment, call: Callable[[], None], delay: float = 0.0) -> None:
    """Call in `delay` seconds, behind everything else of that instant, so that all of its changes meet."""
    event = simpy.Event(env)
    event._ok, event._value = True, None
    assert event.callbacks is not None
    event.callbacks.append(lambda _: call())
    env.schedule(event, priority=EventPriority(LATE), delay=delay)


@dataclass(order=True, frozen=True)
class _Batch:
    """Flows whose latency ends at `time`."""

    time: float
    number: int
    routes: np.ndarray
    nbytes: np.ndarray
    groups: np.ndarray


class FluidNetwork:
    """Transfers in flight over `capacity` [links], B/s.

    Attributes:
        link_bytes: int64 [links], bytes that crossed each link or are on their way.
        solves: how often rates were computed.
    """

    def __init__(self, env: simpy.Environment, capacity: np.ndarray) -> None:
        self.env, self.capacity = env, np.ascontiguousarray(capacity, np.float64)
        self.link_bytes = np.zeros(len(capacity), np.int64)
        self.solves = 0
        self._count = 0  # flows that drain: the first rows of the four arrays below
        self._remaining, self._rate = np.empty(0), np.empty(0)
        self._route, self._group = np.empty((0, 0), np.int32), np.empty((0, 2), np.int64)
        self._batches: list[_Batch] = []
        self._numbers = count()
        self._pending = np.zeros(64, np.int64)  # flows that each group still waits for
        self._events: dict[int, simpy.Event] = {}
        self._free = list(range(63, -1, -1))
        self._drained_at = env.now
        self._wake_at = np.inf
        self._version = 0

    def group(self, flows: int) -> tuple[int, simpy.Event]:
        """A counter of `flows` transfers, to be named in `add`, and the event of its last one's end."""
        if not self._free:
            size = len(self._pending)
            self._pending = np.concatenate([self._pending, np.zeros(size, np.int64)])
            self._free = list(range(2 * size - 1, size - 1, -1))
        number, event = self._free.pop(), self.env.event()
        self._pending[number] = flows
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
        self.account(routes, nbytes)
        for seconds in np.unique(latency):
            chosen = latency == seconds
            batch = _Batch(
                self.env.now + float(seconds),
                next(self._numbers),
                routes[chosen],
                nbytes[chosen].astype(np.float64),
                groups[chosen],
            )
            heapq.heappush(self._batches, batch)
        if len(latency):
            self._schedule(self._batches[0].time)

    def account(self, routes: np.ndarray, nbytes: np.ndarray) -> None:
        """Count bytes on the links of routes [flows, width] without moving them."""
        crossed = routes >= 0
        np.add.at(
            self.link_bytes,
            routes[crossed],
            np.broadcast_to(np.asarray(nbytes, np.int64)[:, None], routes.shape)[crossed],
        )

    def _schedule(self, time: float) -> None:
        """Wake at `time` unless that is planned already; an earlier plan replaces a later one."""
        if time >= self._wake_at:
            return
        self._wake_at = time
        self._version += 1
        call_late(self.env, partial(self._wake, self._version), max(time - self.env.now, 0.0))

    def _wake(self, version: int) -> None:
        """Bring everything to the present: drain, end and begin transfers, solve once, plan the next change."""
        if version != self._version:
            return
        now = self.env.now
        self._wake_at = np.inf
        drain(self._remaining, self._rate, self._count, now - self._drained_at)
        self._drained_at = now
        while self._batches and self._batches[0].time <= now * (1 + SAME_TIME):
            self._activate(heapq.heappop(self._batches))
        self._count, done = take_finished(
            self._remaining, self._rate, self._route, self._group, self._count, now * SAME_TIME, self._pending
        )
        fair_rates(self.capacity, self._route, self._count, self._rate)
        self.solves += 1
        change = now + next_completion(self._remaining, self._rate, self._count)
        if self._batches:
            change = min(change, self._batches[0].time)
        if change < np.inf:
            self._schedule(change)
        for number in done:
            self._free.append(int(number))
            self._events.pop(int(number)).succeed()

    def _activate(self, batch: _Batch) -> None:
        """Append the flows of a batch to those that drain."""
        begin, end = self._count, self._count + len(batch.nbytes)
        self._reserve(end, batch.routes.shape[1])
        width = batch.routes.shape[1]
        self._route[begin:end, :width], self._route[begin:end, width:] = batch.routes, -1
        self._remaining[begin:end], self._rate[begin:end] = batch.nbytes, 0.0
        self._group[begin:end] = batch.groups
        self._count = end

    def _reserve(self, flows: int, width: int) -> None:
        """Room for so many flows; grows geometrically."""
        have, wide = self._route.shape
        if flows <= have and width <= wide:
            return
        rows, columns = have if flows <= have else max(2 * have, flows, 256), max(width, wide)
        route = np.full((rows, columns), -1, np.int32)
        route[:have, :wide] = self._route
        self._route = route
        if rows > have:
            self._remaining = np.concatenate([self._remaining, np.empty(rows - have)])
            self._rate = np.concatenate([self._rate, np.zeros(rows - have)])
            self._group = np.concatenate([self._group, np.empty((rows - have, 2), np.int64)])


def solve(capacity: np.ndarray, routes: np.ndarray) -> np.ndarray:
    """Max-min fair rates, float64 [flows] in B/s, of flows over routes int32 [flows, width] padded with -1."""
    rate = np.empty(len(routes))
    fair_rates(np.ascontiguousarray(capacity, np.float64), np.ascontiguousarray(routes, np.int32), len(routes), rate)
    return rate


def route_table(routes: Sequence[Sequence[int]]) -> np.ndarray:
    """Routes of different lengths as int32 [flows, width], padded with -1."""
    width = max(map(len, routes), default=0)
    return np.asarray([[*route, *[-1] * (width - len(route))] for route in routes], np.int32).reshape(-1, width)


def run_flows(
    capacity: np.ndarray,
    routes: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """Finish times, float64 [flows], of transfers over shared links, without a clock.

    Args:
        capacity: [links], B/s.
        routes: int32 [flows, width], links, padded with -1 (see `route_table`).
        nbytes, start_s, latency_s: [flows], or one number for all.
        after: for every flow the flows that must end before it begins.

    Raises:
        InputError: a flow waits for itself through others.
    """
    flows = len(routes)
    after = [()] * flows if after is None else after
    waits = np.asarray([len(before) for before in after], np.int64).reshape(flows)
    parent = np.asarray([p for before in after for p in before], np.int64)
    order = np.argsort(parent, kind="stable")
    child_start = np.searchsorted(parent[order], np.arange(flows + 1))
    size, start, latency = (np.broadcast_to(np.asarray(v, np.float64), (flows,)) for v in (nbytes, start_s, latency_s))
    finish: np.ndarray = event_loop(
        np.ascontiguousarray(capacity, np.float64),
        np.ascontiguousarray(routes, np.int32),
        size.copy(),
        start.copy(),
        latency.copy(),
        child_start.astype(np.int64),
        np.repeat(np.arange(flows), waits)[order],
        waits.copy(),
    )
    if np.isnan(finish).any():
        raise InputError(f"flow {int(np.flatnonzero(np.isnan(finish))[0])} follows itself through other flows")
    return finish
