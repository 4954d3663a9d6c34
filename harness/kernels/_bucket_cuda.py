"""The bucket codec on CUDA: Triton kernels where Triton is installed, torch operators where it is not.

Both give the codes of the CPU kernels bit for bit. A first kernel computes the buckets of the groups, in double
precision; the others look up a row's group in that table. See `bucket` for definition and layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.kernels import _bucket_torch as bucket_torch
from harness.kernels._bucket_cpu import DOWN, HUGE, NOWHERE, TINY, UP
from harness.kernels.packed import code_bytes
from harness.kernels.triton_code import constant, jit, rows_at_once, tl, triton

ELEMENTS, WIDEST = 2048, 2048
NUMBERS = constant(len(bucket_torch.Grids._fields) - 1)
"""Columns of the table: the fields of `Grids` but the last, in their order."""

GROUPS = 128
"""Groups per program."""

_NOWHERE, _HUGE, _TINY = constant(NOWHERE), constant(HUGE), constant(TINY)
_DOWN, _UP = constant(DOWN), constant(UP)


@jit
def _table_kernel(side, table, num_groups, BITS: tl.constexpr, FIRST: tl.constexpr, GROUPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`bucket_cpu.grid_of` of every group."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    live = group < num_groups
    low = tl.load(side + group * 2, mask=live, other=0.0).to(tl.float64)
    high = tl.load(side + group * 2 + 1, mask=live, other=0.0).to(tl.float64)
    crosses = (low < 0.0) & (high > 0.0) & (BITS > 1)
    intervals = (2.0**BITS - FIRST) - crosses.to(tl.float64)
    step = (high - low) / intervals
    lift = tl.where((step > 0.0) & (step < _TINY), _UP, 1.0)
    lift = tl.where(tl.maximum(tl.abs(low), tl.abs(high)) > _HUGE, _DOWN, lift).to(tl.float64)
    split = tl.minimum(tl.floor(-low / tl.where(crosses, step, 1.0)), intervals - 1.0)
    below = tl.minimum(low + split * step, 0.0) * 0.5
    above = tl.maximum(low + (split + 1.0) * step, 0.0) * 0.5
    inverse = tl.where(step > 0.0, 1.0 / tl.where(step > 0.0, step * lift, 1.0), 0.0)
    to = table + group * NUMBERS
    tl.store(to, lift.to(tl.float32), mask=live)
    tl.store(to + 1, (low * lift).to(tl.float32), mask=live)
    tl.store(to + 2, (step * lift).to(tl.float32), mask=live)
    tl.store(to + 3, inverse.to(tl.float32), mask=live)
    tl.store(to + 4, (1.0 / lift).to(tl.float32), mask=live)
    tl.store(to + 5, (intervals - 1.0).to(tl.float32), mask=live)
    tl.store(to + 6, tl.where(crosses, split, 1.0 * _NOWHERE).to(tl.float32), mask=live)
    tl.store(to + 7, tl.where(crosses, below, 0.0).to(tl.float32), mask=live)
    tl.store(to + 8, tl.where(crosses, above, 0.0).to(tl.float32), mask=live)


@jit
def _midpoints(code, low, step, unlift, split, below, above, FIRST: tl.constexpr):  # type: ignore[no-untyped-def]
    """`bucket_cpu.values_of`."""
    bucket = code - FIRST
    at = bucket - ((split != _NOWHERE) & (bucket > split)).to(tl.int32)
    value = (low + (at.to(tl.float32) + 0.5) * step) * unlift
    value = tl.where(bucket == split, below, value)
    value = tl.where(bucket == split + 1, above, value)
    return tl.where(bucket >= 0, value, 0.0)


@jit
def bucket_codes(v, grid, FIRST: tl.constexpr):  # type: ignore[no-untyped-def]
    """`bucket_cpu.codes_of` of values; `grid` points to the numbers of their groups."""
    low, split = tl.load(grid + 1), tl.load(grid + 6).to(tl.int32)
    bucket = ((v * tl.load(grid) - low) * tl.load(grid + 3)).to(tl.int32)
    top, crosses, positive = tl.load(grid + 5).to(tl.int32), split != _NOWHERE, v > 0.0
    bucket = tl.minimum(bucket, tl.where(crosses & (positive == 0), split, top))
    bucket = tl.maximum(bucket, tl.where(crosses & positive, split, 0))
    code = bucket + FIRST + (crosses & positive).to(tl.int32)
    if FIRST == 1:
        code = tl.where(v == 0.0, 0, code)
    return code


@jit
def bucket_values(code, grid, FIRST: tl.constexpr):  # type: ignore[no-untyped-def]
    """`bucket_cpu.values_of` of codes; `grid` points to the numbers of their groups."""
    low, step, unlift, split = tl.load(grid + 1), tl.load(grid + 2), tl.load(grid + 4), tl.load(grid + 6).to(tl.int32)
    return _midpoints(code, low, step, unlift, split, tl.load(grid + 7), tl.load(grid + 8), FIRST)


@jit
def _encode_kernel(  # type: ignore[no-untyped-def]
    x, table, groups, codes, error, num_rows, width, plane, BITS: tl.constexpr, FIRST: tl.constexpr,
    KEEP: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = row < num_rows
    grid = (table + tl.load(groups + row, mask=live, other=0) * NUMBERS)[:, None, None]
    column = tl.arange(0, PLANES)[None, :, None] * plane + at[None, None, :]
    inside = live[:, None, None] & (at < plane)[None, None, :] & (column < width)
    place = (row * width)[:, None, None] + column
    v = tl.load(x + place, mask=inside, other=0.0)
    code = bucket_codes(v, grid, FIRST)
    if KEEP:
        tl.store(error + place, v - bucket_values(code, grid, FIRST), mask=inside)
    packed = tl.sum(tl.where(inside, code, 0) << (tl.arange(0, PLANES) * BITS)[None, :, None], 1)
    target = codes + (row * plane)[:, None] + at[None, :]
    tl.store(target, packed.to(codes.dtype.element_ty), mask=live[:, None] & (at < plane)[None, :])


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    codes, table, groups, out, num_rows, width, plane,
    BITS: tl.constexpr, FIRST: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = row < num_rows
    grid = (table + tl.load(groups + row, mask=live, other=0) * NUMBERS)[:, None]
    low, step, unlift, split = tl.load(grid + 1), tl.load(grid + 2), tl.load(grid + 4), tl.load(grid + 6).to(tl.int32)
    below, above = tl.load(grid + 7), tl.load(grid + 8)
    inside = live[:, None] & (at < plane)[None, :]
    packed = tl.load(codes + (row * plane)[:, None] + at[None, :], mask=inside, other=0).to(tl.int32)
    for k in tl.static_range(PLANES):
        column = k * plane + at
        code = (packed >> (k * BITS)) & ((1 << BITS) - 1)
        value = _midpoints(code, low, step, unlift, split, below, above, FIRST)
        tl.store(out + (row * width)[:, None] + column[None, :], value, mask=inside & (column < width)[None, :])


def groups_of_rows(side: Tensor, starts: Tensor, bits: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """The table of the groups' numbers, float32 [G, 9], and the group of every row, int32 [n]."""
    num_groups, first = side.shape[0], int(bits > 1)
    table = side.new_empty((num_groups, len(bucket_torch.Grids._fields) - 1))
    _table_kernel[(triton.cdiv(num_groups, GROUPS),)](
        side.contiguous(), table, num_groups, BITS=bits, FIRST=first, GROUPS=GROUPS, enable_fp_fusion=False
    )
    if num_groups == 1:
        groups = torch.zeros(num_rows, dtype=torch.int32, device=side.device)
    else:
        numbers = torch.arange(num_groups, dtype=torch.int32, device=side.device)
        groups = numbers.repeat_interleave(starts.diff(), output_size=num_rows)
    return table, groups


