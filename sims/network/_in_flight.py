"""Flows in flight during one busy period of the network; times are relative to its beginning.

A flow first waits for its latency, without using bandwidth, then drains at its fair share. Few flows are computed
exactly, and ahead of time: the simulation does not wake for a completion that nothing waits for. With more than
`exact_flows` in flight, those that end within a coalescing window are combined (see `_completions.plan`), each with its
own completion time, and flows that begin within half a window begin together.

The event loop itself is compiled (`_event_loop`); this class enlarges its arrays (`_flow_state`). Step 6 of
`docs/network.md`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sims.network._event_loop import begin, close_gaps, run_to
from sims.network._flow_state import (
    FlowHandle,
    FlowState,
    empty,
    handle,
    with_batches,
    with_draining,
    with_finish,
    with_groups,
    with_latent,
    with_segments,
)
from sims.network._routes import Fabric, RouteTable


class Batch(NamedTuple):
    """Flows that begin together.

    Attributes:
        head, tail: int32 [flows], segments of the routes.
        nbytes, latency: [flows], B and s.
        groups: [flows, 2], numbers of the groups that count a flow, or -1.
    """

    head: np.ndarray
    tail: np.ndarray
    nbytes: np.ndarray
    latency: np.ndarray
    groups: np.ndarray


class InFlight:
    """Flows over a table of routes; groups of them are counted down in `pending`, int64 [groups].

    Args:
        window: share of the lower bound within which completions are combined; 0 for exact times.

    Attributes:
        next_time: time of the next event; inf if nothing is in flight.
    """

    def __init__(self, table: RouteTable, pending: np.ndarray, window: float, exact_flows: int) -> None:
        self._table, self.next_time = table, np.inf
        self._fabric: Fabric | None = None  # the one that the state has capacity for
        self._state = with_groups(empty(), pending)
        self._handle: FlowHandle | None = None  # of both, until one is replaced
        self._state.scalars["share"], self._state.scalars["exact_flows"] = window, exact_flows
        self.reset(recording=False)

    @property
    def solves(self) -> int:
        """Number of times that rates were computed."""
        return int(self._state.scalars["solves"][0])

    @property
    def widest(self) -> tuple[float, float]:
        """The longest window in seconds, and the lower bound that it is a share of."""
        return float(self._state.scalars["widest"][0]), float(self._state.scalars["widest_bound"][0])

    @property
    def finish(self) -> np.ndarray:
        """Seconds after which every flow begun so far has ended, float64 [flows], nan before; empty unless recorded."""
        return self._state.finish[: int(self._state.scalars["begun"][0])]

    def groups(self) -> np.ndarray:
        """The groups of the flows that have begun and not ended, int32 [flows, 2]."""
        scalars, draining, latent = self._state.scalars[0], self._state.draining, self._state.latent
        places = int(scalars["places"])
        drains = draining.remaining[scalars["front"], :places] >= 0.0
        waits = [latent.group[begin:end] for begin, end in latent.batch[: int(scalars["batches"])].tolist()]
        return np.concatenate([draining.group[:places][drains], *waits])

    def count_in(self, pending: np.ndarray) -> None:
        """Count groups down in another array, a longer copy of the one before."""
        self._replace(with_groups(self._state, pending))

    def add(self, time: float, free: float, slack: float, batch: Batch) -> None:
        """Begin flows at `time`, not before the last `run_to`; nothing else begins before `free`."""
        fabric = self._table.fabric()
        if fabric is not self._fabric:
            self._fabric = fabric
            self._replace(with_segments(self._state, len(fabric.segments)))
        self._reserve(len(batch.head))
        head, tail, nbytes, latency, groups = batch
        self.next_time = begin(
            self._held(fabric), time, free, slack, head, tail, np.asarray(nbytes, np.float64), latency, groups
        )

    def reset(self, *, recording: bool) -> None:
        """Reset time and flows to zero; nothing is in flight. With `recording`, `finish` keeps every flow's end."""
        self._recording, self._spare_flows, self._spare_batches = recording, 0, 0
        for name in ("begun", "began", "merge", "bound", "renew", "last"):
            self._state.scalars[name] = 0
        if len(self._state.finish):
            self._replace(self._state._replace(finish=np.empty(0)))
        self._state.latent.by_segment[:] = 0.0  # removes rounding errors

    def run_to(self, time: float, slack: float, free: float) -> list[int]:
        """Advance to `time`, up to `slack` seconds further for an event then; returns the groups that ended, in order.

        If none has, latencies that end before any other event are ended too, up to `free`, before which nothing begins.
        """
        if self.next_time > time + slack or self._fabric is None:
            return []
        self.next_time, found = run_to(self._held(self._fabric), time, slack, free)
        ended: list[int] = self._state.groups.ended[:found].tolist() if found else []
        return ended

    def _replace(self, state: FlowState) -> None:
        self._state, self._handle = state, None

    def _held(self, fabric: Fabric) -> FlowHandle:
        """The argument of the compiled event loop."""
        if self._handle is None:
            self._handle = handle(fabric, self._state)
        return self._handle

    def _reserve(self, flows: int) -> None:
        """Ensure capacity for `flows` more flows; grows geometrically."""
        self._spare_flows, self._spare_batches = self._spare_flows - flows, self._spare_batches - 1
        if self._spare_flows >= 0 and self._spare_batches >= 0:
            return  # the checks below cost more than beginning a few flows
        scalars = self._state.scalars[0]
        draining, begun = int(scalars["places"] + scalars["asleep"]) + flows, int(scalars["begun"]) + flows
        state = with_draining(self._state, draining)
        if scalars["pool"] + flows > len(state.latent.time):
            close_gaps(state)
            if 2 * (scalars["pool"] + flows) > len(state.latent.time):
                state = with_latent(state, int(scalars["pool"]) + flows)
        state = with_batches(state, int(scalars["batches"]) + 1)
        rooms = [len(state.draining.head) - draining, len(state.latent.time) - int(scalars["pool"]) - flows]
        if self._recording:
            state = with_finish(state, begun)
            rooms.append(len(state.finish) - begun)
        if state is not self._state:
            self._replace(state)
        self._spare_flows, self._spare_batches = min(rooms), len(state.latent.batch) - int(scalars["batches"]) - 1
