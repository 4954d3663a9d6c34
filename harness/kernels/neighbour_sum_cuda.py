"""Triton kernels of neighbour sums, plain and weighted: one program per row, and per slice of columns of wide rows.

A program reads several entries of its row at a time and adds them up at the end, so that many reads are under way.
Narrow slices, of which those of all rows fit into the second-level cache, were slower than whole rows
(`benchmarks.sums_cuda`). Every sum has a fixed order: there are no atomics, and results repeat bit for bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.kernels.triton_code import jit, tl, triton

ELEMENTS = 1024
"""Values of rows that one program reads at a time."""

WIDEST = 256
"""Columns of a slice at most."""

MOST_ENTRIES = 32
"""Most entries of a row that one program reads at a time."""

TYPES = (torch.float32, torch.bfloat16)
"""Of rows, summed in float32 and rounded once."""


@jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    indptr, indices, weights, x, out, width, heads, plane,
    WEIGHTED: tl.constexpr, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    total = tl.zeros([ENTRIES, COLUMNS], tl.float32)
    end = tl.load(indptr + row + 1)
    for start in range(tl.load(indptr + row), end, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        live = entry < end
        at = tl.load(indices + entry, mask=live, other=0).to(tl.int64)
        there = live[:, None] & inside[None, :]
        rows = tl.load(x + (at * width)[:, None] + column[None, :], mask=there, other=0.0).to(tl.float32)
        if WEIGHTED:
            place = (entry.to(tl.int64) * heads)[:, None] + (column // plane)[None, :]
            rows = rows * tl.load(weights + place, mask=there, other=0.0).to(tl.float32)
        total += rows
    tl.store(out + row * width + column, tl.sum(total, 0).to(out.dtype.element_ty), mask=inside)


def sums_rows(indices: Tensor, x: Tensor) -> bool:
    """Whether the kernel can sum these rows; torch's operators sum others."""
    return triton is not None and x.dtype in TYPES and x.numel() > 0 and indices.numel() > 0


def summed_rows(indptr: Tensor, indices: Tensor, weights: Tensor | None, x: Tensor) -> Tensor:
    """`haloscope::gather_sum`, or with weights `haloscope::gather_weighted_sum`, for CUDA tensors."""
    x = x.contiguous()
    out = x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))
    width, heads = math.prod(x.shape[1:]), 1 if x.ndim == 2 else x.shape[1]
    columns = min(WIDEST, triton.next_power_of_2(width))
    entries = max(1, min(MOST_ENTRIES, ELEMENTS // columns))
    factors = x if weights is None else weights.contiguous()
    _sum_kernel[(out.shape[0], triton.cdiv(width, columns))](
        indptr, indices, factors, x, out, width, heads, width // heads,
        WEIGHTED=weights is not None, COLUMNS=columns, ENTRIES=entries, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return out