def _launch(side: Tensor, starts: Tensor, bits: int, num_rows: int, plane: int) -> tuple[Any, tuple[Any, ...], Any]:
    """Grid, table and groups of the rows, and the tile."""
    planes, first = max(1, 8 // bits), int(bits > 1)
    tile = rows_at_once(plane, planes, ELEMENTS, WIDEST) | {"BITS": bits, "FIRST": first, "PLANES": planes}
    grid = (triton.cdiv(num_rows, tile["ROWS"]), triton.cdiv(plane, tile["COLUMNS"]))
    return grid, groups_of_rows(side, starts, bits, num_rows), tile


def encode(rows: Tensor, side: Tensor, starts: Tensor, bits: int, keep_error: bool) -> tuple[Tensor, Tensor]:
    """`bucket_encode` for CUDA tensors."""
    if triton is None or not rows.numel():
        return bucket_torch.encode(rows, side, starts, bits, keep_error)
    rows = rows.float().contiguous()
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    error = rows.new_empty((rows.shape[0] if keep_error else 0, rows.shape[1]))
    packed = codes.view(torch.uint16) if bits == 16 else codes
    grid, given, tile = _launch(side, starts, bits, rows.shape[0], packed.shape[1])
    _encode_kernel[grid](rows, *given, packed, error, *rows.shape, packed.shape[1], KEEP=keep_error, **tile)
    return codes, error


def decode(codes: Tensor, side: Tensor, starts: Tensor, bits: int, width: int) -> Tensor:
    """`bucket_decode` for CUDA tensors."""
    if triton is None or not codes.numel():
        return bucket_torch.decode(codes, side, starts, bits, width)
    out = codes.new_empty((codes.shape[0], width), dtype=torch.float32)
    packed = codes.contiguous().view(torch.uint16) if bits == 16 else codes.contiguous()
    grid, given, tile = _launch(side, starts, bits, codes.shape[0], packed.shape[1])
    _decode_kernel[grid](packed, *given, out, *out.shape, packed.shape[1], **tile)
    return out
