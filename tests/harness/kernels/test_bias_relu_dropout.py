"""Bias, ReLU and dropout in one pass over the rows: the bits of the three one after the other."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from harness.errors import InputError
from harness.kernels import bias_relu_dropout as kernel
from harness.kernels.bias_relu_dropout import bias_relu_dropout_
from harness.kernels.dropout import keyed_dropout
from harness.nn import GNN, Dense, Drop, GCNConv, SAGEConv
from tests.support.kernel_devices import KernelDevice


def made(num_rows: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, a bias, and gradients of the result."""
    source = torch.Generator().manual_seed(num_rows * 1000 + width)
    x, g = (torch.randn(num_rows, width, generator=source, dtype=dtype) for _ in range(2))
    bias = torch.randn(width, generator=source, dtype=dtype)
    if x.numel() > 3:
        x.view(-1)[3], x.view(-1)[1] = float("nan"), float("inf")
    return x.requires_grad_(), bias.requires_grad_(), g


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 1100), st.integers(1, 70), st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([0.0, 1e-7, 0.3, 1.0]), st.integers(-(2**63), 2**64),
)  # fmt: skip
def test_values_and_gradients_are_those_of_one_after_the_other(
    num_rows: int, width: int, dtype: torch.dtype, p: float, key: int
) -> None:
    x, bias, g = made(num_rows, width, dtype)
    nodes = torch.arange(num_rows) * 7 + 1
    plain = keyed_dropout((x + bias).relu(), nodes, p, key)
    rows = x.clone()
    fused = bias_relu_dropout_(rows, bias, nodes, p, key)
    assert fused.data_ptr() == rows.data_ptr(), "no tensor is made"
    torch.testing.assert_close(fused, plain, rtol=0, atol=0, equal_nan=True)
    wanted, found = (torch.autograd.grad(out, (x, bias), g) for out in (plain, fused))
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-4)  # summed in another order


def test_gradients_are_those_of_finite_differences() -> None:
    x, bias, _ = made(1, 3, torch.float64)
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    nodes = torch.arange(6)
    assert torch.autograd.gradcheck(lambda x, bias: bias_relu_dropout_(x.clone(), bias, nodes, 0.3, 5), (x, bias))


