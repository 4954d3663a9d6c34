"""Bias, LayerNorm, ReLU and dropout in one pass: the values and gradients of the four one after the other."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from harness.errors import InputError
from harness.kernels import norm_relu_dropout as kernel
from harness.kernels.dropout import keyed_dropout
from harness.kernels.norm_relu_dropout import norm_relu_dropout
from harness.nn import GNN, Dense
from tests.support.kernel_devices import KernelDevice


def made(num_rows: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, nn.LayerNorm, Tensor]:
    """Rows, bias, a norm with parameters of its own, and gradients of the result."""
    source = torch.Generator().manual_seed(num_rows * 1000 + width)
    x, g = (torch.randn(num_rows, width, generator=source, dtype=dtype) for _ in range(2))
    bias, weight, shift = torch.randn(3, width, generator=source, dtype=dtype)
    norm = nn.LayerNorm(width, dtype=dtype)
    with torch.no_grad():
        norm.weight.copy_(weight)
        norm.bias.copy_(shift)
    return x.requires_grad_(), bias.requires_grad_(), norm, g


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 1100), st.integers(1, 70), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.booleans(),
    st.integers(-(2**63), 2**64),
)  # fmt: skip
def test_values_and_gradients_are_those_of_one_after_the_other(
    num_rows: int, width: int, p: float, biased: bool, key: int
) -> None:
    x, bias, norm, g = made(num_rows, width, torch.float64)
    nodes, inputs = torch.arange(num_rows) * 7 + 1, (x, bias, norm.weight, norm.bias)
    plain = keyed_dropout(norm(x + bias if biased else x).relu(), nodes, p, key)
    fused = norm_relu_dropout(x, bias if biased else None, norm, nodes, p, key)
    torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-9)
    wanted = torch.autograd.grad(plain, inputs, g, allow_unused=True)
    for mine, its in zip(torch.autograd.grad(fused, inputs, g, allow_unused=True), wanted, strict=True):
        assert (mine is None) == (its is None)
        if mine is not None:
            torch.testing.assert_close(mine, its, rtol=1e-7, atol=1e-7)


def test_single_precision_is_as_close_as_torch() -> None:
    x, bias, norm, g = made(700, 256, torch.float32)
    exact = norm_relu_dropout(x.double(), bias.double(), nn.LayerNorm(256, dtype=torch.float64))
    norm = nn.LayerNorm(256)
    ours, theirs = norm_relu_dropout(x, bias, norm), norm(x + bias).relu()
    assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max()
    large = norm_relu_dropout(x + 1000, None, norm)  # a mean far above the deviation
    torch.testing.assert_close(large, norm(x + 1000).relu(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (7, 33), (530, 8), (3, 300), (530, 33)])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_kernels_of_gpus_are_those_of_the_cpu(
    where: KernelDevice, dtype: torch.dtype, num_rows: int, width: int, p: float
) -> None:
    """The same elements are dropped; values and gradients to rounding, the gradients of the parameters included."""
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    x, bias, norm, g = (each.to(dtype if index in (0, 3) else kept)
                        for index, each in enumerate(made(num_rows, width, torch.float64)))  # fmt: skip
    x, g, affine = x.detach(), g.detach(), torch.stack([bias, norm.weight, norm.bias]).detach()
    nodes, results = torch.arange(num_rows) * 10**11, []
    for there, kernels in ((torch.Tensor.cpu, nullcontext()), (where.there, where.kernels())):
        with kernels:
            given = [there(each) for each in (x, affine, nodes)]
            out = torch.ops.haloscope.norm_relu_dropout(*given, 1e-5, p, -3)
            found = torch.ops.haloscope.norm_relu_dropout_backward(there(g), given[0], out, given[1], 1e-5, p)
        results.append([each.cpu() for each in (out, *found)])
    near = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    for expected, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, rtol=near, atol=near * max(1.0, num_rows / 20))


def test_relu_and_dropout_on_gpus_are_those_of_the_cpu(where: KernelDevice) -> None:
    x, nodes = torch.randn(40, 70, generator=torch.Generator().manual_seed(1)), torch.arange(40) * 10**11
    x[3, 5] = float("nan")
    expected = torch.ops.haloscope.relu_dropout(x, nodes, 0.4, 9)
    gradient = torch.ops.haloscope.relu_dropout_backward(x, expected, 0.4)
    with where.kernels():
        found = torch.ops.haloscope.relu_dropout(where.there(x), where.there(nodes), 0.4, 9)
        of_found = torch.ops.haloscope.relu_dropout_backward(where.there(x), found, 0.4)
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(of_found.cpu(), gradient, rtol=0, atol=0, equal_nan=True)


def test_nan_and_infinity_reach_the_result() -> None:
    x, _, norm, _ = made(3, 8, torch.float32)
    with torch.no_grad():
        x[0, 1], x[1, 2] = float("nan"), float("inf")
    out = norm_relu_dropout(x, None, norm)
    assert out[:2].isnan().any(1).all() and out[2].isfinite().all()


def test_probabilities_outside_their_range_are_refused() -> None:
    x, bias, norm, _ = made(4, 3, torch.float32)
    with pytest.raises(InputError, match="1.5"):
        norm_relu_dropout(x, bias, norm, torch.arange(4), 1.5, 1)


def test_result_does_not_depend_on_threads_and_layout() -> None:
    x, bias, norm, g = made(5000, 130, torch.float32)
    affine = torch.stack([bias, norm.weight, norm.bias]).detach()
    turned, nodes = x.detach().t().contiguous().t(), torch.arange(5000)
    before, found = torch.get_num_threads(), []
    try:
        for threads, rows in ((1, x.detach()), (2, turned)):
            torch.set_num_threads(threads)
            out = kernel.norm_relu_dropout_rows(rows, affine, nodes, 1e-5, 0.5, 1)
            found.append((out, *kernel.norm_relu_dropout_gradients(g, rows, out, affine, 1e-5, 0.5)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_meta_tensors_have_the_shapes() -> None:
    x, norm = torch.empty(5, 3, device="meta", requires_grad=True), nn.LayerNorm(3, device="meta")
    out = norm_relu_dropout(x, None, norm, torch.empty(5, dtype=torch.int64, device="meta"), 0.5, 1)
    gradients = torch.autograd.grad(out.sum(), [x, norm.weight])
    assert [tuple(tensor.shape) for tensor in (out, *gradients)] == [(5, 3), (5, 3), (3,)]


def test_a_bias_is_added_once_wherever_that_is_done() -> None:
    torch.manual_seed(0)
    layer, norm = Dense(5, 7), nn.LayerNorm(7)
    model = GNN([layer, Dense(7, 3)], [5, 7, 3], norm="layer")
    model.norms[0] = norm
    x = torch.randn(20, 5)
    graph = None  # dense layers read none
    wanted = norm(layer.linear(x)).relu()
    torch.testing.assert_close(model.update(0, graph, x, x, x[:0]), wanted)  # type: ignore[arg-type]
    last = model.update(1, graph, wanted, wanted, wanted[:0])  # type: ignore[arg-type]
    torch.testing.assert_close(last, model.layers[1].linear(wanted))  # type: ignore[operator,union-attr]
