"""Neighbour sums by the kernels of GPUs: the sums of plain operators, whatever the degrees, types, heads and slices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.kernels import neighbour_sum_cuda
from tests.support.kernel_devices import KernelDevice

DEGREES = st.lists(st.sampled_from([0, 1, 2, 5, 40]), min_size=1, max_size=6)


def made(degrees: list[int], columns: int, width: int, heads: int, seed: int) -> tuple[Tensor, ...]:
    """indptr, indices, weights [nnz, heads] and rows [columns, heads, width]; edges may repeat."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    indptr = torch.from_numpy(np.cumsum([0, *degrees]).astype(np.int32))
    indices = torch.from_numpy(rng.integers(0, columns, sum(degrees)).astype(np.int32))
    weights = torch.rand(sum(degrees), heads, generator=generator)
    return indptr, indices, weights, torch.randn(columns, heads, width, generator=generator)


def summed(indptr: Tensor, indices: Tensor, weights: Tensor | None, x: Tensor) -> Tensor:
    """The sums in double precision."""
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff().long())
    values = x.double()[indices.long()] * (1.0 if weights is None else weights.double()[:, :, None])
    return torch.zeros(len(indptr) - 1, *x.shape[1:], dtype=torch.float64).index_add(0, rows, values)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    degrees=DEGREES, columns=st.integers(1, 9), width=st.integers(1, 40), heads=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_sums_are_those_of_plain_operators(
    where: KernelDevice, degrees: list[int], columns: int, width: int, heads: int, seed: int
) -> None:
    indptr, indices, weights, x = made(degrees, columns, width, heads, seed)
    ops, there = torch.ops.haloscope, where.there
    with where.kernels():
        plain = ops.gather_sum(there(indptr), there(indices), there(x[:, 0]))
        headed = ops.gather_weighted_sum(there(indptr), there(indices), there(weights), there(x))
        single = ops.gather_weighted_sum(there(indptr), there(indices), there(weights[:, 0]), there(x[:, 0]))
    for found, expected in (
        (plain, summed(indptr, indices, None, x)[:, 0]),
        (headed, summed(indptr, indices, weights, x)),
        (single, summed(indptr, indices, weights, x)[:, 0]),
    ):
        torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_summed_in_float32_and_rounded_once(where: KernelDevice) -> None:
    indptr, indices, weights, x = made([0, 300, 7], 5, 20, 1, 3)
    rows = x[:, 0].bfloat16()
    with where.kernels():
        found = torch.ops.haloscope.gather_sum(where.there(indptr), where.there(indices), where.there(rows))
    expected = summed(indptr, indices, None, rows[:, None])[:, 0]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(
        found.cpu(), expected.float().bfloat16(), rtol=2**-7, atol=0
    )  # interpreted, rounding cuts off


def test_slices_change_nothing(where: KernelDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many entries are read at a time depends on their width, and so does the rounding."""
    indptr, indices, _, x = made([3, 0, 70], 11, 300, 1, 4)
    found = []
    for widest in (512, 32):
        monkeypatch.setattr(neighbour_sum_cuda, "WIDEST", widest)
        with where.kernels():
            arguments = [where.there(t) for t in (indptr, indices, x[:, 0])]
            found.append(torch.ops.haloscope.gather_sum(*arguments).cpu())
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0].double(), summed(indptr, indices, None, x)[:, 0], rtol=1e-5, atol=1e-5)
