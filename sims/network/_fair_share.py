"""Fair shares: max-min fair rates of flows that share links, by progressive filling. Step 2 of `docs/network.md`.

All rates rise together; the first link that is saturated is the bottleneck of its flows and freezes their rates; the
others continue to rise. Compiled; independent of bytes and time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sims.network._flow_index import RISING, FlowIndex, FlowRoutes, flow_routes, make_index
from sims.network._routes import Fabric, Floats, Ints, RouteTable, over_links

SAME_SHARE = 1.0 + 1e-12
"""Links whose shares agree to this factor saturate together, where rates are exact."""

FROZEN = -1.0

_SAME_RATE = 1.0 - 1e-9  # rates equal to the lowest rate of the flows that ended


class _Filling(NamedTuple):
    """The state of progressive filling. A flow freezes with the first of its segments, so that only segments are
    marked. Every flow looks them up, and none of its sums depends on a branch that would be mispredicted for half of
    them.

    Attributes:
        live: float64 [segments + 1], 1 while a segment rises, then 0; the last one stands for flows taken out.
        taken: float64 [segments + 1, 2], rates and number of the flows frozen in this round; a number of FROZEN
            between rounds if the segment has frozen.
        touched: int32 [segments + 1], the segments that lose flows in this round.
        rising: int32 [segments], flows that rise, by segment.
        load: int64 [links], flows that rise, by link.
        left: float64 [links], B/s that frozen flows leave.
    """

    live: Floats
    taken: Floats
    touched: Ints
    rising: Ints
    load: Ints
    left: Floats


def fair_shares(capacity: np.ndarray, routes: np.ndarray) -> np.ndarray:
    """Max-min fair rates, float64 [flows] in B/s, of flows over routes int32 [flows, width] padded with -1."""
    table = RouteTable(capacity)
    head = table.intern(routes)
    fabric, rate = table.fabric(), np.full(len(routes), RISING)
    fill(fabric, flow_routes(fabric, head, np.zeros_like(head)), rate, np.zeros(len(fabric.capacity)))
    return rate


@njit(cache=True, nogil=True, error_model="numpy")
def fill(fabric: Fabric, routes: FlowRoutes, rate: Floats, used: Floats) -> None:
    """Compute max-min fair rates, B/s, of the flows whose rate is negative; inf for routes without links.

    O(flows x 2 + rounds x loaded links). `used` [links] is the rate of other flows, B/s.
    """
    make_index(routes, rate)
    _freeze_rates(routes, rate, rise(fabric, routes.index, used, SAME_SHARE))


@njit(cache=True, nogil=True, error_model="numpy")
def refill(fabric: Fabric, routes: FlowRoutes, rate: Floats, slowest: float) -> None:
    """`fill` for all flows after some have ended; these have rate 0, the others their previous rates.

    `slowest` is the lowest rate of the flows that ended. Filling is unchanged up to this common rate, so that slower
    flows keep their rates.
    """
    by_segment = np.zeros(fabric.segments.shape[0])
    slowest *= _SAME_RATE
    for flow in range(rate.shape[0]):
        if rate[flow] >= slowest:
            rate[flow] = RISING
        else:
            by_segment[routes.head[flow]] += rate[flow]
            by_segment[routes.tail[flow]] += rate[flow]
    make_index(routes, rate)
    _freeze_rates(routes, rate, rise(fabric, routes.index, over_links(fabric, by_segment), SAME_SHARE))


@njit(cache=True, nogil=True, error_model="numpy")
def rise(fabric: Fabric, index: FlowIndex, used: Floats, same: float) -> Floats:
    """Raise the indexed flows together until every one is frozen by a link.

    `used` [links] is the rate of other flows, B/s. Links whose shares agree to the factor `same` freeze their flows in
    one round, each at its own share: no link is over its capacity, and a flow's rate is short by less than this factor.

    Returns the shares in B/s, float64 [segments], at which segments froze, inf where none did: the rate of a flow is
    the lower one of its two segments.
    """
    filling = _filling(fabric, index, np.maximum(fabric.capacity - used, 0.0))
    load, level = filling.load, np.full(fabric.segments.shape[0], np.inf)
    loaded: Ints = np.flatnonzero(load)
    share = np.empty(loaded.shape[0])
    while loaded.shape[0] > 0:
        least, kept = np.inf, 0
        for link in loaded:
            if load[link] > 0:
                loaded[kept], share[kept] = link, filling.left[link] / load[link]
                least = min(least, share[kept])
                kept += 1
        loaded, found = loaded[:kept], 0
        for at in range(kept):
            if share[at] <= least * same:
                own = share[at] if share[at] > least * SAME_SHARE else least  # without what rounding adds
                found = _freeze(fabric, index, filling, loaded[at], own, level, found)
        _take(fabric, filling, found)
    return level


@njit(cache=True, nogil=True)
def _freeze_rates(routes: FlowRoutes, rate: Floats, level: Floats) -> None:
    """Set the rates of the flows that rose to the lower share of their two segments."""
    for flow in range(rate.shape[0]):
        if rate[flow] < 0.0:
            rate[flow] = min(level[routes.head[flow]], level[routes.tail[flow]])


@njit(cache=True, nogil=True)
def _filling(fabric: Fabric, index: FlowIndex, left: Floats) -> _Filling:
    """The initial state, in which the indexed flows rise."""
    segments, width = fabric.segments.shape
    load = np.zeros(fabric.capacity.shape[0], np.int64)
    for segment in range(1, segments):
        if index.rising[segment] > 0:
            for hop in range(width):
                if fabric.segments[segment, hop] >= 0:
                    load[fabric.segments[segment, hop]] += index.rising[segment]
    live, taken = np.ones(segments + 1), np.zeros((segments + 1, 2))
    live[segments], taken[segments, 1] = 0.0, FROZEN
    return _Filling(live, taken, np.empty(segments + 1, np.int32), index.rising.copy(), load, left)


@njit(cache=True, nogil=True, inline="always")
def _freeze(
    fabric: Fabric, index: FlowIndex, filling: _Filling, link: int, share: float, level: Floats, found: int
) -> int:  # fmt: skip
    """Freeze the rising segments of a bottleneck link at its share, and add up their flows in `taken`.

    Segments that lose flows are appended to the first `found` of `touched`. Returns the new number of touched segments.
    """
    live, taken, touched, rising = filling.live, filling.taken, filling.touched, filling.rising
    for at in range(fabric.link_start[link], fabric.link_start[link + 1]):
        segment = fabric.link_segment[at]
        if rising[segment] == 0:
            continue
        level[segment] = min(level[segment], share)
        if rising[segment] == taken[segment, 1]:
            continue
        count = 0.0
        for part in range(index.start.shape[0]):
            for place in range(index.start[part, segment], index.start[part, segment + 1]):
                other = index.other[place]
                if taken[other, 1] == 0.0:
                    touched[found] = other
                    found += 1
                taken[other, 0] += live[other] * share
                taken[other, 1] += live[other]
                count += live[other]
        live[segment] = 0.0
        if taken[segment, 1] == 0.0:
            touched[found] = segment
            found += 1
        taken[segment, 0] += count * share
        taken[segment, 1] += count
    return found


@njit(cache=True, nogil=True, inline="always")
def _take(fabric: Fabric, filling: _Filling, found: int) -> None:
    """Subtract newly frozen flows from the links of their segments, the first `found` of `touched`."""
    live, taken, touched, rising, load, left = filling
    for segment in touched[:found]:
        rate, count = taken[segment, 0], np.int64(taken[segment, 1])
        if segment > 0:
            for hop in range(fabric.segments.shape[1]):
                link = fabric.segments[segment, hop]
                if link >= 0:
                    left[link] = max(left[link] - rate, 0.0)
                    load[link] -= count
            rising[segment] -= count
        taken[segment, 0], taken[segment, 1] = 0.0, 0.0 if live[segment] > 0.0 else FROZEN
