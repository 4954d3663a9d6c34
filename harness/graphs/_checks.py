"""Checks of a graph's arrays, whose errors name the array, the position and the value.

Plain functions on arrays, so that readers and `_graph.validate` give the same messages; nothing is repaired here.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from harness.errors import InputError
from harness.kernels.edges import first_bad_entry, first_disorder, first_not_finite

UNLABELLED = -1
MOST_CLASSES = 1 << 16
"""More classes than this are a mistake, where there are not even as many nodes."""


def index_dtype(num_nodes: int) -> np.dtype:
    """int32 where node ids fit, else int64."""
    return np.dtype(np.int32 if num_nodes < 2**31 else np.int64)


def check_ids(where: str, ids: np.ndarray, num_nodes: int) -> None:
    """Sorted ids in range, each once."""
    if ids.size and (ids[0] < 0 or ids[-1] >= num_nodes):
        bad = ids[0] if ids[0] < 0 else ids[-1]
        raise InputError(f"{where}: node {bad} is out of range for {num_nodes} nodes")
    steps = np.flatnonzero(np.diff(ids) <= 0)
    if steps.size:
        at = int(steps[0])
        again = "twice" if ids[at] == ids[at + 1] else f"before {ids[at + 1]}; node ids must ascend"
        raise InputError(f"{where}: node {ids[at]} appears {again}")


def check_topology(where: str, indptr: np.ndarray, indices: np.ndarray) -> None:
    """Types and CSR structure of the neighbour lists."""
    if indptr.ndim != 1 or not len(indptr) or indptr.dtype != np.int64:
        raise InputError(f"{where}: indptr must be int64 [N+1], not {indptr.dtype} {list(indptr.shape)}")
    num_nodes = len(indptr) - 1
    if indices.ndim != 1 or indices.dtype != index_dtype(num_nodes):
        raise InputError(
            f"{where}: indices must be {index_dtype(num_nodes)} [E], not {indices.dtype} {list(indices.shape)}"
        )
    check_csr(where, indptr, indices, num_nodes, "edge")


def check_csr(where: str, indptr: np.ndarray, indices: np.ndarray, num_cols: int, entry: str) -> None:
    """Row pointers that cover all entries, entries in range, rows that ascend."""
    if indptr[0] != 0 or indptr[-1] != len(indices):
        raise InputError(f"{where}: row pointers run from {indptr[0]} to {indptr[-1]}, must be 0 to {len(indices)}")
    row = first_disorder(indptr)
    if row >= 0:
        raise InputError(f"{where}: row pointer {row + 1} is {indptr[row + 1]}, smaller than the one before it")
    row, at = first_bad_entry(indptr, indices, num_cols)
    if row < 0:
        return
    if 0 <= indices[at] < num_cols:
        raise InputError(
            f"{where}: row {row}: {entry} {at} holds {indices[at]} after {indices[at - 1]}, rows must ascend"
        )
    raise InputError(f"{where}: row {row}: {entry} {at} holds {indices[at]}, out of range 0 to {num_cols - 1}")


def check_features(where: str, x: np.ndarray | sp.csr_matrix, num_nodes: int) -> None:
    """float32 [N, F] without NaN or infinity, dense or CSR."""
    if x.ndim != 2 or x.shape[0] != num_nodes or x.dtype != np.float32:
        raise InputError(f"{where}: features must be float32 [{num_nodes}, F], not {x.dtype} {list(x.shape)}")
    if isinstance(x, np.ndarray):
        at = first_not_finite(np.ascontiguousarray(x).reshape(-1))
        if at >= 0:
            row, column = divmod(at, x.shape[1])
            raise InputError(f"{where}: node {row}: feature {column} is {x[row, column]}")
        return
    check_csr(f"{where}: features", x.indptr, x.indices, x.shape[1], "entry")
    at = first_not_finite(x.data)
    if at >= 0:
        row = int(np.searchsorted(x.indptr, at, side="right")) - 1
        raise InputError(f"{where}: node {row}: feature {x.indices[at]} is {x.data[at]}")


def check_labels(where: str, y: np.ndarray, num_nodes: int, num_classes: int) -> None:
    """One label per node, each in range or missing (-1); or uint8 [N, C]."""
    if len(y) != num_nodes:
        raise InputError(f"{where}: {len(y)} labels for {num_nodes} nodes")
    if num_classes > max(num_nodes, MOST_CLASSES):  # a model would have an output for each
        raise InputError(f"{where}: {num_classes} classes for {num_nodes} nodes: is a label wrong?")
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise InputError(f"{where}: {y.shape[1]} label columns for {num_classes} classes")
        return
    bad = np.flatnonzero((y < UNLABELLED) | (y >= num_classes))
    if bad.size:
        raise InputError(f"{where}: node {bad[0]}: label {y[bad[0]]} is out of range for {num_classes} classes")


def check_splits(where: str, splits: dict[str, np.ndarray | None], y: np.ndarray | None, num_nodes: int) -> None:
    """Ids in range, each once, in one split only, and labelled where there are labels."""
    seen: dict[str, np.ndarray] = {}
    for split, ids in splits.items():
        if ids is None:
            continue
        check_ids(f"{where}: {split}", ids, num_nodes)
        for other, others in seen.items():
            both = np.intersect1d(ids, others, assume_unique=True)
            if both.size:
                raise InputError(f"{where}: node {both[0]} is in both {other} and {split}")
        seen[split] = ids
        missing = ids[y[ids] == UNLABELLED] if y is not None and y.ndim == 1 else ids[:0]
        if missing.size:
            raise InputError(f"{where}: {split}: node {missing[0]} has no label")
