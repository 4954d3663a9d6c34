"""The operator that keeps a random share of a sparse block's entries: edge sampling, one draw per epoch.

Which entries are kept depends on (key, row, column) only. The caller chooses the key of each epoch and handles columns
that become empty.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.kernels import csr
from harness.kernels.custom_operator import custom_operator
from harness.kernels.random import UNIFORM_BITS, element_bits, element_bits_torch, row_words, row_words_torch, stream_of
from harness.kernels.work import Gather, declare_work

Arrays = tuple[Tensor, Tensor, Tensor, Tensor]


@njit(cache=True, nogil=True)
def _kept(
    indptr: np.ndarray, indices: np.ndarray, stream: np.uint64, threshold: np.uint32, diagonal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The CSR arrays of the entries that are kept, in their order."""
    new_indptr = np.zeros_like(indptr)
    new_indices = np.empty(len(indices) + 1, indices.dtype)  # one slot to spare for the last rejected entry
    at = 0
    for row in range(len(indptr) - 1):
        low, high = row_words(stream, row)
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            new_indices[at] = column
            keep = element_bits(low, high, column) < threshold or (diagonal and column == row)
            at += int(keep)
        new_indptr[row + 1] = at
    return new_indptr, new_indices[:at].copy()


def _threshold(share: float) -> int:
    return round(share * (1 << UNIFORM_BITS))


@custom_operator(
    "haloscope::drop_edges",
    "(Tensor indptr, Tensor indices, SymInt num_cols, int key, float share, bool diagonal)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def drop_edges(indptr: Tensor, indices: Tensor, num_cols: int, key: int, share: float, diagonal: bool) -> Arrays:
    """The block, and its transpose, with every entry kept with probability `share`, O(nnz).

    `diagonal` keeps the entries i -> i always. Index arrays share one integer dtype; columns keep their numbers.
    """
    chosen = _kept(indptr.numpy(), indices.numpy(), stream_of(key), np.uint32(_threshold(share)), diagonal)
    a, b, c, d = (torch.from_numpy(array) for array in (*chosen, *csr.transpose(*chosen, num_cols)))
    return a, b, c, d


@drop_edges.register_kernel("cuda")
def drop_edges_torch(indptr: Tensor, indices: Tensor, num_cols: int, key: int, share: float, diagonal: bool) -> Arrays:
    """The same in torch operators, for devices that the compiled kernel cannot reach."""
    dtype, counts = indices.dtype, indptr.diff().long()
    rows = torch.repeat_interleave(torch.arange(counts.shape[0], device=counts.device), counts)
    low, high = row_words_torch(key, rows)
    keep = element_bits_torch(low + indices, high, 1)[:, 0] < _threshold(share)
    if diagonal:
        keep |= rows == indices
    new_indptr = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[indptr.long()].to(dtype)
    rows, columns = rows[keep], indices[keep]
    order = torch.argsort(columns, stable=True)
    t_counts = torch.bincount(columns, minlength=num_cols)
    t_indptr = torch.nn.functional.pad(t_counts.cumsum(0), (1, 0)).to(dtype)
    return new_indptr, columns, t_indptr, rows[order].to(dtype)


@drop_edges.register_fake
def _(indptr: Tensor, indices: Tensor, num_cols: int, key: int, share: float, diagonal: bool) -> Arrays:
    """Shapes of the expected number of entries."""
    nnz = round(indices.shape[0] * share)
    sizes = (indptr.shape[0], nnz, num_cols + 1, nnz)
    a, b, c, d = (indices.new_empty(size) for size in sizes)
    return a, b, c, d


declare_work("haloscope::drop_edges", Gather())
