"""Keyed dropout of float32 and bfloat16 rows on CUDA, after a ReLU or without, in one pass; see `dropout`."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels.random import UNIFORM_BITS, stream_argument
from harness.kernels.triton_code import (
    constant,
    element_words,
    jit,
    row_words,
    rows_at_once,
    tl,
    triton,
)

ELEMENTS, WIDEST = 2048, 1024
TYPES = (torch.float32, torch.bfloat16)

_DROP = constant(32 - UNIFORM_BITS)


@jit
def _kernel(  # type: ignore[no-untyped-def]
    x, nodes, out, stream, factor, threshold, num_rows, width,
    RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, second = row_words(stream, tl.load(nodes + row, mask=row < num_rows, other=0))
    keep = (element_words(first[:, None], second[:, None], column[None, :]) >> _DROP).to(tl.int32) >= threshold
    inside, at = (row < num_rows)[:, None] & (column < width)[None, :], (row * width)[:, None] + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.where(value <= 0.0, 0.0, value)  # nan passes, as in torch
    tl.store(out + at, tl.where(keep, value * factor, 0.0).to(out.dtype.element_ty), mask=inside)


def drops_rows(x: Tensor) -> bool:
    """Whether the kernel can handle these rows [n, d]; torch's operators handle others."""
    return triton is not None and x.dtype in TYPES and x.numel() > 0


def dropout(x: Tensor, nodes: Tensor, factor: float, threshold: int, key: int, relu: bool = False) -> Tensor:
    """x [n, d], or max(x, 0), times `factor` where the 24 bits of (key, node, column) reach `threshold`, else 0.

    It is computed in float32, and rounded to the type of x once.
    """
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    tile = rows_at_once(x.shape[1], 1, ELEMENTS, WIDEST)
    grid = (triton.cdiv(x.shape[0], tile["ROWS"]), triton.cdiv(x.shape[1], tile["COLUMNS"]))
    _kernel[grid](x, nodes.contiguous(), out, stream_argument(key), factor, threshold, *x.shape, RELU=relu, **tile)
    return out
