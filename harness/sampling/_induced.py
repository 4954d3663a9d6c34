"""Subgraphs induced on a set of nodes, as graphs for the ordinary layers: every edge whose two ends are in the set.

Which nodes are drawn is decided elsewhere (`_saint`, `_clusters`); nothing here is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.graphs import Block
from harness.kernels.csr import edge_map, transpose
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import Work, bytes_of, declare_work


@dataclass(frozen=True, eq=False)
class Induced:
    """The subgraph on some rows of a block.

    Attributes:
        block: its edges, rows and columns renumbered by position, with the edge map that weights need.
        edges: int64 [nnz], the position of each in the block that it was taken from.
    """

    block: Block
    edges: Tensor


def induced_subgraph(block: Block, rows: Tensor, expected: int) -> Induced:
    """The subgraph of a square block on the strictly ascending `rows`, int64 [n].

    `expected` is the number of edges where tensors have no numbers, and is ignored where they have.
    """
    arrays = torch.ops.haloscope.induced_block(block.indices, block.indptr, rows, expected)
    return Induced(Block(*arrays[:5]), arrays[5])


@custom_operator(
    "haloscope::induced_block",
    "(Tensor indices, Tensor indptr, Tensor rows, int expected) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def induced_block(indices: Tensor, indptr: Tensor, rows: Tensor, expected: int) -> tuple[Tensor, ...]:
    """The five arrays of a `Block` with its edge map, and the positions of its edges in `indices`."""
    new_indptr, new_indices, edges = induced_edges(indptr.numpy(), indices.numpy(), rows.numpy())
    t_indptr, t_indices = transpose(new_indptr, new_indices, len(rows))
    arrays = (new_indptr, new_indices, t_indptr, t_indices, edge_map(new_indices, t_indptr), edges)
    return tuple(torch.from_numpy(array) for array in arrays)


@induced_block.register_fake
def _(indices: Tensor, indptr: Tensor, rows: Tensor, expected: int) -> tuple[Tensor, ...]:
    count = rows.shape[0] + 1
    found = [indices.new_empty(size) for size in (count, expected, count, expected, expected)]
    return (*found, rows.new_empty(expected))


@dataclass(frozen=True)
class _InducedWork:
    """Every entry of a chosen row is read and its column looked up; rows are taken to have the mean degree."""

    kind: ClassVar[str] = "host"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        indices, indptr, rows = inputs[:3]
        num_rows = max(indptr.shape[0] - 1, 1)
        entries = indices.shape[0] * rows.shape[0] // num_rows
        return Work(self.kind, 2 * bytes_of(outputs) + (2 * entries + num_rows) * indices.element_size())


declare_work("haloscope::induced_block", _InducedWork())


@njit(cache=True, nogil=True)
def induced_edges(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR on the ascending `rows`, renumbered by position, and the positions of its entries in `indices`."""
    number = np.full(len(indptr) - 1, -1, indices.dtype)
    for i in range(len(rows)):
        number[rows[i]] = i
    new_indptr = np.zeros(len(rows) + 1, indices.dtype)
    for i in range(len(rows)):
        kept = 0
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            kept += number[indices[e]] >= 0
        new_indptr[i + 1] = new_indptr[i] + kept
    new_indices = np.empty(new_indptr[-1], indices.dtype)
    edges = np.empty(new_indptr[-1], np.int64)
    at = 0
    for v in rows:
        for e in range(indptr[v], indptr[v + 1]):
            i = number[indices[e]]
            if i >= 0:
                new_indices[at] = i
                edges[at] = e
                at += 1
    return new_indptr, new_indices, edges
