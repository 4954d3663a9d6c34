"""An index of the flows that rise, by the segments that they cross; progressive filling follows it.

It is made by a counting sort, which reads every flow twice and writes it in two places. Where flows are many, one index
serves many steps: flows that end are taken out of it, and those that begin are sorted among themselves, as its second
part, until they are many themselves. Compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sims.network._routes import Fabric, Floats, Ints

RISING = -1.0
"""The rate of a flow that is not frozen yet."""


LATER = 0.25
"""Flows that the second part of an index may have, as a share of those in its first part."""


class FlowIndex(NamedTuple):
    """The rising flows of every segment, in two parts: those of the last full sort, and those that began later.

    Segment 0 has none.

    Attributes:
        start, other: int32 [2, segments + 2] and [at least 2 x flows]: the flows of part p that cross segment s cross
            the segments other[start[p, s] : start[p, s + 1]] as well, or 0 if none; the number of segments where one
            was taken out.
        rising: int32 [segments], how many there are.
        place: int32 [flows, 2], where a flow's head and tail have it in `other`; -1 for segment 0.
    """

    start: Ints
    other: Ints
    rising: Ints
    place: Ints


class FlowRoutes(NamedTuple):
    """The routes of flows: `head` and `tail`, int32 [flows], their segments, and the index of those that rise."""

    head: Ints
    tail: Ints
    index: FlowIndex  # type: ignore[assignment]  # hides the method of tuples


@njit(cache=True, nogil=True)
def flow_routes(fabric: Fabric, head: Ints, tail: Ints) -> FlowRoutes:
    """The routes of flows, given by their segments, with room for an index."""
    segments, flows = fabric.segments.shape[0], head.shape[0]
    start, other = np.empty((2, segments + 2), np.int32), np.empty(2 * flows, np.int32)
    return FlowRoutes(head, tail, FlowIndex(start, other, np.empty(segments, np.int32), np.empty((flows, 2), np.int32)))


@njit(cache=True, nogil=True)
def make_index(routes: FlowRoutes, rate: Floats) -> None:
    """Index the flows whose rate is negative, in one part."""
    head, tail, (start, other, rising, place) = routes
    _sort(head, tail, rate, 0, start[0], other, place)
    start[1, :] = 0
    for segment in range(rising.shape[0]):
        rising[segment] = start[0, segment + 1] - start[0, segment]


@njit(cache=True, nogil=True)
def extend_index(routes: FlowRoutes, rate: Floats, first: int, known: int) -> None:
    """Add the flows from `known` on to an index of those before; its first part has the flows before `first`.

    `rate` is that of the flows from `first` on, of which the second part is made anew: negative for those that rise.
    """
    head, tail, (start, other, rising, place) = routes
    for flow in range(known, head.shape[0]):
        if rate[flow - first] < 0.0:
            rising[head[flow]] += 1
            rising[tail[flow]] += 1
    rising[0] = 0
    _sort(head[first:], tail[first:], rate, 2 * first, start[1], other, place[first:])


@njit(cache=True, nogil=True)
def _sort(head: Ints, tail: Ints, rate: Floats, begin: int, start: Ints, other: Ints, place: Ints) -> None:
    """Sort the flows whose rate is negative by their segments, to `other` from `begin` on: one part of an index."""
    start[:] = 0
    for flow in range(rate.shape[0]):
        if rate[flow] < 0.0:
            start[head[flow] + 2 if head[flow] > 0 else 0] += 1
            start[tail[flow] + 2 if tail[flow] > 0 else 0] += 1
    start[0] = start[1] = begin
    for segment in range(2, start.shape[0]):
        start[segment] += start[segment - 1]
    for flow in range(rate.shape[0]):  # start[s + 1] moves from the begin of s to its end
        if rate[flow] < 0.0:
            one, two = head[flow], tail[flow]
            place[flow, 0] = place[flow, 1] = -1
            if one > 0:
                place[flow, 0], other[start[one + 1]] = start[one + 1], two
                start[one + 1] += 1
            if two > 0:
                place[flow, 1], other[start[two + 1]] = start[two + 1], one
                start[two + 1] += 1


@njit(cache=True, nogil=True, inline="always")
def take_out(routes: FlowRoutes, flow: int) -> None:
    """Remove an indexed flow, if it is still there."""
    head, tail, (_, other, rising, place) = routes
    gone, one, two = rising.shape[0], place[flow, 0], place[flow, 1]
    if one >= 0 and other[one] != gone:
        other[one] = gone
        rising[head[flow]] -= 1
    if two >= 0 and other[two] != gone:
        other[two] = gone
        rising[tail[flow]] -= 1


@njit(cache=True, nogil=True, inline="always")
def put_back(routes: FlowRoutes, flow: int) -> None:
    """Undo `take_out`, if there was one."""
    head, tail, (_, other, rising, place) = routes
    gone, one, two = rising.shape[0], place[flow, 0], place[flow, 1]
    if one >= 0 and other[one] == gone:
        other[one] = tail[flow]
        rising[head[flow]] += 1
    if two >= 0 and other[two] == gone:
        other[two] = head[flow]
        rising[tail[flow]] += 1
