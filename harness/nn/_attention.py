"""Attention over own and halo neighbours as one operator forwards and two kinds backwards.

`haloscope::attend` computes scores, their softmax over all neighbours of a row, and the weighted sums; no value per
edge outlives it. On CUDA tensors the operators are Triton kernels (`harness.kernels.attention_cuda`), for other types
and without Triton torch operators.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from harness.graphs import Block
from harness.kernels.custom_operator import custom_operator
from harness.kernels.work import AttentionSum, Streamed, declare_work
from harness.nn._attention_torch import attend_torch, source_gradient_torch, target_gradient_torch

Three = tuple[Tensor, Tensor, Tensor]
Two = tuple[Tensor, Tensor]

_attend = custom_operator(
    "haloscope::attend",
    "(Tensor indptr, Tensor indices, Tensor halo_indptr, Tensor halo_indices, Tensor target, Tensor source, "
    "Tensor halo_source, Tensor x, Tensor halo_x, float slope, bool keep) -> (Tensor, Tensor, Tensor)",
)(attend_torch)
_target_gradient = custom_operator(
    "haloscope::attend_target_gradient",
    "(Tensor gradient, Tensor out, Tensor kept, Tensor numbers, float slope) -> (Tensor, Tensor)",
)(target_gradient_torch)
_source_gradient = custom_operator(
    "haloscope::attend_source_gradient",
    "(Tensor t_indptr, Tensor t_indices, Tensor numbers, Tensor source, Tensor x, Tensor gradient, float slope)"
    " -> (Tensor, Tensor)",
)(source_gradient_torch)


@_attend.register_fake
def _(
    indptr: Tensor, indices: Tensor, halo_indptr: Tensor, halo_indices: Tensor, target: Tensor, source: Tensor,
    halo_source: Tensor, x: Tensor, halo_x: Tensor, slope: float, keep: bool,
) -> Three:  # fmt: skip
    out = x.new_empty((target.shape[0], *x.shape[1:]))
    return out, torch.empty_like(out) if keep else x.new_empty(0), x.new_empty((*target.shape, 4) if keep else 0)


@_target_gradient.register_fake
def _(gradient: Tensor, out: Tensor, kept: Tensor, numbers: Tensor, slope: float) -> Two:
    return out.new_empty(out.shape[:2]), torch.empty_like(numbers)


@_source_gradient.register_fake
def _(
    t_indptr: Tensor, t_indices: Tensor, numbers: Tensor, source: Tensor, x: Tensor, gradient: Tensor, slope: float
) -> Two:
    return source.new_empty(source.shape), x.new_empty(x.shape)


declare_work("haloscope::attend", AttentionSum(columns=(1, 3), rows=(7, 8), beside=1))
declare_work("haloscope::attend_target_gradient", Streamed("reduction"))
declare_work("haloscope::attend_source_gradient", AttentionSum(columns=(1,), rows=(5,), beside=4))


@_attend.register_kernel("cuda")
def _(
    indptr: Tensor, indices: Tensor, halo_indptr: Tensor, halo_indices: Tensor, target: Tensor, source: Tensor,
    halo_source: Tensor, x: Tensor, halo_x: Tensor, slope: float, keep: bool,
) -> Three:  # fmt: skip
    from harness.kernels import attention_cuda
    from harness.kernels.triton_code import takes

    blocks, sources = (indptr, indices, halo_indptr, halo_indices), (source, halo_source)
    if takes(x):
        return attention_cuda.attended_rows(blocks, target, sources, (x, halo_x), slope, keep)
    return attend_torch(*blocks, target, *sources, x, halo_x, slope, keep)


@_target_gradient.register_kernel("cuda")
def _(gradient: Tensor, out: Tensor, kept: Tensor, numbers: Tensor, slope: float) -> Two:
    from harness.kernels import attention_cuda
    from harness.kernels.triton_code import takes

    kernel = attention_cuda.target_gradient if takes(out) else target_gradient_torch
    return kernel(gradient, out, kept, numbers, slope)


@_source_gradient.register_kernel("cuda")
def _(
    t_indptr: Tensor, t_indices: Tensor, numbers: Tensor, source: Tensor, x: Tensor, gradient: Tensor, slope: float
) -> Two:
    from harness.kernels import attention_cuda
    from harness.kernels.triton_code import takes

    kernel = attention_cuda.source_gradient if takes(x) else source_gradient_torch
    return kernel(t_indptr, t_indices, numbers, source, x, gradient, slope)


class Attended(NamedTuple):
    """What attention reads of own and halo nodes.

    Attributes:
        target: scores of destinations, [n, H].
        source, halo_source: scores of own and halo nodes as sources, [n, H] and [k, H].
        x, halo_x: their rows, [n, H, D] and [k, H, D].
    """

    target: Tensor
    source: Tensor
    halo_source: Tensor
    x: Tensor
    halo_x: Tensor


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Block, halo: Block, slope: float, *values: Tensor) -> Tensor:
        given, ops = Attended(*values), torch.ops.haloscope
        keep = any(ctx.needs_input_grad)
        out, kept, numbers = ops.attend(own.indptr, own.indices, halo.indptr, halo.indices, *given, slope, keep)
        ctx.own, ctx.halo, ctx.slope = own, halo, slope
        ctx.save_for_backward(out, kept, numbers, *given[1:])
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        out, kept, numbers, source, halo_source, x, halo_x = ctx.saved_tensors
        slope, needs, ops = ctx.slope, Attended(*ctx.needs_input_grad[3:]), torch.ops.haloscope
        d_target, numbers = ops.attend_target_gradient(grads[0], out, kept, numbers, slope)

        def of(block: Block, source: Tensor, x: Tensor) -> Two:
            arrays = (block.t_indptr, block.t_indices)
            return ops.attend_source_gradient(*arrays, numbers, source, x, grads[0], slope)  # type: ignore

        d_source = d_halo_source = d_x = d_halo_x = None
        if needs.source or needs.x:
            d_source, d_x = of(ctx.own, source, x)
        if needs.halo_source or needs.halo_x:
            d_halo_source, d_halo_x = of(ctx.halo, halo_source, halo_x)
        return None, None, None, d_target, d_source, d_halo_source, d_x, d_halo_x


def fuses(x: Tensor, attention: str) -> bool:
    """Whether attention over these rows is one operator, by the setting `attention`: auto is so on GPUs."""
    return x.is_cuda if attention == "auto" else attention == "fused"


def attend(own: Block, halo: Block, slope: float, given: Attended) -> Tensor:
    """Rows [n, H, D]: out[i] = sum of w[e] x[source of e] over the edges e into i of both blocks.

    w is the softmax, over all edges into i and for every head, of leaky(source score + target score), whose slope below
    zero is `slope`. Rows without edges are 0. Has gradients to all five tensors.
    """
    return _Attend.apply(own, halo, slope, *given)  # type: ignore[no-any-return, no-untyped-call]
