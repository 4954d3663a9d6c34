"""numba kernels that choose between a compressed, a predicted and an averaged form, and that restore the chosen one.

Sender and receiver predict with the same function of the same bits, so both see the same numbers. The operators and
the layouts are in `trend`; nothing here checks arguments.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from harness.kernels._bucket_cpu import Codes, FloatArray, codes_of, grid_of, group_at, unpack, values_of
from harness.kernels._quantize_cpu import pack_row

COMPRESSED, PREDICTED, AVERAGE = 0, 1, 2
"""Flags on the wire (Sec. IV-B: 00, 01, 10)."""

Starts = NDArray[np.int64]
ByteArray = NDArray[np.uint8]

_ZERO, _HALF, _INFINITY = np.float32(0), np.float32(0.5), np.float32(np.inf)
_MAX = np.finfo(np.float32).max
_REORDERED = {"reassoc", "nsz"}
"""What may be done to sums; nan and infinity stay what they are."""


@njit(cache=True)
def _predict(base: FloatArray, rate: FloatArray, step: np.float32, out: FloatArray) -> None:
    for c in range(out.shape[0]):
        out[c] = base[c] + rate[c] * step


@njit(cache=True)
def _mean(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    for c in range(out.shape[0]):
        out[c] = (a[c] + b[c]) * _HALF


@njit(cache=True, fastmath=_REORDERED, inline="always")
def _distance(a: FloatArray, b: FloatArray) -> np.float32:
    """L1 distance; the sum may be reordered, always in the same way: it is compiled as a part of its caller."""
    total = _ZERO
    for c in range(a.shape[0]):
        total += abs(a[c] - b[c])
    return total


@njit(cache=True)
def _or_infinite(score: np.float32) -> np.float32:
    """The score, or infinity for nan."""
    return score if score <= _MAX else _INFINITY


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def score_range(
    x: FloatArray,
    base: FloatArray,
    rate: FloatArray,
    step: np.float32,
    side: FloatArray,
    starts: Starts,
    bits: int,
    codes: Codes,
    scores: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Codes of rows [start, stop), and the L1 errors of their predicted, averaged and compressed forms."""
    width = x.shape[1]
    buffer = np.zeros(codes.shape[1] * max(1, 8 // bits), codes.dtype)
    value, guess, mean = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
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
        values_of(plain, grid, value)
        _predict(base[r], rate[r], step, guess)
        _mean(guess, value, mean)
        scores[r, 0] = _or_infinite(_distance(guess, x[r]))
        scores[r, 1] = _or_infinite(_distance(mean, x[r]))
        # A trend may leave the range of float32; codes never do, and must be chosen then.
        scores[r, 2] = min(_distance(value, x[r]), _MAX)


@njit(cache=True, nogil=True)
def restore_range(
    packed: ByteArray,
    flags: ByteArray,
    offsets: Starts,
    base: FloatArray,
    rate: FloatArray,
    step: np.float32,
    side: FloatArray,
    starts: Starts,
    bits: int,
    out: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Rows [start, stop) from a flag each and the codes of those that are not predicted, which begin at `offsets`."""
    width = out.shape[1]
    size = (width * bits + 7) // 8
    plain = np.zeros(max(size * max(1, 8 // bits), width), np.uint16)
    value = np.empty(width, np.float32)
    group = group_at(starts, start)
    grid = grid_of(side[group, 0], side[group, 1], bits)
    for r in range(start, stop):
        if r >= starts[group + 1]:
            group = group_at(starts, r)
            grid = grid_of(side[group, 0], side[group, 1], bits)
        if flags[r] == PREDICTED:
            _predict(base[r], rate[r], step, out[r])
            continue
        mine = packed[offsets[r] : offsets[r] + size]
        if bits == 16:
            for c in range(width):
                plain[c] = np.uint16(mine[2 * c]) | (np.uint16(mine[2 * c + 1]) << np.uint16(8))
        else:
            unpack(mine, bits, plain)
        if flags[r] == AVERAGE:
            values_of(plain, grid, value)
            _predict(base[r], rate[r], step, out[r])
            _mean(out[r], value, out[r])
        else:
            values_of(plain, grid, out[r])


@njit(cache=True)
def _put(out: ByteArray, at: int, bits: int, code: int) -> None:
    """Write the `at`-th code of a row of adjacent codes, lowest bits first."""
    if bits == 16:
        out[2 * at], out[2 * at + 1] = code & 255, code >> 8
    else:
        out[at * bits // 8] |= np.uint8(code << (at * bits % 8))


@njit(cache=True)
def _get(source: ByteArray, at: int, bits: int) -> int:
    if bits == 16:
        return int(source[2 * at]) | (int(source[2 * at + 1]) << 8)
    return (int(source[at * bits // 8]) >> (at * bits % 8)) & ((1 << bits) - 1)


@njit(cache=True, nogil=True)
def choose_range(
    x: FloatArray,
    base: FloatArray,
    rate: FloatArray,
    step: np.float32,
    side: FloatArray,
    starts: Starts,
    bits: int,
    packed: ByteArray,
    flags: ByteArray,
    start: int,
    stop: int,
) -> None:
    """Rows [start, stop) element by element: a flag for each, and the codes of those that are not predicted."""
    width = x.shape[1]
    plain, value, guess = np.zeros(width, np.uint16), np.empty(width, np.float32), np.empty(width, np.float32)
    group = group_at(starts, start)
    grid = grid_of(side[group, 0], side[group, 1], bits)
    for r in range(start, stop):
        if r >= starts[group + 1]:
            group = group_at(starts, r)
            grid = grid_of(side[group, 0], side[group, 1], bits)
        codes_of(x[r], grid, plain)
        values_of(plain, grid, value)
        _predict(base[r], rate[r], step, guess)
        sent = 0
        for c in range(width):
            predicted = _or_infinite(abs(guess[c] - x[r, c]))
            averaged = _or_infinite(abs((guess[c] + value[c]) * _HALF - x[r, c]))
            compressed = min(abs(value[c] - x[r, c]), _MAX)
            if predicted <= averaged and predicted <= compressed:
                flags[r, c] = PREDICTED
                continue
            flags[r, c] = AVERAGE if averaged <= compressed else COMPRESSED
            _put(packed[r], sent, bits, int(plain[c]))
            sent += 1


@njit(cache=True, nogil=True)
def restore_elements_range(
    packed: ByteArray,
    flags: ByteArray,
    offsets: Starts,
    base: FloatArray,
    rate: FloatArray,
    step: np.float32,
    side: FloatArray,
    starts: Starts,
    bits: int,
    out: FloatArray,
    start: int,
    stop: int,
) -> None:
    """The inverse of `choose_range` for rows whose packed codes begin at `offsets`."""
    width = out.shape[1]
    plain, value = np.zeros(width, np.uint16), np.empty(width, np.float32)
    group = group_at(starts, start)
    grid = grid_of(side[group, 0], side[group, 1], bits)
    for r in range(start, stop):
        if r >= starts[group + 1]:
            group = group_at(starts, r)
            grid = grid_of(side[group, 0], side[group, 1], bits)
        mine, sent = packed[offsets[r] :], 0
        for c in range(width):
            if flags[r, c] != PREDICTED:
                plain[c] = _get(mine, sent, bits)
                sent += 1
        values_of(plain, grid, value)
        _predict(base[r], rate[r], step, out[r])
        for c in range(width):
            if flags[r, c] == COMPRESSED:
                out[r, c] = value[c]
            elif flags[r, c] == AVERAGE:
                out[r, c] = (out[r, c] + value[c]) * _HALF
