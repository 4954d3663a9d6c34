"""ReLU and dropout in one pass: the same bits as one after the other, forwards and backwards."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.errors import InputError
from harness.kernels import relu_dropout as kernel
from harness.kernels.dropout import keyed_dropout
from harness.kernels.relu_dropout import relu_dropout
from harness.nn import GNN, Dense, Drop

SPECIAL = [0.0, -0.0, 1e-38, -1e-38, 1e-45, 3e38, float("inf"), -float("inf"), float("nan")]


def rows(num_rows: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Normal values with some special ones among them."""
    made = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    flat = made.view(-1)
    for at, value in enumerate(SPECIAL):
        flat[(7 * at + 3) :: 97] = value
    return made


def bits(values: Tensor) -> Tensor:
    """Integers that are equal where the values are, nan to nan and zero to zero of either sign."""
    whole = torch.where(values == 0, torch.zeros_like(values), values)
    return whole.view(torch.int32 if values.dtype == torch.float32 else torch.int64)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 40), st.integers(0, 70), st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from([1e-7, 0.3, 0.5, 0.9, 1.0]), st.integers(-(2**63), 2**64),
)  # fmt: skip
def test_same_bits_as_one_after_the_other(num_rows: int, width: int, dtype: torch.dtype, p: float, key: int) -> None:
    x, g = rows(num_rows, width, dtype, 0), rows(num_rows, width, dtype, 1)
    nodes = torch.arange(num_rows) * 7 + 1
    one, other = (x.clone().requires_grad_() for _ in range(2))
    fused, plain = relu_dropout(one, nodes, p, key), keyed_dropout(other.relu(), nodes, p, key)
    assert torch.equal(bits(fused), bits(plain))
    fused.backward(g)
    plain.backward(g)
    assert one.grad is not None and other.grad is not None
    assert torch.equal(bits(one.grad), bits(other.grad))


def test_limits() -> None:
    x, nodes = rows(4, 3, torch.float32, 2), torch.arange(4)
    torch.testing.assert_close(relu_dropout(x, nodes, 0.0, 1), x.relu(), equal_nan=True)
    assert not relu_dropout(torch.ones(4, 3), nodes, 1.0, 1).any()
    with pytest.raises(InputError, match="1.5"):
        relu_dropout(x, nodes, 1.5, 1)


def test_rows_that_are_not_contiguous() -> None:
    x, nodes = torch.randn(9, 6, generator=torch.Generator().manual_seed(0)).t(), torch.arange(6)
    fused = relu_dropout(x.requires_grad_(), nodes, 0.4, 3)
    assert torch.equal(fused, keyed_dropout(x.relu(), nodes, 0.4, 3))
    (gradient,) = torch.autograd.grad(fused, x, torch.ones(9, 6).t())
    assert torch.equal(gradient, torch.where(fused > 0, 1 / torch.tensor(0.6), torch.tensor(0.0)))


def test_result_does_not_depend_on_threads() -> None:
    x, nodes = rows(4096, 300, torch.float32, 3), torch.arange(4096)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = kernel.relu_dropout_rows(x, nodes, 0.5, 1)
            found.append((bits(out), bits(kernel.relu_dropout_gradient(x, out, 0.5))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_meta_tensors_have_the_shapes() -> None:
    x = torch.empty(5, 3, device="meta", requires_grad=True)
    out = relu_dropout(x, torch.empty(5, dtype=torch.int64, device="meta"), 0.5, 1)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.shape == gradient.shape == (5, 3)


@pytest.mark.parametrize(("norm", "training"), list(product(["none", "layer", "l2"], [True, False])))
def test_a_model_drops_what_the_layer_above_would_drop(norm: str, training: bool) -> None:
    torch.manual_seed(0)
    model = GNN([Dense(5, 7), Dense(7, 3)], [5, 7, 3], dropout=0.4, norm=norm).train(training)  # type: ignore[arg-type]
    graph: Any = None  # dense layers read none
    x, nodes = torch.randn(30, 5), torch.arange(30) * 3
    apart = model.drop(model.update(0, graph, x, x, x[:0]), nodes, 9)
    together = model.update(0, graph, x, x, x[:0], Drop(nodes, 9))
    assert torch.equal(apart, together)
    last = model.update(1, graph, together, together, together[:0], Drop(nodes, 9))
    assert torch.equal(last, model.update(1, graph, apart, apart, apart[:0])), "logits are never dropped"
