"""The choice between codes and predictions on CUDA: Triton kernels where Triton is installed, else torch operators.

Codes, flags of single elements and restored rows are those of the CPU kernels bit for bit; L1 sums agree to rounding,
which is enough because only the sender chooses. One program walks over some whole rows, a piece at a time. Codes of
chosen elements lie side by side: which place one has is a running sum over its row, and codes that share a 32-bit word
are put there by atomic ORs, whose order does not matter. See `trend` for the definitions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.kernels import _trend_torch as trend_torch
from harness.kernels._bucket_cuda import NUMBERS, bucket_codes, bucket_values, groups_of_rows
from harness.kernels._quantize_cpu import FLOAT_MAX
from harness.kernels._trend_cpu import AVERAGE, COMPRESSED, PREDICTED
from harness.kernels.packed import code_bytes
from harness.kernels.triton_code import constant, jit, rows_at_once, tl, triton

ELEMENTS, WIDEST = 1024, 512
"""Values that one program handles at a time, and the most of them in one row."""

_MAX, _INF = constant(float(FLOAT_MAX)), constant(math.inf)
_COMPRESSED, _PREDICTED, _AVERAGE = constant(COMPRESSED), constant(PREDICTED), constant(AVERAGE)


@jit
def _forms(x, base, rate, step, place, inside, grid, FIRST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Codes, and the errors of predicted, averaged and compressed values."""
    v = tl.load(x + place, mask=inside, other=0.0)
    guess = tl.load(base + place, mask=inside, other=0.0) + tl.load(rate + place, mask=inside, other=0.0) * step
    code = bucket_codes(v, grid, FIRST)
    value = bucket_values(code, grid, FIRST)
    return code, tl.abs(guess - v), tl.abs((guess + value) * 0.5 - v), tl.abs(value - v)


@jit
def _or_infinite(error):  # type: ignore[no-untyped-def]
    """The error, or infinity for nan."""
    return tl.where(error <= _MAX, error, _INF)


@jit
def _score_kernel(  # type: ignore[no-untyped-def]
    x, base, rate, step, table, groups, codes, scores, num_rows, width, plane, BITS: tl.constexpr,
    FIRST: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    grid = (table + tl.load(groups + row, mask=live, other=0) * NUMBERS)[:, None, None]
    predicted, averaged = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.float32)
    compressed = tl.zeros([ROWS], tl.float32)
    for start in range(0, plane, COLUMNS):
        at = start + tl.arange(0, COLUMNS)
        column = tl.arange(0, PLANES)[None, :, None] * plane + at[None, None, :]
        inside = live[:, None, None] & (at < plane)[None, None, :] & (column < width)
        place = (row * width)[:, None, None] + column
        code, far, between, near = _forms(x, base, rate, step, place, inside, grid, FIRST)
        predicted += tl.sum(tl.sum(tl.where(inside, far, 0.0), 2), 1)
        averaged += tl.sum(tl.sum(tl.where(inside, between, 0.0), 2), 1)
        compressed += tl.sum(tl.sum(tl.where(inside, near, 0.0), 2), 1)
        packed = tl.sum(tl.where(inside, code, 0) << (tl.arange(0, PLANES) * BITS)[None, :, None], 1)
        target = codes + (row * plane)[:, None] + at[None, :]
        tl.store(target, packed.to(codes.dtype.element_ty), mask=live[:, None] & (at < plane)[None, :])
    tl.store(scores + row * 3, _or_infinite(predicted), mask=live)
    tl.store(scores + row * 3 + 1, _or_infinite(averaged), mask=live)
    tl.store(scores + row * 3 + 2, tl.minimum(compressed, _MAX), mask=live)


