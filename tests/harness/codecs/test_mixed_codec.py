"""Rows with bits of their own: bytes, codes of the reference, rounding of the side, no bias; and the choice of bits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.codecs import BitGroups, MixedRows, StochasticRows, choose_bits
from harness.kernels._mixed_cpu import BRAIN_MAX, brain_floor
from harness.kernels._mixed_torch import brain_floor_torch, dequantize_mixed_torch, quantize_mixed_torch
from harness.kernels.packed import MIXED_BITS, code_bytes


def some_bits(num_rows: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).choice(np.asarray(MIXED_BITS, np.uint8), num_rows))


def layout(bits: Tensor, width: int) -> MixedRows:
    """The layout of rows that all go to one rank."""
    return MixedRows.of(bits, width, np.asarray([len(bits)]))


@pytest.mark.parametrize("width", [0, 1, 3, 16, 257])
def test_codes_take_what_their_bits_need(width: int) -> None:
    bits, counts = some_bits(50), np.asarray([0, 20, 30, 0])
    codec = MixedRows.of(bits, width, counts)
    sizes = [code_bytes(width, int(b)) for b in bits]
    assert codec.nbytes.tolist() == [0, sum(sizes[:20]), sum(sizes[20:]), 0]
    codes, side = codec.encode(torch.randn(50, width), 7)
    assert codes.shape == (sum(sizes),) and side.shape == (50, 2) and side.element_size() == 2
    assert codec.decode(codes, side, torch.float64).shape == (50, width)


@given(shape=st.tuples(st.integers(0, 9), st.integers(0, 70)), seed=st.integers(0, 10_000), power=st.integers(-44, 38))
@settings(max_examples=60)
def test_kernels_give_the_codes_of_torch_operators(shape: tuple[int, int], seed: int, power: int) -> None:
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1) * 10.0**power
    bits = some_bits(shape[0], seed)
    codec = layout(bits, shape[1])
    ours = codec.encode(x, seed)
    theirs = quantize_mixed_torch(x, bits, codec.offsets, seed, int(codec.nbytes.sum()))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    decoded = dequantize_mixed_torch(*theirs, bits, codec.offsets, shape[1])
    assert torch.equal(codec.decode(*ours, torch.float32), decoded)
    if x.numel() and power < 38:
        scale = ours[1][:, 0].float()
        assert ((decoded - x).abs() <= scale[:, None] * 1.001 + x.abs().amax(1, keepdim=True) * 2.0**-22 + 1e-44).all()


def test_sides_are_rounded_outwards() -> None:
    values = torch.cat([torch.randn(2000) * 10.0**p for p in (-30, 0, 30)] + [torch.tensor([0.0, 1.0, -1.0, 3.4e38])])
    floors = brain_floor_torch(values)
    assert torch.equal(floors, floors.bfloat16().float()) and (floors <= values).all()
    assert (values - floors <= values.abs() * 2.0**-7).all()
    assert [brain_floor(np.float32(v)) for v in values[:99]] == floors[:99].tolist()
    assert brain_floor(np.float32(-3.4e38)) == -math.inf and math.isfinite(
        float(torch.tensor(float(BRAIN_MAX)).bfloat16())
    )


@pytest.mark.parametrize("bits", MIXED_BITS)
def test_the_mean_over_keys_is_the_row(bits: int) -> None:
    x, draws = torch.randn(6, 40, generator=torch.Generator().manual_seed(3)).double(), 3000
    codec = layout(torch.full((6,), bits, dtype=torch.uint8), 40)
    found = [codec.encode(x, key) for key in range(draws)]
    decoded = torch.stack([codec.decode(*each, torch.float64) for each in found])
    error = decoded.std(0) / draws**0.5
    assert ((decoded.mean(0) - x).abs() <= 5 * error + 1e-6).all() and float(error.max()) > 0


def test_eight_bits_are_those_of_the_ordinary_codec_but_for_the_side() -> None:
    """Both draw the same random bits; with a row whose ends are bf16 numbers the codes are the same."""
    x = 0.9 * torch.rand(5, 33)
    x[:, 0], x[:, 1] = 0.0, 255 / 256
    codes, _ = layout(torch.full((5,), 8, dtype=torch.uint8), 33).encode(x, 9)
    assert torch.equal(codes.view(5, 33), StochasticRows(8).encode(x, 9)[0])


def test_ranges_are_those_that_codes_cover() -> None:
    x = torch.randn(20, 30)
    codec = layout(some_bits(20), 30)
    found = codec.squared_ranges(codec.encode(x, 1)[1])
    exact = (x.amax(1) - x.amin(1)).square()
    assert ((found >= exact) & (found <= exact * 1.04)).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    x = torch.ones(9, 4)
    x[3, 2] = bad
    codec = layout(some_bits(9), 4)
    for encode in (lambda: codec.encode(x, 0), lambda: quantize_mixed_torch(x, codec.bits, codec.offsets, 0, 1)):
        with pytest.raises(ValueError, match="^row 3 holds nan or inf$"):
            encode()


def test_without_numbers_codes_take_their_share() -> None:
    codec = MixedRows.of(torch.empty(30, dtype=torch.uint8, device="meta"), 10, np.asarray([10, 20]), 0.5)
    codes, side = codec.encode(torch.empty(30, 10, device="meta"), 0)
    assert codec.nbytes.tolist() == [50, 100] and codes.shape == (150,)
    assert codec.decode(codes, side, torch.float64).shape == (30, 10)


# -- the choice of bits ------------------------------------------------------------------------------------------------


def random_groups(num_groups: int, size: int, seed: int, *, width: int = 16, rows: int = 10) -> BitGroups:
    rng = np.random.default_rng(seed)
    sender = rng.integers(0, size, num_groups)
    receiver = (sender + rng.integers(1, size, num_groups)) % size
    sizes = np.full(num_groups, rows) if rows else rng.integers(1, 30, num_groups)
    return BitGroups(sender, receiver, sizes, 10 ** rng.uniform(-3, 3, num_groups), width)


def objective(groups: BitGroups, bits: np.ndarray, weight: float, size: int) -> float:
    """The weighted sum as it is defined, each part from 0 at its best to 1 at its worst."""

    def variance(chosen: np.ndarray) -> float:
        return float((groups.variance / (2.0**chosen - 1) ** 2).sum())

    def time(chosen: np.ndarray) -> float:
        total = 0.0
        for shift in range(1, size):
            pairs = [0.0] * size
            for k, b in enumerate(chosen):
                if (groups.receiver[k] - groups.sender[k]) % size == shift:
                    pairs[groups.sender[k]] += groups.rows[k] * (-(-groups.width * int(b) // 8) + 4)
            total += max(pairs)
        return total

    low, high = np.full(len(bits), 2), np.full(len(bits), 8)
    v = (variance(bits) - variance(high)) / (variance(low) - variance(high))
    return weight * v + (1 - weight) * (time(bits) - time(low)) / (time(high) - time(low))


def best(groups: BitGroups, weight: float, size: int) -> tuple[float, float]:
    """The lowest objective of all choices, and the greatest change that the step of one group makes."""
    every = [np.asarray(c) for c in itertools.product(MIXED_BITS, repeat=len(groups.rows))]
    found = min(objective(groups, bits, weight, size) for bits in every)
    gains = groups.variance * (1 / 9 - 1 / 225) / (groups.variance.sum() * (1 / 9 - 1 / 65025))
    return found, float(gains.max()) * weight


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_with_one_pair_a_shift_no_choice_is_better(seed: int, weight: float) -> None:
    groups = random_groups(6, 2, seed, rows=0)
    groups = BitGroups(groups.sender * 0, groups.receiver * 0 + 1, groups.rows, groups.variance, groups.width)
    found = choose_bits(groups, weight, 2)
    assert objective(groups, found, weight, 2) == pytest.approx(best(groups, weight, 2)[0], abs=1e-9)


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_with_several_pairs_no_choice_is_better_by_more_than_a_step(seed: int, weight: float) -> None:
    groups = random_groups(7, 3, seed)
    found = objective(groups, choose_bits(groups, weight, 3), weight, 3)
    lowest, step = best(groups, weight, 3)
    assert lowest - 1e-9 <= found <= lowest + step
    for bits in MIXED_BITS:
        assert found <= objective(groups, np.full(7, bits), weight, 3) + 1e-9


def test_the_ends_of_the_weight_are_the_ends_of_the_bits() -> None:
    groups = random_groups(200, 4, 1, rows=0)
    assert set(choose_bits(groups, 1.0, 4)) == {8} and set(choose_bits(groups, 0.0, 4)) == {2}
    mean = [float(choose_bits(groups, weight, 4).mean()) for weight in (0.01, 0.1, 0.5, 0.9, 0.99)]
    assert mean == sorted(mean) and 2 < mean[0] < mean[-1] <= 8


def test_groups_that_do_not_vary_get_few_bits_and_more_variance_never_fewer() -> None:
    groups = random_groups(60, 3, 5)
    groups.variance[::3] = 0.0
    found = choose_bits(groups, 0.5, 3)
    assert (found[::3] == 2).all() and len(set(found.tolist())) == 3
    for pair in {*zip(groups.sender.tolist(), groups.receiver.tolist(), strict=True)}:
        mine = (groups.sender == pair[0]) & (groups.receiver == pair[1])
        assert (np.diff(found[mine][np.argsort(groups.variance[mine])].astype(int)) >= 0).all()
    nothing = BitGroups(*(np.zeros(0, np.int64),) * 3, np.zeros(0), 4)
    assert len(choose_bits(nothing, 0.5, 3)) == 0
    assert set(choose_bits(BitGroups(groups.sender, groups.receiver, groups.rows, groups.variance * 0, 4), 0.5, 3)) == {
        2
    }
