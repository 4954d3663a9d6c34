"""Rows of bfloat16 values in compiled kernels: numba has no such type, so they are bits that are widened to float32."""

from __future__ import annotations

import numpy as np
from numba import njit

_S16, _ONE, _HALF, _NAN = np.uint32(16), np.uint32(1), np.uint32(0x7FFF), np.uint32(0x7FC0)
_INFINITY, _UNSIGNED = np.uint32(0x7F800000), np.uint32(0x7FFFFFFF)


@njit(cache=True)
def widen(source: np.ndarray, target: np.ndarray) -> None:
    """Bits of bfloat16 values, uint16 [d], to those of the same float32 values, uint32 [d]."""
    for column in range(source.shape[0]):
        target[column] = np.uint32(source[column]) << _S16


@njit(cache=True)
def narrow(source: np.ndarray, target: np.ndarray) -> None:
    """Bits of float32 values, uint32 [d], to those of the nearest bfloat16 values, ties to even, uint16 [d]."""
    for column in range(source.shape[0]):
        word = source[column]
        rounded = np.uint32(word + _HALF + ((word >> _S16) & _ONE)) >> _S16
        target[column] = np.uint16(_NAN if (word & _UNSIGNED) > _INFINITY else rounded)
