"""Completions that nobody waits for, followed in compiled code: the simulation is woken for the others only."""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.fluid import ENDED, RISING, Fabric, Floats, Ints, fill

AHEAD = 32
"""Completions followed ahead of time: what begins meanwhile makes them vain."""


@njit(cache=True, nogil=True, error_model="numpy")
def quiet_changes(
    fabric: Fabric,
    start: Ints,
    member: Ints,
    head: Ints,
    tail: Ints,
    remaining: Floats,
    rate: Floats,
    group: Ints,
    pending: Ints,
    time: float,
    limit: float,
    slack: float,
) -> tuple[float, float, int, Ints, Floats]:
    """Carry out completions in place, one after the other, that end no group, leave some flow, and come before `limit`;
    at most AHEAD of them.

    Answers when the last of them was, when the next completion is, how many there were, and which flows ended when.
    """
    flows, found, changes = remaining.shape[0], 0, 0
    ended, when = np.empty(flows, np.int64), np.empty(flows)
    while True:
        first, alive = np.inf, 0
        for flow in range(flows):
            if remaining[flow] >= 0.0:
                alive += 1
                first = min(first, remaining[flow] / rate[flow])
        begin, loud = found, time + first + slack >= limit or changes == AHEAD
        for flow in range(flows):
            if loud or remaining[flow] < 0.0:
                continue
            if not (remaining[flow] > 0.0 and remaining[flow] > rate[flow] * (first + slack)):
                ended[found], when[found] = flow, time + first
                found += 1
        for flow in ended[begin:found]:
            for end in range(2):
                if group[flow, end] >= 0:
                    pending[group[flow, end]] -= 1
                    loud |= pending[group[flow, end]] == 0
        if loud or found - begin == alive:
            return time, time + first, changes, ended[:begin].copy(), when[:begin].copy()
        _pass(remaining, rate, first, ended[begin:found])
        fill(fabric, start, member, head, tail, rate, np.zeros(fabric.capacity.shape[0]))
        time += first
        changes += 1


@njit(cache=True, nogil=True)
def _pass(remaining: Floats, rate: Floats, seconds: float, ended: Ints) -> None:
    """Let so many seconds pass, at whose end some flows end; the others' rates are open then."""
    for flow in range(remaining.shape[0]):
        if remaining[flow] >= 0.0:
            remaining[flow] -= rate[flow] * seconds
    for flow in ended:
        remaining[flow] = ENDED
    for flow in range(remaining.shape[0]):
        rate[flow] = RISING if remaining[flow] >= 0.0 else 0.0
