"""The state of the flows in flight: records of arrays with spare capacity, and one handle to all of them.

Compiled code works on these records; Python enlarges them (`with_...`). Step 6 of `docs/network.md`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core import types
from numba.experimental import structref

from sims.network._completions import Completions
from sims.network._routes import Fabric, Floats, Ints

ROOM = 256
"""Initial capacity, in flows and in batches of flows."""

SCALARS = np.dtype([
    ("places", np.int64), ("alive", np.int64),  # of flows that drain: places taken, and flows there
    ("pool", np.int64), ("batches", np.int64), ("asleep", np.int64),  # of latencies: places and batches taken, flows
    ("begun", np.int64), ("solves", np.int64),  # flows so far, and how often rates were computed
    ("front", np.int64),  # the row of `remaining` and `rate` that is true at `began`
    ("ahead", np.int64), ("ahead_flows", np.int64),  # completions looked ahead, and flows that end in them
    ("ends", np.int64),  # groups that end within the step, in `end_group`, the first one last
    ("ending", np.int64),  # flows that end in the step, if it is a window
    ("exact_flows", np.int64), ("stale", np.bool_),
    ("indexed", np.bool_),  # whether there is an index of the first `known` flows that drain,
    ("known", np.int64), ("sorted", np.int64),  # of which the first `sorted` are its first part
    ("share", np.float64), ("bound", np.float64),  # of the lower bound that a window is; the bound, 0 for exact steps
    ("began", np.float64), ("until", np.float64), ("merge", np.float64),  # the step; when flows begin at the earliest
    ("renew", np.float64),  # from when on the bound is computed anew
    ("last", np.float64),  # when the last flow would end at the rates of the step
    ("wakes", np.float64),  # when the next latency ends
    ("ahead_time", np.float64), ("ahead_slack", np.float64),  # when the completions looked ahead are over
    ("widest", np.float64), ("widest_bound", np.float64),  # longest window, and the lower bound that it is a share of
])  # fmt: skip


class Draining(NamedTuple):
    """Draining flows, in the first `places`; a flow that has ended leaves a gap until gaps are closed.

    Attributes:
        head, tail, ids: int32 [places], segments of the route, and numbers of the flows as they began; these where ends
            are recorded only, and otherwise never written, so that they take no memory.
        group: int32 [places, 2], the groups that count a flow, -1 for none.
        remaining, rate: float64 [2, places], now and after the completions looked ahead.
        start, other, rising, place: the index of rising flows, or room for it; see `_flow_index.FlowIndex`.
    """

    head: Ints
    tail: Ints
    ids: Ints
    group: Ints
    remaining: Floats
    rate: Floats
    start: Ints
    other: Ints
    rising: Ints
    place: Ints


class Latent(NamedTuple):
    """Flows whose latency has not ended, by batch, and in each batch by time.

    Attributes:
        time: float64 [pool], when the latency ends.
        nbytes, head, tail, ids, group: [pool], as in `Draining`.
        batch: int64 [batches, 2], begin and end of each batch in the other arrays.
        by_segment: float64 [segments], bytes of these flows.
    """

    time: Floats
    nbytes: Floats
    head: Ints
    tail: Ints
    ids: Ints
    group: Ints
    batch: Ints
    by_segment: Floats


class GroupEnds(NamedTuple):
    """Groups of flows and their ends.

    Attributes:
        pending: int64 [groups], flows that each group waits for.
        time, group: float64 and int64 [groups], those that end within a window.
        ended: int64 [2 x groups], the groups that ended in `run_to`.
        seen, last: int64 and float64 [groups], 0 between calls: what is counted per group in a window.
    """

    pending: Ints
    time: Floats
    group: Ints
    ended: Ints
    seen: Ints
    last: Floats


class FlowState(NamedTuple):
    """All flows in flight.

    Attributes:
        scalars: SCALARS [1].
        ahead: [places], flows that end in completions computed ahead, and when.
        ending: int64 [places], flows that end in the step, if it is a window.
        finish: float64 [flows], when each ended; empty when not recorded.
    """

    scalars: np.ndarray
    draining: Draining
    latent: Latent
    groups: GroupEnds
    ahead: Completions
    ending: Ints
    finish: Floats


@structref.register
class _HandleType(types.StructRef):  # type: ignore[misc]
    """The type of a `FlowHandle` in compiled code."""


class FlowHandle(structref.StructRefProxy):  # type: ignore[misc]
    """A fabric and the flows over it as one argument: passing their arrays takes longer than a typical step."""

    fabric: Fabric
    state: FlowState


structref.define_constructor(FlowHandle, _HandleType, ["fabric", "state"])
structref.define_boxing(_HandleType, FlowHandle)


@njit(cache=True)
def handle(fabric: Fabric, state: FlowState) -> FlowHandle:
    """A handle to these arrays; arrays that replace them need a new one."""
    return FlowHandle(fabric, state)


def empty() -> FlowState:
    """A state without flows and groups, of capacity 0."""
    ints, numbers, floats, pairs = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0), np.empty((0, 2), np.int32)
    scalars = np.zeros(1, SCALARS)
    scalars["until"] = scalars["wakes"] = np.inf
    return FlowState(
        scalars, Draining(ints, ints, ints, pairs, np.empty((2, 0)), np.empty((2, 0)), ints, ints, ints, pairs),
        Latent(floats, floats, ints, ints, ints, pairs, np.empty((0, 2), np.int64), floats),
        GroupEnds(numbers, floats, numbers, numbers, numbers, floats), Completions(numbers, floats), numbers, floats,
    )  # fmt: skip


def with_groups(state: FlowState, pending: np.ndarray) -> FlowState:
    """The state with group counts in `pending`, a longer copy of the previous array."""
    _, time, group, ended, _, _ = state.groups
    size = len(pending)
    kept = _longer(time, size), _longer(group, size), _longer(ended, 2 * size)
    groups = GroupEnds(pending, *kept, np.zeros(size, np.int64), np.zeros(size))
    return state._replace(groups=groups)


def with_segments(state: FlowState, segments: int) -> FlowState:
    """The state for a table that has grown to `segments` segments."""
    state.scalars["indexed"] = False
    draining = state.draining._replace(start=np.zeros((2, segments + 2), np.int32), rising=np.zeros(segments, np.int32))
    latent = state.latent._replace(by_segment=_longer(state.latent.by_segment, segments))
    return state._replace(draining=draining, latent=latent)


def with_draining(state: FlowState, flows: int) -> FlowState:
    """The state with capacity for at least 1.5 x `flows` draining flows."""
    if flows <= len(state.draining.head):
        return state
    room, draining, scalars = flows + flows // 2 + ROOM, state.draining, state.scalars[0]
    places, one = int(scalars["places"]), int(scalars["front"])
    rows = slice(None) if scalars["ahead"] else slice(one, one + 1)  # the other one is used where flows are few
    grown: dict[str, Any] = {
        name: _longer(getattr(draining, name)[:places], room) for name in ("head", "tail", "group")
    }
    grown["ids"] = _longer(draining.ids[: _recorded(state, places)], room)
    for name in ("remaining", "rate"):
        grown[name] = np.zeros((2, room))
        grown[name][rows, :places] = getattr(draining, name)[rows, :places]
    scalars["indexed"] = False
    return state._replace(
        draining=draining._replace(
            other=np.empty(2 * room, np.int32), place=np.empty((room, 2), np.int32), **grown
        ),
        ahead=Completions(*(_longer(array[: int(scalars["ahead_flows"])], room) for array in state.ahead)),
        ending=_longer(state.ending[: int(scalars["ending"])], room),
    )  # fmt: skip


def with_latent(state: FlowState, flows: int) -> FlowState:
    """The state with capacity for at least 2 x `flows` flows in latency."""
    names, pool = ("time", "nbytes", "head", "tail", "group"), int(state.scalars["pool"][0])
    grown = {name: _longer(getattr(state.latent, name)[:pool], 2 * flows + ROOM) for name in names}
    grown["ids"] = _longer(state.latent.ids[: _recorded(state, pool)], 2 * flows + ROOM)
    return state._replace(latent=state.latent._replace(**grown))


def with_batches(state: FlowState, batches: int) -> FlowState:
    """The state with capacity for `batches` in latency; doubled when it is exceeded."""
    if batches <= len(state.latent.batch):
        return state
    return state._replace(latent=state.latent._replace(batch=_longer(state.latent.batch, 2 * batches + ROOM)))


def with_finish(state: FlowState, flows: int) -> FlowState:
    """The state with capacity for the end times of `flows`; doubled when it is exceeded, new ones are nan."""
    if flows <= len(state.finish):
        return state
    return state._replace(finish=np.append(state.finish, np.full(2 * flows - len(state.finish), np.nan)))


def _recorded(state: FlowState, flows: int) -> int:
    """Of so many flows, those that have a number: all where ends are recorded, otherwise none."""
    return flows if len(state.finish) else 0


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """The array extended to `size` by zeros, which take no memory before they are written."""
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
