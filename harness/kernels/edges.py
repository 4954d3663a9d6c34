"""Compiled kernels on edge lists and neighbour lists: sorting, duplicates, mirroring, induced subgraphs, checks.

They are separate from `harness.graphs` so that generators and partitioners can call them on plain arrays; all are
O(nodes + edges). They do not check that ids are in range, except for the checks at the end, which return a position.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.kernels.csr import transpose


def sort_pairs(source: np.ndarray, destination: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR by destination, ascending sources in every row: `(indptr int64 [N+1], indices [E])`; keeps duplicates.

    Both arrays have the dtype of the node ids. Two counting sorts, or none where the pairs already are in order.
    """
    if _in_order(source, destination):
        indptr = np.zeros(num_nodes + 1, np.int64)
        np.cumsum(np.bincount(destination, minlength=num_nodes), out=indptr[1:])
        return indptr, source.copy()
    by_source, grouped = _group(source, destination, num_nodes)
    indptr, indices = transpose(by_source, grouped, num_nodes)
    return indptr, indices


def unique_pairs(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The CSR without repeated entries and without self loops (rows ascending); works in place, O(E)."""
    new_indptr, kept = _compact(indptr, indices)
    return new_indptr, indices if kept == len(indices) else indices[:kept].copy()


@njit(cache=True, nogil=True)
def _in_order(source: np.ndarray, destination: np.ndarray) -> bool:
    for e in range(1, len(source)):
        if destination[e] < destination[e - 1] or (destination[e] == destination[e - 1] and source[e] < source[e - 1]):
            return False
    return True


@njit(cache=True, nogil=True)
def _group(key: np.ndarray, value: np.ndarray, num_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Values grouped by key: a counting sort whose offsets double as the row pointers."""
    indptr = np.zeros(num_keys + 1, np.int64)
    for k in key:
        indptr[k + 1] += 1
    for k in range(num_keys):
        indptr[k + 1] += indptr[k]
    cursor = indptr[:-1].copy()
    grouped = np.empty_like(value)
    for e in range(len(key)):
        k = key[e]
        grouped[cursor[k]] = value[e]
        cursor[k] += 1
    return indptr, grouped


@njit(cache=True, nogil=True)
def _compact(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, int]:
    new_indptr = np.zeros_like(indptr)
    at = 0
    for row in range(len(indptr) - 1):
        start = at
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            if column != row and (at == start or indices[at - 1] != column):
                indices[at] = column
                at += 1
        new_indptr[row + 1] = at
    return new_indptr, at


@njit(cache=True, nogil=True)
def union(
    indptr_a: np.ndarray, indices_a: np.ndarray, indptr_b: np.ndarray, indices_b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Row by row union of two CSR patterns whose rows ascend strictly."""
    merged = np.empty(len(indices_a) + len(indices_b), indices_a.dtype)
    indptr = np.zeros_like(indptr_a)
    at = 0
    for row in range(len(indptr_a) - 1):
        a, b = indptr_a[row], indptr_b[row]
        end_a, end_b = indptr_a[row + 1], indptr_b[row + 1]
        while a < end_a or b < end_b:
            if b == end_b or (a < end_a and indices_a[a] <= indices_b[b]):
                if b < end_b and indices_a[a] == indices_b[b]:
                    b += 1
                merged[at] = indices_a[a]
                a += 1
            else:
                merged[at] = indices_b[b]
                b += 1
            at += 1
        indptr[row + 1] = at
    return indptr, merged[:at].copy()


@njit(cache=True, nogil=True)
def mirror(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both directions of a graph that lists every edge once, at its smaller end (row < entry, rows ascending).

    The lower neighbours of a node arrive in ascending order while the rows are walked, and its upper ones follow
    them, so no sort and no second copy are needed.
    """
    num_nodes = len(indptr) - 1
    lower = np.zeros(num_nodes, np.int64)
    for column in indices:
        lower[column] += 1
    full = np.zeros(num_nodes + 1, np.int64)
    for v in range(num_nodes):
        full[v + 1] = full[v] + lower[v] + indptr[v + 1] - indptr[v]
    cursor = full[:-1].copy()
    both = np.empty(2 * len(indices), indices.dtype)
    for u in range(num_nodes):
        at = full[u] + lower[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            both[at] = v
            at += 1
            both[cursor[v]] = u
            cursor[v] += 1
    return full, both


@njit(cache=True, nogil=True)
def induced(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CSR of the subgraph on the strictly ascending `nodes`, renumbered by position; rows stay ascending."""
    number = np.full(len(indptr) - 1, -1, indices.dtype)
    for i in range(len(nodes)):
        number[nodes[i]] = i
    new_indptr = np.zeros(len(nodes) + 1, np.int64)
    for i in range(len(nodes)):
        kept = 0
        for e in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            kept += number[indices[e]] >= 0
        new_indptr[i + 1] = new_indptr[i] + kept
    new_indices = np.empty(new_indptr[-1], indices.dtype)
    at = 0
    for v in nodes:
        for e in range(indptr[v], indptr[v + 1]):
            i = number[indices[e]]
            if i >= 0:
                new_indices[at] = i
                at += 1
    return new_indptr, new_indices


@njit(cache=True, nogil=True)
def symmetric(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether u -> v occurs as often as v -> u for every pair; rows must ascend.

    Walking the rows in order meets the mirrored entries of every row in that row's own order, so one cursor per
    node replaces the transpose: O(E) time, O(N) memory.
    """
    cursor = indptr[:-1].copy()
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if cursor[u] == indptr[u + 1] or indices[cursor[u]] != v:
                return False
            cursor[u] += 1
    return True


@njit(cache=True, nogil=True)
def first_disorder(indptr: np.ndarray) -> int:
    """The first row whose pointers descend, or -1."""
    for row in range(len(indptr) - 1):
        if indptr[row + 1] < indptr[row]:
            return row
    return -1


@njit(cache=True, nogil=True)
def first_bad_entry(indptr: np.ndarray, indices: np.ndarray, num_cols: int) -> tuple[int, int]:
    """`(row, position)` of the first entry that is out of range or smaller than the one before it, or (-1, -1)."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            if indices[e] < 0 or indices[e] >= num_cols or (e > indptr[row] and indices[e] < indices[e - 1]):
                return row, e
    return -1, -1


@njit(cache=True, nogil=True)
def first_not_finite(values: np.ndarray) -> int:
    """Position of the first NaN or infinity in a flat array, or -1."""
    for i in range(len(values)):
        if not np.isfinite(values[i]):
            return i
    return -1
