"""Transposes a sparse block into given arrays: by one counting sort, or range by range of columns if it is large.

A counting sort writes anywhere in its result, which should therefore be in memory. A large block is dealt out to ranges
of columns first, which writes each range front to back, to files if the arrays are mapped; then range after range is
sorted. Both are linear in the number of entries.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import njit

from harness.kernels.csr import column_pointers, place_rows
from harness.machine import ArrayMaker

AT_ONCE = 1 << 26
"""Entries of a block that are sorted in memory at once."""


def transpose_into(
    indptr: np.ndarray, indices: np.ndarray, t_indptr: np.ndarray, t_indices: np.ndarray, scratch: ArrayMaker | None
) -> None:
    """Write column pointers and ascending row indices of a CSR matrix, as `kernels.csr.transpose` returns them.

    In memory are a copy of `t_indptr` or, of a large block, 4 bytes a column and `AT_ONCE` row indices.

    Args:
        t_indptr, t_indices: [num_cols + 1] and [nnz], of the types of `indptr` and `indices`; their content is lost.
        scratch: makes one more array of nnz entries for a block of more than `AT_ONCE`; None sorts any block at once.
    """
    pointers = column_pointers(indptr, indices, len(t_indptr) - 1)
    t_indptr[:] = pointers
    if scratch is None or len(indices) <= AT_ONCE:
        place_rows(indptr, indices, pointers, t_indices)
        return
    del pointers
    first = _ranges(t_indptr)
    starts = t_indptr[first].astype(np.int64)
    columns = scratch.new("columns", indices.shape, indices.dtype)
    number = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    _deal(indptr, indices, number, starts[:-1].copy(), t_indices, columns)
    del number
    for (low, high), (begin, end) in zip(pairwise(first.tolist()), pairwise(starts.tolist()), strict=True):
        if high - low > 1:  # of one column the rows ascend already
            rows, cursor = t_indices[begin:end].copy(), t_indptr[low:high] - begin
            _sort(rows, columns[begin:end], low, cursor, t_indices[begin:end])
    del columns
    scratch.drop("columns")


def _ranges(t_indptr: np.ndarray) -> np.ndarray:
    """The first column of every range, and the number of columns: ranges of `AT_ONCE` entries or of one column."""
    first, num_cols = [0], len(t_indptr) - 1
    while first[-1] < num_cols:
        last = t_indptr.dtype.type(min(int(t_indptr[first[-1]]) + AT_ONCE, int(t_indptr[-1])))
        first.append(max(int(np.searchsorted(t_indptr, last, side="right")) - 1, first[-1] + 1))
    return np.array(first, np.int64)


@njit(cache=True, nogil=True)
def _deal(
    indptr: np.ndarray,
    indices: np.ndarray,
    number: np.ndarray,
    cursor: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> None:
    """Write row and column of every entry to the stretch of its column's range, in order; `number` is the range."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            at = cursor[number[indices[e]]]
            cursor[number[indices[e]]] += 1
            rows[at], columns[at] = row, indices[e]


@njit(cache=True, nogil=True)
def _sort(rows: np.ndarray, columns: np.ndarray, low: int, cursor: np.ndarray, out: np.ndarray) -> None:
    """The counting sort of one range, whose first column is `low`; `cursor` begins as its column pointers."""
    for e in range(len(rows)):
        column = columns[e] - low
        out[cursor[column]] = rows[e]
        cursor[column] += 1
