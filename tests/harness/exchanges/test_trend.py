"""ReqEC-FP: the choice between forms, its bytes and flags, and the trend on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.codecs import Bucket
from harness.exchanges import Boundary, Memory, Select, Trend
from harness.exchanges._trend import flag_bytes, pack_flags, tuned, unpack_flags
from harness.graphs import HaloPlan
from harness.kernels import _trend_torch as trend_torch
from harness.kernels import trend as operators
from harness.kernels.trend import AVERAGE, COMPRESSED, PREDICTED
from harness.rank import Rank

BITS = (1, 2, 4, 8, 16)
Case = tuple[Tensor, Tensor, Tensor, float, Tensor, Tensor]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rows with trends that are exact, good, useless or beyond float32; arguments of the operators but the bits."""
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 20))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    rows, rate = torch.randn(n, d, generator=generator), torch.randn(n, d, generator=generator)
    rows[rows.abs() < 0.3] = 0
    step = float(draw(st.integers(1, 9)))
    noise = torch.tensor(draw(st.lists(st.sampled_from([0.0, 1e-3, 0.3, 3.0, 3e38]), min_size=n, max_size=n)))
    base = rows - rate * step + noise[:, None] * torch.randn(n, d, generator=generator).clamp(-1, 1)
    side = torch.stack(torch.aminmax(rows))[None]
    return rows, base, rate, step, side, torch.tensor([0, n])


def forms(case: Case, bits: int) -> Tensor:
    """Predicted, averaged and compressed values [3, n, d], from the operator that only decodes."""
    rows, base, rate, step, side, starts = case
    codes, _ = Bucket(bits).encode(rows, side)
    value, guess = Bucket(bits).decode(codes, side, starts, rows.shape[1]), base + rate * step
    return torch.stack([guess, (guess + value) * 0.5, value])


