"""The operator `haloscope::quantize_linear`: b-bit codes of rows, rounded to the nearest level.

The arithmetic of `codecs.LinearRows` (CDFGNN, Eq. 22 and 23) with one definition for all devices. A row h has levels =
2**bits - 1, scale = (max - min) / levels (rounded up) and code = int(min((h - min) / scale, levels) + 1/2). Layout and
side information are those of `quantize`, so `dequantize_rows` decodes both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from harness.kernels._quantize_cpu import INFINITY, LIFT, TINY_SCALE, extreme_keys, grid, key_float, pack_row
from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import code_bytes, not_finite
from harness.kernels.threads import over_rows
from harness.kernels.work import BitsArgument, RowCodec, declare_work

_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)


@custom_operator("haloscope::quantize_linear", "(Tensor rows, int bits) -> (Tensor, Tensor)")
def quantize_linear(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Float rows [n, width] -> codes uint8 [n, B] and fp32 [n, 2] = (scale, minimum). ValueError for nan and inf."""
    rows = rows.float().contiguous()
    num_rows, width = rows.shape
    codes = torch.empty((num_rows, code_bytes(width, bits)), dtype=torch.uint8)
    side = torch.zeros((num_rows, 2), dtype=torch.float32)
    if rows.numel():
        x, sides, bad = rows.numpy(), side.numpy(), []
        packed = codes.numpy().view(np.uint16) if bits == 16 else codes.numpy()

        def piece(start: int, stop: int) -> None:
            first = quantize_linear_range(x, bits, packed, sides, start, stop)
            if first >= 0:
                bad.append(first)

        over_rows(piece, num_rows, rows.nbytes)
        if bad:
            raise not_finite(min(bad))
    return codes, side


@quantize_linear.register_fake
def _(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    return codes, rows.new_empty((rows.shape[0], 2), dtype=torch.float32)


declare_work("haloscope::quantize_linear", RowCodec(rows=0, bits=BitsArgument(1)))


@quantize_linear.register_kernel("cuda")
def _(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    from harness.kernels import _quantize_cuda as quantize_cuda

    return quantize_cuda.quantize_linear(rows, bits)


@njit(cache=True)
def _round_row(
    row: NDArray[np.float32], low: np.float32, up: np.float32, mul: np.float32, top: np.float32, out: NDArray[Any]
) -> None:
    for column in range(row.shape[0]):
        t = (row[column] - low) * up * mul
        t = t if t < top else top
        t = t if t > _ZERO else _ZERO
        out[column] = np.int32(t + _HALF)


@njit(cache=True, nogil=True)
def quantize_linear_range(
    x: NDArray[np.float32], bits: int, codes: NDArray[Any], side: NDArray[np.float32], start: int, stop: int
) -> int:
    """Fill codes and side (scale, minimum) of rows [start, stop); the first row with nan or inf, or -1.

    x [n, d > 0]; codes uint8 [n, ceil(d * bits / 8)], for 16 bits uint16 [n, d].
    """
    levels = np.float32((1 << bits) - 1)
    width = x.shape[1]
    buffer = np.zeros(codes.shape[1] * (8 // bits), np.uint8)
    for r in range(start, stop):
        row = x[r]
        smallest, largest = extreme_keys(row.view(np.int32))
        if smallest < -INFINITY or largest >= INFINITY:
            return r
        scale, low = grid(key_float(smallest), key_float(largest), levels, False)
        side[r, 0], side[r, 1] = scale, low
        up = LIFT if _ZERO < scale < TINY_SCALE else _ONE
        mul = _ONE / (scale * up) if scale > _ZERO else _ZERO
        if bits >= 8:
            _round_row(row, low, up, mul, levels, codes[r])
        else:
            _round_row(row, low, up, mul, levels, buffer[:width])
            pack_row(buffer, bits, codes[r])
    return -1
