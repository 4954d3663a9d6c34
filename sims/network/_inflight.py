"""Transfers in flight, from the moment the network wakes until it is idle again; time is counted from that moment.

A transfer first waits its latency, using nothing, then drains at its fair rate. Few transfers are followed exactly, and
ahead of time: nobody is woken for a completion that nobody waits for.
With more than `exact_flows` in flight, those that end within a window are taken together (see `_fluid.plan`), each with
its own time of completion, and transfers that begin within a quarter of a window begin together.
The steps themselves are compiled (`_steps`); here it is seen to that their memory (`_air`) has room.
"""

from __future__ import annotations

import numpy as np

from sims.network._air import Handle, empty, handle
from sims.network._memo import Batch
from sims.network._rates import Fabric
from sims.network._rows import Rows
from sims.network._steps import begin, close_gaps, run_to

ROOM = 256
"""Places for transfers, and for batches of them, from the start."""

_FLOWS = ("head", "tail", "ids", "group", "quiet", "quiet_when")
_TWICE = ("remaining", "rate")  # now and later
_WAITS = ("wait_time", "wait_bytes", "wait_head", "wait_tail", "wait_ids", "wait_group")
_GROUPS = ("end_time", "end_group", "ended")


class InFlight:
    """Transfers over `rows`; groups of them are counted down in `pending`, int64 [groups].

    Args:
        window: share of the lower bound within which completions are taken together, 0 for never.

    Attributes:
        next_time: when something changes next; inf when nothing is in flight.
    """

    def __init__(self, rows: Rows, pending: np.ndarray, window: float, exact_flows: int) -> None:
        self.rows, self.next_time = rows, np.inf
        self._air, self._fabric = empty(), rows.fabric()
        self._handle: Handle | None = None  # of both, until one is replaced
        self._state = self._air.state
        self._state["share"], self._state["exact_flows"] = window, exact_flows
        self._fit(self._fabric)
        self.count_in(pending)
        self.reset(recording=False)

    @property
    def solves(self) -> int:
        """How often rates were computed."""
        return int(self._state["solves"][0])

    @property
    def widest(self) -> tuple[float, float]:
        """The longest window in seconds, and the lower bound that it is a share of."""
        return float(self._state["widest"][0]), float(self._state["widest_bound"][0])

    @property
    def finish(self) -> np.ndarray:
        """Seconds after which every flow begun so far has ended, float64 [flows], nan before; empty unless recorded."""
        return self._air.finish[: int(self._state["begun"][0])]

    def count_in(self, pending: np.ndarray) -> None:
        """Count groups down in another array, which begins as the one before."""
        old, size = self._air, len(pending)
        room = {name: _longer(getattr(old, name), 2 * size if name == "ended" else size) for name in _GROUPS}
        self._air, self._handle = old._replace(pending=pending, **room), None

    def add(self, time: float, free: float, slack: float, batch: Batch) -> None:
        """Begin transfers at `time`, not before the last `run_to`; nothing else begins before `free`."""
        fabric = self.rows.fabric()
        if fabric is not self._fabric:
            self._fit(fabric)
        self._reserve(len(batch.head))
        head, tail, nbytes, latency, groups = batch
        self.next_time = begin(
            self._held(), time, free, slack, head, tail, np.asarray(nbytes, np.float64), latency, groups
        )

    def reset(self, *, recording: bool) -> None:
        """Count time and flows from nought again; nothing is in flight."""
        self._recording, self._spare_flows, self._spare_batches = recording, 0, 0
        for name in ("begun", "began", "merge"):
            self._state[name] = 0
        if len(self._air.finish):
            self._air, self._handle = self._air._replace(finish=np.empty(0)), None
        self._air.waiting[:] = 0.0  # but for rounding they are

    def run_to(self, time: float, slack: float, free: float) -> list[int]:
        """Let time pass, by `slack` seconds more if something happens then; answers the groups that ended, in order.

        If none has, time passes on through changes that concern nobody, up to `free`: before that nothing begins.
        """
        if self.next_time > time + slack:
            return []
        self.next_time, found = run_to(self._held(), time, slack, free)
        ended: list[int] = self._air.ended[:found].tolist() if found else []
        return ended

    def _held(self) -> Handle:
        """What the compiled steps take."""
        if self._handle is None:
            self._handle = handle(self._fabric, self._air)
        return self._handle

    def _fit(self, fabric: Fabric) -> None:
        """Work on a table of rows that has grown."""
        rows = len(fabric.rows)
        waiting = _longer(self._air.waiting, rows)
        self._air = self._air._replace(start=np.zeros(rows + 1, np.int64), waiting=waiting)
        self._state["indexed"], self._fabric, self._handle = False, fabric, None

    def _reserve(self, flows: int) -> None:
        """Room for so many more transfers; grows geometrically."""
        self._spare_flows, self._spare_batches = self._spare_flows - flows, self._spare_batches - 1
        if self._spare_flows >= 0 and self._spare_batches >= 0:
            return  # to look costs more than to begin a few
        air, state = self._air, self._state[0]
        needed = int(state["places"] + state["asleep"]) + flows
        if needed > len(air.head):
            room = needed + needed // 2 + ROOM
            grown = {name: _longer(getattr(air, name), room) for name in _FLOWS}
            grown |= {name: _longer(getattr(air, name).T, room).T.copy() for name in _TWICE}
            air = air._replace(member=np.empty(4 * room, np.int32), **grown)
            self._state["indexed"] = False
        if state["pool"] + flows > len(air.wait_time):
            close_gaps(air)
            if 2 * (state["pool"] + flows) > len(air.wait_time):
                room = 2 * (int(state["pool"]) + flows) + ROOM
                air = air._replace(**{name: _longer(getattr(air, name), room) for name in _WAITS})
        if state["batches"] == len(air.batch):
            air = air._replace(batch=_longer(air.batch, 2 * len(air.batch) + ROOM))
        if self._recording and state["begun"] + flows > len(air.finish):
            room = 2 * (int(state["begun"]) + flows)
            air = air._replace(finish=np.append(air.finish, np.full(room - len(air.finish), np.nan)))
        if air is not self._air:
            self._air, self._handle = air, None
        rooms = [len(air.head) - needed, len(air.wait_time) - int(state["pool"]) - flows]
        if self._recording:
            rooms.append(len(air.finish) - int(state["begun"]) - flows)
        self._spare_flows, self._spare_batches = min(rooms), len(air.batch) - int(state["batches"]) - 1


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """The array with its first axis lengthened to `size`; what is new is zero."""
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])
