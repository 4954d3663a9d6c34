"""The operator `haloscope::changed_rows`: which rows moved further from a cached copy than a share of its size.

One pass over both matrices; the test of CDFGNN's Algorithm 2, line 4.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import not_finite
from harness.kernels.threads import over_rows
from harness.kernels.work import Streamed, declare_work


@custom_operator("haloscope::changed_rows", "(Tensor x, Tensor cached, float threshold) -> Tensor")
def changed_rows(x: Tensor, cached: Tensor, threshold: float) -> Tensor:
    """bool [n]: max |x[r] - cached[r]| > threshold * max |cached[r]|, for x and cached [n, d] of one float type.

    ValueError "row r holds nan or inf" for the first row whose difference is not finite.
    """
    out = torch.zeros(x.shape[0], dtype=torch.bool)
    if x.numel():
        values, before, flags, bad = x.contiguous().numpy(), cached.contiguous().numpy(), out.numpy(), []
        integer = np.int32 if values.itemsize == 4 else np.int64
        bits = before.view(integer)
        infinity = np.array([np.inf], values.dtype).view(integer)[0]

        def piece(start: int, stop: int) -> None:
            room = np.empty(values.shape[1], values.dtype), np.zeros(2, values.dtype)
            slots = room[0], room[0].view(integer), room[1], room[1].view(integer)
            limit = values.dtype.type(threshold)
            first = _changed_range(values, before, bits, *slots, infinity, limit, flags, start, stop)
            if first >= 0:
                bad.append(first)

        over_rows(piece, x.shape[0], 2 * values.nbytes)
        if bad:
            raise not_finite(min(bad))
    return out


@changed_rows.register_fake
def _(x: Tensor, cached: Tensor, threshold: float) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.bool)


declare_work("haloscope::changed_rows", Streamed("reduction"))


@changed_rows.register_kernel("cuda")
def changed_rows_torch(x: Tensor, cached: Tensor, threshold: float) -> Tensor:
    """The same in torch operators, any device: the path for CUDA tensors."""
    if not x.numel():
        return x.new_zeros(x.shape[0], dtype=torch.bool)
    moved = (x - cached).abs().amax(1)
    finite = torch.isfinite(moved)
    if not finite.all():  # waits for the device, which is needed to name the row
        raise not_finite(int(torch.nonzero(~finite)[0, 0]))
    return moved > cached.abs().amax(1) * threshold


@njit(cache=True, nogil=True)
def _changed_range(
    x: np.ndarray,
    cached: np.ndarray,
    cached_bits: np.ndarray,
    moved: np.ndarray,
    moved_bits: np.ndarray,
    extremes: np.ndarray,
    extreme_bits: np.ndarray,
    infinity: int,
    threshold: float,
    out: np.ndarray,
    start: int,
    stop: int,
) -> int:
    """Flags of rows [start, stop); the first row that is not finite, or -1.

    `moved` [d] and `extremes` [2] are scratch space, viewed as floats and as integers: magnitudes of floats are ordered
    as their bits, and LLVM vectorises the maximum of integers but not that of floats, which might be nan.
    """
    integer = moved_bits.dtype.type
    magnitude = integer(infinity | (infinity - 1))  # every bit but the sign
    for r in range(start, stop):
        largest, size = integer(0), integer(0)
        for column in range(x.shape[1]):
            moved[column] = x[r, column] - cached[r, column]
        for column in range(x.shape[1]):
            word = integer(moved_bits[column] & magnitude)
            largest = word if word > largest else largest
            word = integer(cached_bits[r, column] & magnitude)
            size = word if word > size else size
        if largest >= infinity:
            return r
        extreme_bits[0], extreme_bits[1] = largest, size
        out[r] = extremes[0] > threshold * extremes[1]
    return -1
