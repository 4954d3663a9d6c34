"""Matches the effects of all ranks in one process and computes what each receives, without regard to time.

The loopback and the simulated driver share it. The collectives of a group of ranks are matched by their order on each
of them, as every communication library does; a mismatch is an error that names both sides.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from harness.effects import AllReduce, AllToAll, Broadcast, Effect, Group, Received, Recv, Send, in_words
from harness.errors import ProgramError

RECEIVERS = 256
"""Ranks whose counts are compared with what is sent to them at a time: those of thousands are a large table."""


class Meeting:
    """One collective (or one send with its receive) as its ranks arrive.

    Attributes:
        effects: rank -> effect of those that have arrived; empty once all have, so that what was sent is not held.
        results: rank -> result of its effect, once all ranks have arrived; None before.
        driver_state: data of the driver (arrival times, events).
        before: group -> number of its collectives that the first rank had issued when it arrived.
    """

    __slots__ = ("before", "driver_state", "effects", "expected", "results")

    def __init__(self, expected: tuple[int, ...]) -> None:
        self.expected = expected
        self.effects: dict[int, Effect] = {}
        self.results: dict[int, Any] | None = None
        self.driver_state: Any = None
        self.before: dict[Group | None, int] = {}

    @classmethod
    def alone(cls, rank: int, result: Any) -> Meeting:
        """The effect of a single rank, with its result."""
        meeting = cls((rank,))
        meeting.results = {rank: result}
        return meeting

    def arrive(self, rank: int, effect: Effect, results: Callable[[Meeting], dict[int, Any]]) -> None:
        """Add a rank; the last one computes the results."""
        self.effects[rank] = effect
        if len(self.effects) == len(self.expected):
            self.results = results(self)
            self.effects.clear()


class _Sequence:
    """The collectives of one group of ranks, which every member issues in the same order.

    Attributes:
        meetings: those that are not complete.
        issued: rank -> number of collectives that it has issued.
    """

    def __init__(self, members: tuple[int, ...], of: Group | None) -> None:
        self.members, self.of = members, of
        self.meetings: deque[Meeting] = deque()
        self.issued = dict.fromkeys(members, 0)
        self._first = 0  # sequence number of meetings[0]

    def next_of(self, rank: int) -> Meeting:
        """The meeting of the rank's next collective."""
        sequence = self.issued[rank]
        self.issued[rank] += 1
        while sequence >= self._first + len(self.meetings):
            self.meetings.append(Meeting(self.members))
        return self.meetings[sequence - self._first]

    def drop_complete(self) -> None:
        """Forget the meetings in front that are complete."""
        while self.meetings and self.meetings[0].results is not None:
            self.meetings.popleft()
            self._first += 1


class Rendezvous:
    """Matches the effects of the ranks of one run.

    Args:
        attendance_only: only record arrivals: effects are not compared, and every result is None. For recorded effects
            without values, which were compared when they were recorded.
    """

    def __init__(self, size: int, *, attendance_only: bool = False) -> None:
        self.size = size
        self._attendance_only = attendance_only
        everyone = _Sequence(tuple(range(size)), None)
        self._sequences: dict[Group | None, _Sequence] = {None: everyone}
        self._used: list[list[_Sequence]] = [[everyone] for _ in range(size)]  # by rank
        self._sends: dict[tuple[int, int], deque[Meeting]] = defaultdict(deque)
        self._recvs: dict[tuple[int, int], deque[Meeting]] = defaultdict(deque)

    def post(self, rank: int, effect: Effect) -> Meeting:
        """Rank `rank` arrives with `effect`. A complete meeting has its results in `results`.

        Raises:
            ProgramError: another rank arrived at the same point with another effect.
        """
        if isinstance(effect, Send | Recv):
            return self._post_pair(rank, effect)
        sequence = self._sequences.get(effect.among)
        if sequence is None:
            assert effect.among is not None
            sequence = self._sequences[effect.among] = _Sequence(effect.among, effect.among)
        if sequence not in self._used[rank]:
            self._used[rank].append(sequence)
        meeting = sequence.next_of(rank)
        if len(self._sequences) > 1:
            self._follow(meeting, rank, effect)
        self._arrive(meeting, rank, effect)
        sequence.drop_complete()
        return meeting

    def _follow(self, meeting: Meeting, rank: int, effect: Effect) -> None:
        """Raise ProgramError unless a rank arrives after as many collectives of every other group as the first one.

        Only groups count to which both belong. With that there is one order of all collectives (see `Collective`).
        """
        before = {sequence.of: sequence.issued[rank] for sequence in self._used[rank] if sequence.of != effect.among}
        if not meeting.effects:
            meeting.before = before
            return
        first = next(iter(meeting.effects))
        for group in dict.fromkeys((*meeting.before, *before)):
            mine, theirs = before.get(group, 0), meeting.before.get(group, 0)
            if mine != theirs and (group is None or (rank in group and first in group)):
                of = "all ranks" if group is None else in_words(group)
                raise ProgramError(
                    f"ranks disagree on the order of collectives: rank {first} is in {meeting.effects[first]} after "
                    f"{theirs} of {of}, but rank {rank} after {mine}"
                )

    def _post_pair(self, rank: int, effect: Send | Recv) -> Meeting:
        pair = (rank, effect.to) if isinstance(effect, Send) else (effect.source, rank)
        mine, theirs = (self._sends, self._recvs) if isinstance(effect, Send) else (self._recvs, self._sends)
        if theirs[pair]:
            meeting = theirs[pair].popleft()
        else:
            meeting = Meeting(pair)
            mine[pair].append(meeting)
        self._arrive(meeting, rank, effect)
        return meeting

    def _arrive(self, meeting: Meeting, rank: int, effect: Effect) -> None:
        """Add a rank's effect, which must agree with those of earlier ranks."""
        if meeting.effects and not self._attendance_only:
            other = next(iter(meeting.effects))
            _agree(other, meeting.effects[other], rank, effect)
        meeting.arrive(rank, effect, self._results)

    def _results(self, meeting: Meeting) -> dict[int, Any]:
        return dict.fromkeys(meeting.expected) if self._attendance_only else _results(meeting)

    def explain(self, finished: set[int]) -> str:
        """Description of a deadlock: the effect that each rank waits in, and the missing ranks."""
        lines = []
        pairs = [meeting for queue in (*self._sends.values(), *self._recvs.values()) for meeting in queue]
        waiting = [(meeting, sequence) for sequence in self._sequences.values() for meeting in sequence.meetings]
        for meeting, sequence in [*waiting, *((meeting, self._sequences[None]) for meeting in pairs)]:
            for rank, effect in sorted(meeting.effects.items()):
                lines.append(f"rank {rank} waits in {effect}")
            missing = [r for r in meeting.expected if r not in meeting.effects]
            for rank in missing:
                state = "has returned" if rank in finished else "has not arrived"
                of = f" of {in_words(sequence.of)}" if sequence.of is not None else ""
                lines.append(f"rank {rank} {state} (after {sequence.issued[rank]} collectives{of})")
        found = [effect for meeting, _ in waiting for effect in meeting.effects.values()]
        return "; ".join([*_other_groups(found), *dict.fromkeys(lines)]) or "no rank waits for communication"


