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

NEVER = np.int32(1 << 30)
"""The round of a segment that no link has frozen."""

_SAME_SHARE = 1.0 + 1e-12  # links that saturate together
_SAME_RATE = 1.0 - 1e-9  # rates equal to the lowest rate of the flows that ended


class FlowRoutes(NamedTuple):
    """The routes of flows, and room for an index of those that rise.

    Attributes:
        head, tail: int32 [flows], the segments of every flow's route.
        start, other: int32 [segments + 2] and [at least 2 x flows], written by `_index`: the rising flows that cross
            segment s cross the segments other[start[s] : start[s + 1]] as well. Segment 0 has none.
    """

    head: Ints
    tail: Ints
    start: Ints
    other: Ints


class _Filling(NamedTuple):
    """The state of progressive filling. A flow freezes with the first of its segments, so that a rate is the share of
    a round, and only segments are marked. Numbers by segment have 32 bits, since every flow looks some of them up: the
    tables of thousands of ranks stay in a processor's fast caches.

    Attributes:
        round: int32 [segments], the round in which each froze; NEVER while it rises.
        rising: int32 [segments], flows that rise, by segment.
        load: int64 [links], flows that rise, by link.
        left: float64 [links], B/s that frozen flows leave.
        taken: int32 [segments], flows frozen in this round; 0 between rounds.
        touched: int32 [segments], the segments of these.
    """

    round: Ints
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
    fill(fabric, flow_routes(fabric, head, np.zeros_like(head)), rate, np.zeros(len(fabric.capacity)))
    return rate


@njit(cache=True, nogil=True)
def flow_routes(fabric: Fabric, head: Ints, tail: Ints) -> FlowRoutes:
    """The routes of flows, given by their segments."""
    segments = fabric.segments.shape[0]
    return FlowRoutes(head, tail, np.empty(segments + 2, np.int32), np.empty(2 * head.shape[0], np.int32))


@njit(cache=True, nogil=True, error_model="numpy")
def fill(fabric: Fabric, routes: FlowRoutes, rate: Floats, used: Floats) -> None:
    """Compute max-min fair rates, B/s, of the flows whose rate is negative; inf for routes without links.

    O(flows x 2 + rounds x loaded links). `used` [links] is the rate of other flows, B/s.
    """
    _index(routes, rate)
    _rise(fabric, routes, rate, np.maximum(fabric.capacity - used, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def refill(fabric: Fabric, routes: FlowRoutes, rate: Floats, slowest: float) -> None:
    """`fill` for all flows after some have ended; these have rate 0, the others their previous rates.

    `slowest` is the lowest rate of the flows that ended. Filling is unchanged up to this common rate, so that slower
    flows keep their rates.
    """
    by_segment, left = np.zeros(fabric.segments.shape[0]), fabric.capacity.copy()
    slowest *= _SAME_RATE
    for flow in range(rate.shape[0]):
        if rate[flow] >= slowest:
            rate[flow] = RISING
        else:
            by_segment[routes.head[flow]] += rate[flow]
            by_segment[routes.tail[flow]] += rate[flow]
    for segment in range(1, by_segment.shape[0]):
        if by_segment[segment] > 0.0:
            for hop in range(fabric.segments.shape[1]):
                if fabric.segments[segment, hop] >= 0:
                    left[fabric.segments[segment, hop]] -= by_segment[segment]
    _index(routes, rate)
    _rise(fabric, routes, rate, np.maximum(left, 0.0))


@njit(cache=True, nogil=True)
def _index(routes: FlowRoutes, rate: Floats) -> None:
    """Fill `start` and `other` with the flows that rise: a counting sort that reads every flow twice."""
    head, tail, start, other = routes
    start[:] = 0
    for flow in range(rate.shape[0]):
        if rate[flow] < 0.0:
            start[head[flow] + 2 if head[flow] > 0 else 0] += 1
            start[tail[flow] + 2 if tail[flow] > 0 else 0] += 1
    start[0] = 0
    for segment in range(2, start.shape[0]):
        start[segment] += start[segment - 1]
    for flow in range(rate.shape[0]):  # start[s + 1] moves from the begin of s to its end
        if rate[flow] < 0.0:
            one, two = head[flow], tail[flow]
            if one > 0:
                other[start[one + 1]] = two
                start[one + 1] += 1
            if two > 0:
                other[start[two + 1]] = one
                start[two + 1] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _rise(fabric: Fabric, routes: FlowRoutes, rate: Floats, left: Floats) -> None:
    """Raise the indexed flows together until every one is frozen by a link; flows without links get inf."""
    filling = _filling(fabric, routes, left)
    load = filling.load
    loaded: Ints = np.flatnonzero(load)
    share, shares, rounds = np.empty(loaded.shape[0]), np.empty(loaded.shape[0]), 0
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
                found = _freeze(fabric, routes, filling, loaded[at], rounds, found)
        _take(fabric, filling, least, found)
        if kept > 0:
            shares[rounds] = least
            rounds += 1
    for flow in range(rate.shape[0]):
        if rate[flow] < 0.0:
            first = min(filling.round[routes.head[flow]], filling.round[routes.tail[flow]])
            rate[flow] = shares[first] if first < rounds else np.inf


@njit(cache=True, nogil=True)
def _filling(fabric: Fabric, routes: FlowRoutes, left: Floats) -> _Filling:
    """The initial state, in which the indexed flows rise."""
    segments, width = fabric.segments.shape
    rising, load = np.zeros(segments, np.int32), np.zeros(fabric.capacity.shape[0], np.int64)
    for segment in range(1, segments):
        rising[segment] = routes.start[segment + 1] - routes.start[segment]
        if rising[segment] > 0:
            for hop in range(width):
                if fabric.segments[segment, hop] >= 0:
                    load[fabric.segments[segment, hop]] += rising[segment]
    never, none = np.full(segments, NEVER), np.zeros(segments, np.int32)
    return _Filling(never, rising, load, left, none, np.empty(segments, np.int32))


@njit(cache=True, nogil=True, inline="always")
def _freeze(fabric: Fabric, routes: FlowRoutes, filling: _Filling, link: int, number: int, found: int) -> int:
    """Freeze the rising segments of a bottleneck link in round `number`, and count their flows in `taken`; segments
    that lose flows are appended to the first `found` of `touched`. Returns the new number of touched segments.
    """
    frozen, taken, touched = filling.round, filling.taken, filling.touched
    for at in range(fabric.link_start[link], fabric.link_start[link + 1]):
        segment = fabric.link_segment[at]
        if filling.rising[segment] == taken[segment]:
            continue
        count = 0
        for place in range(routes.start[segment], routes.start[segment + 1]):
            other = routes.other[place]
            if frozen[other] == NEVER:
                count += 1
                if taken[other] == 0:
                    touched[found] = other
                    found += 1
                taken[other] += 1
        frozen[segment] = number
        if taken[segment] == 0:
            touched[found] = segment
            found += 1
        taken[segment] += count
    return found


@njit(cache=True, nogil=True, inline="always")
def _take(fabric: Fabric, filling: _Filling, share: float, found: int) -> None:
    """Subtract the rates of newly frozen flows from the links of their segments, the first `found` of `touched`."""
    left, load, rising, taken = filling.left, filling.load, filling.rising, filling.taken
    for segment in filling.touched[:found]:
        for hop in range(fabric.segments.shape[1]):
            link = fabric.segments[segment, hop]
            if link >= 0:
                left[link] = max(left[link] - share * taken[segment], 0.0)
                load[link] -= taken[segment]
        rising[segment] -= taken[segment]
        taken[segment] = 0
