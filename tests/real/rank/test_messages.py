"""What pairs of ranks sent and received: notes, hashes and complaints, without processes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

from harness.effects import Effect, Recv, Send
from harness.errors import ProgramError
from harness.rank import Rank
from real.rank._messages import NOTE_BYTES, MessageStream, MessageStreams, Note, compare_notes
from real.rank._receives import Receives
from real.rank._transport import Pending

E = TypeVar("E", bound=Effect)


def _send(label: str, epoch: int = 0, size: int = 3) -> Send:
    return _issued(0, epoch, lambda rank: rank.send(torch.ones(size), to=1, label=label))


def _recv(label: str, epoch: int = 0, size: int = 3) -> Recv:
    return _issued(1, epoch, lambda rank: rank.recv(torch.ones(size), source=0, label=label))


def _issued(index: int, epoch: int, build: Callable[[Rank], E]) -> E:
    """An effect of a rank of two in an epoch."""
    rank = Rank(index, 2)
    rank.epoch = epoch
    effect = build(rank)
    rank.issued(effect)
    return effect


def test_only_the_first_message_of_an_epoch_has_a_note() -> None:
    way = MessageStream()
    noted = [way.add(_send(name, epoch), False) is not None for epoch in (0, 1) for name in ("a", "b", "c")]
    assert noted == [True, False, False] * 2
    assert way.add(_send("d", 1), True) is not None


def test_notes_of_the_same_messages_agree_and_travel_in_a_fixed_size() -> None:
    sent, received = MessageStream(), MessageStream()
    for epoch in range(3):
        for name in ("a", "b" * 900):
            theirs, mine = sent.add(_send(name, epoch), False), received.add(_recv(name, epoch), False)
            assert (theirs is None) == (mine is None)
            if theirs is not None and mine is not None:
                assert theirs.pack().numel() == NOTE_BYTES
                compare_notes(0, Note.unpack(theirs.pack()), 1, mine)
    assert sent.path == received.path


@pytest.mark.parametrize(
    ("received", "says"),
    [
        ([("a", 3), ("c", 3)], r"sent rank 1 Send 'a' .*; Send 'b' .*, but rank 1 received Recv 'a' .*; Recv 'c' "),
        ([("b", 3), ("a", 3)], r"but rank 1 received Recv 'b' .*; Recv 'a' "),
        ([("a", 3), ("b", 4)], r"messages differ"),
        ([("a", 3)], r"Send 'b' .*, but rank 1 received Recv 'a' [^;]*$"),
        ([], r"but rank 1 received nothing"),
    ],
)
def test_a_slip_is_told_by_the_next_note_and_at_the_end(received: list[tuple[str, int]], says: str) -> None:
    here, there = MessageStreams.none(), MessageStreams.none()
    for name in ("a", "b"):
        there.sent[1].add(_send(name), False)
    for name, size in received:
        here.received[0].add(_recv(name, size=size), False)
    table = torch.stack([there.sent_table(2)[1], MessageStreams.none().sent_table(2)[1]])  # the rows for rank 1
    with pytest.raises(ProgramError, match=says):
        raise ProgramError(here.complaint(1, table))
    if received:
        theirs, mine = there.sent[1].add(_send("x", 1), False), here.received[0].add(_recv("x", 1), False)
        assert theirs is not None and mine is not None
        with pytest.raises(ProgramError, match=says):
            compare_notes(0, Note.unpack(theirs.pack()), 1, mine)


def test_nothing_is_complained_of_where_all_was_received() -> None:
    here, there = MessageStreams.none(), MessageStreams.none()
    there.sent[1].add(_send("a"), False)
    here.received[0].add(_recv("a"), False)
    assert here.complaint(1, torch.stack([there.sent_table(2)[1], MessageStreams.none().sent_table(2)[1]])) == ""
    assert there.complaint(0, torch.stack([MessageStreams.none().sent_table(2)[0], here.sent_table(2)[0]])) == ""


def test_a_finished_receive_keeps_no_rows() -> None:
    """The latest one of a source is kept, so that the next can queue behind it; its rows are the program's alone."""
    receives = Receives()
    pending = receives.start(1, lambda: None, lambda: Pending(lambda: torch.ones(5)), 20.0)
    rows = pending.result()
    kept = weakref.ref(rows)
    del rows
    gc.collect()
    assert kept() is None and not receives.under_way(1)
