"""Rows with 2, 4 or 8 bits each on GPUs have the codes of the CPU bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.codecs import MixedRows
from harness.kernels import _mixed_cuda as mixed_cuda
from harness.kernels.packed import MIXED_BITS
from tests.support.kernel_devices import KernelDevice, small_tiles


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, mixed_cuda)


@settings(max_examples=14, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bits=st.lists(st.sampled_from(MIXED_BITS), max_size=6),
    width=st.sampled_from([0, 1, 3, 16, 33, 70]),
    power=st.integers(-44, 38),
    key=st.integers(-(2**63), 2**63 - 1),
)
def test_codes_are_those_of_the_cpu(where: KernelDevice, bits: list[int], width: int, power: int, key: int) -> None:
    generator = torch.Generator().manual_seed(key % 2**31)
    x = (torch.rand((len(bits), width), generator=generator) * 2 - 1) * 10.0**power
    x[:1] = 0.25 * 10.0**power  # a constant row
    row_bits = torch.tensor(bits, dtype=torch.uint8)
    ours, theirs = (MixedRows.of(row_bits.to(d), width, np.asarray([len(bits)])) for d in ("cpu", where.type))
    expected = ours.encode(x, key)
    with where.kernels():
        found = theirs.encode(where.there(x), key)
        decoded = theirs.decode(*found, torch.float32)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
    assert torch.equal(decoded.cpu(), ours.decode(*expected, torch.float32))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_its_row(where: KernelDevice, value: float) -> None:
    x = torch.ones(5, 40)
    x[2, 39] = x[4, 0] = value
    codec = MixedRows.of(torch.full((5,), 4, dtype=torch.uint8).to(where.type), 40, np.asarray([5]))
    with where.kernels(), pytest.raises(ValueError, match="^row 2 holds nan or inf$"):
        codec.encode(where.there(x), 0)