def test_half_precision_is_computed_in_single() -> None:
    x, bias, g = made(700, 33, torch.float32)
    half, nodes = x.detach().bfloat16().requires_grad_(), torch.arange(700)
    for p in (0.0, 0.5):
        exact = keyed_dropout((half.float() + bias).relu(), nodes, p, 3)
        fused = bias_relu_dropout_(half.clone(), bias, nodes, p, 3)
        torch.testing.assert_close(fused, exact.bfloat16(), rtol=0, atol=0, equal_nan=True)
        of_rows, of_bias = torch.autograd.grad(fused, (half, bias), g.bfloat16())
        wanted = torch.autograd.grad(exact, (half, bias), g.bfloat16().float())
        assert (of_rows.dtype, of_bias.dtype) == (torch.bfloat16, torch.float32)
        torch.testing.assert_close(of_rows, wanted[0], rtol=0, atol=0)
        torch.testing.assert_close(of_bias, wanted[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_kernels_of_gpus_are_those_of_the_cpu(where: KernelDevice, dtype: torch.dtype, p: float) -> None:
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    x, bias, g = (each.detach() for each in made(530, 33, torch.float64))
    x, bias, g = x.to(dtype), bias.to(kept), g.to(dtype)
    nodes, results = torch.arange(530) * 10**11, []
    for there, kernels in ((torch.Tensor.cpu, nullcontext()), (where.there, where.kernels())):
        with kernels:
            given = there(x.clone()), there(bias)
            out = torch.ops.haloscope.bias_relu_dropout_(*given, there(nodes), p, -3)
            found = torch.ops.haloscope.bias_relu_dropout_backward(there(g), out, given[1], p)
        results.append([each.cpu() for each in (out, *found)])
    near = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    for expected, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=near, atol=near * 10, equal_nan=True)


def test_rows_that_somebody_keeps_are_noticed() -> None:
    x, bias, _ = made(4, 3, torch.float32)
    rows = x + 1
    kept = (rows * rows).sum()
    out = bias_relu_dropout_(rows, bias)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (kept + out.sum()).backward()


def test_what_the_kernels_do_not_check_is_refused() -> None:
    x, bias, _ = made(4, 3, torch.float32)
    with pytest.raises(InputError, match="1.5"):
        bias_relu_dropout_(x.clone(), bias, torch.arange(4), 1.5, 1)
    for wrong in (bias[:2], bias.double()):
        with pytest.raises(TypeError, match="need a bias"):
            bias_relu_dropout_(x.clone(), wrong)


def test_result_does_not_depend_on_threads_and_layout() -> None:
    x, bias, g = (each.detach() for each in made(5000, 130, torch.float32))
    turned, nodes = x.t().contiguous().t(), torch.arange(5000)
    before, found = torch.get_num_threads(), []
    try:
        for threads, rows in ((1, x.clone()), (2, turned)):
            torch.set_num_threads(threads)
            out = kernel.bias_relu_dropout_rows(rows, bias, nodes, 0.5, 1)
            assert out is rows
            found.append((out, *kernel.bias_relu_dropout_gradients(g, out, bias, 0.5)))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_meta_tensors_have_the_shapes() -> None:
    x, bias = torch.empty(5, 3, device="meta", requires_grad=True), torch.empty(3, device="meta", requires_grad=True)
    out = bias_relu_dropout_(x.clone(), bias, torch.empty(5, dtype=torch.int64, device="meta"), 0.5, 1)
    gradients = torch.autograd.grad(out.sum(), [x, bias])
    assert [tuple(tensor.shape) for tensor in (out, *gradients)] == [(5, 3), (5, 3), (3,)]


def test_schemas_say_what_is_written() -> None:
    x, bias, g = (each.detach() for each in made(6, 5, torch.float64))
    ops, checks = torch.ops.haloscope, ("test_schema", "test_faketensor")
    torch.library.opcheck(ops.bias_relu_dropout_, (x.nan_to_num(), bias, torch.arange(6), 0.5, 3), test_utils=checks)
    torch.library.opcheck(ops.bias_relu_dropout_backward, (g.nan_to_num(), g.relu(), bias, 0.5), test_utils=checks)


class Kept(Dense):
    """A user's layer, derived from one of ours, that keeps its result for the gradient."""

    def forward(self, graph: Any, own: Tensor, halo: Tensor, *, bias: bool = True) -> Tensor:
        return super().forward(graph, own, halo, bias=bias).tanh()


@pytest.mark.parametrize("layer", [GCNConv(5, 7), SAGEConv(5, 7), Dense(5, 7), Kept(5, 7)])
@pytest.mark.parametrize("transformed", [False, True])
def test_models_write_over_rows_that_are_the_layers_own(layer: Any, transformed: bool) -> None:
    """The rows that a method gave are as they were, and values and gradients are those of the layer with its bias."""
    torch.manual_seed(0)
    nn.init.normal_(layer.added())
    model = GNN([layer, Dense(7, 3)], [5, 7, 3], dropout=0.4).train()
    x, nodes = torch.randn(30, 5, requires_grad=True), torch.arange(30) * 3
    z = torch.randn(30, 7 if transformed else 5, requires_grad=True)
    before = z.detach().clone()
    if isinstance(layer, Dense):
        graph: Any = None  # dense layers read none
        found, rows = model.update(0, graph, x, x, x[:0], Drop(nodes, 9)), layer(graph, x, x[:0])
    else:
        found = model.combine(0, x, z, transformed=transformed, drop=Drop(nodes, 9))
        rows = (layer.combine if transformed else layer.mix)(x, z)
    wanted = keyed_dropout(rows.relu(), nodes, 0.4, 9)
    assert torch.equal(z, before)
    torch.testing.assert_close(found, wanted)
    inputs = (x, z, *layer.parameters())
    g = torch.randn(30, 7)
    for mine, its in zip(
        torch.autograd.grad(found, inputs, g, allow_unused=True),
        torch.autograd.grad(wanted, inputs, g, allow_unused=True),
        strict=True,
    ):
        assert (mine is None) == (its is None)
        if mine is not None:
            torch.testing.assert_close(mine, its)
