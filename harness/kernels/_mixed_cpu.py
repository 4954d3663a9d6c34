"""numba kernels of rows with different numbers of bits; arithmetic and layout of a row are those of `quantize`.

The operators and their meaning are in `mixed`; nothing here checks arguments.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from harness.kernels._quantize_cpu import (
    FLOAT_MAX,
    INFINITY,
    LIFT,
    TINY_SCALE,
    bits_float,
    extreme_keys,
    float_bits,
    grid,
    key_float,
    pack_row,
    round_row,
)
from harness.kernels.random import UNIFORM_BITS, row_words

BRAIN_MAX = np.float32(3.3895314e38)
"""The largest finite bf16."""

_ZERO, _ONE = np.float32(0), np.float32(1)
_LOW_HALF, _HIGH_HALF = np.int32(0xFFFF), np.int32(-0x10000)


@njit(cache=True)
def brain_floor(x: np.float32) -> np.float32:
    """The largest bf16 that is not above x, as a float32; -inf below the smallest bf16."""
    word = float_bits(x)
    if word < 0 and (word & _LOW_HALF) != 0:
        word += np.int32(0x10000)
    floor: np.float32 = bits_float(np.int32(word & _HIGH_HALF))
    return floor


@njit(cache=True)
def brain_grid(low: np.float32, high: np.float32, levels: np.float32) -> tuple[np.float32, np.float32]:
    """Scale and minimum in bf16, such that minimum + levels * scale covers the row."""
    low = max(brain_floor(low), -BRAIN_MAX)
    scale, low = grid(low, high, levels, False)
    return -brain_floor(-scale), low


@njit(cache=True, nogil=True)
def quantize_mixed_range(
    x: NDArray[np.float32],
    row_bits: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stream: np.uint64,
    codes: NDArray[np.uint8],
    side: NDArray[np.float32],
    start: int,
    stop: int,
) -> int:
    """Fill codes and side (scale, minimum) of rows [start, stop); the first row with nan or inf, or -1.

    x [n, d > 0]; codes of row r are bytes offsets[r] to offsets[r + 1], ceil(d * bits / 8) of them; 2, 4 or 8 bits.
    """
    width = x.shape[1]
    buffer = np.zeros(width + 8, np.uint8)  # never written beyond the width
    for r in range(start, stop):
        row, bits = x[r], int(row_bits[r])
        levels, fraction = np.float32((1 << bits) - 1), min(UNIFORM_BITS, 31 - bits)
        one = np.float32(1 << fraction)
        smallest, largest = extreme_keys(row.view(np.int32))
        if smallest < -INFINITY or largest >= INFINITY:
            return r
        scale, low = brain_grid(key_float(smallest), key_float(largest), levels)
        side[r, 0], side[r, 1] = scale, low
        up = LIFT if _ZERO < scale < TINY_SCALE else _ONE
        mul = one / (scale * up) if scale > _ZERO else _ZERO
        words, out = row_words(stream, r), codes[offsets[r] : offsets[r + 1]]
        if bits == 8:
            round_row(row, low, up, mul, levels * one, words, fraction, out)
        else:
            round_row(row, low, up, mul, levels * one, words, fraction, buffer[:width])
            pack_row(buffer, bits, out)
    return -1


@njit(cache=True, nogil=True)
def dequantize_mixed_range(
    codes: NDArray[np.uint8],
    side: NDArray[np.float32],
    row_bits: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    out: NDArray[np.float32],
    start: int,
    stop: int,
) -> None:
    """out[r] = minimum + code * scale for rows [start, stop), out [n, d > 0]."""
    for r in range(start, stop):
        bits = int(row_bits[r])
        packed, scale, low = codes[offsets[r] : offsets[r + 1]], side[r, 0], side[r, 1]
        plane, mask = packed.shape[0], np.int32((1 << bits) - 1)
        for k in range(8 // bits):
            target = out[r, k * plane : (k + 1) * plane]
            shift = np.int32(k * bits)
            for j in range(target.shape[0]):
                code = np.int32((np.int32(packed[j]) >> shift) & mask)
                value = low + np.float32(code) * scale
                target[j] = value if value < FLOAT_MAX else FLOAT_MAX
