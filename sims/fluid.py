"""Compiled kernels of the fluid network: max-min fair rates by progressive filling, and steps in time on top.

A flow crosses the links of two rows of a table, a head and a tail, so that the routes of all pairs of P ranks need a
few rows per rank (see `sims.placement`). Row 0 is empty. A flow that has ended keeps its place, with -1 bytes, until
its owner compacts the arrays. Nothing here knows clocks of ranks, transports or where routes come from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

Floats = np.ndarray  # float64
Ints = np.ndarray  # int32 or int64

SAME_TIME = 1e-12
"""Completions this close, relative to the time, happen at once: more than the rounding of a thousand drains."""

ENDED = -1.0
"""Bytes that remain of a flow that has ended."""

_SAME_SHARE = 1.0 + 1e-12
RISING = -1.0  # the rate of a flow that no link holds back yet


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
    """Start of every row's flows, int64 [rows + 1], and the flows, int32; row 0 has none."""
    start, member = np.empty(num_rows + 1, np.int64), np.empty(2 * head.shape[0], np.int32)
    index_rows(head, tail, start, member)
    return start, member[: start[num_rows]]


@njit(cache=True, nogil=True)
def index_rows(head: Ints, tail: Ints, start: Ints, member: Ints) -> None:
    """`flows_by_row` into arrays [rows + 1] and [at least 2 x flows]."""
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
        for row in (head[flow], tail[flow]):
            if row > 0:
                member[cursor[row]] = flow
                cursor[row] += 1


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
    left = np.maximum(fabric.capacity - used, 0.0)
    taken, touched = np.zeros(num_rows, np.int64), np.empty(num_rows, np.int64)
    loaded: Ints = np.flatnonzero(load)
    share = np.empty(loaded.shape[0])
    while loaded.shape[0] > 0:
        least, kept = np.inf, 0
        for link in loaded:
            if load[link] > 0:
                loaded[kept], share[kept] = link, left[link] / load[link]
                least = min(least, share[kept])
                kept += 1
        loaded = loaded[:kept]
        for at in range(kept):
            link = loaded[at]
            if share[at] <= least * _SAME_SHARE and load[link] > 0 and left[link] <= least * _SAME_SHARE * load[link]:
                found = _freeze(fabric, link, least, start, member, head, tail, rate, count, taken, touched)
                _take(fabric, least, left, load, count, taken, touched[:found])
    for flow in range(head.shape[0]):
        if rate[flow] < 0.0:
            rate[flow] = np.inf


@njit(cache=True, nogil=True, inline="always")
def _freeze(
    fabric: Fabric,
    link: int,
    share: float,
    start: Ints,
    member: Ints,
    head: Ints,
    tail: Ints,
    rate: Floats,
    count: Ints,
    taken: Ints,
    touched: Ints,
) -> int:
    """Fix the rate of a link's flows that still rise, counting them in `taken`; answers how many rows were touched."""
    found = 0
    for at in range(fabric.link_start[link], fabric.link_start[link + 1]):
        row = fabric.link_row[at]
        if count[row] == 0:
            continue
        for place in range(start[row], start[row + 1]):
            flow = member[place]
            if rate[flow] < 0.0:
                rate[flow] = share
                for end in (head[flow], tail[flow]):
                    if taken[end] == 0:
                        touched[found] = end
                        found += 1
                    taken[end] += 1
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


@njit(cache=True, nogil=True)
def count_bytes(fabric: Fabric, head: Ints, tail: Ints, nbytes: np.ndarray, link_bytes: Ints) -> None:
    """Add the bytes of flows to `link_bytes`, int64 [links], rounded once per link."""
    if head.shape[0] == 1:
        for row in (head[0], tail[0]):
            for link in fabric.rows[row]:
                if link >= 0:
                    link_bytes[link] += np.int64(np.rint(nbytes[0]))
        return
    ends = np.zeros((2, fabric.rows.shape[0]))
    for flow in range(head.shape[0]):
        ends[0, head[flow]] += nbytes[flow]
        ends[1, tail[flow]] += nbytes[flow]
    total = over_links(fabric, ends[0] + ends[1])
    for link in range(total.shape[0]):
        link_bytes[link] += np.int64(np.rint(total[link]))


@njit(cache=True, nogil=True)
def count_rows(head: Ints, tail: Ints, nbytes: np.ndarray, sign: float, by_row: Floats) -> None:
    """Add the bytes of flows, times `sign`, to those of their rows."""
    for flow in range(head.shape[0]):
        by_row[head[flow]] += sign * nbytes[flow]
        by_row[tail[flow]] += sign * nbytes[flow]