@pytest.mark.parametrize("bits", BITS)
@settings(max_examples=20)
@given(case=cases())
def test_scores_are_the_distances_of_the_three_forms(bits: int, case: Case) -> None:
    codes, scores = operators.trend_score(*case, bits)
    assert torch.equal(codes, Bucket(bits).encode(case[0], case[4])[0])
    wanted = (forms(case, bits).double() - case[0].double()).abs().sum(2).t()
    usual = wanted < 1e30
    torch.testing.assert_close(scores.double()[usual], wanted[usual], rtol=1e-5, atol=1e-6)
    assert not scores.isnan().any() and scores[:, 2].isfinite().all()
    their_codes, theirs = trend_torch.score(*case, bits)
    assert torch.equal(codes, their_codes)
    torch.testing.assert_close(scores[usual], theirs[usual], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", BITS)
@settings(max_examples=20)
@given(case=cases())
def test_elements_get_the_nearest_of_the_three_forms(bits: int, case: Case) -> None:
    codes, flags = operators.trend_choose(*case, bits)
    assert all(torch.equal(a, b) for a, b in zip((codes, flags), trend_torch.choose(*case, bits), strict=True))
    predicted, averaged, compressed = made = forms(case, bits)
    error = torch.nan_to_num((made - case[0]).abs(), nan=torch.inf)
    pick = torch.where(flags == PREDICTED, error[0], torch.where(flags == AVERAGE, error[1], error[2]))
    assert (pick <= error.amin(0)).all()
    assert (flags[error[0] <= error[1:].amin(0)] == PREDICTED).all(), "ties go to the prediction"
    assert (flags[(error[0] > error[1]) & (error[1] <= error[2])] == AVERAGE).all()
    length = ((flags != PREDICTED).sum(1) * bits + 7) // 8
    packed = torch.cat([row[: int(k)] for row, k in zip(codes, length, strict=True)])
    arguments = (packed, flags, length.cumsum(0) - length, *case[1:], bits)
    halo = operators.trend_restore(*arguments)
    wanted = torch.where(flags == PREDICTED, predicted, torch.where(flags == AVERAGE, averaged, compressed))
    assert torch.equal(halo, wanted) and torch.equal(halo, trend_torch.restore(*arguments))


@pytest.mark.parametrize("bits", BITS)
@settings(max_examples=20)
@given(case=cases(), seed=st.integers(0, 1000))
def test_rows_are_restored_to_the_form_of_their_flag(bits: int, case: Case, seed: int) -> None:
    codes, _ = operators.trend_score(*case, bits)
    flags = torch.randint(3, (len(codes),), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    length = (flags != PREDICTED) * codes.shape[1]
    arguments = (codes[flags != PREDICTED].view(-1), flags, length.cumsum(0) - length, *case[1:], bits)
    halo = operators.trend_restore(*arguments)
    order = {PREDICTED: 0, AVERAGE: 1, COMPRESSED: 2}
    wanted = torch.stack([forms(case, bits)[order[int(f)], r] for r, f in enumerate(flags)])
    assert torch.equal(halo, wanted) and torch.equal(halo, trend_torch.restore(*arguments))


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_flags_take_two_bits_and_messages_begin_with_a_byte(counts: list[int], seed: int) -> None:
    sizes = np.array(counts)
    flags = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, sizes.sum())).to(torch.uint8)
    packed = pack_flags(flags, sizes)
    assert len(packed) == sum(-(-n // 4) for n in counts) == flag_bytes(sizes).sum()
    assert torch.equal(unpack_flags(packed, sizes), flags)


def test_flags_of_a_message_fill_bytes_from_the_lowest_bits() -> None:
    packed = pack_flags(torch.tensor([1, 2, 0, 2, 1, 2], dtype=torch.uint8), np.array([5, 1]))
    assert packed.tolist() == [1 | 2 << 2 | 2 << 6, 1, 2]


@pytest.mark.parametrize(
    ("bits", "share", "wanted"),
    [(2, 0.61, 4), (2, 0.6, 2), (2, 0.4, 2), (2, 0.39, 1), (1, 0.0, 1), (16, 1.0, 16), (8, 0.9, 16)],
)
def test_the_bit_tuner(bits: int, share: float, wanted: int) -> None:
    assert tuned(bits, share) == wanted


SEND = [np.array([0, 4, 2]), np.array([3, 0, 0]), np.array([0, 0, 0])]  # rank 2 only reads, from rank 0
NUM_OWN, WIDTH = 6, 9


def rows_at(rank: int, epoch: int) -> Tensor:
    """A smooth drift with noise in half of the columns."""
    generator = torch.Generator().manual_seed(100 * rank)
    start, drift = torch.randn(2, NUM_OWN, WIDTH, generator=generator)
    noise = torch.randn(NUM_OWN, WIDTH, generator=torch.Generator().manual_seed(1000 * epoch + rank))
    noise[:, ::2] = 0
    return start + 0.05 * epoch * drift + 0.1 * noise


def boundary_of(rank: int) -> Boundary:
    send = SEND[rank]
    rows = [torch.arange(int(n)) + (2 if to == 2 else 0) for to, n in enumerate(send)]
    plan = HaloPlan(torch.cat(rows), send, np.array([s[rank] for s in SEND]))
    return Boundary.of(plan, NUM_OWN)


def follow(
    epochs: int, select: Select, *, bits: tuple[int, ...] = (2, 2, 2), scope: str = "matrix", period: int = 10
) -> list[list[tuple[Memory, Tensor, Any]]]:
    """Memory before the epoch, halo rows and bytes of every rank and epoch; bits are what each rank asks for."""

    async def program(rank: Rank) -> list[tuple[Memory, Tensor, Any]]:
        asked = np.full(3, bits[rank.index])
        memory: Memory = {}
        boundary, found = boundary_of(rank.index), []
        for epoch in range(epochs):
            rank.epoch = epoch
            before = dict(memory.get("trend", {}).get("1", {}))
            fetch = Trend(boundary, 1, scope, select, period, memory, np.array(bits), asked)
            halo = await fetch(rank, rows_at(rank.index, epoch))
            found.append((before, halo, rank.traffic.take()))
        return found

    return loopback.run_ranks(program, 3)


def true_halo(rank: int, epoch: int) -> Tensor:
    pieces = []
    for source in range(3):
        plan = boundary_of(source).plan
        begin = int(plan.send_counts[:rank].sum())
        pieces.append(rows_at(source, epoch)[plan.send_rows[begin : begin + int(plan.send_counts[rank])]])
    return torch.cat(pieces)


@pytest.mark.parametrize("select", ["vertex", "element", "matrix"])
@pytest.mark.parametrize("scope", ["matrix", "row"])
def test_both_ends_keep_the_same_trend_for_fifty_epochs(select: Select, scope: str) -> None:
    found = follow(52, select, bits=(2, 4, 1), scope=scope)
    for epoch in range(1, 52):
        for reader in range(3):
            memory = found[reader][epoch][0]
            for name in ("base", "rate"):
                owners = []
                for source in range(3):
                    boundary = boundary_of(source)
                    begin = int(boundary.plan.send_counts[:reader].sum())
                    mine = boundary.position[begin : begin + int(boundary.plan.send_counts[reader])]
                    owners.append(found[source][epoch][0][name][mine])
                assert torch.equal(torch.cat(owners), memory[f"halo_{name}"])


@pytest.mark.parametrize("select", ["vertex", "element", "matrix"])
def test_exact_epochs_and_their_rates(select: Select) -> None:
    """Epochs 0, 3, 7, 11 of period 4 are exact; rates are divided by the actual number of epochs."""
    found = follow(13, select, period=4)
    for epoch, (_, halo, _) in enumerate(found[0]):
        assert torch.equal(halo, true_halo(0, epoch)) == (epoch in (0, 3, 7, 11))
    for epoch, since, earlier in ((1, 0, None), (4, 3, 0), (8, 7, 3), (12, 11, 7)):
        memory = found[0][epoch][0]
        assert int(memory["since"]) == since
        rate = torch.zeros(3, WIDTH) if earlier is None else true_halo(0, since) - true_halo(0, earlier)
        torch.testing.assert_close(memory["halo_rate"], rate / max(since - (earlier or 0), 1))


@pytest.mark.parametrize("select", ["vertex", "element", "matrix"])
@pytest.mark.parametrize("bits", [1, 4])
def test_what_is_chosen_is_never_worse_than_any_single_form(select: Select, bits: int) -> None:
    found, seen = follow(20, select, bits=(bits,) * 3), set()
    for reader in (0, 1):
        source = 1 - reader
        for epoch in (1, 5, 10, 13, 18):
            memory, halo, _ = found[reader][epoch]
            true = true_halo(reader, epoch)
            guess = memory["halo_base"] + memory["halo_rate"] * (epoch - int(memory["since"]))
            whole = rows_at(source, epoch)
            side = Bucket(bits).measure(whole, whole)
            codes, _ = Bucket(bits).encode(true, side)
            value = Bucket(bits).decode(codes, side, torch.tensor([0, len(true)]), WIDTH)
            errors = torch.stack([(f - true).abs() for f in (halo, guess, (guess + value) / 2, value)])
            if select != "element":
                errors = errors.sum((1, 2)) if select == "matrix" else errors.sum(2)
            assert (errors[0] <= errors[1:].amin(0) * (1 + 1e-5)).all()
            seen |= set(errors[1:].argmin(0).reshape(-1).tolist())
    assert len(seen) > 1 or bits == 1, "the case is too easy to choose in"


@pytest.mark.parametrize("select", ["vertex", "element", "matrix"])
@pytest.mark.parametrize("scope", ["matrix", "row"])
def test_bytes_follow_the_formula_with_bits_of_each_reader(select: Select, scope: str) -> None:
    bits = (1, 8, 4)
    found = follow(12, select, bits=bits, scope=scope)
    for epoch in range(12):
        sent = [found[rank][epoch][2].to for rank in range(3)]
        for source in range(3):
            for reader in range(3):
                n = int(SEND[source][reader])
                if source == reader:
                    continue
                if epoch == 0 or (epoch + 1) % 10 == 0:
                    assert sent[source][reader] == 4 * n * WIDTH * (2 if epoch else 1)
                    continue
                units = {"vertex": n, "element": n * WIDTH, "matrix": min(n, 1)}[select]
                ranges = 0 if n == 0 else 8 * n if scope == "row" else 8
                codes = sent[source][reader] - 8 - ranges - -(-units // 4)
                row = -(-WIDTH * bits[reader] // 8)
                assert 0 <= codes <= n * row
                if select == "vertex":
                    assert codes % row == 0
                if select == "matrix":
                    assert codes in (0, n * row)
