"""Neighbour sums with a message for every edge: rows are gathered, weighted, and added up by destination.

Plain torch operators, so that autograd keeps what it keeps for a library without a fused product. `_aggregate` has the
fused sums, which make no row per edge.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.graphs import Block, EdgeGraph


def message_sum(graph: EdgeGraph, x: Tensor, weight: Tensor | None) -> Tensor:
    """out[i] = sum of weight[e] * x[source of e] over the edges e into i, [n, ...] -> [n, ...].

    weight [E, ...] is broadcast over the columns; None is 1. The gathered rows stay alive beside the weighted ones
    until the sum is done: E rows of x without weights, 2 E with them. Autograd keeps the gathered rows where weights
    have a gradient, and otherwise none.
    """
    gathered = x.index_select(0, graph.source)
    messages = (gathered if weight is None else gathered * weight).flatten(1)
    index = graph.destination[:, None].expand_as(messages)
    return x.new_zeros((x.shape[0], messages.shape[1])).scatter_add_(0, index, messages).view_as(x)


def edge_softmax(score: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Softmax of score [nnz, H] over the edges of each destination row."""
    index = rows[:, None].expand_as(score)
    top = score.detach().new_full((num_rows, score.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - top.index_select(0, rows)).exp()
    total = weight.new_zeros(num_rows, score.shape[1]).index_add(0, rows, weight)
    return weight / total.index_select(0, rows)


def edge_rows(block: Block) -> Tensor:
    """Destination row of every edge of a block, int64 [nnz]."""
    return rows_of_entries(block.indptr, block.nnz)


class _AtSources(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.num_rows = x.shape[0]
        return x.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (indices,), (gradient,) = ctx.saved_tensors, grads
        return add_at(gradient.new_zeros(ctx.num_rows, *gradient.shape[1:]), indices, gradient), None


def at_sources(x: Tensor, block: Block) -> Tensor:
    """Row of x of the source of every edge of a block, [num_cols, ...] -> [nnz, ...].

    `index_select`, with a gradient that adds up by `add_at` and keeps no other indices than the block's.
    """
    return _AtSources.apply(x, block.indices)  # type: ignore[no-any-return, no-untyped-call]


def add_at(sums: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """Adds rows [nnz, ...] to the rows of `sums` that `indices` [nnz] name; returns `sums`.

    On CPUs torch adds up by int32 indices, which blocks have, much more slowly than by int64 ones, so that a copy of
    them pays.
    """
    return sums.index_add_(0, indices.long(), rows)


def rows_of_entries(indptr: Tensor, nnz: int) -> Tensor:
    """Row of every stored entry, int64 [nnz], from row pointers."""
    counts = indptr.diff().long()
    return torch.repeat_interleave(torch.arange(counts.shape[0], device=counts.device), counts, output_size=nnz)
