"""numba kernels of the stochastic row quantiser: range, codes and packing of one row while it is in the first cache.

Every pass is a plain loop that LLVM vectorises. The operators, their meaning and the layout of the codes are in
`quantize`; nothing here checks arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from harness.kernels.random import UNIFORM_BITS, element_bits, row_words

HALF_MAX = np.float32(65504.0)
RANGE_MAX = np.float32(3.4e38)
"""The widest row that is coded without clipping; a little below the largest float32 keeps levels * scale finite."""
FLOAT_MAX = np.finfo(np.float32).max
TINY_SCALE = np.float32(2.0**-60)
LIFT = np.float32(2.0**64)
"""Rows with a scale below TINY_SCALE are multiplied by LIFT first, because 1 / scale may overflow."""

_ZERO, _ONE = np.float32(0), np.float32(1)
INFINITY = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF


def _reinterpret(source: Any, target: Any) -> Any:
    """A numba function that reads the bits of one 32-bit scalar as another type (numba itself has none)."""

    def typer(typing: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return intrinsic(typer)


float_bits = _reinterpret(types.float32, types.int32)
bits_float = _reinterpret(types.int32, types.float32)


@njit(cache=True)
def half_floor(x: np.float32) -> np.float32:
    """The largest multiple of the fp16 spacing at x that is not above x (fp16 without its overflow)."""
    exponent = max(((float_bits(x) >> 23) & 0xFF) - 127, -14)
    quantum: np.float32 = bits_float(np.int32((exponent - 10 + 127) << 23))
    floor: np.float32 = np.floor(x / quantum) * quantum
    return floor


@njit(cache=True)
def grid(low: np.float32, high: np.float32, levels: np.float32, half: bool) -> tuple[np.float32, np.float32]:
    """Scale and minimum as the wire carries them, such that minimum + levels * scale covers the row."""
    if half:
        low = min(max(half_floor(low), -HALF_MAX), HALF_MAX)
    spread = max(min(high - low, RANGE_MAX), _ZERO)
    scale = spread / levels
    if scale * levels < spread:
        scale = bits_float(np.int32(float_bits(scale) + 1))
    if half:
        scale = min(-half_floor(-scale), HALF_MAX)
    return scale, low


@njit(cache=True)
def extreme_keys(bits: NDArray[np.int32]) -> tuple[np.int32, np.int32]:
    """Smallest and largest element as integers in the order of the floats; every nan and inf is outermost."""
    smallest, largest = np.int32(_MAGNITUDE), np.int32(-_MAGNITUDE)
    for column in range(bits.shape[0]):
        word = bits[column]
        key = np.int32(word ^ ((word >> 31) & _MAGNITUDE))
        smallest = key if key < smallest else smallest
        largest = key if key > largest else largest
    return smallest, largest


@njit(cache=True)
def key_float(key: np.int32) -> np.float32:
    value: np.float32 = bits_float(np.int32(key ^ ((key >> 31) & _MAGNITUDE)))
    return value


@njit(cache=True)
def round_row(
    row: NDArray[np.float32],
    low: np.float32,
    up: np.float32,
    mul: np.float32,
    top: np.float32,
    words: tuple[np.uint32, np.uint32],
    fraction: int,
    out: NDArray[Any],
) -> None:
    """Codes of a row: fixed point with `fraction` bits plus as many random bits, then the integer part."""
    first, second = words
    drop, keep = np.uint32(UNIFORM_BITS - fraction), np.uint32(fraction)
    for column in range(row.shape[0]):
        t = (row[column] - low) * up * mul
        t = t if t < top else top
        t = t if t > _ZERO else _ZERO
        noise = np.uint32(element_bits(first, second, column) >> drop)
        out[column] = np.uint32(np.uint32(np.int32(t)) + noise) >> keep


@njit(cache=True)
def pack_row(codes: NDArray[np.uint8], bits: int, out: NDArray[np.uint8]) -> None:
    """Byte j takes the codes j, j + B, j + 2B, ... of a row of B bytes, lowest bits first."""
    plane = out.shape[0]
    for j in range(plane):
        out[j] = codes[j]
    for k in range(1, 8 // bits):
        source = codes[k * plane : (k + 1) * plane]
        shift = np.uint8(k * bits)
        for j in range(plane):
            out[j] |= source[j] << shift


@njit(cache=True, nogil=True)
def quantize_range(
    x: NDArray[np.float32],
    bits: int,
    stream: np.uint64,
    half: bool,
    codes: NDArray[Any],
    side: NDArray[np.float32],
    start: int,
    stop: int,
) -> int:
    """Fill codes and side (scale, minimum) of rows [start, stop); the first row with nan or inf, or -1.

    x [n, d > 0]; codes uint8 [n, ceil(d * bits / 8)], for 16 bits uint16 [n, d].
    """
    levels = np.float32((1 << bits) - 1)
    fraction = min(UNIFORM_BITS, 31 - bits)
    one = np.float32(1 << fraction)
    width = x.shape[1]
    buffer = np.zeros(codes.shape[1] * (8 // bits), np.uint8)
    for r in range(start, stop):
        row = x[r]
        smallest, largest = extreme_keys(row.view(np.int32))
        if smallest < -INFINITY or largest >= INFINITY:
            return r
        scale, low = grid(key_float(smallest), key_float(largest), levels, half)
        side[r, 0], side[r, 1] = scale, low
        up = LIFT if _ZERO < scale < TINY_SCALE else _ONE
        mul = one / (scale * up) if scale > _ZERO else _ZERO
        words = row_words(stream, r)
        if bits >= 8:
            round_row(row, low, up, mul, levels * one, words, fraction, codes[r])
        else:
            round_row(row, low, up, mul, levels * one, words, fraction, buffer[:width])
            pack_row(buffer, bits, codes[r])
    return -1


@njit(cache=True, nogil=True)
def dequantize_range(
    codes: NDArray[Any], side: NDArray[np.float32], bits: int, out: NDArray[np.float32], start: int, stop: int
) -> None:
    """out[r] = minimum + code * scale for rows [start, stop), out [n, d > 0]; codes as in `quantize_range`."""
    plane, mask = codes.shape[1], np.int32((1 << bits) - 1)
    for r in range(start, stop):
        scale, low = side[r, 0], side[r, 1]
        packed = codes[r]
        for k in range(max(1, 8 // bits)):
            target = out[r, k * plane : (k + 1) * plane]
            shift = np.int32(k * bits)
            for j in range(target.shape[0]):
                code = np.int32((np.int32(packed[j]) >> shift) & mask)
                value = low + np.float32(code) * scale
                target[j] = value if value < FLOAT_MAX else FLOAT_MAX
