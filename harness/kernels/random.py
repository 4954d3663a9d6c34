"""Counter-based random bits for row kernels: the same integers on CPU (numba), in torch operators and in Triton.

A bit pattern is a pure function of (key, row, column); there is no generator state, so results do not depend on
threads, devices, partitions or call order. Not for cryptography, and not a general random library.

Definition. `mix64` is the finaliser of splitmix64 (Steele, Lea and Flood, 2014). A row has two 32-bit words, the
low and high half of mix64(mix64(key) + row * GOLDEN). The element in column c is lowbias32 (two multiplications,
three xor-shifts, C. Wellons' constants) of low + c, with the high word folded in after the first multiplication, so
that two rows that share one word still have different streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numba import njit
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX_A = 0xBF58476D1CE4E5B9
MIX_B = 0x94D049BB133111EB
LOW_A = 0x21F0AAAD
LOW_B = 0xD35A2D97
UNIFORM_BITS = 24

_GOLDEN, _MIX_A, _MIX_B = np.uint64(GOLDEN), np.uint64(MIX_A), np.uint64(MIX_B)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW_A, _LOW_B = np.uint32(LOW_A), np.uint32(LOW_B)
_S8, _S15, _S16 = np.uint32(8), np.uint32(15), np.uint32(16)
_WORD = 0xFFFFFFFF


@njit(cache=True)
def mix64(z: np.uint64) -> np.uint64:
    """The splitmix64 finaliser, a bijection of 64-bit words."""
    z = (z ^ (z >> _S30)) * _MIX_A
    z = (z ^ (z >> _S27)) * _MIX_B
    return z ^ (z >> _S31)


@njit(cache=True)
def row_words(stream: np.uint64, row: int) -> tuple[np.uint32, np.uint32]:
    """The two 32-bit words of a row; `stream` is mix64(key) as an unsigned word."""
    z = mix64(stream + np.uint64(row) * _GOLDEN)
    return np.uint32(z), np.uint32(z >> _S32)


@njit(cache=True)
def element_bits(low: np.uint32, high: np.uint32, column: int) -> np.uint32:
    """24 uniform bits for one element, 0 <= result < 2**24."""
    x = np.uint32(low + np.uint32(column))
    x = np.uint32((x ^ (x >> _S16)) * _LOW_A) ^ high
    x = np.uint32((x ^ (x >> _S15)) * _LOW_B)
    return np.uint32((x ^ (x >> _S15)) >> _S8)


def stream_of(key: int) -> np.uint64:
    """mix64(key) of a signed 64-bit key, as the numba kernels take it."""
    z = key % 2**64
    z = (z ^ (z >> 30)) * MIX_A % 2**64
    z = (z ^ (z >> 27)) * MIX_B % 2**64
    return np.uint64(z ^ (z >> 31))


def signed64(key: int) -> int:
    """Any integer as the signed 64-bit key of the operators, modulo 2**64."""
    return (key + 2**63) % 2**64 - 2**63


StreamPlace = Callable[[int], Tensor]
"""Key -> int64 [1] on the device: where operators find the stream of that key (`stream_word`) when they run."""

_place: StreamPlace | None = None


def stream_word(key: int) -> int:
    """mix64(key) as a signed word."""
    return signed64(int(stream_of(key)))


def stream_argument(key: int) -> int | Tensor:
    """The stream of a key as GPU kernels and torch operators take it: `stream_word`, or where it lies in memory."""
    return stream_word(key) if _place is None else _place(key)


@contextmanager
def streams_in_memory(place: StreamPlace) -> Iterator[None]:
    """GPU kernels and torch operators that are launched inside read their streams from memory.

    A CUDA graph keeps the arguments of its kernels, and what they point to may change between two launches.
    """
    global _place
    before, _place = _place, place
    try:
        yield
    finally:
        _place = before


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64: torch has only the arithmetic one."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def row_words_torch(key: int, rows: Tensor) -> tuple[Tensor, Tensor]:
    """`row_words` in torch operators: int64 rows [n] -> two int64 tensors [n] that hold 32-bit words."""
    z = rows * signed64(GOLDEN) + stream_argument(key)
    z = (z ^ _shift(z, 30)) * signed64(MIX_A)
    z = (z ^ _shift(z, 27)) * signed64(MIX_B)
    z = z ^ _shift(z, 31)
    return z & _WORD, _shift(z, 32)


def element_bits_torch(low: Tensor, high: Tensor, width: int) -> Tensor:
    """`element_bits` in torch operators: words [n] -> int64 [n, width]."""
    columns = torch.arange(width, dtype=torch.int64, device=low.device)
    x = (low[:, None] + columns) & _WORD
    x = (((x ^ (x >> 16)) * LOW_A) & _WORD) ^ high[:, None]
    x = ((x ^ (x >> 15)) * LOW_B) & _WORD
    return (x ^ (x >> 15)) >> (32 - UNIFORM_BITS)