@njit(cache=True, nogil=True, error_model="numpy")
def lower_bound(fabric: Fabric, head: Ints, tail: Ints, remaining: Floats, waiting: Floats) -> float:
    """Seconds that the most loaded link needs for what remains: no schedule is faster.

    `waiting` [at most rows] are bytes by row of flows that are not yet among those given.
    """
    by_row = np.zeros(fabric.rows.shape[0])
    by_row[: waiting.shape[0]] = waiting
    for flow in range(head.shape[0]):
        if remaining[flow] > 0.0:
            by_row[head[flow]] += remaining[flow]
            by_row[tail[flow]] += remaining[flow]
    return np.max(over_links(fabric, by_row) / fabric.capacity) if fabric.capacity.shape[0] else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _span(remaining: Floats, rate: Floats) -> tuple[float, float]:
    """Seconds to the first and to the last completion at these rates; inf and 0 without flows."""
    first, last = np.inf, 0.0
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            seconds = remaining[flow] / rate[flow]
            first, last = min(first, seconds), max(last, seconds)
    return first, last


@njit(cache=True, nogil=True, error_model="numpy")
def plan(
    fabric: Fabric,
    start: Ints,
    member: Ints,
    head: Ints,
    tail: Ints,
    remaining: Floats,
    rate: Floats,
    window: float,
    stale: bool,
) -> tuple[float, bool, int]:
    """Rates for the next step.

    The step ends with the first completion, exactly. When that comes within `window`, the step is the window: flows
    that end in it keep their rate until then, and the others share what those leave free on average, so that every link
    moves at most its capacity x window. Which end in it is told from `rate` when that is `stale`, the average of the
    window before and 0 for flows that begin, and from fair rates otherwise.

    Answers the step's seconds (inf when nothing flows), whether it is a window, and how often rates were computed.
    """
    solves = 0
    first = _span(remaining, rate)[0] if stale else np.inf
    if first >= window:
        for flow in range(head.shape[0]):
            rate[flow] = RISING if remaining[flow] >= 0.0 else 0.0
        fill(fabric, start, member, head, tail, rate, np.zeros(fabric.capacity.shape[0]))
        first, solves = _span(remaining, rate)[0], 1
        if first >= window:
            return first, False, 1
    by_row = np.zeros(fabric.rows.shape[0])
    for flow in range(head.shape[0]):
        if remaining[flow] > rate[flow] * window:
            rate[flow] = RISING
        elif remaining[flow] > 0.0:
            by_row[head[flow]] += remaining[flow] / window
            by_row[tail[flow]] += remaining[flow] / window
    fill(fabric, start, member, head, tail, rate, over_links(fabric, by_row))
    return min(window, _span(remaining, rate)[1]), True, solves + 1


@njit(cache=True, nogil=True, error_model="numpy")
def drain(remaining: Floats, rate: Floats, seconds: float, slack: float) -> tuple[Ints, Floats]:
    """Take what `seconds` at `rate` move from the bytes that remain.

    Answers the flows that end, within `slack` seconds after included, and after how many seconds each did.
    """
    ended, found = np.empty(remaining.shape[0], np.int64), 0
    for flow in range(remaining.shape[0]):
        if remaining[flow] < 0.0:
            continue
        if remaining[flow] > 0.0 and remaining[flow] > rate[flow] * (seconds + slack):
            remaining[flow] -= rate[flow] * seconds
        else:
            ended[found] = flow
            found += 1
    ended = ended[:found].copy()
    after = np.empty(found)
    for at in range(found):
        flow = ended[at]
        needs = remaining[flow] / rate[flow] if remaining[flow] > 0.0 else 0.0
        after[at] = needs if needs < seconds - slack else seconds
        remaining[flow] = ENDED
    return ended, after


@njit(cache=True, nogil=True)
def count_down(group: Ints, ended: Ints, pending: Ints) -> Ints:
    """Count ended flows in their two groups; answers the groups that reach zero. A group of -1 is nobody's."""
    done, found = np.empty(2 * ended.shape[0], np.int64), 0
    for flow in ended:
        for end in range(2):
            owner = group[flow, end]
            if owner >= 0:
                pending[owner] -= 1
                if pending[owner] == 0:
                    done[found] = owner
                    found += 1
    return done[:found].copy()
