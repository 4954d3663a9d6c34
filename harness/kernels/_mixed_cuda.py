"""The codec of rows with different numbers of bits on CUDA: Triton kernels where Triton is installed, else torch
operators.

Both give the codes of the CPU kernels bit for bit, the kernels in one launch whatever bits the rows have: a program
takes some whole rows, reads them for their ranges and again, from the cache, for their codes. See `mixed`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.kernels import _mixed_torch as mixed_torch
from harness.kernels._mixed_cpu import BRAIN_MAX
from harness.kernels._quantize_cpu import FLOAT_MAX, LIFT, RANGE_MAX, TINY_SCALE
from harness.kernels._quantize_cuda import least, most
from harness.kernels._quantize_torch import fraction_bits
from harness.kernels.finite_rows_cuda import bad_row, refuse
from harness.kernels.packed import MIXED_BITS
from harness.kernels.random import stream_argument
from harness.kernels.triton_code import (
    constant,
    current_stream,
    element_words,
    jit,
    row_words,
    rows_at_once,
    tl,
    triton,
)

ELEMENTS, WIDEST = 1024, 1024
"""Values that one program handles at a time, and the most of them in one row."""

PLANES = constant(8 // min(MIXED_BITS))
"""Codes in one byte, at most."""

WIDEST_BITS = constant(max(MIXED_BITS))
_FRACTION, _FRACTION_OF_WIDEST = constant(fraction_bits(min(MIXED_BITS))), constant(fraction_bits(max(MIXED_BITS)))
_INF, _MAX, _BRAIN_MAX = constant(math.inf), constant(float(FLOAT_MAX)), constant(float(BRAIN_MAX))
_RANGE_MAX, _TINY, _LIFT = constant(float(RANGE_MAX)), constant(float(TINY_SCALE)), constant(float(LIFT))


@jit
def _brain_floor(x):  # type: ignore[no-untyped-def]
    """The largest bf16 that is not above x, as float32."""
    word = x.to(tl.int32, bitcast=True)
    word = tl.where((word < 0) & ((word & 0xFFFF) != 0), word + 0x10000, word)
    return (word & -0x10000).to(tl.float32, bitcast=True)


@jit
def _brain_grid(low, high, levels):  # type: ignore[no-untyped-def]
    """`mixed_cpu.brain_grid`."""
    low = tl.maximum(_brain_floor(low), -_BRAIN_MAX)
    spread = tl.maximum(tl.minimum(high - low, _RANGE_MAX), 0.0)
    scale = tl.div_rn(spread, levels)
    above = (scale.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
    return -_brain_floor(-tl.where(scale * levels < spread, above, scale)), low


@jit
def _encode_kernel(  # type: ignore[no-untyped-def]
    x, row_bits, offsets, codes, side, bad, stream, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    bits = tl.load(row_bits + row, mask=live, other=WIDEST_BITS).to(tl.int32)
    low, high = tl.full([ROWS], _INF, tl.float32), tl.full([ROWS], -_INF, tl.float32)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = live[:, None] & (column < width)[None, :]
        h = tl.load(x + (row * width)[:, None] + column[None, :], mask=inside, other=0.0)
        low = least(low, tl.reduce(tl.where(inside, h, _INF), 1, least))
        high = most(high, tl.reduce(tl.where(inside, h, -_INF), 1, most))
    finite = (low > -_INF) & (high < _INF)
    tl.atomic_min(bad + row * 0, row, mask=live & (finite == 0))
    levels = ((1 << bits) - 1).to(tl.float32)
    scale, low = _brain_grid(low, high, levels)
    tl.store(side + row * 2, scale, mask=live)
    tl.store(side + row * 2 + 1, low, mask=live)
    fraction = tl.where(bits == WIDEST_BITS, _FRACTION_OF_WIDEST, _FRACTION)
    one = (1 << fraction).to(tl.float32)
    up = tl.where((scale > 0.0) & (scale < _TINY), _LIFT, 1.0)
    mul = tl.where(scale > 0.0, tl.div_rn(one, tl.where(scale > 0.0, scale * up, 1.0)), 0.0)
    first, second = row_words(stream, row)
    plane, begin = (width * bits + 7) // 8, tl.load(offsets + row, mask=live, other=0)
    for start in range(0, width, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        here = live[:, None] & (at[None, :] < plane[:, None])
        packed = tl.zeros([ROWS, COLUMNS], tl.int32)
        for k in tl.static_range(PLANES):
            column = (k * plane)[:, None] + at[None, :]
            inside = here & (column < width)  # which no column is of planes that the row does not have
            h = tl.load(x + (row * width)[:, None] + column, mask=inside, other=0.0)
            t = (h - low[:, None]) * up[:, None] * mul[:, None]
            t = tl.maximum(tl.minimum(t, (levels * one)[:, None]), 0.0)
            noise = element_words(first[:, None], second[:, None], column) >> (32 - fraction).to(tl.uint32)[:, None]
            code = (t.to(tl.int32) + noise.to(tl.int32)) >> fraction[:, None]
            packed = packed | (tl.where(inside, code, 0) << (k * bits)[:, None])
        tl.store(codes + begin[:, None] + at[None, :], packed.to(tl.uint8), mask=here)


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    codes, side, row_bits, offsets, out, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, live = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), row < num_rows
    inside = live[:, None] & (column < width)[None, :]
    bits = tl.load(row_bits + row, mask=live, other=WIDEST_BITS).to(tl.int32)[:, None]
    plane = (width * bits + 7) // 8
    byte = tl.load(offsets + row, mask=live, other=0)[:, None] + column[None, :] % plane
    code = tl.load(codes + byte, mask=inside, other=0).to(tl.int32) >> (column[None, :] // plane * bits)
    scale = tl.load(side + row * 2, mask=live, other=0.0)[:, None]
    low = tl.load(side + row * 2 + 1, mask=live, other=0.0)[:, None]
    value = tl.minimum(low + (code & ((1 << bits) - 1)).to(tl.float32) * scale, _MAX)
    tl.store(out + (row * width)[:, None] + column[None, :], value, mask=inside)


def quantize_mixed_cuda(
    rows: Tensor, row_bits: Tensor, offsets: Tensor, key: int, nbytes: int
) -> tuple[Tensor, Tensor]:
    """`quantize_mixed` for CUDA tensors."""
    if triton is None or not rows.numel():
        return mixed_torch.quantize_mixed_torch(rows, row_bits, offsets, key, nbytes)
    rows, (num_rows, width) = rows.float().contiguous(), rows.shape
    codes, side = rows.new_empty(nbytes, dtype=torch.uint8), rows.new_empty((num_rows, 2))
    bad, tile = bad_row(rows.device, current_stream(rows.device)), rows_at_once(width, 1, ELEMENTS, WIDEST)
    _encode_kernel[(triton.cdiv(num_rows, tile["ROWS"]),)](
        rows, row_bits, offsets, codes, side, bad, stream_argument(key), num_rows, width, **tile
    )
    refuse(bad, num_rows)
    return codes, side.bfloat16()


def dequantize_mixed_cuda(codes: Tensor, side: Tensor, row_bits: Tensor, offsets: Tensor, width: int) -> Tensor:
    """`dequantize_mixed` for CUDA tensors."""
    if triton is None or not side.shape[0] * width:
        return mixed_torch.dequantize_mixed_torch(codes, side, row_bits, offsets, width)
    out = side.new_empty((side.shape[0], width), dtype=torch.float32)
    tile = rows_at_once(width, 1, ELEMENTS, WIDEST)
    grid = (triton.cdiv(out.shape[0], tile["ROWS"]), triton.cdiv(width, tile["COLUMNS"]))
    _decode_kernel[grid](
        codes.contiguous(), side.float().contiguous(), row_bits, offsets, out, out.shape[0], width, **tile
    )
    return out
