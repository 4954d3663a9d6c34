"""The row quantisers on CUDA: Triton kernels where Triton is installed, torch operators where it is not.

Both give the codes of the CPU kernels bit for bit. One program reads some whole rows, finds their ranges, and codes
them from registers, so that a row is read from device memory once (rows wider than WIDEST are read twice, the second
time from the cache). Divisions are `div_rn`, because Triton's `/` is not IEEE's. See `quantize` for the layout.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.kernels import _quantize_torch as quantize_torch
from harness.kernels._quantize_cpu import FLOAT_MAX, HALF_MAX, LIFT, RANGE_MAX, TINY_SCALE
from harness.kernels._quantize_torch import fraction_bits
from harness.kernels.finite_rows_cuda import bad_row, refuse
from harness.kernels.packed import code_bytes
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

ELEMENTS, WIDEST, WARPS = 2048, 4096, 2
"""Values that one program codes or decodes at a time, the most of them in one row, and its warps."""

_INF, _FLOAT_MAX = constant(math.inf), constant(float(FLOAT_MAX))
_HALF_MAX, _RANGE_MAX = constant(float(HALF_MAX)), constant(float(RANGE_MAX))
_TINY, _LIFT = constant(float(TINY_SCALE)), constant(float(LIFT))


@jit
def least(a, b):  # type: ignore[no-untyped-def]
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def most(a, b):  # type: ignore[no-untyped-def]
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def _half_floor(x):  # type: ignore[no-untyped-def]
    """The largest multiple of the fp16 spacing at x that is not above x."""
    exponent = tl.maximum(((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127, -14)
    quantum = ((exponent + 117) << 23).to(tl.float32, bitcast=True)
    return tl.floor(tl.div_rn(x, quantum)) * quantum


@jit
def _grid(low, high, LEVELS: tl.constexpr, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scale and minimum of rows, as `quantize_cpu.grid`."""
    if HALF:
        low = tl.minimum(tl.maximum(_half_floor(low), -_HALF_MAX), _HALF_MAX)
    spread = tl.maximum(tl.minimum(high - low, _RANGE_MAX), 0.0)
    scale = tl.div_rn(spread, tl.full(spread.shape, LEVELS, tl.float32))
    above = (scale.to(tl.int32, bitcast=True) + 1).to(tl.float32, bitcast=True)
    scale = tl.where(scale * LEVELS < spread, above, scale)
    if HALF:
        scale = tl.minimum(-_half_floor(-scale), _HALF_MAX)
    return scale, low


