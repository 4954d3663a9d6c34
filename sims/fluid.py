"""Compiled kernels of the fluid network: max-min fair rates by progressive filling, and an event loop on top.

Flows are rows of a route table of directed links, padded with -1. Nothing here knows clocks of ranks, transports or
where routes come from.
"""

from __future__ import annotations

import numpy as np
from numba import njit

Floats = np.ndarray  # float64
Links = np.ndarray  # int32 [flows, width]

SAME_TIME = 1e-12
"""Completions this close, relative to the time, happen at once: more than the rounding of a thousand drains."""

_SAME_SHARE = 1.0 + 1e-12


@njit(cache=True)
def fair_rates(capacity: Floats, route: Links, count: int, rate: Floats) -> None:
    """Max-min fair rates of flows 0..count-1 into `rate`, B/s; a flow without links gets inf.

    Progressive filling: all rates rise together; the link with the smallest share left per flow saturates and freezes
    its flows. O(flows x hops + rounds x loaded links).
    """
    num_links, width = capacity.shape[0], route.shape[1]
    start, load = np.zeros(num_links + 1, np.int64), np.zeros(num_links, np.int64)
    for flow in range(count):
        rate[flow] = -1.0
        for hop in range(width):
            if route[flow, hop] >= 0:
                load[route[flow, hop]] += 1
    for at in range(num_links):
        start[at + 1] = start[at] + load[at]
    member, cursor = np.empty(start[num_links], np.int32), start[:-1].copy()
    for flow in range(count):
        for hop in range(width):
            crossed = route[flow, hop]
            if crossed >= 0:
                member[cursor[crossed]] = flow
                cursor[crossed] += 1
    left, loaded = capacity.copy(), np.flatnonzero(load)
    while loaded.shape[0] > 0:
        share = np.inf
        kept = 0
        for link in loaded:
            if load[link] > 0:
                share = min(share, left[link] / load[link])
                loaded[kept] = link
                kept += 1
        loaded = loaded[:kept]
        for link in loaded:
            if load[link] > 0 and left[link] <= share * _SAME_SHARE * load[link]:
                _freeze(member[start[link] : start[link + 1]], share, route, rate, left, load)
    for flow in range(count):
        if rate[flow] < 0.0:
            rate[flow] = np.inf


@njit(cache=True)
def _freeze(flows: np.ndarray, share: float, route: Links, rate: Floats, left: Floats, load: np.ndarray) -> None:
    """Fix the rate of the flows that still rise, and take it from their links."""
    for flow in flows:
        if rate[flow] < 0.0:
            rate[flow] = share
            for hop in range(route.shape[1]):
                link = route[flow, hop]
                if link >= 0:
                    left[link] = max(left[link] - share, 0.0)
                    load[link] -= 1


@njit(cache=True)
def drain(remaining: Floats, rate: Floats, count: int, seconds: float) -> None:
    """Take what `seconds` at `rate` move from the bytes that remain."""
    for flow in range(count):
        if rate[flow] == np.inf:
            remaining[flow] = 0.0
        else:
            remaining[flow] = max(remaining[flow] - rate[flow] * seconds, 0.0)


@njit(cache=True)
def next_completion(remaining: Floats, rate: Floats, count: int) -> float:
    """Seconds until the first flow is done; inf without flows."""
    first = np.inf
    for flow in range(count):
        first = min(first, remaining[flow] / rate[flow])
    return first


@njit(cache=True)
def take_finished(
    remaining: Floats, rate: Floats, route: Links, group: np.ndarray, count: int, window: float, pending: np.ndarray
) -> tuple[int, np.ndarray]:
    """Drop the flows that end within `window` seconds and count them down in their two groups.

    The last flow fills each gap. Answers the flows left and the groups whose counter `pending` reached zero; a group
    of -1 is nobody's.
    """
    done, found = np.empty(2 * count, np.int64), 0
    flow = 0
    while flow < count:
        if remaining[flow] > 0.0 and remaining[flow] > rate[flow] * window:
            flow += 1
            continue
        for end in range(2):
            owner = group[flow, end]
            if owner >= 0:
                pending[owner] -= 1
                if pending[owner] == 0:
                    done[found] = owner
                    found += 1
        count -= 1
        remaining[flow], rate[flow] = remaining[count], rate[count]
        route[flow], group[flow] = route[count], group[count]
    return count, done[:found].copy()


@njit(cache=True)
def _due(begin: Floats, idle: np.ndarray, waits: np.ndarray) -> float:
    """When the next idle flow that follows nobody begins to drain; inf without one."""
    first = np.inf
    for flow in range(idle.shape[0]):
        if idle[flow] and waits[flow] == 0:
            first = min(first, begin[flow])
    return first


@njit(cache=True)
def event_loop(
    capacity: Floats,
    route: Links,
    nbytes: Floats,
    start: Floats,
    latency: Floats,
    child_start: np.ndarray,
    child: np.ndarray,
    waits: np.ndarray,
) -> Floats:
    """Finish time of every flow; nan for flows that never begin.

    Flow f begins at max(start[f], finish of the `waits[f]` flows it follows), drains after `latency[f]`.
    `child[child_start[f]:child_start[f+1]]` are the flows that follow f.
    """
    flows = nbytes.shape[0]
    finish, begin, idle = np.full(flows, np.nan), start + latency, np.ones(flows, np.bool_)
    # Flows that drain: the first `count` rows.
    active, count, now = np.empty(flows, np.int64), 0, 0.0
    lanes, remaining, rate = np.empty_like(route), np.empty(flows), np.empty(flows)
    while True:
        step = min(now + next_completion(remaining, rate, count), _due(begin, idle, waits))
        if step == np.inf:
            return finish
        drain(remaining, rate, count, step - now)
        now, slack = step, step * SAME_TIME
        for flow in range(flows):
            if idle[flow] and waits[flow] == 0 and begin[flow] <= now + slack:
                idle[flow] = False
                active[count], remaining[count], rate[count], lanes[count] = flow, nbytes[flow], 0.0, route[flow]
                count += 1
        lane = 0
        while lane < count:
            if remaining[lane] > 0.0 and remaining[lane] > rate[lane] * slack:
                lane += 1
                continue
            finish[active[lane]] = now
            for follower in child[child_start[active[lane]] : child_start[active[lane] + 1]]:
                waits[follower] -= 1
                begin[follower] = max(begin[follower], now + latency[follower])
            count -= 1
            active[lane], remaining[lane], rate[lane] = active[count], remaining[count], rate[count]
            lanes[lane] = lanes[count]
        fair_rates(capacity, lanes, count, rate)
