"""Sparse neighbourhood sums over a CSR block and their adjoints: the aggregation every model and method shares.

The operators work on rows, columns and widths, independent of normalisation, halos and ranks. On CPUs sums of float32
rows use a C function (`_neighbour_sums`), weighted ones and others, or all without a C compiler, `embedding_bag`, which
is twice as fast as torch's CSR product; on GPUs a Triton kernel (`harness.kernels.neighbour_sum_cuda`). The gradient
uses the transposed index of the block. Attention heads are a middle axis: weights [nnz, H], x [n, H, d].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn import functional

from harness.errors import ProgramError
from harness.kernels.custom_operator import custom_operator
from harness.kernels.threads import equal_entries, num_ranges, run_ranges
from harness.kernels.work import NeighbourSum, declare_work
from harness.nn._neighbour_sums import native_sums, sums_natively

if TYPE_CHECKING:
    from harness.graphs import Block

EDGES_PER_GATHER = 1 << 20
"""Bounds the memory of `edge_dot` in torch operators, which gathers both ends of that many edges at a time."""


@custom_operator("haloscope::gather_sum", "(Tensor indptr, Tensor indices, Tensor x) -> Tensor")
def gather_sum(indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
    """out[r] = sum of x[indices[e]] for e in [indptr[r], indptr[r+1]): x [n_cols, d] -> [n_rows, d]."""
    return _bag(indptr, indices, x, None)


@gather_sum.register_fake
def _(indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
    return x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))


@gather_sum.register_kernel("cuda")
def _(indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
    from harness.kernels import neighbour_sum_cuda

    if neighbour_sum_cuda.sums_rows(indices, x):
        return neighbour_sum_cuda.summed_rows(indptr, indices, None, x)
    return _bag(indptr, indices, x, None)


declare_work("haloscope::gather_sum", NeighbourSum(columns=1, rows=2))


@custom_operator(
    "haloscope::gather_weighted_sum", "(Tensor indptr, Tensor indices, Tensor weights, Tensor x) -> Tensor"
)
def gather_weighted_sum(indptr: Tensor, indices: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """out[r] = sum of weights[e] * x[indices[e]] over the entries e of row r.

    weights [nnz] with x [n_cols, d] -> [n_rows, d]; weights [nnz, H] with x [n_cols, H, d] -> [n_rows, H, d].
    """
    return _weighted_bag(indptr, indices, weights, x)


@gather_weighted_sum.register_kernel("cuda")
def _(indptr: Tensor, indices: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    from harness.kernels import neighbour_sum_cuda

    if neighbour_sum_cuda.sums_rows(indices, x):
        return neighbour_sum_cuda.summed_rows(indptr, indices, weights, x)
    return _weighted_bag(indptr, indices, weights, x)


@gather_weighted_sum.register_fake
def _(indptr: Tensor, indices: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    return x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))


declare_work("haloscope::gather_weighted_sum", NeighbourSum(columns=1, rows=3))


def _weighted_bag(indptr: Tensor, indices: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    if x.ndim == 2:
        return _bag(indptr, indices, x, weights.contiguous())
    out = x.new_empty((indptr.shape[0] - 1, *x.shape[1:]))
    for head, weight in enumerate(weights.t().contiguous()):
        out[:, head] = _bag(indptr, indices, x[:, head], weight)
    return out


def _bag(indptr: Tensor, indices: Tensor, x: Tensor, weights: Tensor | None) -> Tensor:
    if indices.shape[0] == 0 or x.shape[1] == 0:
        return x.new_zeros((indptr.shape[0] - 1, x.shape[1]))
    if weights is None and sums_natively(indptr, indices, x):
        return native_sums(indptr, indices, x)
    return functional.embedding_bag(
        indices, x, indptr, mode="sum", include_last_offset=True, per_sample_weights=weights
    )


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _edge_dot_range(
    indptr: np.ndarray, indices: np.ndarray, g: np.ndarray, x: np.ndarray, out: np.ndarray, start: int, stop: int
) -> None:
    """g, x [rows, heads, d]; the reduction may be reordered, always in the same way."""
    for row in range(start, stop):
        for edge in range(indptr[row], indptr[row + 1]):
            column = indices[edge]
            for head in range(g.shape[1]):
                left, right = g[row, head], x[column, head]
                total = left.dtype.type(0)
                for k in range(left.shape[0]):
                    total += left[k] * right[k]
                out[edge, head] = total


@custom_operator("haloscope::edge_dot", "(Tensor indptr, Tensor indices, Tensor g, Tensor x) -> Tensor")
def edge_dot(indptr: Tensor, indices: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """out[e] = dot(g[row of e], x[indices[e]]): g [n_rows, d], x [n_cols, d] -> [nnz]; with heads -> [nnz, H]."""
    heads = g.shape[1] if g.ndim == 3 else 1
    out = g.new_empty((indices.shape[0], heads))
    shape = (-1, heads, g.shape[-1])
    left, right = (t.contiguous().view(t.shape[0], *shape[1:]).numpy() for t in (g, x))
    starts, columns, target = indptr.numpy(), indices.numpy(), out.numpy()
    pieces = num_ranges(indices.shape[0] * heads * g.shape[-1] * g.element_size())

    def piece(start: int, stop: int) -> None:
        _edge_dot_range(starts, columns, left, right, target, start, stop)

    run_ranges(piece, equal_entries(starts, indices.shape[0], pieces))
    return out if g.ndim == 3 else out.view(-1)


@edge_dot.register_kernel("cuda")
def edge_dot_torch(indptr: Tensor, indices: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """The same in torch operators, a bounded number of edges at a time; the path for CUDA tensors."""
    counts, nnz = indptr.diff().long(), indices.shape[0]
    rows = torch.repeat_interleave(torch.arange(counts.shape[0], device=indptr.device), counts, output_size=nnz)
    out = g.new_empty((indices.shape[0], *g.shape[1:-1]))
    for at in range(0, indices.shape[0], EDGES_PER_GATHER):
        part = slice(at, at + EDGES_PER_GATHER)
        out[part] = (g[rows[part]] * x[indices[part]]).sum(-1)
    return out


@edge_dot.register_fake
def _(indptr: Tensor, indices: Tensor, g: Tensor, x: Tensor) -> Tensor:
    return g.new_empty((indices.shape[0], *g.shape[1:-1]))


declare_work("haloscope::edge_dot", NeighbourSum(columns=1, rows=3))


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Block, x: Tensor) -> Tensor:
        ctx.block = block
        return torch.ops.haloscope.gather_sum(block.indptr, block.indices, x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        block = ctx.block
        return None, torch.ops.haloscope.gather_sum(block.t_indptr, block.t_indices, grads[0])


class _AggregateWeighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Block, weights: Tensor, x: Tensor) -> Tensor:
        ctx.block = block
        ctx.save_for_backward(weights, x)
        op = torch.ops.haloscope.gather_weighted_sum
        return op(block.indptr, block.indices, weights, x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        block, (weights, x), ops = ctx.block, ctx.saved_tensors, torch.ops.haloscope
        d_weights = d_x = None
        if ctx.needs_input_grad[1]:
            d_weights = ops.edge_dot(block.indptr, block.indices, grads[0], x)
        if ctx.needs_input_grad[2]:
            d_x = ops.gather_weighted_sum(block.t_indptr, block.t_indices, weights[block.t_edge], grads[0])
        return None, d_weights, d_x


def aggregate(block: Block, x: Tensor) -> Tensor:
    """Neighbour sum A x with gradient A^T g: x [block.num_cols, d] -> [block.num_rows, d]."""
    return _Aggregate.apply(block, x)  # type: ignore[no-any-return, no-untyped-call]


def aggregate_weighted(block: Block, weights: Tensor, x: Tensor) -> Tensor:
    """Weighted neighbour sum with gradients to weights and x (attention).

    weights [nnz], x [num_cols, d] -> [num_rows, d], or weights [nnz, H], x [num_cols, H, d] -> [num_rows, H, d];
    weights in the order of `block.indices`. Raises ProgramError if the block has no edge map.
    """
    if block.t_edge is None:
        raise ProgramError("aggregate_weighted: the block has no edge map; build it once with block.with_edge_map()")
    return _AggregateWeighted.apply(block, weights, x)  # type: ignore[no-any-return, no-untyped-call]