@jit
def _piece(x, row, num_rows, width, plane, start, PLANES: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Values [rows, PLANES, COLUMNS] from column `start` of every plane on; and which of them there are."""
    at = start + tl.arange(0, COLUMNS)[None, None, :]
    column = tl.arange(0, PLANES)[None, :, None] * plane + at
    inside = (row < num_rows)[:, None, None] & (at < plane) & (column < width)
    return tl.load(x + (row * width)[:, None, None] + column, mask=inside, other=0.0), inside, column


@jit
def _extremes(h, inside):  # type: ignore[no-untyped-def]
    """Smallest and largest value of every row; nan where one is nan."""
    low = tl.reduce(tl.reduce(tl.where(inside, h, _INF), 2, least), 1, least)
    return low, tl.reduce(tl.reduce(tl.where(inside, h, -_INF), 2, most), 1, most)


@jit
def _store_codes(  # type: ignore[no-untyped-def]
    codes, h, inside, column, row, num_rows, plane, start, low, up, mul, first, second,
    BITS: tl.constexpr, FRACTION: tl.constexpr, TOP: tl.constexpr, NEAREST: tl.constexpr,
    PLANES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Round, pack and store one piece."""
    t = (h - low[:, None, None]) * up[:, None, None] * mul[:, None, None]
    t = tl.maximum(tl.minimum(t, TOP), 0.0)
    if NEAREST:
        code = (t + 0.5).to(tl.int32)
    else:
        noise = element_words(first[:, None, None], second[:, None, None], column) >> (32 - FRACTION)
        code = (t.to(tl.int32) + noise.to(tl.int32)) >> FRACTION
    shift = (tl.arange(0, PLANES) * BITS)[None, :, None]
    packed = tl.sum(tl.where(inside, code, 0) << shift, 1)
    at = start + tl.arange(0, COLUMNS)[None, :]
    target = codes + (row * plane)[:, None] + at
    tl.store(target, packed.to(codes.dtype.element_ty), mask=(row < num_rows)[:, None] & (at < plane))


@jit
def _encode_kernel(  # type: ignore[no-untyped-def]
    x, codes, side, bad, stream, num_rows, width, plane,
    BITS: tl.constexpr, FRACTION: tl.constexpr, NEAREST: tl.constexpr, HALF: tl.constexpr, WHOLE: tl.constexpr,
    PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    h, inside, column = _piece(x, row, num_rows, width, plane, 0, PLANES, COLUMNS)
    low, high = _extremes(h, inside)
    if not WHOLE:
        for start in range(COLUMNS, plane, COLUMNS):
            h, inside, column = _piece(x, row, num_rows, width, plane, start, PLANES, COLUMNS)
            lower, higher = _extremes(h, inside)
            low, high = least(low, lower), most(high, higher)
    finite = (low > -_INF) & (high < _INF)
    tl.atomic_min(bad + row * 0, row, mask=live & (finite == 0))
    scale, low = _grid(low, high, 2.0**BITS - 1, HALF)
    tl.store(side + row * 2, scale.to(side.dtype.element_ty), mask=live)
    tl.store(side + row * 2 + 1, low.to(side.dtype.element_ty), mask=live)
    up = tl.where((scale > 0.0) & (scale < _TINY), _LIFT, 1.0)
    one = tl.full(scale.shape, 2.0**FRACTION, tl.float32)
    mul = tl.where(scale > 0.0, tl.div_rn(one, tl.where(scale > 0.0, scale * up, 1.0)), 0.0)
    first, second = row_words(stream, row)
    TOP: tl.constexpr = (2.0**BITS - 1) * 2.0**FRACTION
    if WHOLE:
        _store_codes(
            codes, h, inside, column, row, num_rows, plane, 0, low, up, mul, first, second,
            BITS, FRACTION, TOP, NEAREST, PLANES, COLUMNS,
        )  # fmt: skip
    else:
        for start in range(0, plane, COLUMNS):
            h, inside, column = _piece(x, row, num_rows, width, plane, start, PLANES, COLUMNS)
            _store_codes(
                codes, h, inside, column, row, num_rows, plane, start, low, up, mul, first, second,
                BITS, FRACTION, TOP, NEAREST, PLANES, COLUMNS,
            )  # fmt: skip


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    codes, side, out, num_rows, width, plane,
    BITS: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = row < num_rows
    scale = tl.load(side + row * 2, mask=live, other=0.0).to(tl.float32)[:, None]
    low = tl.load(side + row * 2 + 1, mask=live, other=0.0).to(tl.float32)[:, None]
    inside = live[:, None] & (at < plane)[None, :]
    packed = tl.load(codes + (row * plane)[:, None] + at[None, :], mask=inside, other=0).to(tl.int32)
    for k in tl.static_range(PLANES):
        column = k * plane + at
        code = (packed >> (k * BITS)) & ((1 << BITS) - 1)
        value = tl.minimum(low + code.to(tl.float32) * scale, _FLOAT_MAX)
        tl.store(out + (row * width)[:, None] + column[None, :], value, mask=inside & (column < width)[None, :])


def _encode(rows: Tensor, bits: int, key: int, half: bool, nearest: bool) -> tuple[Tensor, Tensor]:
    rows, num_rows, width = rows.float().contiguous(), *rows.shape
    codes = rows.new_empty((num_rows, code_bytes(width, bits)), dtype=torch.uint8)
    side = rows.new_empty((num_rows, 2), dtype=torch.float16 if half else torch.float32)
    packed, planes = codes.view(torch.uint16) if bits == 16 else codes, max(1, 8 // bits)
    bad = bad_row(rows.device, current_stream(rows.device))
    tile = rows_at_once(packed.shape[1], planes, ELEMENTS, WIDEST, WARPS)
    _encode_kernel[(triton.cdiv(num_rows, tile["ROWS"]),)](
        rows, packed, side, bad, stream_argument(key), num_rows, width, packed.shape[1],
        BITS=bits, FRACTION=0 if nearest else fraction_bits(bits), NEAREST=nearest, HALF=half,
        WHOLE=tile["COLUMNS"] >= packed.shape[1], PLANES=planes, **tile,
    )  # fmt: skip
    refuse(bad, num_rows)
    return codes, side


def quantize(rows: Tensor, bits: int, key: int, half: bool) -> tuple[Tensor, Tensor]:
    """`quantize_rows` for CUDA tensors; see `quantize`."""
    if triton is None or not rows.numel():
        return quantize_torch.quantize_torch(rows, bits, key, half)
    return _encode(rows, bits, key, half, nearest=False)


def quantize_linear(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """`quantize_linear` for CUDA tensors; see `linear`."""
    if triton is None or not rows.numel():
        return quantize_torch.quantize_linear_torch(rows, bits)
    return _encode(rows, bits, 0, half=False, nearest=True)


def dequantize(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    """`dequantize_rows` for CUDA tensors; see `quantize`."""
    if triton is None or not codes.numel():
        return quantize_torch.dequantize_torch(codes, side, bits, width)
    out = codes.new_empty((codes.shape[0], width), dtype=torch.float32)
    packed = codes.contiguous().view(torch.uint16) if bits == 16 else codes.contiguous()
    tile: dict[str, Any] = rows_at_once(packed.shape[1], max(1, 8 // bits), ELEMENTS, WIDEST, WARPS)
    grid = (triton.cdiv(codes.shape[0], tile["ROWS"]), triton.cdiv(packed.shape[1], tile["COLUMNS"]))
    _decode_kernel[grid](
        packed, side.contiguous(), out, *out.shape, packed.shape[1],
        BITS=bits, PLANES=max(1, 8 // bits), **tile,
    )  # fmt: skip
    return out
