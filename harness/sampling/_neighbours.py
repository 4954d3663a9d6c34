"""Uniform neighbour samples without replacement: the compiled sampler behind mini-batches.

The sample of a node depends on (key, node) only, not on threads, batches or the order of the seeds. Layers, blocks and
features are handled in `_minibatch`, lists of other ranks' nodes in `_remote`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.kernels.random import GOLDEN, mix64, stream_of
from harness.kernels.threads import over_rows

_GOLDEN, _S32 = np.uint64(GOLDEN), np.uint64(32)
_LINE = 64  # bytes of memory that one random access moves


def sample_neighbours(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanout: int,
    key: int,
    names: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`fanout` neighbours of every seed, drawn uniformly without replacement, or all if there are no more.

    `indptr` [N+1] and `indices` are CSR, `seeds` int [n]; returns CSR of n rows in the same types, entries of a row in
    no order. A repeated entry (a multi-edge) counts as several neighbours. O(n x fanout + largest degree).
    `names`, int [n], replace the seeds' row numbers in the random keys, where rows are not numbered by node.
    """
    counts = np.minimum(indptr[seeds + 1] - indptr[seeds], fanout)
    starts = np.zeros(len(seeds) + 1, indptr.dtype)
    np.cumsum(counts, out=starts[1:])
    drawn = np.empty(int(starts[-1]), indices.dtype)
    stream = stream_of(key)

    def piece(start: int, stop: int) -> None:
        _draw(indptr, indices, seeds, seeds if names is None else names, fanout, stream, starts, drawn, start, stop)

    over_rows(piece, len(seeds), _LINE * len(drawn))
    return starts, drawn


@njit(cache=True, nogil=True)
def _draw(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    names: np.ndarray,
    fanout: int,
    stream: np.uint64,
    starts: np.ndarray,
    drawn: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Fisher and Yates' shuffle, stopped after `fanout` places and undone for the next seed.

    The random words of a seed are splitmix64's, from the state mix64(stream + name * GOLDEN). Their upper half times
    the places left, shifted by 32, is uniform to one part in 2**32 / degree.
    """
    longest = 0
    for row in range(start, stop):
        longest = max(longest, indptr[seeds[row] + 1] - indptr[seeds[row]])
    place = np.arange(longest)  # the identity between seeds
    for row in range(start, stop):
        begin, at = indptr[seeds[row]], starts[row]
        degree = indptr[seeds[row] + 1] - begin
        if degree <= fanout:
            drawn[at : at + degree] = indices[begin : begin + degree]
            continue
        word = mix64(stream + np.uint64(names[row]) * _GOLDEN)
        for i in range(fanout):
            word += _GOLDEN
            j = i + np.int64(((mix64(word) >> _S32) * np.uint64(degree - i)) >> _S32)
            place[i], place[j] = place[j], place[i]
            drawn[at + i] = indices[begin + place[i]]
        for i in range(fanout):  # a place beyond the first `fanout` that changed was itself drawn
            if place[i] >= fanout:
                place[place[i]] = place[i]
        for i in range(fanout):
            place[i] = i
