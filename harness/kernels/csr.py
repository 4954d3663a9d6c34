"""Compiled kernels on one sparse block in CSR form: transposition, column selection, self loops.

They are separate from the torch types that use them (`harness.graphs`) so that partition building can call them on
plain arrays. They do not validate their input.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def transpose(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Column pointers and ascending row indices of a CSR matrix, by one counting sort, O(nnz + rows + columns)."""
    t_indptr = column_pointers(indptr, indices, num_cols)
    t_indices = np.empty(len(indices), indices.dtype)
    place_rows(indptr, indices, t_indptr[:-1].copy(), t_indices)
    return t_indptr, t_indices


@njit(cache=True, nogil=True)
def column_pointers(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> np.ndarray:
    """Column pointers of a CSR matrix, [num_cols + 1], of the type of `indptr`."""
    pointers = np.zeros(num_cols + 1, indptr.dtype)
    for e in range(len(indices)):
        pointers[indices[e] + 1] += 1
    for c in range(num_cols):
        pointers[c + 1] += pointers[c]
    return pointers


@njit(cache=True, nogil=True)
def place_rows(indptr: np.ndarray, indices: np.ndarray, cursor: np.ndarray, t_indices: np.ndarray) -> None:
    """Write the row of every entry to `t_indices`, where the cursor of its column is; it begins as the pointers."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            t_indices[cursor[column]] = row
            cursor[column] += 1


@njit(cache=True, nogil=True)
def edge_map(indices: np.ndarray, t_indptr: np.ndarray) -> np.ndarray:
    """Position in `indices` of every entry of the transpose, in the transpose's own order."""
    cursor = t_indptr[:-1].copy()
    t_edge = np.empty(len(indices), t_indptr.dtype)
    for e in range(len(indices)):
        column = indices[e]
        t_edge[cursor[column]] = e
        cursor[column] += 1
    return t_edge


@njit(cache=True, nogil=True)
def ascending_in_range(columns: np.ndarray, num_cols: int) -> bool:
    """True when `columns` ascends strictly and stays in `0..num_cols-1`."""
    last = -1
    for column in columns:
        if column <= last or column >= num_cols:
            return False
        last = column
    return True


@njit(cache=True, nogil=True)
def select_block_columns(
    indptr: np.ndarray, indices: np.ndarray, t_indptr: np.ndarray, t_indices: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four arrays of the block that keeps only the ascending `columns`, renumbered from 0, O(nnz).

    The transpose is a copy of ranges. The rows come from transposing it back while few entries are kept, and else from
    compacting the old rows in one pass without branches: every entry is written, and the write position moves on only
    when the column is kept (measured: transposing costs twice as much per kept entry as compacting per old entry).
    """
    new_t_indptr = np.zeros(len(columns) + 1, t_indptr.dtype)
    for j in range(len(columns)):
        new_t_indptr[j + 1] = new_t_indptr[j] + (t_indptr[columns[j] + 1] - t_indptr[columns[j]])
    nnz = new_t_indptr[-1]
    new_t_indices = np.empty(nnz, t_indices.dtype)
    for j in range(len(columns)):
        source = t_indptr[columns[j]]
        for e in range(new_t_indptr[j], new_t_indptr[j + 1]):
            new_t_indices[e] = t_indices[source + e - new_t_indptr[j]]
    if 2 * nnz < len(indices):
        new_indptr, new_indices = transpose(new_t_indptr, new_t_indices, len(indptr) - 1)
    else:
        new_indptr, new_indices = _compact(indptr, indices, columns, len(t_indptr) - 1, nnz)
    return new_indptr, new_indices, new_t_indptr, new_t_indices


@njit(cache=True, nogil=True)
def _compact(
    indptr: np.ndarray, indices: np.ndarray, columns: np.ndarray, num_cols: int, nnz: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows with the `nnz` entries of the given columns only."""
    lookup = np.full(num_cols, -1, indices.dtype)
    for j in range(len(columns)):
        lookup[columns[j]] = j
    new_indptr = np.zeros(len(indptr), indptr.dtype)
    new_indices = np.empty(nnz + 1, indices.dtype)  # one slot to spare for the last rejected entry
    at = 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            column = lookup[indices[e]]
            new_indices[at] = column
            at += column >= 0
        new_indptr[row + 1] = at
    return new_indptr, new_indices[:nnz]


@njit(cache=True, nogil=True)
def add_self_loops(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A square CSR matrix with `i -> i` in every row that lacks it; rows stay ascending."""
    num_rows = len(indptr) - 1
    new_indptr = np.zeros(num_rows + 1, indptr.dtype)
    new_indices = np.empty(len(indices) + num_rows, indices.dtype)
    at = 0
    for row in range(num_rows):
        pending = True
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            if pending and column >= row:
                pending = False
                if column > row:
                    new_indices[at] = row
                    at += 1
            new_indices[at] = column
            at += 1
        if pending:
            new_indices[at] = row
            at += 1
        new_indptr[row + 1] = at
    return new_indptr, new_indices[:at].copy()
