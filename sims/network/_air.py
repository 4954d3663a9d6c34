"""The transfers in flight as compiled code takes them: arrays with room for more, and one pointer to all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.core import types
from numba.experimental import structref

from sims.network._rates import Fabric, Floats, Ints

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
        start, member: flows by row, where `indexed` (see `_rates.index_rows`).
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


def empty() -> Air:
    """No transfers, no groups, room for none."""
    ints, numbers, floats, pairs = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0), np.empty((0, 2), np.int32)
    state = np.zeros(1, STATE)
    state["until"] = state["wakes"] = np.inf
    return Air(
        state=state, head=ints, tail=ints, ids=ints, group=pairs, remaining=np.empty((2, 0)), rate=np.empty((2, 0)),
        start=numbers, member=ints, wait_time=floats, wait_bytes=floats, wait_head=ints, wait_tail=ints, wait_ids=ints,
        wait_group=pairs, batch=np.empty((0, 2), np.int64), waiting=floats, pending=numbers, finish=floats,
        quiet=numbers, quiet_when=floats, end_time=floats, end_group=numbers, ended=numbers,
    )  # fmt: skip
