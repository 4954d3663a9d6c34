"""Bias, ReLU and keyed dropout of rows in one pass, written over the rows; backwards one pass for all gradients.

For layers without a norm. Only the result is kept, which the next layer keeps anyway: an element of it is above zero
exactly where it was not dropped and the ReLU let it through. The gradient of the bias is summed over blocks of rows of
a fixed size, so that it does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.errors import InputError
from harness.kernels.bfloat16 import narrow, widen, words_or_values
from harness.kernels.custom_operator import custom_operator
from harness.kernels.dropout import dropout_factor, dropout_threshold
from harness.kernels.norm_relu_dropout import ROWS_PER_SUM
from harness.kernels.random import element_bits, row_words, signed64, stream_of
from harness.kernels.threads import over_rows
from harness.kernels.work import Streamed, declare_work


@njit(cache=True, nogil=True, inline="always")
def _forward_row(
    row: np.ndarray, bias: np.ndarray, node: int, stream: np.uint64, threshold: np.uint32, factor: np.floating[Any]
) -> None:
    """A threshold of 0 drops nothing."""
    zero = factor - factor
    for column in range(row.shape[0]):
        value = row[column] + bias[column]
        row[column] = zero if value <= zero else value  # nan passes, as in torch
    if threshold:
        low, high = row_words(stream, node)
        for column in range(row.shape[0]):
            keep = element_bits(low, high, column) >= threshold
            row[column] = row[column] * factor if keep else zero


@njit(cache=True, nogil=True)
def _forward_range(
    x: np.ndarray, bias: np.ndarray, nodes: np.ndarray, stream: np.uint64, threshold: np.uint32,
    factor: np.floating[Any], start: int, stop: int,
) -> None:  # fmt: skip
    for row in range(start, stop):
        _forward_row(x[row], bias, nodes[row] if threshold else 0, stream, threshold, factor)


@njit(cache=True, nogil=True)
def _forward_range_bf16(
    x: np.ndarray, bias: np.ndarray, nodes: np.ndarray, stream: np.uint64, threshold: np.uint32,
    factor: np.floating[Any], start: int, stop: int,
) -> None:  # fmt: skip
    """x has the bits of bfloat16 values, uint16 [n, d]; bias is float32."""
    wide = np.empty(x.shape[1], bias.dtype)
    for row in range(start, stop):
        widen(x[row], wide.view(np.uint32))
        _forward_row(wide, bias, nodes[row] if threshold else 0, stream, threshold, factor)
        narrow(wide.view(np.uint32), x[row])


@njit(cache=True, nogil=True, inline="always")
def _backward_row(
    gradient: np.ndarray, result: np.ndarray, factor: np.floating[Any], found: np.ndarray, of_bias: np.ndarray
) -> None:
    zero = factor - factor
    for column in range(gradient.shape[0]):
        through = zero if result[column] <= zero else gradient[column] * factor
        found[column] = through
        of_bias[column] += through


@njit(cache=True, nogil=True)
def _backward_blocks(
    g: np.ndarray, out: np.ndarray, factor: np.floating[Any], target: np.ndarray, sums: np.ndarray,
    start: int, stop: int,
) -> None:  # fmt: skip
    """Gradients of the rows of blocks [start, stop), and sums [blocks, d] of those of the bias."""
    for block in range(start, stop):
        for row in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, g.shape[0])):
            _backward_row(g[row], out[row], factor, target[row], sums[block])


@njit(cache=True, nogil=True)
def _backward_blocks_bf16(
    g: np.ndarray, out: np.ndarray, factor: np.floating[Any], target: np.ndarray, sums: np.ndarray,
    start: int, stop: int,
) -> None:  # fmt: skip
    """g, out and target are the bits of bfloat16 values, uint16 [n, d]; sums are float32."""
    room = np.empty((3, g.shape[1]), sums.dtype)
    for block in range(start, stop):
        for row in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, g.shape[0])):
            widen(g[row], room[0].view(np.uint32))
            widen(out[row], room[1].view(np.uint32))
            _backward_row(room[0], room[1], factor, room[2], sums[block])
            narrow(room[2].view(np.uint32), target[row])


@custom_operator(
    "haloscope::bias_relu_dropout_", "(Tensor(a!) x, Tensor bias, Tensor nodes, float p, int key) -> Tensor(a!)"
)
def bias_relu_dropout_rows(x: Tensor, bias: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    """`dropout_rows` of max(x + bias, 0), written over x [n, d]; bias [d].

    Rows in bfloat16 are computed in float32, the type of their bias, and rounded once. With p = 0 nothing is dropped,
    and `nodes` may be empty.
    """
    if not x.is_contiguous():
        return x.copy_(bias_relu_dropout_rows(x.contiguous(), bias, nodes, p, key))
    rows, shift, ids = words_or_values(x), bias.contiguous().numpy(), nodes.contiguous().numpy()
    kernel = _forward_range_bf16 if x.dtype == torch.bfloat16 else _forward_range
    numbers = stream_of(key), np.uint32(dropout_threshold(p)), shift.dtype.type(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        kernel(rows, shift, ids, *numbers, start, stop)

    over_rows(piece, x.shape[0], 2 * x.nbytes)
    return x


@bias_relu_dropout_rows.register_kernel("cuda")
def _(x: Tensor, bias: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    x.add_(bias)
    return x.copy_(torch.ops.haloscope.relu_dropout(x, nodes, p, key)) if p else x.relu_()


@bias_relu_dropout_rows.register_fake
def _(x: Tensor, bias: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
    return x


@custom_operator(
    "haloscope::bias_relu_dropout_backward", "(Tensor g, Tensor out, Tensor bias, float p) -> (Tensor, Tensor)"
)
def bias_relu_dropout_gradients(g: Tensor, out: Tensor, bias: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The gradients of x [n, d] and of the bias [d] from that of the result `out` [n, d]."""
    g, out = g.contiguous(), out.contiguous()
    found, blocks = torch.empty_like(g), -(-g.shape[0] // ROWS_PER_SUM)
    sums = bias.new_zeros(blocks, *bias.shape)
    gradient, result, target, partial = map(words_or_values, (g, out, found, sums))
    kernel = _backward_blocks_bf16 if g.dtype == torch.bfloat16 else _backward_blocks
    factor = partial.dtype.type(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        kernel(gradient, result, factor, target, partial, start, stop)

    over_rows(piece, blocks, 3 * g.nbytes)
    return found, sums.sum(0)


@bias_relu_dropout_gradients.register_kernel("cuda")
def _(g: Tensor, out: Tensor, bias: Tensor, p: float) -> tuple[Tensor, Tensor]:
    found = torch.ops.aten.threshold_backward(g, out, 0)
    if p:
        found = found.mul_(dropout_factor(p))
    return found, found.sum(0, dtype=bias.dtype)


@bias_relu_dropout_gradients.register_fake
def _(g: Tensor, out: Tensor, bias: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return g.new_empty(g.shape), bias.new_empty(bias.shape)


declare_work("haloscope::bias_relu_dropout_", Streamed("elementwise"))
declare_work("haloscope::bias_relu_dropout_backward", Streamed("elementwise"))


class _BiasReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, nodes: Tensor, p: float, key: int) -> Tensor:
        torch.ops.haloscope.bias_relu_dropout_(x, bias, nodes, p, key)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x, bias)
        ctx.p = p
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        out, bias = ctx.saved_tensors
        return *torch.ops.haloscope.bias_relu_dropout_backward(grads[0], out, bias, ctx.p), None, None, None


def bias_relu_dropout_(x: Tensor, bias: Tensor, nodes: Tensor | None = None, p: float = 0.0, key: int = 0) -> Tensor:
    """`keyed_dropout((x + bias).relu(), nodes, p, key)` in one pass that writes over x, and returns it.

    Args:
        x: float32, float64 or bfloat16 [n, d]; the result of an operator that does not keep it for its gradient.
        bias: [d], in float32 where x is bfloat16, else in the type of x.
        nodes: int64 [n] global ids; not read with p = 0.

    Raises:
        InputError: p is outside [0, 1].
        TypeError: the bias has another shape or type.
        RuntimeError: of torch, in the backward pass: the operator that made x keeps it.
    """
    if not 0.0 <= p <= 1.0:
        raise InputError(f"dropout probability {p} is outside [0, 1]")
    wanted = torch.float32 if x.dtype == torch.bfloat16 else x.dtype
    if bias.dtype != wanted or bias.shape != x.shape[1:]:  # the kernels do not check what they read
        raise TypeError(f"rows {x.dtype} {[*x.shape]} need a bias {wanted} [{x.shape[1]}], not {bias.dtype}")
    ids = torch.empty(0, dtype=torch.int64, device=x.device) if nodes is None else nodes
    return _BiasReluDropout.apply(x, bias, ids, p, signed64(key))  # type: ignore[no-any-return, no-untyped-call]
