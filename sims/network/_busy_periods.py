"""Busy periods of a network: when flows began and when each group ended. Step 7 of `docs/network.md`.

A busy period lasts from the first flow in an idle network until the network is idle again. Full-graph training moves
the same bytes at the same offsets in every epoch, so periods recur: the end times of an equal earlier period are reused
for as long as the flows that begin are the same; see `_network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from sims.network._in_flight import Batch

SAME_OFFSET = 1e-9
"""Relative difference of offsets that count as equal."""

MOST_EVENTS = 2_000_000
"""Batches and ends that are kept, over all periods; the oldest period is dropped first."""

MOST_FLOWS = 1 << 25
"""Flows of a period above which it is not kept: some networks are never idle."""


Digest = tuple[np.int64, np.int64]


@dataclass
class Journal:
    """The events since the network was last idle; times are relative to that instant.

    Attributes:
        begun: time and digest of every batch.
        batches: the batches themselves, while an earlier period is followed.
        ended: time and label of every group that ended; groups are labelled as they appear.
        number_of: label -> number of the group.
        flows: flows begun; above MOST_FLOWS nothing more is recorded.
    """

    begun: list[tuple[float, Digest]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    ended: list[tuple[float, int]] = field(default_factory=list)
    number_of: list[int] = field(default_factory=list)
    flows: int = 0
    _label: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))

    def begin(self, time: float, batch: Batch, pending: np.ndarray) -> None:
        """Record a batch; `pending` [groups] are the flows that each group waits for."""
        if len(self._label) < len(pending):
            more = np.full(len(pending) - len(self._label), -1, np.int32)
            self._label = np.concatenate([self._label, more])
        self.flows += len(batch.head)
        digest, new = digest_batch(*batch, self._label, len(self.number_of), pending)
        self.number_of += new.tolist()
        self.begun.append((time, digest))
        self.batches.append(batch)

    @property
    def full(self) -> bool:
        """Whether the period has too many flows to be kept."""
        return self.flows > MOST_FLOWS

    def end(self, time: float, number: int) -> None:
        """Record the end of a group."""
        self.ended.append((time, int(self._label[number])))


@njit(cache=True, nogil=True)
def digest_batch(
    head: np.ndarray,
    tail: np.ndarray,
    nbytes: np.ndarray,
    latency: np.ndarray,
    groups: np.ndarray,
    label: np.ndarray,
    known: int,
    pending: np.ndarray,
) -> tuple[Digest, np.ndarray]:
    """128 bits of a batch, with labels for its groups [n, 2], and the numbers of the groups that are new.

    Labels of new groups are written to `label`, by number; `pending` [groups] are the flows that each group waits for.
    """
    new, more = np.empty(groups.size, np.int64), 0
    one, two = np.uint64(head.shape[0]), np.uint64(0x9E3779B97F4A7C15)
    for flow in range(head.shape[0]):
        one, two = _mix(one, two, np.int64(np.int64(head[flow]) << 32 | np.int64(tail[flow])))
        one, two = _mix(one, two, _bits(nbytes[flow]))
        one, two = _mix(one, two, _bits(latency[flow]))
        for end in range(groups.shape[1]):
            number = groups[flow, end]
            found = np.int64(-1)
            if number >= 0:
                if label[number] < 0:
                    label[number] = known + more
                    new[more] = number
                    more += 1
                    one, two = _mix(one, two, np.int64(pending[number]))
                found = np.int64(label[number])
            one, two = _mix(one, two, found)
    return (np.int64(one), np.int64(two)), new[:more].copy()


@njit(cache=True, nogil=True)
def _bits(number: float) -> np.int64:
    """The bits of a double."""
    return np.float64(number).view(np.int64)


@njit(cache=True, nogil=True)
def _mix(one: np.uint64, two: np.uint64, more: np.int64) -> tuple[np.uint64, np.uint64]:
    """Two hashes with one more word, multiplied and folded as MurmurHash3 does with each half."""
    one = (one ^ np.uint64(more)) * np.uint64(0x87C37B91114253D5)
    one ^= one >> np.uint64(31)
    two = (two + np.uint64(more)) * np.uint64(0x4CF5AD432745937F)
    two = (two ^ (two >> np.uint64(29))) + one
    return one, two


@dataclass(frozen=True)
class Period:
    """A completed busy period, as in `Journal`; the last end, with the label -1, is that of the period itself."""

    begun: Sequence[tuple[float, Digest]]
    ended: Sequence[tuple[float, int]]

    @property
    def events(self) -> int:
        """Batches and ends."""
        return len(self.begun) + len(self.ended)

    def fits(self, journal: Journal, now: float, slack: float, known: int = 0) -> bool:
        """Whether the batches of `journal` until `now` are exactly those of this period.

        The first `known` batches are taken to be equal.
        """
        here = len(journal.begun)
        if here > len(self.begun) or (here < len(self.begun) and self.begun[here][0] < now - _within(now, slack)):
            return False
        for at in range(known, here):
            (time, digest), (then, same) = journal.begun[at], self.begun[at]
            if digest != same or abs(time - then) > _within(then, slack):
                return False
        return True

    def next_time(self, begun: int, ended: int, slack: float) -> float:
        """The next time to check after so many batches and ends: an end, or just after the begin of the next batch.

        inf after the last one.
        """
        end = self.ended[ended][0] if ended < len(self.ended) else np.inf
        if begun == len(self.begun):
            return end
        return min(end, self.begun[begun][0] + 2 * _within(self.begun[begun][0], slack))


def _within(time: float, slack: float) -> float:
    return time * SAME_OFFSET + slack


class BusyPeriod:
    """The current busy period.

    Args:
        origin: when it began; times of the journal and of `followed` are relative to it.

    Attributes:
        journal: its events so far.
        followed: the earlier period that it has equalled so far; None while its flows are computed.
        passed: number of ends of `followed` in the past.
        late: groups that had ended when the period was recomputed; some of their ends were known.
    """

    def __init__(self, origin: float) -> None:
        self.origin, self.journal = origin, Journal()
        self.followed: Period | None = None
        self.passed = 0
        self.late: list[int] = []

    def follow(self, period: Period | None) -> None:
        """Follow an earlier period from its beginning, or none."""
        self.followed, self.passed = period, 0

    def as_followed(self, now: float, slack: float) -> bool:
        """Whether the batches so far are those of the followed period, if any; only the last one is compared."""
        return self.followed is None or self.followed.fits(self.journal, now, slack, len(self.journal.begun) - 1)

    def pass_to(self, now: float, slack: float) -> list[int]:
        """Groups that have ended since the last call, according to the followed period."""
        assert self.followed is not None
        ended, found = self.followed.ended, []
        while self.passed < len(ended) and ended[self.passed][0] <= now + slack:
            label = ended[self.passed][1]
            found += [self.journal.number_of[label]] if label >= 0 else []
            self.passed += 1
        return found


class PeriodMemory:
    """Completed periods by their first batch."""

    def __init__(self) -> None:
        self._periods: dict[Digest, list[Period]] = {}
        self._order: list[Digest] = []
        self._events = 0

    def find(self, journal: Journal, now: float, slack: float) -> Period | None:
        """The latest period that fits."""
        known = self._periods.get(journal.begun[0][1], [])
        return next((period for period in reversed(known) if period.fits(journal, now, slack)), None)

    def keep(self, journal: Journal, now: float) -> None:
        """Keep a completed period."""
        key = journal.begun[0][1]
        period = Period(tuple(journal.begun), (*journal.ended, (now, -1)))
        self._periods.setdefault(key, []).append(period)
        self._order.append(key)
        self._events += period.events
        while self._events > MOST_EVENTS:
            oldest = self._order.pop(0)
            self._events -= self._periods[oldest].pop(0).events
            if not self._periods[oldest]:
                del self._periods[oldest]
