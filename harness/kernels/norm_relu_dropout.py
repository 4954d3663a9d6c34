"""Bias, LayerNorm, ReLU and keyed dropout of rows in one pass forwards and one backwards.

Forwards a row is read once and its result written once. Kept are the rows before the bias, from which the backward
pass computes the statistics of a row again, and the result, which the next layer keeps anyway: an element of it is
above zero exactly where it was not dropped and the ReLU let it through. The gradients of the parameters are summed over
blocks of rows of a fixed size, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn import functional

from harness.errors import InputError
from harness.kernels.bfloat16 import narrow, widen
from harness.kernels.custom_operator import custom_operator
from harness.kernels.dropout import dropout_factor, dropout_threshold
from harness.kernels.random import element_bits, row_words, signed64, stream_of
from harness.kernels.threads import over_rows
from harness.kernels.work import Streamed, declare_work

ROWS_PER_SUM = 512
"""Rows whose gradients of the parameters are summed one after the other."""

_REORDERED = {"reassoc", "nsz", "contract"}
"""Sums over a row may be reordered, always in the same way: kernels are compiled whole (`inline`), because a part that
one process compiles and another one finds in the cache may be reordered otherwise."""


@njit(cache=True, nogil=True, fastmath=_REORDERED, inline="always")
def _moments(row: np.ndarray, bias: np.ndarray, eps: np.floating[Any]) -> tuple[Any, Any]:
    """Mean of row + bias, and the reciprocal of its standard deviation."""
    width = row.shape[0]
    total = eps - eps
    for column in range(width):
        total += row[column] + bias[column]
    mean = total / row.dtype.type(width)
    total = eps - eps
    for column in range(width):
        apart = row[column] + bias[column] - mean
        total += apart * apart
    return mean, row.dtype.type(1) / np.sqrt(total / row.dtype.type(width) + eps)


@njit(cache=True, nogil=True, fastmath=_REORDERED, inline="always")
def _forward_row(
    source: np.ndarray, affine: np.ndarray, eps: np.floating[Any], node: int, stream: np.uint64,
    threshold: np.uint32, factor: np.floating[Any], target: np.ndarray,
) -> None:  # fmt: skip
    """affine: bias, weight and shift, [3, d]. A threshold of 0 drops nothing."""
    zero = factor - factor
    bias, weight, shift = affine[0], affine[1], affine[2]
    mean, scale = _moments(source, bias, eps)
    for column in range(source.shape[0]):
        target[column] = (source[column] + bias[column] - mean) * scale
    for column in range(source.shape[0]):  # apart: weights that overflow must not meet a scale of 0 before its rows do
        normed = target[column] * weight[column] + shift[column]
        target[column] = zero if normed <= zero else normed  # nan passes, as in torch
    if threshold:
        low, high = row_words(stream, node)
        for column in range(source.shape[0]):
            keep = element_bits(low, high, column) >= threshold
            target[column] = target[column] * factor if keep else zero


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _forward_range(
    x: np.ndarray, affine: np.ndarray, eps: np.floating[Any], nodes: np.ndarray, stream: np.uint64,
    threshold: np.uint32, factor: np.floating[Any], out: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    for row in range(start, stop):
        node = nodes[row] if threshold else 0
        _forward_row(x[row], affine, eps, node, stream, threshold, factor, out[row])


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _forward_range_bf16(
    x: np.ndarray, affine: np.ndarray, eps: np.floating[Any], nodes: np.ndarray, stream: np.uint64,
    threshold: np.uint32, factor: np.floating[Any], out: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    """x and out are the bits of bfloat16 values, uint16 [n, d]."""
    source, target = np.empty(x.shape[1], affine.dtype), np.empty(x.shape[1], affine.dtype)
    for row in range(start, stop):
        node = nodes[row] if threshold else 0
        widen(x[row], source.view(np.uint32))
        _forward_row(source, affine, eps, node, stream, threshold, factor, target)
        narrow(target.view(np.uint32), out[row])


@njit(cache=True, nogil=True, fastmath=_REORDERED, inline="always")
def _backward_row(
    gradient: np.ndarray, source: np.ndarray, result: np.ndarray, affine: np.ndarray, eps: np.floating[Any],
    factor: np.floating[Any], normed: np.ndarray, found: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """The gradient of a row, and its part of those of bias, weight and shift, sums [3, d]. `normed`: room for a row."""
    zero, width = factor - factor, source.shape[0]
    bias, weight = affine[0], affine[1]
    count = source.dtype.type(width)
    of_bias, of_weight, of_shift = sums[0], sums[1], sums[2]
    mean, scale = _moments(source, bias, eps)
    plain, scaled = zero, zero
    for column in range(width):
        apart = (source[column] + bias[column] - mean) * scale
        through = zero if result[column] <= zero else gradient[column] * factor
        of_shift[column] += through
        of_weight[column] += through * apart
        through *= weight[column]
        plain += through
        scaled += through * apart
        normed[column], found[column] = apart, through
    plain, scaled = plain / count, scaled / count
    for column in range(width):
        value = (found[column] - plain - normed[column] * scaled) * scale
        found[column] = value
        of_bias[column] += value


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _backward_blocks(
    g: np.ndarray, x: np.ndarray, out: np.ndarray, affine: np.ndarray, eps: np.floating[Any],
    factor: np.floating[Any], target: np.ndarray, sums: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    """Gradients of the rows of blocks [start, stop), and sums [blocks, 3, d] of those of bias, weight and shift."""
    normed = np.empty(x.shape[1], affine.dtype)
    for block in range(start, stop):
        for row in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, x.shape[0])):
            _backward_row(g[row], x[row], out[row], affine, eps, factor, normed, target[row], sums[block])


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _backward_blocks_bf16(
    g: np.ndarray, x: np.ndarray, out: np.ndarray, affine: np.ndarray, eps: np.floating[Any],
    factor: np.floating[Any], target: np.ndarray, sums: np.ndarray, start: int, stop: int,
) -> None:  # fmt: skip
    """g, x, out and target are the bits of bfloat16 values, uint16 [n, d]; affine and sums are float32."""
    room = np.empty((5, x.shape[1]), affine.dtype)
    for block in range(start, stop):
        for row in range(block * ROWS_PER_SUM, min((block + 1) * ROWS_PER_SUM, x.shape[0])):
            widen(g[row], room[0].view(np.uint32))
            widen(x[row], room[1].view(np.uint32))
            widen(out[row], room[2].view(np.uint32))
            _backward_row(room[0], room[1], room[2], affine, eps, factor, room[3], room[4], sums[block])
            narrow(room[4].view(np.uint32), target[row])


def _plain(tensor: Tensor) -> np.ndarray:
    """A contiguous tensor as an array; of bfloat16 the bits, uint16."""
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


@custom_operator(
    "haloscope::norm_relu_dropout", "(Tensor x, Tensor affine, Tensor nodes, float eps, float p, int key) -> Tensor"
)
def norm_relu_dropout_rows(x: Tensor, affine: Tensor, nodes: Tensor, eps: float, p: float, key: int) -> Tensor:
    """`dropout_rows` of max(LayerNorm(x + bias), 0), x [n, d]; affine [3, d] has bias, weight and shift.

    Rows in bfloat16 are computed in float32, the type of their `affine`, and rounded once. With p = 0 nothing is
    dropped, and `nodes` may be empty.
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    source, parameters, ids, target = _plain(x), affine.numpy(), nodes.contiguous().numpy(), _plain(out)
    kind, kernel = parameters.dtype.type, _forward_range_bf16 if x.dtype == torch.bfloat16 else _forward_range
    numbers = stream_of(key), np.uint32(dropout_threshold(p)), kind(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        kernel(source, parameters, kind(eps), ids, *numbers, target, start, stop)

    over_rows(piece, x.shape[0], 2 * x.nbytes)
    return out


@norm_relu_dropout_rows.register_kernel("cuda")
def _(x: Tensor, affine: Tensor, nodes: Tensor, eps: float, p: float, key: int) -> Tensor:
    from harness.kernels import _norm_relu_dropout_cuda as cuda

    if cuda.norms_rows(x):
        return cuda.forward(x, affine, nodes, eps, key, dropout_factor(p), dropout_threshold(p), p > 0)
    bias, weight, shift = affine
    rows = functional.layer_norm(x + bias, bias.shape, weight, shift, eps).relu()
    return (torch.ops.haloscope.dropout_rows(rows, nodes, p, key) if p else rows).to(x.dtype)


@norm_relu_dropout_rows.register_fake
def _(x: Tensor, affine: Tensor, nodes: Tensor, eps: float, p: float, key: int) -> Tensor:
    return x.new_empty(x.shape)


@custom_operator(
    "haloscope::norm_relu_dropout_backward",
    "(Tensor g, Tensor x, Tensor out, Tensor affine, float eps, float p) -> (Tensor, Tensor)",
)
def norm_relu_dropout_gradients(
    g: Tensor, x: Tensor, out: Tensor, affine: Tensor, eps: float, p: float
) -> tuple[Tensor, Tensor]:
    """The gradients of x [n, d] and of affine [3, d] from that of the result `out` [n, d]."""
    g, x, out = g.contiguous(), x.contiguous(), out.contiguous()
    found, blocks = torch.empty_like(g), -(-x.shape[0] // ROWS_PER_SUM)
    sums = affine.new_zeros(blocks, *affine.shape)
    gradient, source, result, parameters, target, partial = map(_plain, (g, x, out, affine, found, sums))
    kind, kernel = parameters.dtype.type, _backward_blocks_bf16 if x.dtype == torch.bfloat16 else _backward_blocks
    numbers = kind(eps), kind(dropout_factor(p))

    def piece(start: int, stop: int) -> None:
        kernel(gradient, source, result, parameters, *numbers, target, partial, start, stop)

    over_rows(piece, blocks, 4 * g.nbytes)
    return found, sums.sum(0)


@norm_relu_dropout_gradients.register_kernel("cuda")
def _(g: Tensor, x: Tensor, out: Tensor, affine: Tensor, eps: float, p: float) -> tuple[Tensor, Tensor]:
    from harness.kernels import _norm_relu_dropout_cuda as cuda

    if cuda.norms_rows(x):
        return cuda.backward(g, x, out, affine, eps, dropout_factor(p))
    bias, weight, shift = affine
    rows, aten = x + bias, torch.ops.aten
    _, mean, scale = aten.native_layer_norm(rows, bias.shape, weight, shift, eps)
    passed = aten.threshold_backward(g, out, 0).to(rows.dtype) * dropout_factor(p)
    found, *others = aten.native_layer_norm_backward(passed, rows, bias.shape, mean, scale, weight, shift, [True] * 3)
    return found.to(x.dtype), torch.stack([found.sum(0), *others])


@norm_relu_dropout_gradients.register_fake
def _(g: Tensor, x: Tensor, out: Tensor, affine: Tensor, eps: float, p: float) -> tuple[Tensor, Tensor]:
    return g.new_empty(g.shape), affine.new_empty(affine.shape)


declare_work("haloscope::norm_relu_dropout", Streamed("dropout"))
declare_work("haloscope::norm_relu_dropout_backward", Streamed("reduction"))


class _NormReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor, nodes: Tensor, eps: float,
        p: float, key: int,
    ) -> Tensor:  # fmt: skip
        affine = torch.stack([torch.zeros_like(shift) if bias is None else bias, weight, shift])
        out: Tensor = torch.ops.haloscope.norm_relu_dropout(x, affine, nodes, eps, p, key)
        ctx.save_for_backward(x, affine, out)
        ctx.numbers, ctx.biased = (eps, p), bias is not None
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, affine, out = ctx.saved_tensors
        found, (bias, weight, shift) = torch.ops.haloscope.norm_relu_dropout_backward(
            grads[0], x, out, affine, *ctx.numbers
        )
        return found, bias if ctx.biased else None, weight, shift, None, None, None, None


def norm_relu_dropout(
    x: Tensor, bias: Tensor | None, norm: nn.LayerNorm, nodes: Tensor | None = None, p: float = 0.0, key: int = 0
) -> Tensor:
    """`keyed_dropout(norm(x + bias).relu(), nodes, p, key)` in one pass, up to the rounding of sums over a row.

    Args:
        x: float32, float64 or bfloat16 [n, d].
        bias: [d]; None for zeros.
        norm: with weight and shift, in float32 where x is bfloat16.
        nodes: int64 [n] global ids; not read with p = 0.

    Raises:
        InputError: p is outside [0, 1].
        TypeError: the parameters have another type than x, or than float32 where x is bfloat16.
    """
    if not 0.0 <= p <= 1.0:
        raise InputError(f"dropout probability {p} is outside [0, 1]")
    wanted = torch.float32 if x.dtype == torch.bfloat16 else x.dtype
    if norm.weight.dtype != wanted or norm.weight.shape != x.shape[1:]:  # the kernels do not check what they write
        raise TypeError(f"rows {x.dtype} {[*x.shape]} need parameters {wanted} [{x.shape[1]}], not {norm.weight.dtype}")
    ids = torch.empty(0, dtype=torch.int64, device=x.device) if nodes is None else nodes
    return _NormReluDropout.apply(  # type: ignore[no-any-return, no-untyped-call]
        x, bias, norm.weight, norm.bias, ids, norm.eps, p, signed64(key)
    )
