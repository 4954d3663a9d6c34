"""Transfers over shared links without a clock: all are known beforehand, each may follow others."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from harness.errors import InputError
from sims.network._fluid import SAME_TIME, drain, lower_bound, plan
from sims.network._rates import Fabric, Floats, Ints, fill, flows_by_row
from sims.network._rows import Rows

EXACT_FLOWS = 2500
"""Flows in flight up to which every completion is an instant of its own, unless asked otherwise."""

WINDOW = 0.005
"""Above that, completions within this share of the lower bound are taken together."""


EARLY = 5.0
"""The window is no wider than this times the share of the time that has passed: early transfers keep their times."""


MERGE = 0.25
"""Transfers that begin within this share of a window begin together."""


@dataclass(frozen=True)
class Schedule:
    """When transfers end.

    Attributes:
        finish_s: float64 [flows].
        solves: how often rates were computed.
        window_s: the longest step in which completions were taken together; 0 when every time is exact.
        bound_s: no schedule of the same bytes is faster, starts, latencies and order left aside.
    """

    finish_s: np.ndarray
    solves: int
    window_s: float
    bound_s: float


class _Lanes(NamedTuple):
    """The rows that flows cross, int32 [flows]."""

    head: Ints
    tail: Ints


class _Order(NamedTuple):
    """What follows what: child[child_start[f]:child_start[f + 1]] are the flows that follow f."""

    child_start: Ints
    child: Ints
    waits: Ints  # how many flows each follows, counted down


@njit(cache=True, nogil=True)
def _event_loop(
    fabric: Fabric,
    lanes: _Lanes,
    nbytes: Floats,
    start: Floats,
    latency: Floats,
    order: _Order,
    share: float,
    exact: int,
) -> tuple[Floats, int, float]:
    """Finish time of every flow (nan for flows that never begin), solves, longest window."""
    flows = nbytes.shape[0]
    finish, begin = np.full(flows, np.nan), start + latency
    idle = [(begin[flow], flow) for flow in range(flows) if order.waits[flow] == 0]
    heapq.heapify(idle)
    # Flows that drain: the first `count` places.
    active, head, tail = np.empty(flows, np.int64), np.empty(flows, np.int32), np.empty(flows, np.int32)
    remaining, rate, nothing = np.empty(flows), np.empty(flows), np.empty(0)
    count, now, slack, bound, stale, solves, widest = 0, 0.0, 0.0, 0.0, False, 0, 0.0
    while count > 0 or len(idle) > 0:
        before = count
        while len(idle) > 0 and idle[0][0] <= now + slack:
            active[count] = heapq.heappop(idle)[1]
            count += 1
        new = active[before:count]
        head[before:count], tail[before:count] = lanes.head[new], lanes.tail[new]
        remaining[before:count], rate[before:count] = nbytes[new], 0.0
        h, t, left, speed = head[:count], tail[:count], remaining[:count], rate[:count]
        if count > before:
            bound = lower_bound(fabric, h, t, left, nothing) if count > exact else 0.0
        window = share * min(bound, EARLY * now)
        members = flows_by_row(fabric.rows.shape[0], h, t)
        step, stale, times = plan(fabric, members[0], members[1], h, t, left, speed, window, stale)
        solves += times
        if stale:
            widest = max(widest, step)
            step = _until_followed(order, active[:count], left, speed, step)
        if len(idle) > 0:
            step = min(step, max(idle[0][0] - now, window * MERGE))
        slack = (now + step) * SAME_TIME
        ended, after = drain(left, speed, step, slack)
        _follow(order, active[ended], now + after, finish, begin, latency, idle)
        now += step
        count = _close_gaps(active[:count], h, t, left, speed)
    return finish, solves, widest


@njit(cache=True, nogil=True, error_model="numpy")
def _until_followed(order: _Order, active: Ints, remaining: Floats, rate: Floats, step: float) -> float:
    """`step` cut short where a flow ends that others follow: they do not wait for the end of a window."""
    for place in range(active.shape[0]):
        if order.child_start[active[place]] < order.child_start[active[place] + 1]:
            step = min(step, remaining[place] / rate[place] if remaining[place] > 0.0 else 0.0)
    return step


@njit(cache=True, nogil=True)
def _follow(
    order: _Order,
    flows: Ints,
    ends: Floats,
    finish: Floats,
    begin: Floats,
    latency: Floats,
    idle: list[tuple[float, int]],
) -> None:
    """Note when flows ended, and let those go that waited only for them."""
    for at in range(flows.shape[0]):
        flow = flows[at]
        finish[flow] = ends[at]
        for follower in order.child[order.child_start[flow] : order.child_start[flow + 1]]:
            order.waits[follower] -= 1
            begin[follower] = max(begin[follower], ends[at] + latency[follower])
            if order.waits[follower] == 0:
                heapq.heappush(idle, (begin[follower], follower))


@njit(cache=True, nogil=True)
def _close_gaps(active: Ints, head: Ints, tail: Ints, remaining: Floats, rate: Floats) -> int:
    """Move the flows that have not ended to the front; answers how many they are."""
    kept = 0
    for place in range(active.shape[0]):
        if remaining[place] >= 0.0:
            active[kept], head[kept], tail[kept] = active[place], head[place], tail[place]
            remaining[kept], rate[kept] = remaining[place], rate[place]
            kept += 1
    return kept


def solve(capacity: np.ndarray, routes: np.ndarray) -> np.ndarray:
    """Max-min fair rates, float64 [flows] in B/s, of flows over routes int32 [flows, width] padded with -1."""
    table = Rows(capacity)
    head = table.intern(routes)
    fabric, tail, rate = table.fabric(), np.zeros(len(routes), np.int32), np.full(len(routes), -1.0)
    fill(fabric, *flows_by_row(len(fabric.rows), head, tail), head, tail, rate, np.zeros(len(fabric.capacity)))
    return rate


def route_table(routes: Sequence[Sequence[int]]) -> np.ndarray:
    """Routes of different lengths as int32 [flows, width], padded with -1."""
    width = max(map(len, routes), default=0)
    return np.asarray([[*route, *[-1] * (width - len(route))] for route in routes], np.int32).reshape(
        len(routes), width
    )


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
    """When transfers over shared links end.

    Args:
        capacity: [links], B/s.
        routes: int32 [flows, width], links, padded with -1 (see `route_table`).
        nbytes, start_s, latency_s: [flows], or one number for all.
        after: for every flow the flows that must end before it begins.
        window: while more than `exact_flows` are in flight, completions within this share of the lower bound are taken
            together; 0 for exact times.

    Raises:
        InputError: a flow waits for itself through others.
    """
    table = Rows(capacity)
    head = table.intern(routes)
    lanes = head, np.zeros(len(head), np.int32)
    return schedule_lanes(table.fabric(), *lanes, nbytes, start_s, latency_s, after, window, exact_flows)


def schedule_lanes(
    fabric: Fabric,
    head: np.ndarray,
    tail: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
    window: float = 0.0,
    exact_flows: int = EXACT_FLOWS,
) -> Schedule:
    """`schedule` for routes given as two rows of a fabric each, int32 [flows]."""
    flows = len(head)
    after = [()] * flows if after is None else after
    waits = np.asarray([len(before) for before in after], np.int64).reshape(flows)
    parent = np.asarray([p for before in after for p in before], np.int64)
    order = np.argsort(parent, kind="stable")
    child_start = np.searchsorted(parent[order], np.arange(flows + 1)).astype(np.int64)
    size, start, latency = (
        np.array(np.broadcast_to(v, flows), np.float64) for v in (nbytes, start_s, latency_s)
    )  # fmt: skip
    follow = _Order(child_start, np.repeat(np.arange(flows), waits)[order], waits)
    lanes = _Lanes(np.ascontiguousarray(head, np.int32), np.ascontiguousarray(tail, np.int32))
    finish, solves, widest = _event_loop(fabric, lanes, size, start, latency, follow, window, exact_flows)
    if np.isnan(finish).any():
        raise InputError(f"flow {int(np.flatnonzero(np.isnan(finish))[0])} follows itself through other flows")
    return Schedule(finish, solves, widest, lower_bound(fabric, *lanes, size, np.empty(0)))


def run_flows(
    capacity: np.ndarray,
    routes: np.ndarray,
    nbytes: np.ndarray,
    start_s: np.ndarray | float = 0.0,
    latency_s: np.ndarray | float = 0.0,
    after: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """Exact finish times, float64 [flows], of transfers; arguments and errors as of `schedule`."""
    return schedule(capacity, routes, nbytes, start_s, latency_s, after).finish_s
