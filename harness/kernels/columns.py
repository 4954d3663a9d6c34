"""The operator that keeps some columns of a sparse block, for the sampling of boundary nodes in every epoch.

It is an operator and not a plain function so that the simulated driver's ledger can charge it, also on meta tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels import csr
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import Streamed, declare_work

Arrays = tuple[Tensor, Tensor, Tensor, Tensor]


@custom_operator(
    "haloscope::select_columns",
    "(Tensor indptr, Tensor indices, Tensor t_indptr, Tensor t_indices, Tensor columns)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def select_columns(indptr: Tensor, indices: Tensor, t_indptr: Tensor, t_indices: Tensor, columns: Tensor) -> Arrays:
    """The CSR arrays, and those of the transpose, of the given columns alone, renumbered from 0, O(nnz).

    `columns`: int64 [k], strictly ascending; ValueError otherwise. The index arrays share one integer dtype.
    """
    chosen, num_cols = columns.numpy(), t_indptr.shape[0] - 1
    if not csr.ascending_in_range(chosen, num_cols):
        raise ValueError(f"columns must ascend strictly and lie in 0..{num_cols - 1}")
    forward, backward = (indptr.numpy(), indices.numpy()), (t_indptr.numpy(), t_indices.numpy())
    a, b, c, d = (torch.from_numpy(array) for array in csr.select_block_columns(*forward, *backward, chosen))
    return a, b, c, d


@select_columns.register_kernel("cuda")
def select_columns_torch(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, t_indices: Tensor, columns: Tensor
) -> Arrays:
    """The same in torch operators, for devices without the compiled kernel; does not check `columns`."""
    dtype, device = indices.dtype, indices.device
    lookup = torch.full((t_indptr.shape[0] - 1,), -1, dtype=dtype, device=device)
    lookup[columns] = torch.arange(columns.numel(), dtype=dtype, device=device)
    renumbered = lookup[indices]
    keep = renumbered >= 0
    new_indptr = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[indptr].to(dtype)
    begin = t_indptr[columns].long()
    length = t_indptr[columns + 1].long() - begin
    new_t_indptr = torch.nn.functional.pad(length.cumsum(0), (1, 0))
    shift = torch.repeat_interleave(begin - new_t_indptr[:-1], length)
    new_t_indices = t_indices[shift + torch.arange(shift.numel(), device=device)]
    return new_indptr, renumbered[keep], new_t_indptr.to(dtype), new_t_indices


@select_columns.register_fake
def _(indptr: Tensor, indices: Tensor, t_indptr: Tensor, t_indices: Tensor, columns: Tensor) -> Arrays:
    """Shapes under the assumption that all columns have equal numbers of entries."""
    num_cols = t_indptr.shape[0] - 1
    nnz = round(indices.shape[0] * columns.shape[0] / num_cols) if num_cols else 0
    sizes = (indptr.shape[0], nnz, columns.shape[0] + 1, nnz)
    a, b, c, d = (indices.new_empty(size) for size in sizes)
    return a, b, c, d


declare_work("haloscope::select_columns", Streamed("gather"))  # every entry is read
