"""Completions that nobody waits for, followed in compiled code: the simulation is woken for the others only."""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._fluid import ENDED, count_down
from sims.network._rates import Fabric, Floats, Ints, refill

AHEAD = 32
"""Completions followed ahead of time: what begins meanwhile makes them vain."""


@njit(cache=True, nogil=True, error_model="numpy")
def quiet_changes(
    fabric: Fabric,
    start: Ints,
    member: Ints,
    head: Ints,
    tail: Ints,
    now_remaining: Floats,
    now_rate: Floats,
    group: Ints,
    now_pending: Ints,
    remaining: Floats,
    rate: Floats,
    time: float,
    limit: float,
    slack: float,
    ended: Ints,
    when: Floats,
) -> tuple[float, float, int, int]:
    """Follow completions, one after the other, that end no group, leave some flow, and come before `limit`; at most
    AHEAD of them.

    What will remain of the flows then, and their rates, are left in `remaining` and `rate`, which flows end and when in
    `ended` and `when`.

    Answers when the last of them will be, when the next completion is, how many there are, and how many flows end.
    """
    remaining[:], rate[:], pending = now_remaining, now_rate, now_pending.copy()
    flows, found, changes = remaining.shape[0], 0, 0
    while True:
        first, alive = _first(remaining, rate)
        begin, loud = found, time + first + slack >= limit or changes == AHEAD
        for flow in range(flows):
            if loud or remaining[flow] < 0.0:
                continue
            if not (remaining[flow] > 0.0 and remaining[flow] > rate[flow] * (first + slack)):
                ended[found], when[found] = flow, time + first
                found += 1
        loud |= count_down(group, ended[begin:found], pending).shape[0] > 0
        if loud or found - begin == alive:
            return time, time + first, changes, begin
        slowest = _pass(remaining, rate, first, ended[begin:found])
        refill(fabric, start, member, head, tail, rate, slowest)
        time += first
        changes += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _first(remaining: Floats, rate: Floats) -> tuple[float, int]:
    """Seconds to the next completion, and how many flows there are."""
    first, alive = np.inf, 0
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            alive += 1
            first = min(first, remaining[flow] / rate[flow])
    return first, alive


@njit(cache=True, nogil=True)
def _pass(remaining: Floats, rate: Floats, seconds: float, ended: Ints) -> float:
    """Let so many seconds pass, at whose end some flows end; answers the lowest rate of these."""
    slowest = np.inf
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            remaining[flow] -= rate[flow] * seconds
    for flow in ended:
        slowest = min(slowest, rate[flow])
        remaining[flow], rate[flow] = ENDED, 0.0
    return slowest
