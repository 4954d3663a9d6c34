"""Error messages of simulated runs with wrong rank programs: rank, file, line, label, epoch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.effects import Rows
from harness.errors import InputError, ProgramError
from harness.rank import Rank
from sims.cluster import load_cluster, place
from sims.engine import simulate
from tests.support.simulated import each, exchange_once


def failing(program: Callable[[Rank], Any], size: int, kind: type[Exception] = ProgramError) -> Exception:
    with pytest.raises(kind) as caught:
        simulate(program, place(load_cluster("ec-graph"), size))
    return caught.value


def line_of(marker: str) -> int:
    """The line of this file that ends with a comment."""
    lines = Path(__file__).read_text().splitlines()
    return next(at for at, text in enumerate(lines, 1) if text.endswith(f"# {marker}"))


def test_a_deadlock_names_ranks_lines_labels_and_epoch() -> None:
    async def program(rank: Rank) -> None:
        rank.epoch = 4
        if rank.index < 2:
            await rank.all_reduce(torch.ones(1), label="lonely")  # deadlock

    message = str(failing(program, 3))
    site = f"{Path(__file__)}:{line_of('deadlock')}"
    assert message.startswith("deadlock: ")
    for rank in (0, 1):
        assert f"rank {rank} waits in AllReduce 'lonely' (reduce, epoch 4) at {site}" in message
    assert "rank 2 has returned" in message


def test_a_mismatch_names_both_sides() -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.all_reduce(torch.ones(1), label="this")  # one side
        else:
            await rank.broadcast(torch.ones(1), root=0, label="that")  # other side

    message = str(failing(program, 2))
    assert re.search(rf"rank 0 is in AllReduce 'this' .*:{line_of('one side')}", message)
    assert re.search(rf"rank 1 is in Broadcast 'that' .*:{line_of('other side')}", message)


def test_a_deadlock_in_a_group_names_it_and_who_is_missing() -> None:
    async def program(rank: Rank) -> None:
        if rank.index in (0, 2):
            await rank.broadcast(torch.ones(1), root=2, label="row", group=(0, 1, 2))
        await rank.all_reduce(torch.ones(1), label="all")

    message = str(failing(program, 4))
    assert re.search(r"rank 2 waits in Broadcast 'row' \(other, epoch 0\) of ranks 0, 1, 2 at \S*py:\d+", message)
    assert "rank 1 has not arrived (after 0 collectives of ranks 0, 1, 2)" in message
    assert "rank 1 waits in AllReduce 'all'" in message and "rank 3 waits in AllReduce 'all'" in message
    assert "disagree on the group" not in message


class Odd(Exception):
    """An exception that cannot be built from its arguments, as SimPy would try."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.pair = (one, two)


def test_a_rank_s_own_exception_comes_out_with_a_note() -> None:
    async def program(rank: Rank) -> None:
        rank.epoch = 2
        await rank.all_reduce(torch.ones(1), label="fine")
        if rank.index == 1:
            raise Odd(3, 4)
        await rank.all_reduce(torch.ones(1), label="never")

    error = failing(program, 2, Odd)
    assert isinstance(error, Odd) and error.pair == (3, 4)
    (note,) = error.__notes__
    assert "rank 1 of 2" in note and "epoch 2" in note and "AllReduce 'fine'" in note
    assert any(frame.name == "program" for frame in error_frames(error))


def error_frames(error: BaseException) -> list[Any]:
    import traceback

    return list(traceback.extract_tb(error.__traceback__))


def test_a_forgotten_await_is_detected() -> None:
    async def built_only(rank: Rank) -> None:
        rank.all_reduce(torch.ones(1), label="lost")
        await rank.all_reduce(torch.ones(1), label="next")

    assert "forgotten await: AllReduce 'lost'" in str(failing(built_only, 2))

    async def inner(rank: Rank) -> None:
        await rank.all_reduce(torch.ones(1), label="x")

    async def outer(rank: Rank) -> None:
        inner(rank)  # type: ignore[unused-coroutine]
        await rank.all_reduce(torch.ones(1), label="y")

    assert "forgotten await" in str(failing(outer, 2))


def test_counts_that_disagree_are_named() -> None:
    async def program(rank: Rank) -> None:
        send = each(2, 2, rank.index)
        await rank.all_to_all([Rows(torch.ones(2, 1), send, send + (rank.index == 1))], label="h")

    assert "expects" in str(failing(program, 2))


def test_ranks_must_leave_the_clock_together() -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.all_reduce(torch.ones(1), label="g")
        else:
            with rank.off_the_clock():
                await rank.all_reduce(torch.ones(1), label="g")

    message = str(failing(program, 2))
    assert re.search("rank [01] is (on|off) the clock, others are (off|on) the clock, in AllReduce 'g'", message)


def test_a_tensor_written_to_in_flight_is_detected() -> None:
    async def program(rank: Rank) -> None:
        x = torch.ones(4)
        handle = await rank.start(rank.all_reduce(x, label="g"))
        x.add_(1)
        await rank.wait(handle)

    assert "was written to before the wait" in str(failing(program, 2))


def test_too_many_ranks() -> None:
    with pytest.raises(InputError, match="takes 6 ranks"):
        simulate(exchange_once, place(load_cluster("ec-graph"), 7))
