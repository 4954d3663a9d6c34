"""A checksum of arrays at memory speed, to notice damage by disks and copies; no defence against forgery."""

from __future__ import annotations

import numpy as np
from numba import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def checksum(array: np.ndarray) -> str:
    """16 hexadecimal digits that depend on every byte of a contiguous array and on its place; one pass over it.

    The sum over 8-byte words of splitmix64's mixture of word and place. A change of any one word always changes it.
    """
    data = array.reshape(-1).view(np.uint8)
    whole = data.size // 8 * 8
    rest = np.zeros(8, np.uint8)
    rest[: data.size - whole] = data[whole:]
    words = data[:whole].view(np.uint64)
    total = int(_mixed(words, np.uint64(0))) + int(_mixed(rest.view(np.uint64), np.uint64(words.size))) + data.size
    return f"{total % 2**64:016x}"


@njit(cache=True, nogil=True)
def _mixed(words: np.ndarray, first: np.uint64) -> np.uint64:
    total = np.uint64(0)
    for at in range(words.size):
        z = words[at] ^ ((first + np.uint64(at) + np.uint64(1)) * _GOLDEN)
        z = (z ^ (z >> _S30)) * _FIRST
        z = (z ^ (z >> _S27)) * _SECOND
        total += z ^ (z >> _S31)
    return total
