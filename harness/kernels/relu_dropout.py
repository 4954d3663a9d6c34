"""ReLU and keyed dropout of rows in one pass forwards and one backwards: the bits of the two one after the other.

Only the result is kept, which the next layer keeps anyway: an element of it is above zero exactly where it was not
dropped and the ReLU let it through, so the backward pass needs neither the random numbers nor the rows between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.kernels.custom_operator import custom_operator
from harness.kernels.dropout import dropout_factor, dropout_threshold, keyed_dropout, masked_rows
from harness.kernels.random import element_bits, row_words, signed64
from harness.kernels.threads import over_rows
from harness.kernels.work import Streamed, declare_work


@njit(cache=True, nogil=True)
def _forward_range(
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
            passed = zero if source[column] <= zero else source[column]  # nan passes, as in torch
            keep = element_bits(low, high, column) >= threshold
            target[column] = passed * factor if keep else zero


@njit(cache=True, nogil=True)
def _backward_range(
    g: np.ndarray, out: np.ndarray, factor: np.floating[Any], target: np.ndarray, start: int, stop: int
) -> None:
    zero = factor - factor
    for at in range(start, stop):
        target[at] = zero if out[at] <= zero else g[at] * factor


@custom_operator("haloscope::relu_dropout", "(Tensor x, Tensor nodes, float p, int key) -> Tensor")
def relu_dropout_rows(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """`dropout_rows` of max(x, 0), x [n, d]."""
    return masked_rows(_forward_range, x, nodes, p, key)


@relu_dropout_rows.register_kernel("cuda")
def _(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    from harness.kernels import _dropout_cuda as dropout_cuda

    if dropout_cuda.drops_rows(x):
        return dropout_cuda.dropout(x, nodes, dropout_factor(p), dropout_threshold(p), key, relu=True)
    return torch.ops.haloscope.dropout_rows(x.relu(), nodes, p, key)  # type: ignore[no-any-return]


@relu_dropout_rows.register_fake
def _(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    return x.new_empty(x.shape)


@custom_operator("haloscope::relu_dropout_backward", "(Tensor g, Tensor out, float p) -> Tensor")
def relu_dropout_gradient(g: Tensor, out: Tensor, p: float) -> Tensor:
    """The gradient of x from that of the result `out`, [n, d]: g / (1 - p) where the result is above zero, else 0."""
    if g.dtype == torch.bfloat16:
        exact: Tensor = relu_dropout_gradient(g.float(), out.float(), p)
        return exact.to(g.dtype)
    g, out = g.contiguous(), out.contiguous()
    found = torch.empty_like(g)
    source, result, target = (tensor.view(-1).numpy() for tensor in (g, out, found))
    factor = source.dtype.type(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        _backward_range(source, result, factor, target, start, stop)

    over_rows(piece, len(source), 3 * g.nbytes)
    return found


@relu_dropout_gradient.register_kernel("cuda")
def _(g: Tensor, out: Tensor, p: float) -> Tensor:
    return torch.ops.aten.threshold_backward(g, out, 0).mul_(dropout_factor(p))  # type: ignore[no-any-return]


@relu_dropout_gradient.register_fake
def _(g: Tensor, out: Tensor, p: float) -> Tensor:
    return g.new_empty(g.shape)


declare_work("haloscope::relu_dropout", Streamed("dropout"))
declare_work("haloscope::relu_dropout_backward", Streamed("elementwise"))


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
        out: Tensor = torch.ops.haloscope.relu_dropout(x, nodes, p, key)
        ctx.save_for_backward(out)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.haloscope.relu_dropout_backward(grads[0], out, ctx.p), None, None, None


def relu_dropout(x: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """`keyed_dropout(x.relu(), nodes, p, key)` in one pass: rows x [n, d] of nodes int64 [n].

    The type is float32 or float64, or bfloat16, which is computed in float32. Raises InputError if p is outside [0, 1].
    """
    if not 0.0 < p <= 1.0:
        return keyed_dropout(x.relu(), nodes, p, key)
    return _ReluDropout.apply(x, nodes, p, signed64(key))  # type: ignore[no-any-return, no-untyped-call]
