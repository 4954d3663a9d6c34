"""The undirected edges of a symmetric graph as a list of pairs, which a vertex cut assigns to parts.

Also the map from entries of neighbour lists to pairs, the orders in which streaming partitioners read the list, and
replica sets as bit masks. Parts are chosen elsewhere.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit

from harness.errors import InputError
from harness.graphs import BOTH_DIRECTIONS, Graph

EdgeOrder = Literal["degree", "file", "random"]
"""degree: ascending sum of the degrees of both ends, equal sums in file order. file: as `undirected_pairs` lists them.
random: a permutation from the seed."""


def undirected_pairs(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """`(u, v)`: the M undirected edges, ids [M] each, in CSR order: v is the row, u <= v its entry.

    A self loop is one pair, a repeated edge one pair for each repetition. O(E). Raises InputError for a directed graph.
    """
    if not graph.is_symmetric():
        raise InputError(f"graph {graph.name} is directed, and a vertex cut needs a symmetric one; {BOTH_DIRECTIONS}")
    count = _count_lower(graph.indptr, graph.indices)
    return _fill_lower(graph.indptr, graph.indices, count)


def pair_ids(graph: Graph) -> np.ndarray:
    """The position in `undirected_pairs` of every CSR entry, int32 [E] (int64 from 2**31 entries on)."""
    dtype = np.int32 if graph.num_edges < 2**31 else np.int64
    return _pair_ids(graph.indptr, graph.indices, np.empty(graph.num_edges, dtype))


def stream(u: np.ndarray, v: np.ndarray, degree: np.ndarray, order: EdgeOrder, seed: int) -> np.ndarray:
    """The pair to read at every step, int [M]; empty for file order. `degree` is int64 [N]."""
    if order == "degree":
        dtype = np.int32 if len(u) < 2**31 else np.int64
        return _by_degree(u, v, degree, np.empty(len(u), dtype))
    if order == "random":
        return np.random.default_rng(seed).permutation(len(u))
    return np.empty(0, np.int64)


def empty_sets(num_nodes: int, num_parts: int) -> np.ndarray:
    """One empty set of parts per node: uint64 words [N, ceil(P / 64)], part i is bit i % 64 of word i // 64."""
    return np.zeros((num_nodes, -(-num_parts // 64)), np.uint64)


def replica_sets(u: np.ndarray, v: np.ndarray, part: np.ndarray, num_nodes: int, num_parts: int) -> np.ndarray:
    """The parts in which every node has an edge, as `empty_sets`."""
    sets = empty_sets(num_nodes, num_parts)
    _mark(u, v, part, sets)
    return sets


@njit(cache=True, nogil=True)
def has(sets: np.ndarray, node: int, part: int) -> bool:
    """Whether the set of `node` contains `part`."""
    return bool((sets[node, part >> 6] >> np.uint64(part & 63)) & np.uint64(1))


@njit(cache=True, nogil=True)
def put(sets: np.ndarray, node: int, part: int) -> bool:
    """Add `part` to the set of `node`; returns whether it was new."""
    bit = np.uint64(1) << np.uint64(part & 63)
    missing = bool(sets[node, part >> 6] & bit == np.uint64(0))
    sets[node, part >> 6] |= bit
    return missing


@njit(cache=True, nogil=True)
def _mark(u: np.ndarray, v: np.ndarray, part: np.ndarray, sets: np.ndarray) -> None:
    for e in range(len(u)):
        put(sets, u[e], part[e])
        put(sets, v[e], part[e])


@njit(cache=True, nogil=True)
def _count_lower(indptr: np.ndarray, indices: np.ndarray) -> int:
    count = 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            if indices[e] > row:
                break
            count += 1
    return count


@njit(cache=True, nogil=True)
def _fill_lower(indptr: np.ndarray, indices: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    u, v = np.empty(count, indices.dtype), np.empty(count, indices.dtype)
    at = 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            if indices[e] > row:
                break
            u[at], v[at] = indices[e], row
            at += 1
    return u, v


@njit(cache=True, nogil=True)
def _pair_ids(indptr: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Visiting rows in order visits the mirrored entries of every row in ascending order: one cursor per node."""
    cursor = np.empty(len(indptr) - 1, np.int64)  # the next entry above the diagonal
    at = 0
    for row in range(len(indptr) - 1):
        e = indptr[row]
        while e < indptr[row + 1] and indices[e] <= row:
            column = indices[e]
            ids[e] = at
            if column < row:
                ids[cursor[column]] = at
                cursor[column] += 1
            at += 1
            e += 1
        cursor[row] = e
    return ids


@njit(cache=True, nogil=True)
def _by_degree(u: np.ndarray, v: np.ndarray, degree: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A stable counting sort of the pairs by the sum of the degrees of their ends."""
    largest = 0
    for e in range(len(u)):
        largest = max(largest, degree[u[e]] + degree[v[e]])
    start = np.zeros(largest + 2, np.int64)
    for e in range(len(u)):
        start[degree[u[e]] + degree[v[e]] + 1] += 1
    for key in range(largest + 1):
        start[key + 1] += start[key]
    for e in range(len(u)):
        key = degree[u[e]] + degree[v[e]]
        order[start[key]] = e
        start[key] += 1
    return order
