"""Dropout whose mask depends on (key, global node, column) only, so that it is the same for every partition.

Only the key is kept for the backward pass, which computes the mask again. The caller chooses a key per epoch and layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.errors import InputError
from harness.kernels.custom_operator import custom_operator
from harness.kernels.random import (
    UNIFORM_BITS,
    element_bits,
    element_bits_torch,
    row_words,
    row_words_torch,
    signed64,
    stream_of,
)
from harness.kernels.threads import over_rows
from harness.kernels.work import Streamed, declare_work


@njit(cache=True, nogil=True)
def _dropout_range(
    x: np.ndarray,
    nodes: np.ndarray,
    stream: np.uint64,
    threshold: np.uint32,
    factor: np.floating[Any],
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    zero = factor - factor
    for row in range(start, stop):
        low, high = row_words(stream, nodes[row])
        source, target = x[row], out[row]
        for column in range(source.shape[0]):
            keep = element_bits(low, high, column) >= threshold
            target[column] = source[column] * factor if keep else zero


def dropout_threshold(p: float) -> int:
    """Elements whose 24 bits are below it are dropped."""
    return round(p * (1 << UNIFORM_BITS))


def dropout_factor(p: float) -> float:
    """What the others are multiplied by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


@custom_operator("haloscope::dropout_rows", "(Tensor x, Tensor nodes, float p, int key) -> Tensor")
def dropout_rows(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """x [n, d] times its mask over 1 - p; element (r, c) is dropped when its 24 uniform bits are below p * 2**24."""
    return masked_rows(_dropout_range, x, nodes, p, key)


def masked_rows(kernel: Callable[..., None], x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """A pass of a compiled kernel over ranges of rows x [n, d], with the dropout of their nodes int64 [n]."""
    if x.dtype == torch.bfloat16:
        return masked_rows(kernel, x.float(), nodes, p, key).to(x.dtype)
    x = x.contiguous()
    out = torch.empty_like(x)
    source, ids, target = x.numpy(), nodes.contiguous().numpy(), out.numpy()
    stream, threshold, factor = stream_of(key), np.uint32(dropout_threshold(p)), source.dtype.type(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        kernel(source, ids, stream, threshold, factor, target, start, stop)

    over_rows(piece, x.shape[0], 2 * x.nbytes)
    return out


@dropout_rows.register_kernel("cuda")
def _(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    from harness.kernels import _dropout_cuda as dropout_cuda

    if dropout_cuda.drops_rows(x):
        return dropout_cuda.dropout(x, nodes, dropout_factor(p), dropout_threshold(p), key)
    return dropout_rows_torch(x, nodes, p, key)


def dropout_rows_torch(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """The same in torch operators, bit for bit, on any device: CUDA's path for float64, and without Triton."""
    low, high = row_words_torch(key, nodes)
    keep = element_bits_torch(low, high, x.shape[1]) >= dropout_threshold(p)
    return torch.where(keep, x * dropout_factor(p), torch.zeros((), dtype=x.dtype, device=x.device))


@dropout_rows.register_fake
def _(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    return x.new_empty(x.shape)


declare_work("haloscope::dropout_rows", Streamed("dropout"))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
        ctx.save_for_backward(nodes)
        ctx.p, ctx.key = p, key
        return torch.ops.haloscope.dropout_rows(x, nodes, p, key)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (nodes,) = ctx.saved_tensors
        return torch.ops.haloscope.dropout_rows(grads[0], nodes, ctx.p, ctx.key), None, None, None


def keyed_dropout(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """Dropout of rows [n, d] (float32, float64 or bfloat16) of the nodes with global ids `nodes` (int64 [n]).

    Element (v, c) is a function of (key, nodes[v], c): 0 with probability p, else x / (1 - p). p = 0 returns x
    itself, p = 1 zeros. Raises InputError if p is outside [0, 1]. `key` counts modulo 2**64.
    """
    if not 0.0 <= p <= 1.0:
        raise InputError(f"dropout probability {p} is outside [0, 1]")
    if p == 0.0:
        return x
    return _Dropout.apply(x, nodes, p, signed64(key))  # type: ignore[no-any-return, no-untyped-call]