@jit
def _choose_kernel(  # type: ignore[no-untyped-def]
    x, base, rate, step, table, groups, words, flags, num_rows, width, row_words, BITS: tl.constexpr,
    FIRST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    grid = (table + tl.load(groups + row, mask=live, other=0) * NUMBERS)[:, None]
    before = tl.zeros([ROWS], tl.int32)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = live[:, None] & (column < width)[None, :]
        place = (row * width)[:, None] + column[None, :]
        code, predicted, averaged, compressed = _forms(x, base, rate, step, place, inside, grid, FIRST)
        predicted, averaged = _or_infinite(predicted), _or_infinite(averaged)
        compressed = tl.minimum(compressed, _MAX)
        flag = tl.where(averaged <= compressed, _AVERAGE, _COMPRESSED)
        flag = tl.where((predicted <= averaged) & (predicted <= compressed), _PREDICTED, flag)
        tl.store(flags + place, flag.to(tl.uint8), mask=inside)
        sent = ((flag != _PREDICTED) & inside).to(tl.int32)
        bit = (before[:, None] + tl.cumsum(sent, 1) - sent) * BITS
        word = words + (row * row_words)[:, None] + bit // 32
        tl.atomic_or(word, code << (bit % 32), mask=sent > 0)
        before += tl.sum(sent, 1)


@jit
def _restore_kernel(  # type: ignore[no-untyped-def]
    packed, flags, offsets, base, rate, step, table, groups, out, num_rows, width, plane, BITS: tl.constexpr,
    FIRST: tl.constexpr, SINGLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = row < num_rows
    grid = (table + tl.load(groups + row, mask=live, other=0) * NUMBERS)[:, None]
    first_byte = tl.load(offsets + row, mask=live, other=0)
    before = tl.zeros([ROWS], tl.int32)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = live[:, None] & (column < width)[None, :]
        place = (row * width)[:, None] + column[None, :]
        if SINGLE:
            flag = tl.load(flags + place, mask=inside, other=_PREDICTED).to(tl.int32)
            sent = (flag != _PREDICTED).to(tl.int32)
            bit = (before[:, None] + tl.cumsum(sent, 1) - sent) * BITS
            byte, shift = bit // 8, bit % 8
            before += tl.sum(sent, 1)
        else:
            flag = tl.load(flags + row, mask=live, other=_PREDICTED).to(tl.int32)[:, None] + tl.zeros_like(column)[None]
            byte = (tl.zeros([ROWS], tl.int32)[:, None] + (column % plane)[None, :]) * (2 if BITS == 16 else 1)
            shift = (column // plane * BITS)[None, :] + tl.zeros([ROWS], tl.int32)[:, None]
        coded = inside & (flag != _PREDICTED)
        at = packed + first_byte[:, None] + byte
        code = tl.load(at, mask=coded, other=0).to(tl.int32)
        if BITS == 16:
            code = code | (tl.load(at + 1, mask=coded, other=0).to(tl.int32) << 8)
        else:
            code = (code >> shift) & ((1 << BITS) - 1)
        guess = tl.load(base + place, mask=inside, other=0.0) + tl.load(rate + place, mask=inside, other=0.0) * step
        value = bucket_values(code, grid, FIRST)
        value = tl.where(flag == _AVERAGE, (guess + value) * 0.5, value)
        tl.store(out + place, tl.where(flag == _PREDICTED, guess, value), mask=inside)


def _given(*tensors: Tensor) -> list[Tensor]:
    return [tensor.float().contiguous() for tensor in tensors]


def _tile(plane: int, bits: int, planes: int, num_rows: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid of programs that walk over whole rows, and the tile."""
    tile = rows_at_once(plane, planes, ELEMENTS, WIDEST) | {"BITS": bits, "FIRST": int(bits > 1)}
    return (triton.cdiv(num_rows, tile["ROWS"]),), tile


def score_cuda(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """`trend_score` for CUDA tensors."""
    if triton is None or not rows.numel():
        return trend_torch.score(rows, base, rate, step, side, starts, bits)
    (num_rows, width), planes = rows.shape, max(1, 8 // bits)
    codes = rows.new_empty((num_rows, code_bytes(width, bits)), dtype=torch.uint8)
    scores = rows.new_empty((num_rows, 3), dtype=torch.float32)
    packed = codes.view(torch.uint16) if bits == 16 else codes
    grid, tile = _tile(packed.shape[1], bits, planes, num_rows)
    _score_kernel[grid](
        *_given(rows, base, rate), step, *groups_of_rows(side.float(), starts, bits, num_rows), packed, scores,
        num_rows, width, packed.shape[1], PLANES=planes, **tile,
    )  # fmt: skip
    return codes, scores


def choose_cuda(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """`trend_choose` for CUDA tensors."""
    if triton is None or not rows.numel():
        return trend_torch.choose(rows, base, rate, step, side, starts, bits)
    num_rows, width = rows.shape
    size = code_bytes(width, bits)
    words = rows.new_zeros((num_rows, -(-size // 4)), dtype=torch.int32)
    flags = rows.new_empty((num_rows, width), dtype=torch.uint8)
    grid, tile = _tile(width, bits, 1, num_rows)
    _choose_kernel[grid](
        *_given(rows, base, rate), step, *groups_of_rows(side.float(), starts, bits, num_rows), words, flags,
        num_rows, width, words.shape[1], **tile,
    )  # fmt: skip
    return words.view(torch.uint8)[:, :size].contiguous(), flags


def restore_cuda(
    packed: Tensor, flags: Tensor, offsets: Tensor, base: Tensor, rate: Tensor, step: float,
    side: Tensor, starts: Tensor, bits: int,
) -> Tensor:  # fmt: skip
    """`trend_restore` for CUDA tensors."""
    if triton is None or not base.numel():
        return trend_torch.restore(packed, flags, offsets, base, rate, step, side, starts, bits)
    num_rows, width = base.shape
    out = base.new_empty((num_rows, width), dtype=torch.float32)
    grid, tile = _tile(width, bits, 1, num_rows)
    _restore_kernel[grid](
        packed.contiguous(), flags.contiguous(), offsets.contiguous(), *_given(base, rate), step,
        *groups_of_rows(side.float(), starts, bits, num_rows), out, num_rows, width,
        width if bits == 16 else code_bytes(width, bits), SINGLE=flags.ndim == 2, **tile,
    )  # fmt: skip
    return out
