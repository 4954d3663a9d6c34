"""Routes: the links that flows cross, in a table of segments. Step 1 of `docs/network.md`.

A route is two *segments*, its head and its tail, each a short list of links: the head are the links on the sender's
side, the tail those on the receiver's, so that the routes of all pairs of P ranks need a few segments per rank (see
`sims.cluster`). Segment 0 is empty; a route that is given as a whole is one segment, with tail 0. Equal segments are
found by hashing and stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

Floats = np.ndarray  # float64
Ints = np.ndarray  # int32 or int64


class Fabric(NamedTuple):
    """Links and the segments that cross them, as arrays for compiled code.

    Attributes:
        capacity: float64 [links], B/s.
        segments: int32 [segments, width], links, padded with -1.
        link_start, link_segment: link_segment[link_start[l]:link_start[l + 1]] are the segments that cross link l.
    """

    capacity: Floats
    segments: Ints
    link_start: Ints
    link_segment: Ints


class RouteTable:
    """A growing table of segments over links; equal segments are stored once.

    Args:
        capacity: [links], B/s.
        segments: int32 [segments, width], the initial ones, padded with -1; segment 0 must be empty. None for only the
            empty one.
    """

    def __init__(self, capacity: np.ndarray, segments: np.ndarray | None = None) -> None:
        self._capacity = np.ascontiguousarray(capacity, np.float64)
        self._table = np.full((1, 1), -1, np.int32) if segments is None else np.ascontiguousarray(segments, np.int32)
        self._given = self._used = len(self._table)
        self._slot = np.full(2, -1, np.int64)  # hash table: numbers of segments, or -1
        self._fabric: Fabric | None = None

    def fabric(self) -> Fabric:
        """The table as arrays for compiled code."""
        if self._fabric is None:
            segments = self._table[: self._used]
            self._fabric = Fabric(self._capacity, segments, *_segments_by_link(segments, len(self._capacity)))
        return self._fabric

    def intern(self, routes: np.ndarray) -> np.ndarray:
        """Segment numbers, int32 [n], of `routes` int32 [n, width]; new ones are added."""
        if not len(routes):
            return np.empty(0, np.int32)
        links = np.ascontiguousarray(routes, np.int32).reshape(len(routes), -1)
        self._reserve(*links.shape)
        numbers, used = np.empty(len(links), np.int32), self._used
        self._used = _intern(self._table, used, self._slot, links, numbers)
        if self._used > used:
            self._fabric = None
        return numbers

    def _reserve(self, more: int, width: int) -> None:
        """Ensure capacity for `more` new segments; the hash table stays at most half full."""
        have, wide = self._table.shape
        if self._used + more <= have and width <= wide and 2 * (self._used + more) <= len(self._slot):
            return
        old, wide = self._table[: self._used], max(wide, width)
        table = np.full((2 * (self._used + more), wide), -1, np.int32)
        table[: self._given, : old.shape[1]] = old[: self._given]
        self._table, self._slot = table, np.full(1 << (4 * (self._used + more)).bit_length(), -1, np.int64)
        numbers = np.empty(self._used - self._given, np.int32)
        self._used = _intern(table, self._given, self._slot, np.ascontiguousarray(old[self._given :]), numbers)


def route_table(routes: Sequence[Sequence[int]]) -> np.ndarray:
    """Routes of different lengths as int32 [flows, width], padded with -1."""
    width = max(map(len, routes), default=0)
    return np.asarray([[*route, *[-1] * (width - len(route))] for route in routes], np.int32).reshape(
        len(routes), width
    )


@njit(cache=True, nogil=True)
def over_links(fabric: Fabric, by_segment: Floats) -> Floats:
    """Sums by link, float64 [links], from sums by segment."""
    total = np.zeros(fabric.capacity.shape[0])
    for segment in range(1, by_segment.shape[0]):
        if by_segment[segment] != 0.0:
            for hop in range(fabric.segments.shape[1]):
                if fabric.segments[segment, hop] >= 0:
                    total[fabric.segments[segment, hop]] += by_segment[segment]
    return total


@njit(cache=True, nogil=True)
def _segments_by_link(segments: Ints, links: int) -> tuple[Ints, Ints]:
    """`link_start` and `link_segment` of a `Fabric`."""
    start = np.zeros(links + 1, np.int64)
    for segment in range(segments.shape[0]):
        for hop in range(segments.shape[1]):
            if segments[segment, hop] >= 0:
                start[segments[segment, hop] + 1] += 1
    for link in range(links):
        start[link + 1] += start[link]
    found, cursor = np.empty(start[links], np.int32), start[:-1].copy()
    for segment in range(segments.shape[0]):
        for hop in range(segments.shape[1]):
            link = segments[segment, hop]
            if link >= 0:
                found[cursor[link]] = segment
                cursor[link] += 1
    return start, found


@njit(cache=True, nogil=True)
def _intern(table: Ints, used: int, slot: Ints, routes: Ints, numbers: Ints) -> int:
    """Look every route up in the hash table and append new ones to `table`; returns the number of segments used."""
    line, mask = np.empty(table.shape[1], np.int32), slot.shape[0] - 1
    for at in range(routes.shape[0]):
        line[:] = -1
        crossed, mixed = 0, np.uint64(1469598103934665603)  # FNV-1a
        for link in routes[at]:
            if link >= 0:
                line[crossed] = link
                crossed += 1
                mixed = (mixed ^ np.uint64(link)) * np.uint64(1099511628211)
        if crossed == 0:
            numbers[at] = 0
            continue
        place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
        while slot[place] >= 0 and not np.array_equal(table[slot[place]], line):
            place = (place + 1) & mask
        if slot[place] < 0:
            slot[place], table[used] = used, line
            used += 1
        numbers[at] = slot[place]
    return used
