"""Compiled steps of the transfers in flight: flows begin, flows end, and what comes next is planned.

A small network spends more on calls than on sums, so everything between two wakings of the simulation is one call.
Flows that wait for their latency stand in `wait_*`, batch by batch, each batch by time; flows that drain stand in the
first `places` of the other arrays, where one that has ended leaves a gap for a while.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._air import Air, Handle
from sims.network._fluid import EARLY, MERGE, SAME_TIME, count_down, count_rows, drain, lower_bound, plan
from sims.network._quiet import quiet_changes
from sims.network._rates import Fabric, Floats, Ints, index_rows


@njit(cache=True, nogil=True, error_model="numpy")
def begin(
    held: Handle, time: float, free: float, slack: float, head: Ints, tail: Ints, nbytes: Floats, latency: Floats,
    group: Ints,
) -> float:  # fmt: skip
    """Begin flows at `time`, which then wait their latency; answers when something changes next, inf for never.

    `free`, `slack`: see `_pass_silent`.
    """
    fabric, air = held.fabric, held.air
    state, flows = air.state[0], head.shape[0]
    order = np.arange(flows)
    for at in range(1, flows):
        if latency[at] < latency[at - 1]:
            order = np.argsort(latency, kind="mergesort")
            break
    for at in range(flows):
        place, flow = state.pool + at, order[at]
        air.wait_time[place], air.wait_bytes[place] = time + latency[flow], nbytes[flow]
        air.wait_head[place], air.wait_tail[place], air.wait_ids[place] = head[flow], tail[flow], state.begun + flow
        air.wait_group[place, 0], air.wait_group[place, 1] = group[flow, 0], group[flow, 1]
    air.batch[state.batches, 0], air.batch[state.batches, 1] = state.pool, state.pool + flows
    state.wakes = min(state.wakes, air.wait_time[state.pool])
    state.batches += 1
    state.pool += flows
    state.begun += flows
    state.asleep += flows
    count_rows(head, tail, nbytes, 1.0, air.waiting)
    if state.ahead > 0 and state.wakes <= state.ahead_time + state.ahead_slack:
        _look_ahead(fabric, air, state.ahead_slack)
    _pass_silent(fabric, air, free, slack)
    return _next_time(air)


@njit(cache=True, nogil=True)
def close_gaps(air: Air) -> None:
    """Move the flows that still wait for their latency to the front."""
    state, kept = air.state[0], 0
    for number in range(state.batches):
        first = kept
        for at in range(air.batch[number, 0], air.batch[number, 1]):
            air.wait_time[kept], air.wait_bytes[kept] = air.wait_time[at], air.wait_bytes[at]
            air.wait_head[kept], air.wait_tail[kept] = air.wait_head[at], air.wait_tail[at]
            air.wait_ids[kept] = air.wait_ids[at]
            air.wait_group[kept, 0], air.wait_group[kept, 1] = air.wait_group[at, 0], air.wait_group[at, 1]
            kept += 1
        air.batch[number, 0], air.batch[number, 1] = first, kept
    state.pool = kept


@njit(cache=True, nogil=True, error_model="numpy")
def run_to(held: Handle, time: float, slack: float, free: float) -> tuple[float, int]:
    """Let time pass, by `slack` seconds more if something happens then, and up to `free` if no group has ended.

    Answers when something changes next, and how many groups ended, which are in `ended`, some of them again.
    """
    fabric, air = held.fabric, held.air
    state, found = air.state[0], 0
    upcoming = _next_time(air)
    while upcoming <= time + slack:
        now = min(upcoming, time)
        while state.ends > 0 and air.end_time[state.ends - 1] <= now + slack:
            state.ends -= 1
            air.ended[found] = air.end_group[state.ends]
            found += 1
        if min(state.until, max(state.wakes, state.merge)) <= now + slack:
            found = _change(fabric, air, now, slack, found)
        upcoming = _next_time(air)
    if found == 0:
        _pass_silent(fabric, air, free, slack)
        upcoming = _next_time(air)
    return upcoming, found


@njit(cache=True, nogil=True, error_model="numpy")
def _pass_silent(fabric: Fabric, air: Air, free: float, slack: float) -> None:
    """Let latencies end that nothing else meets, of few flows: nobody need be woken for them.

    Nothing begins before `free`, the time of the simulation's next event. What ends is kept clear of by more than
    rounding: its group would be told too early.
    """
    state = air.state[0]
    while state.bound == 0.0 and state.wakes + slack < min(free, state.until * (1.0 - SAME_TIME)):
        ended = _change(fabric, air, state.wakes, slack, 0)
        assert ended == 0


@njit(cache=True, nogil=True)
def _next_time(air: Air) -> float:
    state = air.state[0]
    change = air.end_time[state.ends - 1] if state.ends > 0 else state.until
    upcoming: float = min(change, max(state.wakes, state.merge))
    return upcoming


@njit(cache=True, nogil=True, error_model="numpy")
def _change(fabric: Fabric, air: Air, now: float, slack: float, found: int) -> int:
    """End and begin flows, and plan the next step; answers how many groups of `ended` are filled then."""
    state = air.state[0]
    if state.ahead > 0:  # what was followed ahead is the present
        state.front, state.began = 1 - state.front, state.ahead_time
        state.solves += state.ahead
    found = _settle(air, now, slack, found)
    begun = state.wakes <= now + slack
    while state.wakes <= now + slack:
        _activate(air, now + slack)
    state.began, state.ends = now, 0
    _plan(fabric, air, now, begun, slack)
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def _settle(air: Air, now: float, slack: float, found: int) -> int:
    """End what is through at `now`. Gaps are closed once they are a quarter of the places."""
    state = air.state[0]
    places, quiet = state.places, air.quiet[: state.quiet]
    remaining, rate = air.remaining[state.front], air.rate[state.front]
    count_down(air.group, quiet, air.pending)  # they end no group
    ended, after = drain(remaining[:places], rate[:places], now - state.began, slack)
    if air.finish.shape[0] > 0:
        for at in range(quiet.shape[0]):
            air.finish[air.ids[quiet[at]]] = air.quiet_when[at]
        for at in range(ended.shape[0]):
            air.finish[air.ids[ended[at]]] = state.began + after[at]
    for owner in count_down(air.group, ended, air.pending):
        air.ended[found] = owner
        found += 1
    state.alive -= quiet.shape[0] + ended.shape[0]
    state.quiet = state.ahead = 0
    if 4 * (places - state.alive) > places:
        kept = 0
        for flow in range(places):
            if remaining[flow] >= 0.0:
                air.head[kept], air.tail[kept], air.ids[kept] = air.head[flow], air.tail[flow], air.ids[flow]
                remaining[kept], rate[kept] = remaining[flow], rate[flow]
                air.group[kept, 0], air.group[kept, 1] = air.group[flow, 0], air.group[flow, 1]
                kept += 1
        state.places, state.indexed = kept, False
    return found


@njit(cache=True, nogil=True)
def _activate(air: Air, until: float) -> None:
    """Put the flows of the first batch to wake, those whose latency ends by `until`, behind the ones that drain."""
    state, first = air.state[0], 0
    for other in range(1, state.batches):
        if air.wait_time[air.batch[other, 0]] < air.wait_time[air.batch[first, 0]]:
            first = other
    at, end = air.batch[first, 0], air.batch[first, 1]
    while at < end and air.wait_time[at] <= until:
        place = state.places
        air.head[place], air.tail[place], air.ids[place] = air.wait_head[at], air.wait_tail[at], air.wait_ids[at]
        air.remaining[state.front, place], air.rate[state.front, place] = air.wait_bytes[at], 0.0
        air.group[place, 0], air.group[place, 1] = air.wait_group[at, 0], air.wait_group[at, 1]
        air.waiting[air.head[place]] -= air.wait_bytes[at]
        air.waiting[air.tail[place]] -= air.wait_bytes[at]
        state.places += 1
        at += 1
    woken = at - air.batch[first, 0]
    state.alive, state.asleep, state.indexed = state.alive + woken, state.asleep - woken, False
    air.batch[first, 0] = at
    if at == end:
        air.batch[first : state.batches - 1] = air.batch[first + 1 : state.batches].copy()
        state.batches -= 1
    if state.batches == 0:
        state.pool = 0
    state.wakes = np.inf
    for other in range(state.batches):
        state.wakes = min(state.wakes, air.wait_time[air.batch[other, 0]])


@njit(cache=True, nogil=True, error_model="numpy")
def _plan(fabric: Fabric, air: Air, now: float, begun: bool, slack: float) -> None:
    """Rates for the step that begins now, and how long it is."""
    state, places = air.state[0], air.state[0].places
    head, tail = air.head[:places], air.tail[:places]
    remaining, rate = air.remaining[state.front, :places], air.rate[state.front, :places]
    if begun:
        crowded = state.share > 0.0 and state.alive + state.asleep > state.exact_flows
        state.bound = lower_bound(fabric, head, tail, remaining, air.waiting) if crowded else 0.0
    _index(air)
    window = state.share * min(state.bound, EARLY * now)
    step, stale, solves = plan(
        fabric, air.start, air.member, head, tail, remaining, rate, window, state.stale
    )  # fmt: skip
    state.stale, state.until, state.merge = stale, now + step, now + MERGE * window
    state.solves += solves
    if stale:
        if window > state.widest or (window == state.widest and state.bound > state.widest_bound):
            state.widest, state.widest_bound = window, state.bound
        _note_ends(air, remaining, rate, step, now)
    elif state.bound == 0.0:
        _look_ahead(fabric, air, slack)


@njit(cache=True, nogil=True)
def _index(air: Air) -> None:
    """Have the flows that drain listed by row."""
    state = air.state[0]
    if not state.indexed:
        index_rows(air.head[: state.places], air.tail[: state.places], air.start, air.member)
        state.indexed = True


@njit(cache=True, nogil=True, error_model="numpy")
def _look_ahead(fabric: Fabric, air: Air, slack: float) -> None:
    """Follow what drains up to the next change that somebody waits for, or that something else begins at."""
    state, places = air.state[0], air.state[0].places
    now, later = air.state[0].front, 1 - air.state[0].front
    _index(air)
    state.ahead_time, state.until, state.ahead, state.quiet = quiet_changes(
        fabric, air.start, air.member, air.head[:places], air.tail[:places], air.remaining[now, :places],
        air.rate[now, :places], air.group, air.pending, air.remaining[later, :places], air.rate[later, :places],
        state.began, state.wakes, slack, air.quiet, air.quiet_when,
    )  # fmt: skip
    state.ahead_slack = slack


@njit(cache=True, nogil=True, error_model="numpy")
def _note_ends(air: Air, remaining: Floats, rate: Floats, step: float, now: float) -> None:
    """Note the groups whose last flows end before the end of a window, the first one last."""
    seen, last = np.zeros(air.pending.shape[0], np.int64), np.zeros(air.pending.shape[0])
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0 and remaining[flow] < rate[flow] * step:
            for end in range(2):
                owner = air.group[flow, end]
                if owner >= 0:
                    seen[owner] += 1
                    last[owner] = max(last[owner], remaining[flow] / rate[flow])
    found = np.flatnonzero((seen > 0) & (seen == air.pending))
    order = np.argsort(-last[found], kind="mergesort")
    state = air.state[0]
    state.ends = found.shape[0]
    for at in range(state.ends):
        air.end_group[at], air.end_time[at] = found[order[at]], now + last[found[order[at]]]
