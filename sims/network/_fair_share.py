"""Fair shares: max-min fair rates of flows that share links, by progressive filling. Step 2 of `docs/network.md`.

All rates rise together; the first link that is saturated is the bottleneck of its flows and freezes their rates; the
others continue to rise. Compiled; independent of bytes and time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sims.network._routes import Fabric, Floats, Ints, RouteTable

RISING = -1.0
"""The rate of a flow that is not frozen yet."""

_SAME_SHARE = 1.0 + 1e-12  # links that saturate together
_SAME_RATE = 1.0 - 1e-9  # rates equal to the lowest rate of the flows that ended


class FlowRoutes(NamedTuple):
    """The routes of flows, and the flows by segment.

    Attributes:
        head, tail: int32 [flows], the segments of every flow's route.
        start, member: member[2 * i] for i in [start[s], start[s + 1]) are the flows that cross segment s, and
            member[2 * i + 1] the other segment of each; int64 [segments + 1] and int32 [at least 4 x flows]. Segment 0
            has none.
    """

    head: Ints
    tail: Ints
    start: Ints
    member: Ints


class _Filling(NamedTuple):
    """The state of progressive filling.

    Attributes:
        rate: float64 [flows], B/s; undefined for flows that still rise.
        rises: bool [flows]; accessed at random, in an eighth of the memory of the rates.
        rising: int64 [segments], flows that rise, by segment.
        load: int64 [links], flows that rise, by link.
        left: float64 [links], B/s that frozen flows leave.
        taken: int64 [segments], flows frozen in this round; 0 between rounds.
        touched: int64 [segments], the segments of these.
    """

    rate: Floats
    rises: np.ndarray
    rising: Ints
    load: Ints
    left: Floats
    taken: Ints
    touched: Ints


def fair_shares(capacity: np.ndarray, routes: np.ndarray) -> np.ndarray:
    """Max-min fair rates, float64 [flows] in B/s, of flows over routes int32 [flows, width] padded with -1."""
    table = RouteTable(capacity)
    head = table.intern(routes)
    fabric, rate = table.fabric(), np.full(len(routes), RISING)
    fill(fabric, flows_by_segment(fabric, head, np.zeros_like(head)), rate, np.zeros(len(fabric.capacity)))
    return rate


@njit(cache=True, nogil=True)
def flows_by_segment(fabric: Fabric, head: Ints, tail: Ints) -> FlowRoutes:
    """The routes of flows, given by their segments, with the index by segment."""
    start, member = np.empty(fabric.segments.shape[0] + 1, np.int64), np.empty(4 * head.shape[0], np.int32)
    routes = FlowRoutes(head, tail, start, member)
    index_flows(routes)
    return routes


@njit(cache=True, nogil=True)
def index_flows(routes: FlowRoutes) -> None:
    """Fill `start` and `member`."""
    head, tail, start, member = routes
    segments = start.shape[0] - 1
    start[:] = 0
    for flow in range(head.shape[0]):
        start[head[flow] + 1] += 1
        start[tail[flow] + 1] += 1
    start[1] = 0
    for segment in range(segments):
        start[segment + 1] += start[segment]
    cursor = start[:-1].copy()
    for flow in range(head.shape[0]):
        one, other = head[flow], tail[flow]
        if one > 0:
            member[2 * cursor[one]], member[2 * cursor[one] + 1] = flow, other
            cursor[one] += 1
        if other > 0:
            member[2 * cursor[other]], member[2 * cursor[other] + 1] = flow, one
            cursor[other] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def fill(fabric: Fabric, routes: FlowRoutes, rate: Floats, used: Floats) -> None:
    """Compute max-min fair rates, B/s, of the flows whose rate is negative; inf for routes without links.

    O(flows x 2 + rounds x loaded links). `used` [links] is the rate of other flows, B/s.
    """
    segments, width = fabric.segments.shape
    count, load = np.zeros(segments, np.int64), np.zeros(fabric.capacity.shape[0], np.int64)
    for flow in range(rate.shape[0]):
        if rate[flow] < 0.0:
            count[routes.head[flow]] += 1
            count[routes.tail[flow]] += 1
    for segment in range(1, segments):
        if count[segment] > 0:
            for hop in range(width):
                if fabric.segments[segment, hop] >= 0:
                    load[fabric.segments[segment, hop]] += count[segment]
    _rise(fabric, routes, _filling(rate, count, load, np.maximum(fabric.capacity - used, 0.0)))


@njit(cache=True, nogil=True, error_model="numpy")
def refill(fabric: Fabric, routes: FlowRoutes, rate: Floats, slowest: float) -> None:
    """`fill` for all flows after some have ended; these have rate 0, the others their previous rates.

    `slowest` is the lowest rate of the flows that ended. Filling is unchanged up to this common rate, so that slower
    flows keep their rates.
    """
    segments, width = fabric.segments.shape
    count, load = np.zeros(segments, np.int64), np.zeros(fabric.capacity.shape[0], np.int64)
    by_segment, left = np.zeros(segments), fabric.capacity.copy()
    slowest *= _SAME_RATE
    for flow in range(rate.shape[0]):
        if rate[flow] >= slowest:
            rate[flow] = RISING
            count[routes.head[flow]] += 1
            count[routes.tail[flow]] += 1
        else:
            by_segment[routes.head[flow]] += rate[flow]
            by_segment[routes.tail[flow]] += rate[flow]
    for segment in range(1, segments):
        if count[segment] > 0 or by_segment[segment] > 0.0:
            for hop in range(width):
                if fabric.segments[segment, hop] >= 0:
                    load[fabric.segments[segment, hop]] += count[segment]
                    left[fabric.segments[segment, hop]] -= by_segment[segment]
    _rise(fabric, routes, _filling(rate, count, load, np.maximum(left, 0.0)))


@njit(cache=True, nogil=True)
def _filling(rate: Floats, count: Ints, load: Ints, left: Floats) -> _Filling:
    """The initial state, in which the flows of negative rate rise."""
    segments = count.shape[0]
    return _Filling(rate, rate < 0.0, count, load, left, np.zeros(segments, np.int64), np.empty(segments, np.int64))


@njit(cache=True, nogil=True, error_model="numpy")
def _rise(fabric: Fabric, routes: FlowRoutes, filling: _Filling) -> None:
    """Raise all rates together until every flow is frozen by a link; flows without links get inf."""
    load, left = filling.load, filling.left
    loaded: Ints = np.flatnonzero(load)
    share = np.empty(loaded.shape[0])
    while loaded.shape[0] > 0:
        least, kept = np.inf, 0
        for link in loaded:
            if load[link] > 0:
                loaded[kept], share[kept] = link, left[link] / load[link]
                least = min(least, share[kept])
                kept += 1
        loaded, found = loaded[:kept], 0
        for at in range(kept):
            if share[at] <= least * _SAME_SHARE:
                found = _freeze(fabric, routes, filling, loaded[at], least, found)
        _take(fabric, filling, least, found)
    for flow in range(filling.rate.shape[0]):
        if filling.rises[flow]:
            filling.rate[flow] = np.inf


@njit(cache=True, nogil=True, inline="always")
def _freeze(fabric: Fabric, routes: FlowRoutes, filling: _Filling, link: int, share: float, found: int) -> int:
    """Freeze the rising flows of a bottleneck link and count them in `taken`; their segments are appended to the first
    `found` of `touched`. Returns the new number of touched segments.
    """
    rises, rate, taken, touched = filling.rises, filling.rate, filling.taken, filling.touched
    start, member = routes.start, routes.member
    for at in range(fabric.link_start[link], fabric.link_start[link + 1]):
        segment, frozen = fabric.link_segment[at], 0
        if filling.rising[segment] == taken[segment]:
            continue
        for place in range(start[segment], start[segment + 1]):
            flow, other = member[2 * place], member[2 * place + 1]
            if rises[flow]:
                rises[flow], rate[flow] = False, share
                frozen += 1
                if taken[other] == 0:
                    touched[found] = other
                    found += 1
                taken[other] += 1
        if frozen > 0:
            if taken[segment] == 0:
                touched[found] = segment
                found += 1
            taken[segment] += frozen
    return found


@njit(cache=True, nogil=True, inline="always")
def _take(fabric: Fabric, filling: _Filling, share: float, found: int) -> None:
    """Subtract the rates of newly frozen flows from the links of their segments, the first `found` of `touched`."""
    left, load, count, taken = filling.left, filling.load, filling.rising, filling.taken
    for segment in filling.touched[:found]:
        for hop in range(fabric.segments.shape[1]):
            link = fabric.segments[segment, hop]
            if link >= 0:
                left[link] = max(left[link] - share * taken[segment], 0.0)
                load[link] -= taken[segment]
        count[segment] -= taken[segment]
        taken[segment] = 0
