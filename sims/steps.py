"""Compiled steps of the transfers in flight: flows begin, flows end, and what comes next is planned.

A small network spends more on calls than on sums, so everything between two wakings of the simulation is one call.
Flows that wait for their latency stand in `wait_*`, batch by batch, each batch by time; flows that drain stand in the
first `places` of the other arrays, where one that has ended leaves a gap for a while.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.core import types
from numba.experimental import structref

from sims.flows import EARLY, MERGE
from sims.fluid import Fabric, Floats, Ints, count_down, count_rows, drain, index_rows, lower_bound, plan
from sims.quiet import quiet_changes

STATE = np.dtype([
    ("places", np.int64), ("alive", np.int64), ("asleep", np.int64),  # flows: places taken, that drain, that wait
    ("pool", np.int64), ("batches", np.int64),  # taken of `wait_*` and of `batch`
    ("begun", np.int64), ("solves", np.int64),  # flows so far, and how often rates were computed
    ("front", np.int64),  # the row of `remaining` and `rate` that is true at `began`
    ("ahead", np.int64), ("quiet", np.int64),  # changes followed ahead, and flows that end in them
    ("ends", np.int64),  # groups that end within the step, in `end_group`, the first one last
    ("exact_flows", np.int64), ("indexed", np.bool_), ("stale", np.bool_),
    ("share", np.float64), ("bound", np.float64),  # of the lower bound that a window is; the bound, 0 for exact steps
    ("began", np.float64), ("until", np.float64), ("merge", np.float64),  # the step; when flows begin at the earliest
    ("wakes", np.float64),  # when the next latency ends
    ("ahead_time", np.float64), ("ahead_slack", np.float64),  # when the changes followed ahead are over
    ("widest", np.float64), ("widest_bound", np.float64),  # longest window, and the lower bound that it is a share of
])  # fmt: skip


class Air(NamedTuple):
    """The transfers in flight. `group` are the two that count a flow, -1 for none; `ids` number flows as they began.

    Attributes:
        state: STATE [1].
        head, tail, ids, group, remaining, rate: int32 [places], group [places, 2]; float64 [2, places].
        start, member: flows by row, where `indexed` (see `sims.fluid.index_rows`).
        wait_time, wait_bytes, wait_head, wait_tail, wait_ids, wait_group: of flows whose latency has not ended.
        batch: int64 [batches, 2], where each begins and ends in `wait_*`.
        waiting: float64 [rows], bytes of flows that wait.
        pending: int64 [groups], flows that each group waits for.
        finish: float64 [flows], when each ended; empty when not recorded.
        quiet, quiet_when: flows that end in changes followed ahead, and when.
        end_time, end_group: groups that end within the step.
        ended: int64 [2 x groups], answers of `run_to`.
    """

    state: np.ndarray
    head: Ints
    tail: Ints
    ids: Ints
    group: Ints
    remaining: Floats
    rate: Floats
    start: Ints
    member: Ints
    wait_time: Floats
    wait_bytes: Floats
    wait_head: Ints
    wait_tail: Ints
    wait_ids: Ints
    wait_group: Ints
    batch: Ints
    waiting: Floats
    pending: Ints
    finish: Floats
    quiet: Ints
    quiet_when: Floats
    end_time: Floats
    end_group: Ints
    ended: Ints


@structref.register
class _HandleType(types.StructRef):  # type: ignore[misc]
    """What compiled code takes a `Handle` for."""


class Handle(structref.StructRefProxy):  # type: ignore[misc]
    """A fabric and the air over it behind one pointer: to hand over their arrays takes longer than many a step."""

    fabric: Fabric
    air: Air


structref.define_constructor(Handle, _HandleType, ["fabric", "air"])
structref.define_boxing(_HandleType, Handle)


@njit(cache=True)
def handle(fabric: Fabric, air: Air) -> Handle:
    """A handle of these arrays; those that replace them need another."""
    return Handle(fabric, air)


@njit(cache=True, nogil=True, error_model="numpy")
def begin(held: Handle, time: float, head: Ints, tail: Ints, nbytes: Floats, latency: Floats, group: Ints) -> float:
    """Begin flows at `time`, which then wait their latency; answers when something changes next, inf for never."""
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
def run_to(held: Handle, time: float, slack: float) -> tuple[float, int]:
    """Let time pass, by `slack` seconds more if something happens then.

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
    return upcoming, found


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
        crowded = state.alive + state.asleep > state.exact_flows
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
