"""Transfers in flight, from the moment the network wakes until it is idle again; time is counted from that moment.

A transfer first waits its latency, using nothing, then drains at its fair rate. Few transfers are followed exactly, and
ahead of time: nobody is woken for a completion that nobody waits for.
With more than `exact_flows` in flight, those that end within a window are taken together (see `sims.fluid.plan`), each
with its own time of completion, and transfers that begin within a quarter of a window begin together.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np

from sims.flows import EARLY, MERGE
from sims.fluid import Floats, Ints, count_rows, flows_by_row, lower_bound
from sims.quiet import quiet_changes
from sims.rows import Rows
from sims.steps import enter, group_ends, onward, settle

_NONE, _NEVER = np.empty(0, np.int64), np.empty(0)


@dataclass
class _Batch:
    """Flows that were begun together, by the time at which their latency ends; the first `gone` drain already."""

    time: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    nbytes: np.ndarray
    groups: np.ndarray
    ids: np.ndarray
    gone: int = 0


@dataclass(frozen=True, eq=False)
class _Ahead:
    """When changes that nobody waits for are over; `ended` are the places of the transfers, in order."""

    time: float
    slack: float
    ended: Ints
    when: Floats
    solves: int


class InFlight:
    """Transfers over `rows`; groups of them are counted down in `pending`, int64 [groups].

    Args:
        window: share of the lower bound within which completions are taken together, 0 for never.

    Attributes:
        finish: float64 [flows], seconds after which every flow added so far has ended, nan before; empty when not
            recording.
        solves: how often rates were computed.
        widest: the longest window, and the lower bound that it is a share of.
    """

    def __init__(self, rows: Rows, pending: np.ndarray, window: float, exact_flows: int) -> None:
        self.rows, self.pending, self.share, self.exact_flows = rows, pending, window, exact_flows
        self.finish, self._recording = np.empty(0), False
        self.solves = self._begun = 0
        self.widest = (0.0, 0.0)
        self._batches: list[tuple[float, int, _Batch]] = []  # a heap by the next time of each
        self._waiting = np.zeros(0)  # bytes by row of flows in the batches
        self._numbers = count()
        self._ends: list[tuple[float, int]] = []  # groups that end within the step, the first one last
        # The first `_places` of the arrays below are taken, `_alive` of them by flows that drain; `_asleep` wait.
        self._places = self._alive = self._asleep = 0
        self._head, self._tail, self._ids = (np.empty(0, np.int32) for _ in range(3))
        self._remaining, self._rate, self._group = np.empty(0), np.empty(0), np.empty((0, 2), np.int32)
        self._later, self._later_rate = np.empty(0), np.empty(0)  # as of the end of `_ahead`
        self._members: tuple[np.ndarray, np.ndarray] | None = None
        self._stale, self._bound = False, 0.0
        self._ahead: _Ahead | None = None
        self._began, self._until, self._merge = 0.0, np.inf, 0.0

    def add(self, time: float, head: Ints, tail: Ints, nbytes: np.ndarray, latency: Floats, groups: Ints) -> None:
        """Begin transfers at `time`, not before the last `run_to`; see `sims.network.FluidNetwork.add_lanes`."""
        ids = np.arange(self._begun, self._begun + len(head), dtype=np.int32)
        self._begun += len(head)
        if self._recording:
            self.finish = np.concatenate([self.finish, np.full(len(head), np.nan)])
        batch = _Batch(time + latency, head, tail, nbytes, groups, ids)
        if len(head) > 1 and (latency[1:] < latency[:-1]).any():
            order = np.argsort(latency, kind="stable")
            batch = _Batch(batch.time[order], head[order], tail[order], nbytes[order], groups[order], ids[order])
        heapq.heappush(self._batches, (float(batch.time[0]), next(self._numbers), batch))
        self._asleep += len(head)
        self._wait(head, tail, nbytes, 1.0)
        if self._ahead is not None and self._batches[0][0] <= self._ahead.time + self._ahead.slack:
            self._look_ahead(self._ahead.slack)

    def reset(self, *, recording: bool) -> None:
        """Count time and flows from nought again; nothing is in flight."""
        self.finish, self._recording, self._begun = np.empty(0), recording, 0
        self._waiting = np.zeros(0)
        self._began, self._merge = 0.0, 0.0

    def next_time(self) -> float:
        """When something changes next; inf when nothing is in flight."""
        change = self._ends[-1][0] if self._ends else self._until
        return min(change, max(self._batches[0][0], self._merge)) if self._batches else change

    def run_to(self, time: float, slack: float) -> list[int]:
        """Let time pass, by `slack` seconds more if something happens then; answers the groups that ended, in order."""
        ended: list[int] = []
        while self.next_time() <= time + slack:
            now = min(self.next_time(), time)
            while self._ends and self._ends[-1][0] <= now + slack:
                ended.append(self._ends.pop()[1])
            due = self._batches and max(self._batches[0][0], self._merge) <= now + slack
            if due or self._until <= now + slack:
                ended += self._change(now, slack)
        return ended

    def _change(self, now: float, slack: float) -> list[int]:
        """End and begin transfers, and plan the next step; answers the groups that ended."""
        places = self._places
        quiet, when = self._catch_up()
        groups, self._places, self._alive = settle(
            places, self._alive, self._head, self._tail, self._ids, self._remaining, self._rate, self._group,
            self.pending, self.finish, quiet, when, self._began, now, slack,
        )  # fmt: skip
        if self._places < places:
            self._members = None
        begun = False
        while self._batches and self._batches[0][0] <= now + slack:
            self._activate(heapq.heappop(self._batches)[2], now + slack)
            begun = True
        self._began, self._ends = now, []
        self._plan(now, begun, slack)
        ended: list[int] = groups.tolist()
        return ended

    def _look_ahead(self, slack: float) -> None:
        """Follow what drains up to the next change that somebody waits for, or that something else begins at."""
        assert self._members is not None
        self._note(slack, quiet_changes(
            self.rows.fabric(), *self._members, self._places, self._head, self._tail, self._remaining, self._rate,
            self._group, self.pending, self._later, self._later_rate, self._began, self._limit(), slack,
        ))  # fmt: skip

    def _note(self, slack: float, found: tuple[float, float, int, Ints, Floats]) -> None:
        """Keep what looking ahead has found."""
        time, self._until, solves, ended, when = found
        self._ahead = _Ahead(time, slack, ended, when, solves) if solves else None

    def _limit(self) -> float:
        return self._batches[0][0] if self._batches else np.inf

    def _catch_up(self) -> tuple[Ints, Floats]:
        """Make what was followed ahead the present; answers what ended, and when."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return _NONE, _NEVER
        self._remaining, self._later = self._later, self._remaining
        self._rate, self._later_rate = self._later_rate, self._rate
        self._began = ahead.time
        self.solves += ahead.solves
        return ahead.ended, ahead.when

    def _plan(self, now: float, begun: bool, slack: float) -> None:
        fabric, places = self.rows.fabric(), slice(0, self._places)
        if begun:
            crowded = self._alive + self._asleep > self.exact_flows
            self._bound = (
                lower_bound(fabric, self._head[places], self._tail[places], self._remaining[places], self._waiting)
                if crowded
                else 0.0
            )
        if self._members is None:
            self._members = flows_by_row(len(fabric.rows), self._head[places], self._tail[places])
        window = self.share * min(self._bound, EARLY * now)
        step, self._stale, solves, ahead = onward(
            fabric, *self._members, self._places, self._head, self._tail, self._remaining, self._rate, self._group,
            self.pending, self._later, self._later_rate, now, self._limit(), slack, window, self._stale and not begun,
            self._bound == 0.0,
        )  # fmt: skip
        self.solves += solves
        self._note(slack, ahead)
        self._merge = now + MERGE * window
        if self._stale:
            left, rate = self._remaining[places], self._rate[places]
            self.widest = max(self.widest, (window, self._bound))
            ends, after = group_ends(left, rate, self._group[places], step, self.pending)
            order = np.argsort(-after, kind="stable")
            self._ends = list(zip((now + after[order]).tolist(), ends[order].tolist(), strict=True))

    def _wait(self, head: Ints, tail: Ints, nbytes: np.ndarray, sign: float) -> None:
        """Count bytes that wait for their latency, or with a minus as `sign` no longer do."""
        rows = len(self.rows.fabric().rows)
        if len(self._waiting) < rows:
            self._waiting = np.concatenate([self._waiting, np.zeros(rows - len(self._waiting))])
        count_rows(head, tail, nbytes, sign, self._waiting)

    def _activate(self, batch: _Batch, time: float) -> None:
        """Put the flows of a batch whose latency ends by `time` behind those that drain."""
        begin, end = batch.gone, int(batch.time.searchsorted(time, "right"))
        batch.gone, more = end, end - begin
        self._reserve(self._places + more)
        enter(
            batch.head, batch.tail, batch.ids, batch.nbytes, batch.groups, begin, end, self._places, self._head,
            self._tail, self._ids, self._remaining, self._rate, self._group, self._waiting,
        )  # fmt: skip
        self._places, self._alive, self._asleep = self._places + more, self._alive + more, self._asleep - more
        self._members = None
        if end < len(batch.time):
            heapq.heappush(self._batches, (float(batch.time[end]), next(self._numbers), batch))

    def _reserve(self, flows: int) -> None:
        """Room for so many flows; grows geometrically."""
        have = len(self._head)
        if flows <= have:
            return
        more = max(have // 2, flows - have, 256)
        self._head, self._tail, self._ids = (
            np.concatenate([a, np.empty(more, np.int32)]) for a in (self._head, self._tail, self._ids)
        )
        self._remaining, self._rate, self._later, self._later_rate = (
            np.concatenate([a, np.empty(more)]) for a in (self._remaining, self._rate, self._later, self._later_rate)
        )
        self._group = np.concatenate([self._group, np.empty((more, 2), np.int32)])
