"""Compiled: max-min fair rates of transfers that share links, by progressive filling.

A flow crosses the links of two rows of a table, a head and a tail, so that the routes of all pairs of P ranks need a
few rows per rank (see `sims.cluster`). Row 0 is empty. Nothing here knows bytes or time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

Floats = np.ndarray  # float64
Ints = np.ndarray  # int32 or int64

RISING = -1.0
"""The rate of a flow that no link holds back yet."""

_SAME_SHARE = 1.0 + 1e-12  # links that saturate together
_SAME_RATE = 1.0 - 1e-9  # rates as low as the lowest one of those that ended


class Fabric(NamedTuple):
    """Links and the rows that cross them.

    Attributes:
        capacity: float64 [links], B/s.
        rows: int32 [rows, width], links, padded with -1.
        link_start, link_row: link_row[link_start[l]:link_start[l + 1]] are the rows that cross link l.
    """

    capacity: Floats
    rows: Ints
    link_start: Ints
    link_row: Ints


@njit(cache=True, nogil=True)
def rows_by_link(rows: Ints, links: int) -> tuple[Ints, Ints]:
    """`link_start` and `link_row` of a `Fabric`."""
    start = np.zeros(links + 1, np.int64)
    for row in range(rows.shape[0]):
        for hop in range(rows.shape[1]):
            if rows[row, hop] >= 0:
                start[rows[row, hop] + 1] += 1
    for link in range(links):
        start[link + 1] += start[link]
    found, cursor = np.empty(start[links], np.int32), start[:-1].copy()
    for row in range(rows.shape[0]):
        for hop in range(rows.shape[1]):
            link = rows[row, hop]
            if link >= 0:
                found[cursor[link]] = row
                cursor[link] += 1
    return start, found


@njit(cache=True, nogil=True)
def flows_by_row(num_rows: int, head: Ints, tail: Ints) -> tuple[Ints, Ints]:
    """Start of every row's flows, int64 [rows + 1], and the flows, each followed by its other row, int32 [2 n].

    Row 0 has none.
    """
    start, member = np.empty(num_rows + 1, np.int64), np.empty(4 * head.shape[0], np.int32)
    index_rows(head, tail, start, member)
    return start, member[: 2 * start[num_rows]]


@njit(cache=True, nogil=True)
def index_rows(head: Ints, tail: Ints, start: Ints, member: Ints) -> None:
    """`flows_by_row` into arrays [rows + 1] and [at least 4 x flows]."""
    num_rows = start.shape[0] - 1
    start[:] = 0
    for flow in range(head.shape[0]):
        start[head[flow] + 1] += 1
        start[tail[flow] + 1] += 1
    start[1] = 0
    for row in range(num_rows):
        start[row + 1] += start[row]
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
def fill(fabric: Fabric, start: Ints, member: Ints, head: Ints, tail: Ints, rate: Floats, used: Floats) -> None:
    """Max-min fair rates, B/s, of the flows whose rate is negative; without links it is inf.

    Progressive filling: all rates rise together; the link with the smallest share left per flow saturates and freezes
    its flows. O(flows x 2 + rounds x loaded links). `start` and `member` are from `flows_by_row`, `used` [links] is
    what other flows take, B/s.
    """
    num_rows, width = fabric.rows.shape
    count, load = np.zeros(num_rows, np.int64), np.zeros(fabric.capacity.shape[0], np.int64)
    for flow in range(head.shape[0]):
        if rate[flow] < 0.0:
            count[head[flow]] += 1
            count[tail[flow]] += 1
    for row in range(1, num_rows):
        if count[row] > 0:
            for hop in range(width):
                if fabric.rows[row, hop] >= 0:
                    load[fabric.rows[row, hop]] += count[row]
    _rise(fabric, start, member, rate, count, load, np.maximum(fabric.capacity - used, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def refill(fabric: Fabric, start: Ints, member: Ints, head: Ints, tail: Ints, rate: Floats, slowest: float) -> None:
    """`fill` for all flows, some of which have just ended: their rates are 0, those of the others as they were.

    `slowest` is the lowest rate of those that ended. All rates rise together until a flow that ended would have met its
    full link, so that the flows that are slower keep theirs.
    """
    num_rows, width = fabric.rows.shape
    count, load = np.zeros(num_rows, np.int64), np.zeros(fabric.capacity.shape[0], np.int64)
    by_row, left = np.zeros(num_rows), fabric.capacity.copy()
    slowest *= _SAME_RATE
    for flow in range(head.shape[0]):
        if rate[flow] >= slowest:
            rate[flow] = RISING
            count[head[flow]] += 1
            count[tail[flow]] += 1
        else:
            by_row[head[flow]] += rate[flow]
            by_row[tail[flow]] += rate[flow]
    for row in range(1, num_rows):
        if count[row] > 0 or by_row[row] > 0.0:
            for hop in range(width):
                if fabric.rows[row, hop] >= 0:
                    load[fabric.rows[row, hop]] += count[row]
                    left[fabric.rows[row, hop]] -= by_row[row]
    _rise(fabric, start, member, rate, count, load, np.maximum(left, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _rise(fabric: Fabric, start: Ints, member: Ints, rate: Floats, count: Ints, load: Ints, left: Floats) -> None:
    """Rates of the flows whose rate is negative: `count` by row, `load` by link, in what is `left` of the links.

    A flow whose rows have no links has all it wants.
    """
    taken, touched = np.zeros(count.shape[0], np.int64), np.empty(count.shape[0], np.int64)
    rises = rate < 0.0  # looked up at random, in an eighth of the memory of the rates
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
                found = _freeze(fabric, loaded[at], least, start, member, rate, rises, count, taken, touched, found)
        _take(fabric, least, left, load, count, taken, touched[:found])
    for flow in range(rate.shape[0]):
        if rises[flow]:
            rate[flow] = np.inf


@njit(cache=True, nogil=True, inline="always")
def _freeze(
    fabric: Fabric,
    link: int,
    share: float,
    start: Ints,
    member: Ints,
    rate: Floats,
    rises: np.ndarray,
    count: Ints,
    taken: Ints,
    touched: Ints,
    found: int,
) -> int:
    """Fix the rate of a link's flows that still rise, counting them in `taken`; their rows follow the `found` ones in
    `touched`. Answers how many are found then.
    """
    for at in range(fabric.link_start[link], fabric.link_start[link + 1]):
        row, frozen = fabric.link_row[at], 0
        if count[row] == taken[row]:
            continue
        for place in range(start[row], start[row + 1]):
            flow, other = member[2 * place], member[2 * place + 1]
            if rises[flow]:
                rises[flow], rate[flow] = False, share
                frozen += 1
                if taken[other] == 0:
                    touched[found] = other
                    found += 1
                taken[other] += 1
        if frozen > 0:
            if taken[row] == 0:
                touched[found] = row
                found += 1
            taken[row] += frozen
    return found


@njit(cache=True, nogil=True, inline="always")
def _take(fabric: Fabric, share: float, left: Floats, load: Ints, count: Ints, taken: Ints, touched: Ints) -> None:
    """Take the rates of the flows that were frozen from the links of their rows."""
    for row in touched:
        for hop in range(fabric.rows.shape[1]):
            link = fabric.rows[row, hop]
            if link >= 0:
                left[link] = max(left[link] - share * taken[row], 0.0)
                load[link] -= taken[row]
        count[row] -= taken[row]
        taken[row] = 0


@njit(cache=True, nogil=True)
def over_links(fabric: Fabric, by_row: Floats) -> Floats:
    """Sums by row as sums by link, float64 [links]."""
    total = np.zeros(fabric.capacity.shape[0])
    for row in range(1, by_row.shape[0]):
        if by_row[row] != 0.0:
            for hop in range(fabric.rows.shape[1]):
                if fabric.rows[row, hop] >= 0:
                    total[fabric.rows[row, hop]] += by_row[row]
    return total
