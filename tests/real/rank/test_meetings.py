"""Messages in batches: what is dealt out, and that no order of sends and receives waits for itself.

The ranks are threads of this process with process groups of gloo, where a batch ends before the next one of its pair
begins, as on NCCL's stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore, PrefixStore, ProcessGroupGloo  # type: ignore[attr-defined]

from real.rank._assembly import Assembly
from real.rank._channel import Channel
from real.rank._meetings import Count, Dealer, Meetings
from real.rank._transport import Endpoint, Pending, Silence
from real.rank.connection import Connection
from real.rank.health import LastWords
from real.rank.place import Activity

PATIENCE_S = 20.0


class _Ranks:
    """Ends of some ranks in this process."""

    def __init__(self, size: int) -> None:
        self.size, self.store = size, HashStore()
        self.hosts = list(self.each(self._host))
        self._last: list[Meetings] = []

    def _host(self, rank: int) -> Channel:
        limit = timedelta(seconds=PATIENCE_S)
        return Channel(ProcessGroupGloo(PrefixStore("host", self.store), rank, self.size, limit))

    def each(self, do: Callable[[int], Any], limit_s: float = 3 * PATIENCE_S) -> list[Any]:
        """Call a function for every rank, each in a thread; raises its error, or Silence where one does not end."""
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def call(rank: int) -> None:
            try:
                results[rank] = do(rank)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=call, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit_s)
            if thread.is_alive():
                raise Silence(f"a rank did not end within {limit_s:g} s")
        if errors:
            raise errors[0]
        return results

    @contextmanager
    def meetings(self, number: int, patience_s: float = PATIENCE_S) -> Iterator[list[Meetings]]:
        """Those of one program. At its end all ranks have returned."""
        made = [self._meetings(rank, number, patience_s) for rank in range(self.size)]
        yield made
        self.each(lambda rank: made[rank].leave())

    def _meetings(self, rank: int, number: int, patience_s: float) -> Meetings:
        words, cpu = LastWords(None, rank, self.size), torch.device("cpu")
        limits = (patience_s, patience_s, patience_s)
        connection = Connection(
            rank, self.size, cpu, "gloo", *limits, words, Activity(None),
            Assembly(self.store, words, rank, self.size, True), None, None, 0, True,
            programs=iter([number]),
        )  # fmt: skip
        clock: Any = SimpleNamespace(epochs=1)
        return Meetings(Endpoint(connection, clock, self.hosts[rank], host=self.hosts[rank]))


@pytest.fixture(scope="module")
def ranks() -> _Ranks:
    return _Ranks(3)


NUMBERS = iter(range(1, 10**6))

Step = tuple[str, int]  # "send", "recv" or "wait for send" or "wait for recv" of a message


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], list[list[Step]]]:
    """Messages (from, to, bytes), and what each rank does: some order in which no rank waits for ever.

    That is any order of the beginnings in which those of one direction of a pair are as on the other end, with waits
    anywhere behind both beginnings of a message.
    """
    ways = st.sampled_from([(a, b) for a in range(3) for b in range(3) if a != b])
    messages = [(*draw(ways), draw(st.sampled_from((1, 5, 4096, 300_000)))) for _ in range(draw(st.integers(1, 8)))]
    left = {(way, end): [k for k, m in enumerate(messages) if m[:2] == way] for way in
            {m[:2] for m in messages} for end in ("send", "recv")}  # fmt: skip
    begun: dict[int, set[str]] = {k: set() for k in range(len(messages))}
    waits: list[Step] = []
    steps: list[list[Step]] = [[] for _ in range(3)]

    def rank_of(step: Step) -> int:
        source, target, _ = messages[step[1]]
        return source if step[0].endswith("send") else target

    while any(left.values()) or waits:
        ready: list[Step] = [(end, queue[0]) for (_, end), queue in left.items() if queue] + waits
        step = draw(st.sampled_from(ready))
        steps[rank_of(step)].append(step)
        if step in waits:
            waits.remove(step)
            continue
        end, k = step
        left[messages[k][:2], end].pop(0)
        begun[k].add(end)
        if len(begun[k]) == 2:
            waits += [("wait for send", k), ("wait for recv", k)]
    return messages, steps


def _payload(k: int, size: int) -> torch.Tensor:
    return ((torch.arange(size) * 31 + k) % 251).to(torch.uint8)


@settings(max_examples=40, deadline=PATIENCE_S * 1000)
@given(programs())
def test_no_order_of_sends_and_receives_waits_for_itself(
    ranks: _Ranks, program: tuple[list[tuple[int, int, int]], list[list[Step]]]
) -> None:
    messages, steps = program

    def follow(rank: int, meetings: Meetings) -> dict[int, torch.Tensor]:
        pending: dict[Step, Pending] = {}
        found = {}
        for what, k in steps[rank]:
            source, target, size = messages[k]
            if what == "send":
                pending[what, k] = meetings.send(_payload(k, size), target)
            elif what == "recv":
                pending[what, k] = meetings.recv(size, source)
            elif what == "wait for send":
                assert pending["send", k].result() is None
            else:
                found[k] = pending["recv", k].result()
        return found

    with ranks.meetings(next(NUMBERS)) as made:
        received = ranks.each(lambda rank: follow(rank, made[rank]))
    for k, (_, target, size) in enumerate(messages):
        assert torch.equal(received[target][k], _payload(k, size))


def test_a_program_leaves_no_threads(ranks: _Ranks) -> None:
    before = threading.active_count()
    with ranks.meetings(next(NUMBERS)) as made:
        ranks.each(lambda rank: made[rank].send(torch.ones(3, dtype=torch.uint8), (rank + 1) % 3))
        ranks.each(lambda rank: made[rank].recv(3, (rank - 1) % 3).result())
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_a_message_that_nobody_sends_has_a_deadline(ranks: _Ranks) -> None:
    with ranks.meetings(next(NUMBERS), patience_s=0.3) as made:
        with pytest.raises(Silence, match=r"no answer within 0\.3 s"):
            made[0].recv(3, 1).result()
        made[1].send(torch.ones(3, dtype=torch.uint8), 0)  # so that both ranks of the pair leave


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2))))
def test_a_ledger_deals_every_message_once_and_only_what_both_have_begun(
    events: list[tuple[bool, int, int]],
) -> None:
    dealer, dealt = Dealer(), Count(0, 0)
    for mine, sends, receives in events:
        side = dealer.mine if mine else dealer.theirs
        more = Count(side.sends + sends, side.receives + receives)
        dealer.mine, dealer.theirs = (more, dealer.theirs) if mine else (dealer.mine, more)
        batch = dealer.batch()
        assert min(batch) >= 0
        dealt = Count(dealt.sends + batch.sends, dealt.receives + batch.receives)
        assert dealt.sends == min(dealer.mine.sends, dealer.theirs.receives)
        assert dealt.receives == min(dealer.mine.receives, dealer.theirs.sends)
        assert dealer.batch() == Count(0, 0)