def _other_groups(effects: list[Effect]) -> list[str]:
    """A line for two waiting collectives that have the same name, and groups that are not equal but overlap."""
    distinct = {(e.kind, e.tag, e.among): e for e in reversed(effects)}
    for a, b in itertools.combinations(reversed(distinct.values()), 2):
        overlap = a.among is None or b.among is None or not set(a.among).isdisjoint(b.among)
        if (a.kind, a.tag) == (b.kind, b.tag) and overlap:
            return [f"ranks disagree on the group: {a}, but {b}"]
    return []


def _agree(rank_a: int, a: Effect, rank_b: int, b: Effect) -> None:
    """Raise ProgramError unless two effects belong to the same exchange."""
    kinds_differ = a.kind != b.kind and {a.kind, b.kind} != {"Send", "Recv"}
    if kinds_differ or a.tag != b.tag:
        raise ProgramError(f"ranks disagree: rank {rank_a} is in {a}, but rank {rank_b} is in {b}")
    if a.shape_signature() != b.shape_signature():
        raise ProgramError(
            f"ranks disagree on shape or dtype: rank {rank_a} has {a.shape_signature()} in {a}, "
            f"but rank {rank_b} has {b.shape_signature()} in {b}"
        )


def _results(meeting: Meeting) -> dict[int, Any]:
    effects = [meeting.effects[rank] for rank in meeting.expected]
    first = effects[0]
    if isinstance(first, Send):
        return dict(zip(meeting.expected, (None, first.tensor.clone()), strict=True))
    if isinstance(first, AllToAll):
        return dict(enumerate(deal(cast("list[AllToAll]", effects))))
    if isinstance(first, AllReduce):
        total = add_in_rank_order([cast(AllReduce, e).tensor for e in effects])
        return {rank: total.clone() for rank in meeting.expected}
    if isinstance(first, Broadcast):
        source = cast(Broadcast, meeting.effects[first.root]).tensor
        return {rank: source.clone() for rank in meeting.expected}
    raise ProgramError(f"{first} is not a collective")


def add_in_rank_order(tensors: list[Tensor]) -> Tensor:
    """The sum of equal-shaped tensors, added in list order so that it is the same wherever it is computed."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total


def deal(effects: list[AllToAll]) -> list[Received]:
    """The result of an all-to-all on every rank.

    Raises:
        ProgramError: a receiver expects another number of rows than its peer sends.
    """
    per_part = [_deal_part(effects, part) for part in range(len(effects[0].parts))]
    return [
        Received(tuple(part[rank][0] for part in per_part), tuple(part[rank][1] for part in per_part))
        for rank in range(len(effects))
    ]


def _deal_part(effects: list[AllToAll], part: int) -> list[tuple[Tensor, np.ndarray]]:
    rows = [effect.parts[part] for effect in effects]
    counts: list[np.ndarray] = []
    for first in range(0, len(rows), RECEIVERS):
        # [to, from]: a receiver's counts lie side by side, which matters with thousands of ranks.
        some = np.ascontiguousarray(np.stack([row.send[first : first + RECEIVERS] for row in rows]).T)
        for rank, sent in enumerate(some, start=first):
            recv = rows[rank].recv
            if recv is not None and not np.array_equal(recv, sent):
                peer = int(np.flatnonzero(recv != sent)[0])
                raise ProgramError(
                    f"rank {rank} expects {int(recv[peer])} rows from rank {peer}, which sends "
                    f"{int(sent[peer])}, in {effects[rank]}"
                )
            counts.append(sent if recv is None else recv)
    like = rows[0].tensor
    if like.is_meta:
        tail = like.shape[1:]
        return [
            (torch.empty((int(counts[rank].sum()), *tail), dtype=like.dtype, device="meta"), counts[rank])
            for rank in range(len(rows))
        ]
    pieces = [torch.split(row.tensor, row.send.tolist()) for row in rows]
    return [
        (torch.cat([pieces[source][rank] for source in range(len(rows))]), counts[rank]) for rank in range(len(rows))
    ]
