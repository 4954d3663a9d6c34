"""Times of flows that are known beforehand and may follow others: the event loop without SimPy's clock.

Step 6 of `docs/network.md`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import InputError
from sims.network._completions import EXACT_FLOWS, lower_bound, same_time
from sims.network._in_flight import Batch, InFlight
from sims.network._routes import RouteTable


@dataclass(frozen=True)
class Schedule:
    """End times of flows.

    Attributes:
        finish_s: float64 [flows].
        solves: number of times that rates were computed.
        window_s: the longest window in which completions were combined; 0 if every time is exact.
        bound_s: lower bound for the same bytes, without starts, latencies and order.
    """

    finish_s: np.ndarray
    solves: int
    window_s: float
    bound_s: float


def schedule(
    capacity: np.ndarray,
    routes: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
    window: float = 0.0,
    exact_flows: int = EXACT_FLOWS,
) -> Schedule:
    """Compute when flows over shared links end.

    Args:
        capacity: [links], B/s.
        routes: int32 [flows, width], links, padded with -1 (see `route_table`).
        nbytes, start_s, latency_s: [flows], or one number for all.
        after: for every flow the flows that must end before it begins.
        window: while more than `exact_flows` are in flight, completions within this share of the lower bound are
            combined; 0 for exact times.

    Raises:
        InputError: a flow waits for itself through others.
    """
    table = RouteTable(capacity)
    head = table.intern(routes)
    segments = head, np.zeros(len(head), np.int32)
    return schedule_by_segments(table, *segments, nbytes, start_s, latency_s, after, window, exact_flows)


def schedule_by_segments(
    table: RouteTable,
    head: np.ndarray,
    tail: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
    window: float = 0.0,
    exact_flows: int = EXACT_FLOWS,
) -> Schedule:
    """`schedule` for routes given by two segments of a table each, int32 [flows]."""
    size, start, latency = (
        np.array(np.broadcast_to(v, len(head)), np.float64) for v in (nbytes, start_s, latency_s)
    )  # fmt: skip
    pending = _Pending(start, after or [])
    group = np.full((len(head), 2), -1, np.int32)
    group[pending.followed, 0] = np.arange(len(pending.followed))
    flight = InFlight(table, np.ones(len(pending.followed), np.int64), window, exact_flows)
    flight.reset(recording=True)
    begun, since = [np.empty(0, np.int64)], 0.0
    while (now := min(pending.next_time, flight.next_time)) < np.inf:
        since = now if flight.next_time == np.inf else since  # nothing is in flight
        slack = same_time(now, since)
        for number in flight.run_to(now, slack, pending.next_time):
            pending.end(pending.followed[number], now)
        flows = pending.take(now + slack)
        if len(flows):
            batch = Batch(head[flows], tail[flows], size[flows], latency[flows], group[flows])
            flight.add(now, pending.next_time, slack, batch)
            begun.append(flows)
    finish, order = np.full(len(head), np.nan), np.concatenate(begun)
    finish[order] = flight.finish
    if len(order) < len(head):
        raise InputError(f"flow {int(np.flatnonzero(np.isnan(finish))[0])} follows itself through other flows")
    bound = lower_bound(table.fabric(), head, tail, size, np.empty(0))
    return Schedule(finish, flight.solves, flight.widest[0], bound)


class _Pending:
    """Flows that have not begun, in the order of their starts.

    Attributes:
        followed: the flows that others follow.
    """

    def __init__(self, start: np.ndarray, after: Sequence[Sequence[int]]) -> None:
        self._start = start
        self._waits = [len(set(before)) for before in after]  # flows that each still follows
        self._followers: dict[int, list[int]] = {}
        for flow, before in enumerate(after):
            for other in set(before):
                self._followers.setdefault(other, []).append(flow)
        self.followed = list(self._followers)
        free = np.flatnonzero(np.asarray(self._waits) == 0) if self._waits else np.arange(len(start))
        order = free[np.argsort(start[free], kind="stable")]
        cuts = np.flatnonzero(np.diff(start[order])) + 1
        # (time, tie break, flows); sorted, and so a heap
        self._ready = [(float(start[f[0]]), at, f) for at, f in enumerate(np.split(order, cuts)) if len(f)]

    @property
    def next_time(self) -> float:
        """Time at which the next flow begins; inf for none."""
        return self._ready[0][0] if self._ready else np.inf

    def end(self, flow: int, now: float) -> None:
        """End a flow: flows that waited only for it may begin. A repeated call changes nothing."""
        for follower in self._followers.pop(flow, []):
            self._waits[follower] -= 1
            if self._waits[follower] == 0:
                begin = max(float(self._start[follower]), now)
                heapq.heappush(self._ready, (begin, len(self._start) + follower, np.asarray([follower])))

    def take(self, until: float) -> np.ndarray:
        """Remove and return the flows that begin by `until`, int64 [n]."""
        found = [np.empty(0, np.int64)]
        while self.next_time <= until:
            found.append(heapq.heappop(self._ready)[2])
        return np.concatenate(found)


def run_flows(
    capacity: np.ndarray,
    routes: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """Exact finish times, float64 [flows], of flows; arguments and errors as of `schedule`."""
    return schedule(capacity, routes, nbytes, start_s, latency_s, after).finish_s
