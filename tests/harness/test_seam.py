"""The interface of programs and drivers: bytes of effects, and immediate errors with rank, file, line, label, epoch."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import loopback
from harness.effects import COUNT_BYTES, AllReduce, Broadcast, Conversion, Rows, Tag, chunk_sizes, in_words
from harness.errors import ProgramError
from harness.rank import Rank, random_key
from tests.support.background import halved

HERE = "test_seam.py"


def row_counts(size: int, seed: int) -> np.ndarray:
    """Rows from every rank to every rank, [from, to]."""
    return np.random.default_rng(seed).integers(0, 4, (size, size))


@given(size=st.integers(1, 6), seed=st.integers(0, 1000), known=st.booleans())
@settings(deadline=None, max_examples=40)
def test_all_to_all_deals_rows_and_counts_bytes(size: int, seed: int, known: bool) -> None:
    counts = row_counts(size, seed)

    async def program(rank: Rank) -> Any:
        send = counts[rank.index]
        owner = torch.full((int(send.sum()),), rank.index)
        aim = torch.from_numpy(np.repeat(np.arange(size), send))
        rows = torch.stack([owner, aim], 1).to(torch.float32)
        recv = counts[:, rank.index] if known else None
        parts = [Rows(rows, send, recv), Rows(rows[:, :1].to(torch.float16), send, recv)]
        got = await rank.all_to_all(parts, label="x", direction="forward", layer=2)
        return got, rank.traffic.take()

    for index, (got, traffic) in enumerate(loopback.run_ranks(program, size)):
        expected = np.repeat(np.arange(size), counts[:, index])
        assert got.tensors[0][:, 0].tolist() == expected.tolist()
        assert (got.tensors[0][:, 1] == index).all()
        assert got.tensors[1].dtype == torch.float16
        assert np.array_equal(got.counts[0], counts[:, index])
        outside = counts[index].sum() - counts[index, index]
        header = 0 if known else 2 * COUNT_BYTES * (size - 1)
        assert traffic.to.sum() == outside * (8 + 2) + header
        assert traffic.layers["forward"].get(2, 0) == traffic.to.sum()


@given(size=st.integers(1, 7), elements=st.integers(0, 40), deterministic=st.booleans())
@settings(deadline=None, max_examples=40)
def test_all_reduce_bytes_are_those_of_a_ring(size: int, elements: int, deterministic: bool) -> None:
    tag = Tag("g", "reduce", -1, 0)
    effect = AllReduce(tag=tag, tensor=torch.zeros(elements), deterministic=deterministic)
    total = sum(int(effect.sent(rank, size).sum()) for rank in range(size))
    assert total == 2 * (size - 1) * elements * 4
    assert chunk_sizes(elements, size).sum() == elements


@given(st.integers(1, 7), st.integers(0, 40), st.booleans(), st.data())
@settings(deadline=None, max_examples=40)
def test_bytes_of_a_group_are_those_of_a_run_of_its_ranks(
    size: int, elements: int, deterministic: bool, data: st.DataObject
) -> None:
    """2 (members - 1) x payload over all ranks for a sum, (members - 1) x payload for a broadcast; to members only."""
    members = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    tag, tensor = Tag("g", "reduce", -1, 0), torch.zeros(elements)
    total = AllReduce(tag=tag, tensor=tensor, deterministic=deterministic, group=tuple(members))
    sent = Broadcast(tag=tag, tensor=tensor, root=members[-1], group=tuple(members))
    among = AllReduce(tag=tag, tensor=tensor, deterministic=deterministic)
    for at, rank in enumerate(members):
        assert total.sent(rank, size)[members].tolist() == among.sent(at, len(members)).tolist()
        assert set(np.flatnonzero(total.sent(rank, size) + sent.sent(rank, size)).tolist()) <= set(members)
    assert sum(int(total.sent(r, size).sum()) for r in members) == 2 * (len(members) - 1) * elements * 4
    assert sum(int(sent.sent(r, size).sum()) for r in members) == (len(members) - 1) * elements * 4


def test_overlapping_groups_proceed_independently() -> None:
    """In a ring of pairs every rank is in two groups; sums and bytes are those of the pair."""

    async def program(rank: Rank) -> Any:
        found = []
        for at in range(rank.size):
            group = (at, (at + 1) % rank.size)
            if rank.index in group:
                mine = torch.full((6,), 10.0**rank.index)
                found.append(float((await rank.all_reduce(mine, label="pair", group=group))[0]))
                found.append(float((await rank.broadcast(mine, root=at, label="first", group=group, layer=1))[0]))
        return found, rank.traffic.take()

    results = loopback.run_ranks(program, 4)
    assert results[0][0] == [11.0, 1.0, 1001.0, 1000.0] and results[2][0] == [110.0, 10.0, 1100.0, 100.0]
    for index, (_, traffic) in enumerate(results):
        neighbours = sorted(((index + 1) % 4, (index - 1) % 4))
        assert np.flatnonzero(traffic.to).tolist() == neighbours
        assert traffic.layers["reduce"] == {-1: 2 * 24} and traffic.layers["other"] == {1: 24}


def test_a_group_of_all_ranks_is_no_group_and_one_of_a_single_rank_sends_nothing() -> None:
    async def program(rank: Rank) -> Any:
        group = range(rank.size) if rank.index else None
        total = await rank.all_reduce(torch.ones(3), label="all", group=group)
        mine = await rank.all_reduce(total, label="own", group=[rank.index])
        return mine.tolist(), int(rank.traffic.take().to.sum())

    assert loopback.run_ranks(program, 3) == [([3.0, 3.0, 3.0], 16)] * 3


@pytest.mark.parametrize(
    ("group", "root", "says"),
    [
        ((0, 2), 0, r"of ranks 0, 2, to which rank 1 does not belong"),
        ((1, 2), 0, r"of ranks 1, 2, to which its root 0 does not belong"),
        ((1, 1), 1, r"not of distinct ranks of this run: \(1, 1\)"),
        ((1, 3), 1, r"not of distinct ranks of this run: \(1, 3\)"),
        ((), 1, r"not of distinct ranks of this run: \(\)"),
    ],
)
def test_no_such_group(group: tuple[int, ...], root: int, says: str) -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 1:
            await rank.broadcast(torch.ones(1), root=root, label="lost", group=group)

    with pytest.raises(ProgramError, match=rf"rank 1 of 3: collective 'lost' at .*{HERE}:\d+ is {says}"):
        loopback.run_ranks(program, 3)


def test_members_that_disagree_about_a_group() -> None:
    async def members(rank: Rank) -> None:
        rank.epoch = 3
        if rank.index < 2:
            await rank.all_reduce(torch.ones(1), label="lost", group=((0, 1), (1, 2))[rank.index])

    async def labels(rank: Rank) -> None:
        if rank.index < 2:
            await rank.all_reduce(torch.ones(1), label=f"lost {rank.index}", group=(0, 1))

    says = (
        r"ranks disagree on the group: AllReduce 'lost' .* of ranks 0, 1 at .*, but AllReduce 'lost' .* of ranks 1, 2"
    )
    with pytest.raises(
        ProgramError, match=rf"deadlock: {says}.*rank 1 has not arrived \(after 0 collectives of ranks 0"
    ):
        loopback.run_ranks(members, 3)
    with pytest.raises(
        ProgramError, match=r"ranks disagree: rank 0 is in AllReduce 'lost 0' .* of ranks 0, 1 at .*, but"
    ):
        loopback.run_ranks(labels, 3)


def test_groups_that_share_ranks_have_one_order() -> None:
    """A library may deadlock otherwise, although nobody waits here before both have begun."""

    async def program(rank: Rank) -> None:
        groups = {"pair": (0, 1), "all": None} if rank.index else {"all": None, "pair": (0, 1)}
        handles = [
            await rank.start(rank.all_reduce(torch.ones(1), label=label, group=group))
            for label, group in groups.items()
            if group is None or rank.index in group
        ]
        for handle in handles:
            await rank.wait(handle)

    says = r"order of collectives: rank 0 is in AllReduce '(all|pair)' .* after 1 of .*, but rank 1 after 0"
    with pytest.raises(
        ProgramError, match=rf"ranks disagree on the {says}|rank 0 .* after 0 of .*, but rank 1 after 1"
    ):
        loopback.run_ranks(program, 3)


def test_large_groups_are_shortened_in_messages() -> None:
    assert in_words((4,)) == "rank 4" and in_words(tuple(range(8))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7"
    assert in_words(tuple(range(0, 40, 2))) == "20 ranks 0, 2, 4, 6, ..., 38"


def test_all_reduce_adds_in_rank_order() -> None:
    values = [1e8, 1.0, -1e8, 1.0]

    async def program(rank: Rank) -> Any:
        return float(await rank.all_reduce(torch.tensor(values[rank.index], dtype=torch.float32), label="v"))

    total = torch.tensor(0.0)
    for value in values:
        total = total + torch.tensor(value, dtype=torch.float32)
    assert loopback.run_ranks(program, 4) == [float(total)] * 4


def test_point_to_point_broadcast_and_started_effects() -> None:
    async def program(rank: Rank) -> Any:
        mine = torch.full((3,), float(rank.index))
        handle = await rank.start(rank.all_reduce(mine, label="later"))
        if rank.index == 0:
            await rank.send(mine + 10, to=1, label="p")
            got = mine
        else:
            got = await rank.recv(mine, source=0, label="p")
        root = await rank.broadcast(mine, root=1, label="b")
        return got.tolist(), root.tolist(), (await rank.wait(handle)).tolist()

    assert loopback.run_ranks(program, 2) == [([0.0] * 3, [1.0] * 3, [1.0] * 3), ([10.0] * 3, [1.0] * 3, [1.0] * 3)]


def test_a_background_exchange_returns_what_is_decoded() -> None:
    """Its bytes count when it is started; it may be waited for after other effects."""
    counts = row_counts(3, seed=5)

    async def program(rank: Rank) -> Any:
        send, recv = counts[rank.index], counts[:, rank.index].copy()
        rows = torch.full((int(send.sum()), 2), float(rank.index + 1))
        seen: list[weakref.ref[torch.Tensor]] = []
        handle = await halved(rank, rows, send, recv, label="h", seen=seen)
        del rows
        assert seen[0]() is None, "the rows are not kept once they are encoded"
        to = rank.traffic.take().to
        total = await rank.all_reduce(torch.ones(1), label="sum")
        return (await rank.wait(handle)).tolist(), to.tolist(), float(total)

    for index, (got, to, total) in enumerate(loopback.run_ranks(program, 3)):
        sent = counts[index] * (2 * 2 + 8)
        sent[index] = 0
        sources = np.repeat(np.arange(3) + 1.0, counts[:, index])
        assert got == [[2 * value] * 2 for value in sources] and to == sent.tolist() and total == 3


def test_a_payload_must_be_as_declared() -> None:
    async def program(rank: Rank) -> None:
        one = np.ones(1, np.int64)
        conversion = Conversion(lambda: (torch.ones(1, 3),), lambda received: received.tensors[0], ())
        await rank.background([Rows(torch.empty(1, 2, device="meta"), one, one)], conversion, label="narrow")

    with pytest.raises(ProgramError, match=r"'narrow' .*test_seam.py:\d+ was declared to send .*2\).* is .*3\)"):
        loopback.run_ranks(program, 1)


def test_a_background_exchange_needs_counts() -> None:
    async def program(rank: Rank) -> None:
        one = np.ones(1, np.int64)
        conversion = Conversion(lambda: (torch.ones(1, 2),), lambda received: received.tensors[0], ())
        await rank.background([Rows(torch.empty(1, 2, device="meta"), one, None)], conversion, label="unknown")

    with pytest.raises(ProgramError, match=r"'unknown' at .*test_seam.py:\d+ has no receive counts"):
        loopback.run_ranks(program, 1)


async def helper(rank: Rank) -> None:
    """An async function whose await is easy to forget."""
    await rank.all_reduce(torch.zeros(1), label="inner")


async def forgets_effect(rank: Rank) -> None:
    rank.all_reduce(torch.zeros(1), label="lost")
    await rank.all_reduce(torch.zeros(1), label="kept")


async def forgets_last_effect(rank: Rank) -> None:
    rank.all_reduce(torch.zeros(1), label="lost")


async def forgets_coroutine(rank: Rank) -> None:
    helper(rank)
    await rank.all_reduce(torch.zeros(1), label="lost")


async def returns_early(rank: Rank) -> None:
    rank.epoch = 3
    await rank.all_reduce(torch.zeros(1), label="one")
    if rank.index == 0:
        await rank.all_reduce(torch.zeros(1), label="lost")


async def other_shape(rank: Rank) -> None:
    rank.epoch = 3
    await rank.all_reduce(torch.zeros(1 + rank.index), label="lost")


async def other_dtype(rank: Rank) -> None:
    rank.epoch = 3
    await rank.all_reduce(torch.zeros(2, dtype=torch.float64 if rank.index else torch.float32), label="lost")


async def other_label(rank: Rank) -> None:
    rank.epoch = 3
    await rank.all_reduce(torch.zeros(1), label="lost" if rank.index else "found")


async def other_counts(rank: Rank) -> None:
    rank.epoch = 3
    send = np.array([1, 1])
    await rank.all_to_all([Rows(torch.zeros(2, 1), send, np.array([1, 1 + rank.index]))], label="lost")


async def raises(rank: Rank) -> None:
    rank.epoch = 3
    await rank.all_reduce(torch.zeros(1), label="lost")
    if rank.index == 1:
        raise ZeroDivisionError("a slip")
    await rank.all_reduce(torch.zeros(1), label="next")


async def writes_in_flight(rank: Rank) -> None:
    rank.epoch = 3
    buffer = torch.zeros(2)
    handle = await rank.start(rank.all_reduce(buffer, label="lost"))
    buffer.add_(1)
    await rank.wait(handle)


async def waits_twice(rank: Rank) -> None:
    rank.epoch = 3
    handle = await rank.start(rank.all_reduce(torch.zeros(1), label="lost"))
    await rank.wait(handle)
    await rank.wait(handle)


SLIPS = [
    (forgets_effect, "forgotten await", 0),
    (forgets_last_effect, "forgotten await", 0),
    (forgets_coroutine, "forgotten await", 0),
    (returns_early, "rank 1 has returned", 3),
    (other_shape, "disagree on shape or dtype", 3),
    (other_dtype, "disagree on shape or dtype", 3),
    (other_label, "ranks disagree", 3),
    (other_counts, "expects 2 rows from rank 1, which sends 1", 3),
    (writes_in_flight, "written to before the wait", 3),
    (waits_twice, "waited twice", 3),
]


@pytest.mark.parametrize(("program", "text", "epoch"), SLIPS, ids=[s[0].__name__ for s in SLIPS])
def test_slips_name_rank_place_label_and_epoch(program: Any, text: str, epoch: int) -> None:
    with pytest.raises(ProgramError) as failure:
        loopback.run_ranks(program, 2)
    message = str(failure.value)
    assert text in message
    assert HERE in message and "rank" in message and f"epoch {epoch}" in message
    if program is not forgets_coroutine:
        assert "'lost'" in message


def test_an_exception_keeps_its_type_and_gains_rank_and_place() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        loopback.run_ranks(raises, 2)
    note = " ".join(failure.value.__notes__)
    assert "rank 1 of 2" in note and "epoch 3" in note and "'lost'" in note and HERE in note


def test_a_wait_for_oneself_is_a_deadlock_that_names_the_place() -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.recv(torch.zeros(1), source=1, label="never")

    with pytest.raises(ProgramError, match=r"deadlock: rank 0 waits in Recv 'never'.*rank 1 has returned"):
        loopback.run_ranks(program, 2)


def test_counts_that_do_not_fit_the_tensor_are_refused() -> None:
    async def program(rank: Rank) -> None:
        await rank.all_to_all([Rows(torch.zeros(3, 1), np.array([1, 1]), None)], label="x")

    with pytest.raises(ProgramError, match=r"3 rows was given counts for 2 rows.*") as failure:
        loopback.run_ranks(program, 2)
    assert HERE in str(failure.value)


def test_random_keys_differ_in_every_argument_and_repeat() -> None:
    base = (1, 2, 3, 4, "dropout")
    others = [(0, 2, 3, 4, "dropout"), (1, 0, 3, 4, "dropout"), (1, 2, 0, 4, "dropout"), (1, 2, 3, 0, "dropout")]
    keys = {random_key(*base), *(random_key(*o) for o in others), random_key(1, 2, 3, 4, "codec")}
    assert len(keys) == 6
    assert random_key(*base) == random_key(*base)
    assert all(0 <= key < 2**63 for key in keys)


def test_off_the_clock_books_no_bytes() -> None:
    async def program(rank: Rank) -> int:
        with rank.off_the_clock():
            await rank.all_reduce(torch.zeros(4), label="quiet")
        return int(rank.traffic.take().to.sum())

    assert loopback.run_ranks(program, 2) == [0, 0]


def test_gradient_mode_belongs_to_the_rank() -> None:
    async def program(rank: Rank) -> tuple[bool, bool]:
        if rank.index == 0:
            with torch.no_grad():
                await rank.all_reduce(torch.zeros(1), label="a")
                inside = torch.is_grad_enabled()
        else:
            await rank.all_reduce(torch.zeros(1), label="a")
            inside = torch.is_grad_enabled()
        await rank.all_reduce(torch.zeros(1), label="b")
        return inside, torch.is_grad_enabled()

    assert loopback.run_ranks(program, 2) == [(False, True), (True, True)]
    assert torch.is_grad_enabled()


def test_a_started_host_copy_and_a_message_to_oneself() -> None:
    async def copies(rank: Rank) -> list[float]:
        handle = await rank.start(rank.host_copy(torch.ones(2), to_host=True, label="c"))
        return (await rank.wait(handle)).tolist()

    async def talks_to_itself(rank: Rank) -> None:
        await rank.send(torch.ones(1), to=0, label="lost")

    assert loopback.run_ranks(copies, 2) == [[1.0, 1.0]] * 2
    with pytest.raises(ProgramError, match=r"'lost' at .*names rank 0 as its peer"):
        loopback.run_ranks(talks_to_itself, 2)
