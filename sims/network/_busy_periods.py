"""Busy periods of a network: what was begun when, and when each group ended. Step 7 of `docs/network.md`.

A busy period goes from the moment the network wakes until it is idle again. Full-graph training moves the same bytes at
the same offsets in every epoch, so that periods come back: one that begins as one before is followed in memory, for as
long as the flows that begin are the remembered ones; see `_network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from sims.network._in_flight import Batch

SAME_OFFSET = 1e-9
"""Offsets this close, relative to their size, are the same."""

MOST_EVENTS = 2_000_000
"""Batches and ends that are kept, of all periods; the oldest period goes first."""

MOST_FLOWS = 1 << 25
"""Flows of a period above which it is not remembered: some networks are never idle."""


Digest = tuple[np.int64, np.int64]


@dataclass
class Journal:
    """What happened since the network was last idle; times count from then.

    Attributes:
        begun: time and digest of every batch.
        batches: the batches themselves.
        ended: time and label of every group that ended; groups are labelled as they appear.
        number_of: label -> number of the group.
        flows: flows begun; above MOST_FLOWS nothing is noted any more.
    """

    begun: list[tuple[float, Digest]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    ended: list[tuple[float, int]] = field(default_factory=list)
    number_of: list[int] = field(default_factory=list)
    flows: int = 0
    _label: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))

    def begin(self, time: float, batch: Batch, pending: np.ndarray) -> None:
        """Note a batch; `pending` [groups] are the flows that each group waits for."""
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
        """Too long to be remembered."""
        return self.flows > MOST_FLOWS

    def end(self, time: float, number: int) -> None:
        """Note the end of a group."""
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

    `label` by number is filled on the way; `pending` [groups] is what each new group waits for.
    """
    new, more = np.empty(label.shape[0], np.int64), 0
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
    """A remembered busy period, as in `Journal`; the last end has the label -1 and is that of the period itself."""

    begun: Sequence[tuple[float, Digest]]
    ended: Sequence[tuple[float, int]]

    @property
    def events(self) -> int:
        """Batches and ends."""
        return len(self.begun) + len(self.ended)

    def fits(self, journal: Journal, now: float, slack: float, known: int = 0) -> bool:
        """Whether all that has begun until `now` is what began here, and nothing that began here is missing.

        The first `known` batches are known to be.
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
        """When to look next after so many batches and ends: at an end, or just after a batch should have begun.

        inf when all is over.
        """
        end = self.ended[ended][0] if ended < len(self.ended) else np.inf
        if begun == len(self.begun):
            return end
        return min(end, self.begun[begun][0] + 2 * _within(self.begun[begun][0], slack))


def _within(time: float, slack: float) -> float:
    return time * SAME_OFFSET + slack


class BusyPeriod:
    """The one that is going on.

    Args:
        origin: when it began; times of the journal and of `followed` count from then.

    Attributes:
        journal: what has happened in it.
        followed: the remembered period that it has been so far, None where its flows are computed.
        passed: how many ends of `followed` are past.
        late: groups found to have ended when the period was computed anew, some of whose ends were known.
    """

    def __init__(self, origin: float) -> None:
        self.origin, self.journal = origin, Journal()
        self.followed: Period | None = None
        self.passed = 0
        self.late: list[int] = []

    def follow(self, period: Period | None) -> None:
        """Follow a period from its beginning, or none."""
        self.followed, self.passed = period, 0

    def as_followed(self, now: float, slack: float) -> bool:
        """Whether what has begun until now is what is followed, if anything is; batches before the last are known."""
        return self.followed is None or self.followed.fits(self.journal, now, slack, len(self.journal.begun) - 1)

    def pass_to(self, now: float, slack: float) -> list[int]:
        """Groups that have ended since the last call, by the period that is followed."""
        assert self.followed is not None
        ended, found = self.followed.ended, []
        while self.passed < len(ended) and ended[self.passed][0] <= now + slack:
            label = ended[self.passed][1]
            found += [self.journal.number_of[label]] if label >= 0 else []
            self.passed += 1
        return found


class PeriodMemory:
    """Remembered periods by their first batch."""

    def __init__(self) -> None:
        self._periods: dict[Digest, list[Period]] = {}
        self._order: list[Digest] = []
        self._events = 0

    def find(self, journal: Journal, now: float, slack: float) -> Period | None:
        """A period that fits, the latest first."""
        known = self._periods.get(journal.begun[0][1], [])
        return next((period for period in reversed(known) if period.fits(journal, now, slack)), None)

    def keep(self, journal: Journal, now: float) -> None:
        """Remember a period that is over."""
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
