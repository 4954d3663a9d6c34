"""The choice between codes and predictions on GPUs is that of the CPU: bit for bit, but for sums of errors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.kernels import _trend_cuda as trend_cuda
from harness.kernels import trend  # noqa: F401 (operators)
from harness.kernels.trend import COMPRESSED, PREDICTED
from tests.support.kernel_devices import KernelDevice, small_tiles

ops = torch.ops.haloscope


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, trend_cuda)


class Rows:
    """Rows in groups, one of which may be empty, and predictions of them."""

    def __init__(self, counts: tuple[int, ...], width: int, bits: int, seed: int, wild: float) -> None:
        generator, num_rows = torch.Generator().manual_seed(seed), sum(counts)
        self.x, noise, self.rate = torch.randn(3, num_rows, width, generator=generator)
        self.base = self.x + noise / 4
        if num_rows:
            self.base[0, 0] = wild
        self.starts, self.bits = torch.tensor([0, *counts]).cumsum(0), bits
        pieces = self.x.split(counts)
        self.side = torch.stack([torch.stack(torch.aminmax(p)) if len(p) else torch.zeros(2) for p in pieces])

    def trend(self, device: str) -> tuple[Tensor | float | int, ...]:
        """The last arguments of the operators."""
        return (*(t.to(device) for t in (self.base, self.rate)), 0.1, *self.groups(device))

    def groups(self, device: str) -> tuple[Tensor | int, ...]:
        return self.side.to(device), self.starts.to(device), self.bits


def _same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.cpu().nan_to_num(7.5), theirs.nan_to_num(7.5))


ROWS = st.builds(
    Rows,
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)),
    st.sampled_from([1, 2, 7, 33, 70]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(0, 2**31),
    st.sampled_from([0.0, math.inf, math.nan, 3e38]),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_chosen_elements_are_those_of_the_cpu(where: KernelDevice, rows: Rows) -> None:
    expected = ops.trend_choose(rows.x, *rows.trend("cpu"))
    with where.kernels():
        found = ops.trend_choose(where.there(rows.x), *rows.trend(where.type))
    _same(found, expected)
    codes, flags = expected
    length = ((flags != PREDICTED).sum(1) * rows.bits + 7) // 8
    packed = codes[torch.arange(codes.shape[1]) < length[:, None]]
    wire = (packed, flags, length.cumsum(0) - length)
    with where.kernels():
        again = ops.trend_restore(*map(where.there, wire), *rows.trend(where.type))
    _same((again,), (ops.trend_restore(*wire, *rows.trend("cpu")),))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_whole_rows_are_scored_and_restored_as_on_the_cpu(where: KernelDevice, rows: Rows) -> None:
    codes, scores = ops.trend_score(rows.x, *rows.trend("cpu"))
    with where.kernels():
        found = ops.trend_score(where.there(rows.x), *rows.trend(where.type))
    _same(found[:1], (codes,))
    torch.testing.assert_close(found[1].cpu(), scores)
    flags = torch.arange(len(codes), dtype=torch.uint8) % 3
    assert COMPRESSED == 0 and PREDICTED == 1
    length = torch.where(flags == PREDICTED, 0, codes.shape[1])
    wire = (codes[flags != PREDICTED].flatten(), flags, length.cumsum(0) - length)
    with where.kernels():
        again = ops.trend_restore(*map(where.there, wire), *rows.trend(where.type))
    _same((again,), (ops.trend_restore(*wire, *rows.trend("cpu")),))
