"""Custom operators: a kernel for each kind of device, behind one schema."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.kernels.custom_operator import OPERATORS, custom_operator


@custom_operator("haloscope_tests::scaled", "(Tensor x, float by) -> Tensor")
def scaled(x: Tensor, by: float) -> Tensor:
    return x * by


@scaled.register_fake
def _(x: Tensor, by: float) -> Tensor:
    return x.new_empty(x.shape)


@scaled.register_kernel("cuda")
def scaled_twice(x: Tensor, by: float) -> Tensor:
    return x * by * 2


def test_tensors_decide_which_kernel_runs() -> None:
    x = torch.ones(3, 2)
    assert torch.equal(scaled(x, 1.5), x * 1.5)
    assert torch.equal(torch.ops.haloscope_tests.scaled(x, 1.5), x * 1.5)
    found = scaled(x.to("meta"), 1.5)
    assert found.is_meta and found.shape == x.shape


def test_kernels_stay_what_they_are() -> None:
    """A decorated GPU kernel can be called by itself, and is found by the kind of its device."""
    assert OPERATORS["haloscope_tests::scaled"] is scaled
    assert scaled.kernels["CUDA"] is scaled_twice
    assert torch.equal(scaled_twice(torch.ones(2), 1.5), torch.full((2,), 3.0))


def test_a_name_is_defined_once() -> None:
    with pytest.raises(RuntimeError, match="scaled"):
        custom_operator("haloscope_tests::scaled", "(Tensor x) -> Tensor")(lambda x: x)


def test_a_schema_must_be_one() -> None:
    with pytest.raises(RuntimeError):
        custom_operator("haloscope_tests::other", "Tensor -> ->")(lambda x: x)
    assert "haloscope_tests::other" not in OPERATORS
