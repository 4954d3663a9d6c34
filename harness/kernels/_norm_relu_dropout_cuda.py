"""Triton kernels of bias, LayerNorm, ReLU and keyed dropout; see `norm_relu_dropout` for the definition.

A program holds whole rows. Forwards it reads and writes each once; backwards it computes statistics again and adds the
gradients of the parameters of its rows, one group after the other, so that sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.kernels.random import UNIFORM_BITS, stream_argument
from harness.kernels.triton_code import constant, element_words, jit, row_words, tl, triton

ELEMENTS = 2048
"""Values that one program holds at a time."""

WIDEST = 4096
"""Columns of the widest rows that the kernels take."""

ROWS_PER_SUM = 256
"""Rows whose gradients of the parameters one program adds up; more where they are narrow."""

TYPES = (torch.float32, torch.bfloat16)

_DROP = constant(32 - UNIFORM_BITS)


@jit
def _normed(x, affine, row, column, inside, width, eps):  # type: ignore[no-untyped-def]
    """Rows minus their mean over their standard deviation, and the reciprocal of that."""
    there = (row * width)[:, None] + column[None, :]
    rows = tl.load(x + there, mask=inside, other=0.0).to(tl.float32)
    rows = rows + tl.load(affine + column, mask=column < width, other=0.0)[None, :]
    apart = tl.where(inside, rows - (tl.sum(rows, 1) / width)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / width + eps)
    return apart * scale[:, None], scale


@jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, affine, nodes, out, stream, factor, threshold, num_rows, width, eps,
    DROPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    live, wide = row < num_rows, column < width
    inside = live[:, None] & wide[None, :]
    apart, _ = _normed(x, affine, row, column, inside, width, eps)
    value = apart * tl.load(affine + width + column, mask=wide, other=0.0)[None, :]
    value = value + tl.load(affine + 2 * width + column, mask=wide, other=0.0)[None, :]
    value = tl.where(value <= 0.0, 0.0, value)  # nan passes, as in torch
    if DROPS:
        low, high = row_words(stream, tl.load(nodes + row, mask=live, other=0))
        bits = (element_words(low[:, None], high[:, None], column[None, :]) >> _DROP).to(tl.int32)
        value = tl.where(bits >= threshold, value * factor, 0.0)
    tl.store(out + (row * width)[:, None] + column[None, :], value.to(out.dtype.element_ty), mask=inside)


@jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    g, x, out, affine, found, sums, factor, num_rows, width, eps,
    STEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, COLUMNS)
    wide = column < width
    weight = tl.load(affine + width + column, mask=wide, other=0.0)
    of_bias, of_weight = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    of_shift = tl.zeros([COLUMNS], tl.float32)
    for step in range(STEPS):
        row = (tl.program_id(0).to(tl.int64) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & wide[None, :]
        apart, scale = _normed(x, affine, row, column, inside, width, eps)
        there = (row * width)[:, None] + column[None, :]
        passed = tl.load(g + there, mask=inside, other=0.0).to(tl.float32) * factor
        result = tl.load(out + there, mask=inside, other=0.0).to(tl.float32)
        passed = tl.where(result <= 0.0, 0.0, passed)
        of_shift += tl.sum(passed, 0)
        of_weight += tl.sum(passed * apart, 0)
        passed = passed * weight[None, :]
        plain, scaled = tl.sum(passed, 1) / width, tl.sum(passed * apart, 1) / width
        value = (passed - plain[:, None] - apart * scaled[:, None]) * scale[:, None]
        value = tl.where(inside, value, 0.0)
        of_bias += tl.sum(value, 0)
        tl.store(found + there, value.to(found.dtype.element_ty), mask=inside)
    place = sums + tl.program_id(0).to(tl.int64) * 3 * width + column
    tl.store(place, of_bias, mask=wide)
    tl.store(place + width, of_weight, mask=wide)
    tl.store(place + 2 * width, of_shift, mask=wide)


def norms_rows(x: Tensor) -> bool:
    """Whether the kernels can handle these rows [n, d]; torch's operators handle others."""
    return triton is not None and x.dtype in TYPES and x.numel() > 0 and x.shape[1] <= WIDEST


def _tile(width: int) -> dict[str, Any]:
    columns = triton.next_power_of_2(width)
    return {"ROWS": max(1, ELEMENTS // columns), "COLUMNS": columns, "num_warps": 4, "enable_fp_fusion": False}


def forward(
    x: Tensor, affine: Tensor, nodes: Tensor, eps: float, key: int, factor: float, threshold: int, drops: bool
) -> Tensor:
    """`haloscope::norm_relu_dropout` for CUDA tensors: elements whose 24 bits reach `threshold` are kept."""
    x, affine, tile = x.contiguous(), affine.contiguous(), _tile(x.shape[1])
    out = torch.empty_like(x)
    _forward_kernel[(triton.cdiv(x.shape[0], tile["ROWS"]),)](
        x, affine, nodes.contiguous(), out, stream_argument(key), factor, threshold, *x.shape, eps, DROPS=drops, **tile
    )
    return out


def backward(g: Tensor, x: Tensor, out: Tensor, affine: Tensor, eps: float, factor: float) -> tuple[Tensor, Tensor]:
    """`haloscope::norm_relu_dropout_backward` for CUDA tensors."""
    g, x, out, affine, tile = g.contiguous(), x.contiguous(), out.contiguous(), affine.contiguous(), _tile(x.shape[1])
    steps = max(1, ROWS_PER_SUM // tile["ROWS"])
    programs = triton.cdiv(x.shape[0], steps * tile["ROWS"])
    found, sums = torch.empty_like(g), affine.new_empty(programs, *affine.shape)
    _backward_kernel[(programs,)](g, x, out, affine, found, sums, factor, *x.shape, eps, STEPS=steps, **tile)
    return found, sums.sum(0)
