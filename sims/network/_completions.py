"""Completions: the times at which flows end, from their fair shares. Steps 3 to 5 of `docs/network.md`.

One step of the fluid model ends with the next completion (step 3), or with a coalescing window that combines many
completions (step 4); completions that no group of flows waits for are computed ahead (step 5). Compiled. A flow that
has ended keeps its place, with ENDED bytes, until the caller compacts the arrays. Independent of the clocks of ranks,
of transports and of the origin of routes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from sims.network._fair_share import SAME_SHARE, refill, rise
from sims.network._flow_index import RISING, FlowRoutes, make_index, take_out
from sims.network._routes import Fabric, Floats, Ints, over_links

EXACT_FLOWS = 2500
"""Default number of flows in flight up to which every completion is computed exactly."""

WINDOW = 0.01
"""Above that, completions within this share of a lower bound of the makespan are combined."""

ELAPSED = 4.0
"""The bound is at most this times that of the bytes in flight: some networks are never idle."""

KEPT = 4.0
"""The bound is kept for so many windows: computing it takes as long as half a step."""

EARLY = 5.0
"""The window is at most this times the share of the time that has passed: completions of early flows stay precise."""

TAIL = 10.0
"""The window is at most this part of the time up to the last completion, at present rates: what flows leave that end in
it goes to others on average, and a link without others idles."""

SHORTEST = 1 / 64
"""`TAIL` does not shorten a window below this share of its length."""

TOGETHER = 1.01
"""In a window, links whose fair shares agree to this factor saturate together."""

BLOCK = 128
"""Flows whose completions are looked at together, in one vectorized loop."""

MERGE = 0.5
"""Flows that begin within this share of a window begin together."""

SAME_TIME = 1e-12
"""Relative difference of completions that count as simultaneous: above the rounding of a thousand drains."""

CLOCK_STEPS = 4
"""Steps of the clock's last digit within which times are the same: an event's time is rounded to it, and a wait too."""

ENDED = -1.0
"""Bytes that remain of a flow that has ended."""

AHEAD = 32
"""Most completions computed ahead; they are discarded if a flow begins in the meantime."""


def same_time(now: float, since: float) -> float:
    """Seconds within which events at `now` are simultaneous, where flows have been in flight since `since`.

    The rounding of a flow grows with its own time, not with that of the clock: short flows late in a long simulation
    are told apart as far as the clock can.
    """
    return (now - since) * SAME_TIME + CLOCK_STEPS * math.ulp(now)


class FlowProgress(NamedTuple):
    """Progress of flows: `remaining` bytes and `rate` in B/s, float64 [flows]."""

    remaining: Floats
    rate: Floats


class GroupCounts(NamedTuple):
    """Counts of the groups that wait for flows.

    Attributes:
        group: int32 [flows, 2], the two groups that count a flow, -1 for none.
        pending: int64 [groups], flows that each group waits for.
    """

    group: Ints
    pending: Ints


class Completions(NamedTuple):
    """Flows that end, int64 [at least flows], and when, float64."""

    flow: Ints
    time: Floats


@njit(cache=True, nogil=True)
def count_by_segment(head: Ints, tail: Ints, nbytes: np.ndarray, by_segment: Floats) -> None:
    """Add the bytes of flows to those of their segments."""
    for flow in range(head.shape[0]):
        by_segment[head[flow]] += nbytes[flow]
        by_segment[tail[flow]] += nbytes[flow]


@njit(cache=True, nogil=True, error_model="numpy")
def lower_bound(fabric: Fabric, head: Ints, tail: Ints, remaining: Floats, other_bytes: Floats) -> float:
    """Seconds that the most loaded link needs for the remaining bytes: no schedule is faster.

    `other_bytes` [at most segments] are bytes by segment of further flows.
    """
    by_segment = np.zeros(fabric.segments.shape[0])
    by_segment[: other_bytes.shape[0]] = other_bytes
    for flow in range(head.shape[0]):
        if remaining[flow] > 0.0:
            by_segment[head[flow]] += remaining[flow]
            by_segment[tail[flow]] += remaining[flow]
    return np.max(over_links(fabric, by_segment) / fabric.capacity) if fabric.capacity.shape[0] else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def plan(
    fabric: Fabric, routes: FlowRoutes, progress: FlowProgress, window: float, stale: bool, indexed: bool
) -> tuple[float, float, Ints, int]:  # fmt: skip
    """Rates for the next step.

    The step ends with the first completion, exactly. When that comes within `window`, the step is the window: flows
    that end in it keep their rate until then, and the others share the average capacity that those leave, so that every
    link moves at most its capacity x window. The flows that end in it are determined by `rate` if that is `stale` (the
    average of the window before, 0 for flows that begin), and by fair shares otherwise. `indexed`: the index has all
    flows that have not ended. After a window it has those that do not end in it.

    Returns the seconds of the step (inf without flows), those to the last completion at these rates, the flows that end
    in the step if it is a window, and how often rates were computed.
    """
    if not indexed:
        make_index(routes, np.where(progress.remaining >= 0.0, RISING, 0.0))
    ending, solves = np.empty(0, np.int64), 0
    if stale:
        ending = _ending(progress, window)
    if ending.shape[0] == 0:
        level = rise(fabric, routes.index, np.zeros(fabric.capacity.shape[0]), SAME_SHARE)
        first, last = _exact_rates(routes, progress, level)
        if first >= window:
            return first, last, ending, 1
        ending, solves = _ending(progress, window), 1
    step, last, ending = _window(fabric, routes, progress, window, ending)
    return step, last, ending, solves + 1


@njit(cache=True, nogil=True)
def _ending(progress: FlowProgress, seconds: float) -> Ints:
    """The flows that end within `seconds` at these rates."""
    remaining, rate = progress
    ending, found = np.empty(remaining.shape[0] + 1, np.int64), 0
    for flow in range(remaining.shape[0]):  # without branches, which are often mispredicted
        ending[found] = flow
        found += (remaining[flow] <= rate[flow] * seconds) & (remaining[flow] >= 0.0)
    return ending[:found].copy()


@njit(cache=True, nogil=True, error_model="numpy")
def _window(
    fabric: Fabric, routes: FlowRoutes, progress: FlowProgress, window: float, ending: Ints
) -> tuple[float, float, Ints]:  # fmt: skip
    """A window in which the flows `ending` keep their rate and end, and the others share what these leave on average.

    Returns its seconds, those to the last completion, and the flows that end in it, at the new rates too.
    """
    remaining, rate = progress
    by_segment, kept, left = np.zeros(fabric.segments.shape[0]), rate[ending], remaining[ending]
    for flow in ending:
        by_segment[routes.head[flow]] += remaining[flow] / window
        by_segment[routes.tail[flow]] += remaining[flow] / window
        take_out(routes, flow)
        remaining[flow] = ENDED  # for now: it has no share in the new rates
    level = rise(fabric, routes.index, over_links(fabric, by_segment), TOGETHER)
    last, also = _window_rates(routes, progress, level, window)
    for at in range(ending.shape[0]):
        remaining[ending[at]], rate[ending[at]] = left[at], kept[at]
        if left[at] > 0.0:
            last = max(last, left[at] / kept[at])
    return min(window, last), last, np.concatenate((ending, also))


@njit(cache=True, nogil=True, error_model="numpy")
def _exact_rates(routes: FlowRoutes, progress: FlowProgress, level: Floats) -> tuple[float, float]:
    """Set rates to the lower share of every flow's segments, 0 for flows that have ended.

    Returns the seconds to the first and to the last completion (inf and 0 without flows).
    """
    remaining, rate = progress
    first, last = np.inf, 0.0
    for flow in range(remaining.shape[0]):
        rate[flow] = 0.0
        if remaining[flow] >= 0.0:
            rate[flow] = min(level[routes.head[flow]], level[routes.tail[flow]])
            seconds = remaining[flow] / rate[flow]
            first, last = min(first, seconds), max(last, seconds)
    return first, last


@njit(cache=True, nogil=True, error_model="numpy")
def _window_rates(routes: FlowRoutes, progress: FlowProgress, level: Floats, window: float) -> tuple[float, Ints]:
    """Set rates to the lower share of every flow's segments, in loops that the compiler can vectorize.

    Returns the seconds to the last completion (0 without flows), and the flows that end within the window.
    """
    (remaining, rate), head, tail = progress, routes.head, routes.tail
    last, ending, found = 0.0, np.empty(remaining.shape[0] + 1, np.int64), 0
    for begin in range(0, remaining.shape[0], BLOCK):
        end, some, later = min(begin + BLOCK, remaining.shape[0]), 0, 0
        for flow in range(begin, end):
            one, two = level[head[flow]], level[tail[flow]]
            rate[flow] = one if one < two else two
            some += (remaining[flow] < rate[flow] * window) & (remaining[flow] >= 0.0)
            later += remaining[flow] > rate[flow] * last
        if some > 0:
            for flow in range(begin, end):
                ending[found] = flow
                found += (remaining[flow] < rate[flow] * window) & (remaining[flow] >= 0.0)
        if later > 0:  # divisions take longest: few blocks have a flow that ends after all before
            for flow in range(begin, end):
                last = max(last, remaining[flow] / rate[flow])  # negative for a flow that has ended
    return last, ending[:found].copy()


@njit(cache=True, nogil=True, error_model="numpy")
def drain(progress: FlowProgress, seconds: float, slack: float) -> tuple[Ints, Floats]:
    """Subtract the bytes that `seconds` at `rate` move from those that remain.

    Returns the flows that end, up to `slack` seconds later, and the seconds after which each ended.
    """
    remaining, rate = progress
    ended, found = np.empty(remaining.shape[0] + 1, np.int64), 0
    for flow in range(remaining.shape[0]):  # without branches, which are often mispredicted
        ended[found] = flow
        left = (remaining[flow] > 0.0) & (remaining[flow] > rate[flow] * (seconds + slack))
        found += (remaining[flow] >= 0.0) & (not left)
    ended = ended[:found].copy()
    after = np.empty(found)
    for at in range(found):
        flow = ended[at]
        needs = remaining[flow] / rate[flow] if remaining[flow] > 0.0 else 0.0
        after[at] = needs if needs < seconds - slack else seconds
        remaining[flow], rate[flow] = ENDED, 0.0
    for flow in range(remaining.shape[0]):  # the rate of one that ended earlier may be infinite
        remaining[flow] = remaining[flow] - rate[flow] * seconds if remaining[flow] >= 0.0 else ENDED
    return ended, after


@njit(cache=True, nogil=True, error_model="numpy")
def drain_window(progress: FlowProgress, ending: Ints, seconds: float, slack: float) -> tuple[Ints, Floats]:
    """`drain` for the first `seconds` of a window in which only the flows `ending` can end."""
    remaining, rate = progress
    ended, after, found = np.empty_like(ending), np.empty(ending.shape[0]), 0
    for flow in ending:
        if not (remaining[flow] > rate[flow] * (seconds + slack)):
            needs = remaining[flow] / rate[flow] if remaining[flow] > 0.0 else 0.0
            ended[found], after[found] = flow, needs if needs < seconds - slack else seconds
            remaining[flow], rate[flow] = ENDED, 0.0
            found += 1
    for flow in range(remaining.shape[0]):  # what rounding takes too much is not below 0, which would be ENDED
        left = max(remaining[flow] - rate[flow] * seconds, 0.0)
        remaining[flow] = left if remaining[flow] >= 0.0 else ENDED
    return ended[:found], after[:found]


@njit(cache=True, nogil=True)
def count_down(counts: GroupCounts, ended: Ints) -> Ints:
    """Count ended flows in their two groups; returns the groups that reach zero."""
    done, found = np.empty(2 * ended.shape[0], np.int64), 0
    for flow in ended:
        for end in range(2):
            owner = counts.group[flow, end]
            if owner >= 0:
                counts.pending[owner] -= 1
                if counts.pending[owner] == 0:
                    done[found] = owner
                    found += 1
    return done[:found].copy()


@njit(cache=True, nogil=True)
def count_again(counts: GroupCounts, ended: Ints) -> None:
    """Undo `count_down`."""
    for flow in ended:
        for end in range(2):
            owner = counts.group[flow, end]
            if owner >= 0:
                counts.pending[owner] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def look_ahead(
    fabric: Fabric, routes: FlowRoutes, now: FlowProgress, counts: GroupCounts, later: FlowProgress,
    completions: Completions, time: float, limit: float, slack: float,
) -> tuple[float, float, int, int]:  # fmt: skip
    """Compute up to AHEAD consecutive completions before `limit` that end no group and leave some flow.

    `now` is not changed, nor `counts` once it returns; the resulting progress is written to `later`, the flows that
    end to `completions`.

    Returns the time of the last of them, the time of the next completion, their number, and how many flows end.
    """
    remaining, rate = later
    remaining[:], rate[:] = now.remaining, now.rate
    ended, flows, found, changes = completions.flow, remaining.shape[0], 0, 0
    while True:
        first, _, alive = _span(later)
        begin, awaited = found, time + first + slack >= limit or changes == AHEAD
        for flow in range(flows):
            if awaited or remaining[flow] < 0.0:
                continue
            if not (remaining[flow] > 0.0 and remaining[flow] > rate[flow] * (first + slack)):
                ended[found], completions.time[found] = flow, time + first
                found += 1
        awaited |= count_down(counts, ended[begin:found]).shape[0] > 0
        if awaited or found - begin == alive:
            count_again(counts, ended[:found])
            return time, time + first, changes, begin
        slowest = _pass(later, first, ended[begin:found])
        refill(fabric, routes, rate, slowest)
        time += first
        changes += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _span(progress: FlowProgress) -> tuple[float, float, int]:
    """Seconds to the first and to the last completion at these rates (inf and 0 without flows); number of flows."""
    remaining, rate = progress
    first, last, alive = np.inf, 0.0, 0
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            seconds = remaining[flow] / rate[flow]
            first, last = min(first, seconds), max(last, seconds)
            alive += 1
    return first, last, alive


@njit(cache=True, nogil=True)
def _pass(progress: FlowProgress, seconds: float, ended: Ints) -> float:
    """Advance by `seconds`, after which the flows `ended` end; returns the lowest rate of these."""
    remaining, rate = progress
    slowest = np.inf
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            remaining[flow] -= rate[flow] * seconds
    for flow in ended:
        slowest = min(slowest, rate[flow])
        remaining[flow], rate[flow] = ENDED, 0.0
    return slowest
