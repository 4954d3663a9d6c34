"""Groups of flows: each counts its flows down and has an event for the end of the last (step 6 of
`docs/network.md`)."""

from __future__ import annotations

import numpy as np
import simpy

from sims.network._completions import GroupCounts, count_down
from sims.network._in_flight import Batch

ROOM = 128
"""Initial capacity for groups; it doubles when exceeded."""


class Groups:
    """The groups of a network.

    Attributes:
        pending: int64 [groups], flows that each group still waits for; replaced by a longer array when it is full.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self.pending = np.zeros(ROOM, np.int64)
        self._at_start = self.pending  # counts at the start of the busy period, or when a later group was made
        self._events: dict[int, simpy.Event] = {}
        self._free, self._ended = list(range(ROOM - 1, -1, -1)), list[int]()

    def make(self, flows: int) -> tuple[int, simpy.Event]:
        """Make a group of `flows` flows; returns its number and the event of its end."""
        if not self._free:
            size = len(self.pending)
            self.pending = np.concatenate([self.pending, np.zeros(size, np.int64)])
            self._at_start = np.concatenate([self._at_start, np.zeros(size, np.int64)])
            self._free = list(range(2 * size - 1, size - 1, -1))
        number, event = self._free.pop(), self._env.event()
        self.pending[number] = self._at_start[number] = flows
        self._events[number] = event
        return number, event

    def end(self, number: int) -> simpy.Event | None:
        """The event of a group that has ended; None if it was returned before."""
        event = self._events.pop(number, None)
        if event is not None:
            self._ended.append(number)
        return event

    def end_flows(self, groups: np.ndarray) -> None:
        """End flows, given by their groups [flows, 2], and trigger the events of the groups that end with them."""
        self._trigger(count_down(GroupCounts(groups, self.pending), np.arange(len(groups))).tolist())

    def end_counted(self) -> None:
        """Trigger the events of all groups that wait for no flow any more."""
        self._trigger([number for number in self._events if self.pending[number] == 0])

    def _trigger(self, numbers: list[int]) -> None:
        for number in numbers:
            event = self.end(number)
            if event is not None:
                event.succeed()

    def count_ended(self, batch: Batch) -> None:
        """Count the flows of a batch as ended: the groups of a followed busy period end without computing flows."""
        count_down(GroupCounts(batch.groups, self.pending), np.arange(len(batch.head)))

    def rewind(self) -> None:
        """Reset the counts to the beginning of the busy period, as if none of its flows had ended."""
        self.pending[:] = self._at_start

    def start_period(self) -> None:
        """Begin a busy period: numbers of ended groups are reused."""
        self._free += self._ended
        self._ended, self._at_start = [], self.pending.copy()
