"""Attention over own and halo neighbours in torch operators, for any device and type: see `_attention`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.nn._messages import rows_of_entries


def attend_torch(
    indptr: Tensor, indices: Tensor, halo_indptr: Tensor, halo_indices: Tensor, target: Tensor, source: Tensor,
    halo_source: Tensor, x: Tensor, halo_x: Tensor, slope: float, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attended rows [n, H, D]; if `keep`, what the backward pass needs: [n, H, D] and [n, H, 4], else empty tensors.

    The first is the part of the attended rows that comes from positive scores. The four numbers are the target score,
    the largest score, one over the sum of the exponentials of scores minus that, and the sum of weights of positive
    scores. All are 0 for rows without entries.
    """
    num_rows, nnz = target.shape[0], indices.numel()
    rows = torch.cat([rows_of_entries(indptr, nnz), rows_of_entries(halo_indptr, halo_indices.numel())])
    scores = [source.index_select(0, indices), halo_source.index_select(0, halo_indices)]
    raw = torch.cat(scores) + target.index_select(0, rows)
    score = functional.leaky_relu(raw, slope)
    top = score.new_full((num_rows, score.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, rows[:, None].expand_as(score), score, "amax")
    weight = (score - top.index_select(0, rows)).exp()
    total = torch.zeros_like(target).index_add(0, rows, weight)
    weight = weight / total.index_select(0, rows)

    def summed(weight: Tensor) -> Tensor:
        sums = torch.ops.haloscope.gather_weighted_sum
        out: Tensor = sums(indptr, indices, weight[:nnz], x)
        return out + sums(halo_indptr, halo_indices, weight[nnz:], halo_x) if halo_indices.numel() else out

    out = summed(weight)
    if not keep:
        return out, out.new_empty(0), out.new_empty(0)
    positive = weight * (raw > 0)
    share, some = torch.zeros_like(target).index_add(0, rows, positive), total > 0
    zero = torch.zeros((), dtype=out.dtype, device=out.device)
    numbers = [target, torch.where(some, top, zero), torch.where(some, 1 / total, zero), share]
    return out, summed(positive), torch.stack(numbers, 2)


def target_gradient_torch(
    gradient: Tensor, out: Tensor, kept: Tensor, numbers: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """The gradient of the target scores [n, H], and `numbers` with the last one replaced by gradient . out."""
    mean, upper = (gradient * out).sum(2), (gradient * kept).sum(2)
    d_target = (1 - slope) * (upper - mean * numbers[:, :, 3])
    return d_target, torch.cat([numbers[:, :, :3], mean[:, :, None]], 2)


def source_gradient_torch(
    t_indptr: Tensor, t_indices: Tensor, numbers: Tensor, source: Tensor, x: Tensor, gradient: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """The gradients of the source scores [k, H] and rows [k, H, D] of one block, from its transpose.

    `numbers` are those of `attend_target_gradient`.
    """
    ops, rows = torch.ops.haloscope, rows_of_entries(t_indptr, t_indices.numel())
    target, top, inverse, mean = numbers.index_select(0, t_indices).unbind(2)
    raw = source.index_select(0, rows) + target
    leak = torch.where(raw > 0, 1.0, slope).to(raw.dtype)
    weight = (raw * leak - top).exp() * inverse
    along = ops.edge_dot(t_indptr, t_indices, x, gradient)
    d_source = torch.zeros_like(source).index_add(0, rows, weight * (along - mean) * leak)
    return d_source, ops.gather_weighted_sum(t_indptr, t_indices, weight, gradient)
