"""Compiled steps of the transfers in flight: flows end, flows begin, and what comes next is planned.

The arrays of `sims.inflight.InFlight` are worked on in place; their first `places` are taken. One call does what
belongs together, since a small network spends more on calls than on sums.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.fluid import Fabric, Floats, Ints, count_down, drain, plan
from sims.quiet import quiet_changes


@njit(cache=True, nogil=True, error_model="numpy")
def settle(
    places: int,
    alive: int,
    head: Ints,
    tail: Ints,
    ids: Ints,
    remaining: Floats,
    rate: Floats,
    group: Ints,
    pending: Ints,
    finish: Floats,
    quiet: Ints,
    quiet_when: Floats,
    began: float,
    now: float,
    slack: float,
) -> tuple[Ints, int, int]:
    """End what is through at `now`, after a step that began at `began`.

    Args:
        finish: by `ids`, filled where it is not empty.
        quiet, quiet_when: flows that ended before `began` and have not been counted; they end no group.

    Answers the groups that ended, the places taken, and the flows that still drain. Gaps are closed once they are a
    quarter of the places.
    """
    count_down(group, quiet, pending)
    ended, after = drain(remaining[:places], rate[:places], now - began, slack)
    if finish.shape[0] > 0:
        for at in range(quiet.shape[0]):
            finish[ids[quiet[at]]] = quiet_when[at]
        for at in range(ended.shape[0]):
            finish[ids[ended[at]]] = began + after[at]
    groups = count_down(group, ended, pending)
    alive -= quiet.shape[0] + ended.shape[0]
    if 4 * (places - alive) > places:
        kept = 0
        for flow in range(places):
            if remaining[flow] >= 0.0:
                head[kept], tail[kept], ids[kept] = head[flow], tail[flow], ids[flow]
                remaining[kept], rate[kept] = remaining[flow], rate[flow]
                group[kept, 0], group[kept, 1] = group[flow, 0], group[flow, 1]
                kept += 1
        places = kept
    return groups, places, alive


@njit(cache=True, nogil=True)
def enter(
    new_head: Ints,
    new_tail: Ints,
    new_ids: Ints,
    nbytes: np.ndarray,
    new_group: Ints,
    begin: int,
    end: int,
    places: int,
    head: Ints,
    tail: Ints,
    ids: Ints,
    remaining: Floats,
    rate: Floats,
    group: Ints,
    waiting: Floats,
) -> None:
    """Put the flows from `begin` to `end` of a batch behind those that drain; their rows wait for fewer bytes."""
    for flow in range(begin, end):
        at = places + flow - begin
        head[at], tail[at], ids[at] = new_head[flow], new_tail[flow], new_ids[flow]
        remaining[at], rate[at] = nbytes[flow], 0.0
        group[at, 0], group[at, 1] = new_group[flow, 0], new_group[flow, 1]
        waiting[head[at]] -= nbytes[flow]
        waiting[tail[at]] -= nbytes[flow]


@njit(cache=True, nogil=True, error_model="numpy")
def onward(
    fabric: Fabric,
    start: Ints,
    member: Ints,
    places: int,
    head: Ints,
    tail: Ints,
    remaining: Floats,
    rate: Floats,
    group: Ints,
    pending: Ints,
    later: Floats,
    later_rate: Floats,
    now: float,
    limit: float,
    slack: float,
    window: float,
    stale: bool,
    exact: bool,
) -> tuple[float, bool, int, tuple[float, float, int, Ints, Floats]]:
    """`plan` of the step that begins now, and where nothing is taken together (`exact`), `quiet_changes` behind it.

    Answers those of `plan`, then those of `quiet_changes`.
    """
    step, stale, solves = plan(
        fabric, start, member, head[:places], tail[:places], remaining[:places], rate[:places], window, stale
    )
    if exact and not stale:
        return step, stale, solves, quiet_changes(
            fabric, start, member, places, head, tail, remaining, rate, group, pending, later, later_rate, now, limit,
            slack,
        )  # fmt: skip
    return step, stale, solves, (now, now + step, 0, np.empty(0, np.int64), np.empty(0))


@njit(cache=True, nogil=True, error_model="numpy")
def group_ends(remaining: Floats, rate: Floats, group: Ints, step: float, pending: Ints) -> tuple[Ints, Floats]:
    """Groups whose last flows end before the end of a step, and after how many seconds each ends."""
    seen, last = np.zeros(pending.shape[0], np.int64), np.zeros(pending.shape[0])
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0 and remaining[flow] < rate[flow] * step:
            for end in range(2):
                owner = group[flow, end]
                if owner >= 0:
                    seen[owner] += 1
                    last[owner] = max(last[owner], remaining[flow] / rate[flow])
    found = np.flatnonzero((seen > 0) & (seen == pending))
    return found, last[found]
