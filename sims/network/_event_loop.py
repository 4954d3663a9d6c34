"""The compiled event loop of the fluid model: begins and ends flows, and plans the next step.

Its events are ends of latencies, completions, and ends of coalescing windows. In small networks calls cost more than
arithmetic, so one call handles everything between two wakes of the simulation. Step 6 of `docs/network.md`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._completions import (
    EARLY,
    ELAPSED,
    KEPT,
    MERGE,
    SAME_TIME,
    SHORTEST,
    TAIL,
    FlowProgress,
    GroupCounts,
    count_by_segment,
    count_down,
    drain,
    drain_window,
    look_ahead,
    lower_bound,
    plan,
)
from sims.network._flow_index import LATER, RISING, FlowIndex, FlowRoutes, extend_index, put_back, take_out
from sims.network._flow_state import FlowHandle, FlowState
from sims.network._routes import Fabric, Floats, Ints


@njit(cache=True, nogil=True, error_model="numpy")
def begin(
    held: FlowHandle, time: float, free: float, slack: float, head: Ints, tail: Ints, nbytes: Floats, latency: Floats,
    group: Ints,
) -> float:  # fmt: skip
    """Begin flows at `time`, which first wait for their latency; returns the time of the next event, inf for none.

    `free`, `slack`: see `_pass_latencies`. Flows are separate arrays: a record takes 2 us more to pass from Python.
    """
    fabric, flows = held.fabric, held.state
    scalars, latent, count = flows.scalars[0], flows.latent, head.shape[0]
    order = np.arange(count)
    for at in range(1, count):
        if latency[at] < latency[at - 1]:
            order = np.argsort(latency, kind="mergesort")
            break
    for at in range(count):
        place, flow = scalars.pool + at, order[at]
        latent.time[place], latent.nbytes[place] = time + latency[flow], nbytes[flow]
        latent.head[place], latent.tail[place] = head[flow], tail[flow]
        latent.group[place, 0], latent.group[place, 1] = group[flow, 0], group[flow, 1]
    if flows.finish.shape[0] > 0:
        for at in range(count):
            latent.ids[scalars.pool + at] = scalars.begun + order[at]
    latent.batch[scalars.batches, 0], latent.batch[scalars.batches, 1] = scalars.pool, scalars.pool + count
    scalars.wakes = min(scalars.wakes, latent.time[scalars.pool])
    scalars.batches += 1
    scalars.pool += count
    scalars.begun += count
    scalars.asleep += count
    count_by_segment(head, tail, nbytes, latent.by_segment)
    if scalars.ahead > 0 and scalars.wakes <= scalars.ahead_time + scalars.ahead_slack:
        _look_ahead(fabric, flows, scalars.ahead_slack)
    _pass_latencies(fabric, flows, free, slack)
    return _next_time(flows)


@njit(cache=True, nogil=True, error_model="numpy")
def run_to(held: FlowHandle, time: float, slack: float, free: float) -> tuple[float, int]:
    """Advance to `time`, up to `slack` seconds further for an event then, and up to `free` if no group has ended.

    Returns the time of the next event, and the number of groups in `ended`, which may repeat earlier ones.
    """
    fabric, flows = held.fabric, held.state
    scalars, groups, found = flows.scalars[0], flows.groups, 0
    upcoming = _next_time(flows)
    while upcoming <= time + slack:
        now = min(upcoming, time)
        while scalars.ends > 0 and groups.time[scalars.ends - 1] <= now + slack:
            scalars.ends -= 1
            groups.ended[found] = groups.group[scalars.ends]
            found += 1
        if min(scalars.until, max(scalars.wakes, scalars.merge)) <= now + slack:
            found = _change(fabric, flows, now, slack, found)
        upcoming = _next_time(flows)
    if found == 0:
        _pass_latencies(fabric, flows, free, slack)
        upcoming = _next_time(flows)
    return upcoming, found


@njit(cache=True, nogil=True)
def close_gaps(flows: FlowState) -> None:
    """Move the flows whose latency has not ended to the front."""
    scalars, latent, recorded, kept = flows.scalars[0], flows.latent, flows.finish.shape[0] > 0, 0
    for number in range(scalars.batches):
        first = kept
        for at in range(latent.batch[number, 0], latent.batch[number, 1]):
            latent.time[kept], latent.nbytes[kept] = latent.time[at], latent.nbytes[at]
            latent.head[kept], latent.tail[kept] = latent.head[at], latent.tail[at]
            if recorded:
                latent.ids[kept] = latent.ids[at]
            latent.group[kept, 0], latent.group[kept, 1] = latent.group[at, 0], latent.group[at, 1]
            kept += 1
        latent.batch[number, 0], latent.batch[number, 1] = first, kept
    scalars.pool = kept


@njit(cache=True, nogil=True, error_model="numpy")
def _pass_latencies(fabric: Fabric, flows: FlowState, free: float, slack: float) -> None:
    """End latencies that come before any other event, if flows are few: the simulation need not wake for them.

    Nothing begins before `free`, the time of the simulation's next event. A margin above rounding is kept before
    completions, because their groups would end too early.
    """
    scalars = flows.scalars[0]
    while scalars.bound == 0.0 and scalars.wakes + slack < min(free, scalars.until * (1.0 - SAME_TIME)):
        ended = _change(fabric, flows, scalars.wakes, slack, 0)
        assert ended == 0


@njit(cache=True, nogil=True)
def _next_time(flows: FlowState) -> float:
    scalars = flows.scalars[0]
    change = flows.groups.time[scalars.ends - 1] if scalars.ends > 0 else scalars.until
    upcoming: float = min(change, max(scalars.wakes, scalars.merge))
    return upcoming


@njit(cache=True, nogil=True, error_model="numpy")
def _change(fabric: Fabric, flows: FlowState, now: float, slack: float, found: int) -> int:
    """End and begin flows, and plan the next step; returns the number of groups in `ended`."""
    scalars = flows.scalars[0]
    if scalars.ahead > 0:  # the completions computed ahead have been reached
        scalars.front, scalars.began = 1 - scalars.front, scalars.ahead_time
        scalars.solves += scalars.ahead
    found = _settle(flows, now, slack, found)
    begun = scalars.wakes <= now + slack
    while scalars.wakes <= now + slack:
        _activate(flows, now + slack)
    scalars.began, scalars.ends = now, 0
    _plan(fabric, flows, now, begun, slack)
    return found


@njit(cache=True, nogil=True)
def _present(flows: FlowState) -> tuple[FlowRoutes, FlowProgress]:
    """The draining flows as arguments of kernels."""
    scalars, draining = flows.scalars[0], flows.draining
    places, front = scalars.places, scalars.front
    index = FlowIndex(draining.start, draining.other, draining.rising, draining.place)
    routes = FlowRoutes(draining.head[:places], draining.tail[:places], index)
    return routes, FlowProgress(draining.remaining[front, :places], draining.rate[front, :places])


@njit(cache=True, nogil=True, error_model="numpy")
def _settle(flows: FlowState, now: float, slack: float, found: int) -> int:
    """End the flows that complete at `now`. Gaps are closed when they are a quarter of the places."""
    scalars, draining = flows.scalars[0], flows.draining
    places, ahead = scalars.places, flows.ahead.flow[: scalars.ahead_flows]
    remaining, rate = draining.remaining[scalars.front], draining.rate[scalars.front]
    counts, recorded = GroupCounts(draining.group, flows.groups.pending), flows.finish.shape[0] > 0
    count_down(counts, ahead)  # they end no group
    progress, seconds = FlowProgress(remaining[:places], rate[:places]), now - scalars.began
    if scalars.stale:
        ended, after = drain_window(progress, flows.ending[: scalars.ending], seconds, slack)
    else:
        ended, after = drain(progress, seconds, slack)
    if recorded:
        for at in range(ahead.shape[0]):
            flows.finish[draining.ids[ahead[at]]] = flows.ahead.time[at]
        for at in range(ended.shape[0]):
            flows.finish[draining.ids[ended[at]]] = scalars.began + after[at]
    for owner in count_down(counts, ended):
        flows.groups.ended[found] = owner
        found += 1
    scalars.alive -= ahead.shape[0] + ended.shape[0]
    scalars.ahead_flows = scalars.ahead = 0
    if scalars.indexed:
        routes, _ = _present(flows)
        for flow in ended:
            take_out(routes, flow)
        for flow in flows.ending[: scalars.ending]:  # of a window that was cut short, some have not ended
            if remaining[flow] >= 0.0:
                put_back(routes, flow)
    if 4 * (places - scalars.alive) > places:
        head, tail, ids, group, kept = draining.head, draining.tail, draining.ids, draining.group, 0
        for flow in range(places):
            if remaining[flow] >= 0.0:
                head[kept], tail[kept] = head[flow], tail[flow]
                if recorded:
                    ids[kept] = ids[flow]
                remaining[kept], rate[kept] = remaining[flow], rate[flow]
                group[kept, 0], group[kept, 1] = group[flow, 0], group[flow, 1]
                kept += 1
        scalars.places, scalars.indexed = kept, False
    return found


@njit(cache=True, nogil=True)
def _activate(flows: FlowState, until: float) -> None:
    """Append the flows of the first batch whose latency ends by `until` to the draining ones."""
    scalars, latent, draining, first = flows.scalars[0], flows.latent, flows.draining, 0
    batch, recorded = latent.batch, flows.finish.shape[0] > 0
    for other in range(1, scalars.batches):
        if latent.time[batch[other, 0]] < latent.time[batch[first, 0]]:
            first = other
    at, end = batch[first, 0], batch[first, 1]
    while at < end and latent.time[at] <= until:
        place = scalars.places
        draining.head[place], draining.tail[place] = latent.head[at], latent.tail[at]
        if recorded:
            draining.ids[place] = latent.ids[at]
        draining.remaining[scalars.front, place], draining.rate[scalars.front, place] = latent.nbytes[at], 0.0
        draining.group[place, 0], draining.group[place, 1] = latent.group[at, 0], latent.group[at, 1]
        latent.by_segment[latent.head[at]] -= latent.nbytes[at]
        latent.by_segment[latent.tail[at]] -= latent.nbytes[at]
        scalars.places += 1
        at += 1
    woken = at - batch[first, 0]
    scalars.alive, scalars.asleep = scalars.alive + woken, scalars.asleep - woken
    batch[first, 0] = at
    if at == end:
        batch[first : scalars.batches - 1] = batch[first + 1 : scalars.batches].copy()
        scalars.batches -= 1
    if scalars.batches == 0:
        scalars.pool = 0
    scalars.wakes = np.inf
    for other in range(scalars.batches):
        scalars.wakes = min(scalars.wakes, latent.time[batch[other, 0]])


@njit(cache=True, nogil=True, error_model="numpy")
def _plan(fabric: Fabric, flows: FlowState, now: float, begun: bool, slack: float) -> None:
    """Compute rates for the step that begins now, and its length."""
    scalars = flows.scalars[0]
    routes, progress = _present(flows)
    if begun:
        _bound(fabric, flows, routes, progress, now)
    window = scalars.share * min(scalars.bound, EARLY * now)
    if scalars.last > now:
        window = min(window, max((scalars.last - now) / TAIL, SHORTEST * window))
    if not _index_begun(flows, routes, progress):
        scalars.indexed, scalars.sorted = False, scalars.places
    step, last, ending, solves = plan(fabric, routes, progress, window, scalars.stale, scalars.indexed)
    scalars.stale, scalars.ending = ending.shape[0] > 0, ending.shape[0]
    scalars.indexed, scalars.known = scalars.bound > 0.0, scalars.places
    flows.ending[: scalars.ending] = ending
    scalars.until, scalars.merge = now + step, now + MERGE * window
    scalars.solves += solves
    scalars.last = now + last
    if scalars.stale:
        if window > scalars.widest or (window == scalars.widest and scalars.bound > scalars.widest_bound):
            scalars.widest, scalars.widest_bound = window, scalars.bound
        _note_ends(flows, progress, ending, step, now)
    elif scalars.bound == 0.0:
        _look_ahead(fabric, flows, slack)


@njit(cache=True, nogil=True)
def _index_begun(flows: FlowState, routes: FlowRoutes, progress: FlowProgress) -> bool:
    """Add the flows that begin to drain to the index; False if there is none, or they are too many for that."""
    scalars = flows.scalars[0]
    later = scalars.places - scalars.sorted
    if not scalars.indexed or later > LATER * scalars.sorted:
        return False
    if scalars.known < scalars.places:
        rate = np.where(progress.remaining[scalars.sorted :] >= 0.0, RISING, 0.0)
        extend_index(routes, rate, scalars.sorted, scalars.known)
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(fabric: Fabric, flows: FlowState, routes: FlowRoutes, progress: FlowProgress, now: float) -> None:
    """Compute the lower bound that windows are a share of, if flows are many and the last one is KEPT windows old."""
    scalars = flows.scalars[0]
    if scalars.share == 0.0 or scalars.alive + scalars.asleep <= scalars.exact_flows:
        scalars.bound = 0.0
    elif scalars.bound == 0.0 or now >= scalars.renew:
        left = lower_bound(fabric, routes.head, routes.tail, progress.remaining, flows.latent.by_segment)
        scalars.bound = min(now + left, ELAPSED * left)
        scalars.renew = now + KEPT * scalars.share * min(scalars.bound, EARLY * now)


@njit(cache=True, nogil=True, error_model="numpy")
def _look_ahead(fabric: Fabric, flows: FlowState, slack: float) -> None:
    """Compute completions ahead, up to the next one that a group waits for or the next begin of a flow."""
    scalars, draining, behind = flows.scalars[0], flows.draining, 1 - flows.scalars[0].front
    routes, progress = _present(flows)
    places = scalars.places
    later = FlowProgress(draining.remaining[behind, :places], draining.rate[behind, :places])
    counts = GroupCounts(draining.group, flows.groups.pending)
    scalars.ahead_time, scalars.until, scalars.ahead, scalars.ahead_flows = look_ahead(
        fabric, routes, progress, counts, later, flows.ahead, scalars.began, scalars.wakes, slack
    )
    scalars.ahead_slack = slack


@njit(cache=True, nogil=True, error_model="numpy")
def _note_ends(flows: FlowState, progress: FlowProgress, ending: Ints, step: float, now: float) -> None:
    """Record the groups whose last flows end before the end of a window, the earliest one last.

    Takes time for the flows that end, not for all groups: a network that is never idle has those of all epochs.
    """
    remaining, rate = progress
    pending, seen, last, group = flows.groups.pending, flows.groups.seen, flows.groups.last, flows.draining.group
    for flow in ending:
        if remaining[flow] < rate[flow] * step:
            for end in range(2):
                owner = group[flow, end]
                if owner >= 0:
                    seen[owner] += 1
                    last[owner] = max(last[owner], remaining[flow] / rate[flow])
    whole, count = np.empty(2 * ending.shape[0], np.int64), 0
    for flow in ending:
        for end in range(2):
            owner = group[flow, end]
            if owner >= 0 and seen[owner] > 0:
                if seen[owner] == pending[owner]:
                    whole[count] = owner
                    count += 1
                seen[owner] = 0
    found = np.sort(whole[:count])
    order = np.argsort(-last[found], kind="mergesort")
    scalars = flows.scalars[0]
    scalars.ends = found.shape[0]
    for at in range(scalars.ends):
        flows.groups.group[at], flows.groups.time[at] = found[order[at]], now + last[found[order[at]]]
    for flow in ending:
        for end in range(2):
            if group[flow, end] >= 0:
                last[group[flow, end]] = 0.0
