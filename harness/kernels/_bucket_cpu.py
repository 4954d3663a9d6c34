"""numba kernels of the bucket codec: buckets of a range, codes and packing of one row while it is in the first cache.

Every pass over a row is a plain loop that LLVM vectorises. The operators, their meaning and the layout are in
`bucket`; nothing here checks arguments.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from harness.kernels._quantize_cpu import pack_row

HUGE, TINY = 2.0**126, 2.0**-100
DOWN, UP = 2.0**-2, 2.0**64
"""Ranges beyond HUGE are scaled by DOWN and steps below TINY by UP, so that neither v - low nor 1 / step overflows."""
NOWHERE = -8
"""The number of the split interval if none is split; larger than any code."""

_F, _ZERO, _HALF = np.float32, np.float32(0), np.float32(0.5)

Codes = NDArray[Any]  # uint8 [n, B], or uint16 [n, d] for 16 bits
FloatArray = NDArray[np.float32]


class Grid(NamedTuple):
    """Buckets of one range. Lengths are scaled by `lift`."""

    lift: np.float32
    low: np.float32
    step: np.float32  # width of an interval
    inverse: np.float32  # 1 / step, 0 for a constant
    unlift: np.float32
    top: np.int32  # number of the last interval
    split: np.int32  # the interval that zero cuts into two buckets, or NOWHERE
    below: np.float32  # midpoints of its two halves
    above: np.float32
    first: np.int32  # code of the first bucket: 1 where code 0 is zero itself


@njit(cache=True)
def grid_of(lowest: np.float32, highest: np.float32, bits: int) -> Grid:
    """The buckets of a range, computed in double precision."""
    low, high = np.float64(lowest), np.float64(highest)
    crosses = bits > 1 and low < 0.0 < high
    first = 1 if bits > 1 else 0
    intervals = (1 << bits) - first - (1 if crosses else 0)
    step = (high - low) / intervals
    lift = 1.0
    if max(abs(low), abs(high)) > HUGE:
        lift = DOWN
    elif 0.0 < step < TINY:
        lift = UP
    split, below, above = NOWHERE, 0.0, 0.0
    if crosses:
        split = min(int(math.floor(-low / step)), intervals - 1)
        below = min(low + split * step, 0.0) * 0.5
        above = max(low + (split + 1) * step, 0.0) * 0.5
    inverse = 1.0 / (step * lift) if step > 0.0 else 0.0
    return Grid(
        _F(lift), _F(low * lift), _F(step * lift), _F(inverse), _F(1.0 / lift),
        np.int32(intervals - 1), np.int32(split), _F(below), _F(above), np.int32(first),
    )  # fmt: skip


@njit(cache=True)
def codes_of(row: FloatArray, grid: Grid, out: Codes) -> None:
    """Code of every value of a row."""
    lift, low, inverse, top, first = grid.lift, grid.low, grid.inverse, grid.top, grid.first
    crosses = grid.split != NOWHERE
    # Rounding must not carry a value over zero: negative ones stay at or below the split interval.
    highest_negative = grid.split if crosses else top
    lowest_positive = grid.split if crosses else np.int32(0)
    extra = np.int32(1) if crosses else np.int32(0)
    for c in range(row.shape[0]):
        v = row[c]
        at = np.int32((v * lift - low) * inverse)
        bottom = lowest_positive if v > _ZERO else np.int32(0)
        limit = top if v > _ZERO else highest_negative
        at = at if at < limit else limit
        at = at if at > bottom else bottom
        code = at + first + (extra if v > _ZERO else np.int32(0))
        out[c] = np.int32(0) if (first == 1 and v == _ZERO) else code


@njit(cache=True)
def values_of(codes: Codes, grid: Grid, out: FloatArray) -> None:
    """The bucket midpoint of every code."""
    low, step, unlift, split, first = grid.low, grid.step, grid.unlift, grid.split, grid.first
    for c in range(out.shape[0]):
        bucket = np.int32(codes[c]) - first
        at = bucket - (np.int32(1) if split != NOWHERE and bucket > split else np.int32(0))
        value = (low + (_F(at) + _HALF) * step) * unlift
        value = grid.below if bucket == split else value
        value = grid.above if bucket == split + 1 else value
        out[c] = value if bucket >= 0 else _ZERO


@njit(cache=True)
def unpack(packed: Codes, bits: int, out: Codes) -> None:
    """The inverse of `pack_row`; `out` has room for whole planes."""
    plane, mask = packed.shape[0], np.uint8((1 << bits) - 1)
    for k in range(8 // bits):
        target, shift = out[k * plane : (k + 1) * plane], np.uint8(k * bits)
        for j in range(plane):
            target[j] = (packed[j] >> shift) & mask


@njit(cache=True)
def group_at(starts: NDArray[np.int64], row: int) -> int:
    """The group that a row belongs to."""
    return int(np.searchsorted(starts, row, side="right")) - 1


@njit(cache=True, nogil=True)
def encode_range(
    x: FloatArray,
    side: FloatArray,
    starts: NDArray[np.int64],
    bits: int,
    codes: Codes,
    error: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Codes of rows [start, stop); and x minus the decoded codes, unless `error` has no rows."""
    width = x.shape[1]
    buffer = np.zeros(codes.shape[1] * max(1, 8 // bits), codes.dtype)
    value = np.empty(width, np.float32)
    group = group_at(starts, start)
    grid = grid_of(side[group, 0], side[group, 1], bits)
    for r in range(start, stop):
        if r >= starts[group + 1]:
            group = group_at(starts, r)
            grid = grid_of(side[group, 0], side[group, 1], bits)
        plain = codes[r] if bits >= 8 else buffer
        codes_of(x[r], grid, plain)
        if bits < 8:
            pack_row(buffer, bits, codes[r])
        if error.shape[0] > 0:
            values_of(plain, grid, value)
            for c in range(width):
                error[r, c] = x[r, c] - value[c]


@njit(cache=True, nogil=True)
def decode_range(
    codes: Codes, side: FloatArray, starts: NDArray[np.int64], bits: int, out: FloatArray, start: int, stop: int
) -> None:
    """out[r] = midpoints of the codes of row r, for rows [start, stop)."""
    buffer = np.zeros(codes.shape[1] * max(1, 8 // bits), codes.dtype)
    group = group_at(starts, start)
    grid = grid_of(side[group, 0], side[group, 1], bits)
    for r in range(start, stop):
        if r >= starts[group + 1]:
            group = group_at(starts, r)
            grid = grid_of(side[group, 0], side[group, 1], bits)
        if bits < 8:
            unpack(codes[r], bits, buffer)
            values_of(buffer, grid, out[r])
        else:
            values_of(codes[r], grid, out[r])
