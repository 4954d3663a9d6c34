"""Compiled kernels of the fluid network: steps in time on top of fair rates (`_rates`).

A flow that has ended keeps its place, with -1 bytes, until its owner compacts the arrays. Nothing here knows clocks of
ranks, transports or where routes come from.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._rates import RISING, Fabric, Floats, Ints, fill, over_links

EXACT_FLOWS = 2500
"""Flows in flight up to which every completion is an instant of its own, unless asked otherwise."""

WINDOW = 0.005
"""Above that, completions within this share of the lower bound are taken together."""

EARLY = 5.0
"""The window is no wider than this times the share of the time that has passed: early transfers keep their times."""

MERGE = 0.25
"""Transfers that begin within this share of a window begin together."""

SAME_TIME = 1e-12
"""Completions this close, relative to the time, happen at once: more than the rounding of a thousand drains."""

ENDED = -1.0
"""Bytes that remain of a flow that has ended."""


@njit(cache=True, nogil=True)
def count_bytes(fabric: Fabric, head: Ints, tail: Ints, nbytes: np.ndarray, link_bytes: Ints) -> None:
    """Add the bytes of flows to `link_bytes`, int64 [links], rounded once per link."""
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
