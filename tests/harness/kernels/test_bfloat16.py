"""bfloat16 in compiled kernels: torch's values bit for bit, and float32 arithmetic between two roundings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from harness.kernels.bfloat16 import narrow, widen
from harness.kernels.dropout import keyed_dropout
from harness.kernels.norm_relu_dropout import norm_relu_dropout
from harness.kernels.relu_dropout import relu_dropout


def test_every_value_is_widened_and_every_rounding_is_torchs() -> None:
    every = np.arange(2**16, dtype=np.uint16)
    wide = np.empty(2**16, np.uint32)
    widen(every, wide)
    values = torch.from_numpy(wide.view(np.float32).copy())
    torch.testing.assert_close(
        values, torch.from_numpy(every).view(torch.bfloat16).float(), equal_nan=True, rtol=0, atol=0
    )
    words = np.concatenate([wide[:, None] + np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).ravel()
    rounded = np.empty(len(words), np.uint16)
    narrow(words, rounded)
    wanted = torch.from_numpy(words.view(np.float32).copy()).bfloat16()
    found = torch.from_numpy(rounded).view(torch.bfloat16)
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[~wanted.isnan()].view(torch.uint16), wanted[~wanted.isnan()].view(torch.uint16))


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_norm_is_that_of_float32_rounded_once(p: float) -> None:
    source, nodes = torch.Generator().manual_seed(0), torch.arange(700)
    x, g = (torch.randn(700, 70, generator=source).bfloat16() for _ in range(2))
    bias, norm = torch.randn(70, generator=source, requires_grad=True), nn.LayerNorm(70)
    half, whole = x.clone().requires_grad_(), x.float().requires_grad_()
    out, exact = (norm_relu_dropout(rows, bias, norm, nodes, p, 3) for rows in (half, whole))
    assert out.dtype == torch.bfloat16 and torch.equal(out, exact.bfloat16())
    found, *parameters = torch.autograd.grad(out, [half, bias, norm.weight, norm.bias], g)
    wanted, *others = torch.autograd.grad(exact, [whole, bias, norm.weight, norm.bias], g.float())
    assert torch.equal(found, wanted.bfloat16())
    assert all(torch.equal(mine, its) for mine, its in zip(parameters, others, strict=True)), "float32 all the way"


def test_dropout_is_that_of_float32_rounded_once() -> None:
    x, nodes = torch.randn(50, 30, generator=torch.Generator().manual_seed(1)).bfloat16(), torch.arange(50)
    for drop in (relu_dropout, keyed_dropout):
        half, whole = x.clone().requires_grad_(), x.float().requires_grad_()
        out, exact = (drop(rows, nodes, 0.3, 5) for rows in (half, whole))
        assert torch.equal(out, exact.bfloat16())
        (found,), (wanted,) = (
            torch.autograd.grad(rows.float().sum(), at) for rows, at in ((out, half), (exact, whole))
        )
        assert torch.equal(found, wanted.bfloat16())


def test_neighbour_sums_are_accumulated_in_float32() -> None:
    indptr, indices = torch.tensor([0, 1000], dtype=torch.int32), torch.zeros(1000, dtype=torch.int32)
    found = torch.ops.haloscope.gather_sum(indptr, indices, torch.ones(1, 32, dtype=torch.bfloat16))
    assert (found == 1000).all(), "sums of ones in bfloat16 would end at 256"
