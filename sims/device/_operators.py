"""The class and amount of work of each tensor operator, from names and shapes.

Operators of this project and of other packages declare their work beside their kernels (`harness.kernels.work`). For
torch's own there are tables of names, each with a class: scatters have that of gathers, sorts that of
reductions, fills that of elementwise operators. Views and empty tensors are free. Any other operator is charged by its
bytes as elementwise, and reported. Times are computed elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, strided
from torch._ops import OpOverload

from harness.kernels.work import (
    ACROSS,
    ADDED,
    FREE,
    UNKNOWN,
    BitsArgument,
    Gather,
    NeighbourSum,
    RowCodec,
    Streamed,
    Work,
    bytes_of,
    declared_work,
    is_half,
    lines_of,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MATRICES = {
    "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "vdot": (0, 1), "matmul": (0, 1), "linear": (0, 1),
    "addmm": (1, 2), "baddbmm": (1, 2), "addmv": (1, 2), "_sparse_mm": (0, 1), "_sparse_addmm": (1, 2),
}  # fmt: skip
"""Products -> positions of their two factors."""

NEIGHBOUR_SUMS = {
    "_embedding_bag": NeighbourSum(columns=1, rows=0),
    "_embedding_bag_forward_only": NeighbourSum(columns=1, rows=0),
}
"""Torch's own sums over stored entries."""

FREE_NAMES = _names(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted _local_scalar_dense item lift_fresh "
    "lift detach alias is_same_size set resize resize_as _unsafe_view _reshape_alias _has_compatible_shallow_copy_type "
    "is_pinned promote_types result_type can_cast _assert_async _assert_scalar _assert_tensor_metadata sym_size "
    "sym_numel sym_stride is_nonzero"
)
GATHERS = _names(
    "index_select index gather embedding take masked_select repeat_interleave nonzero flip roll searchsorted bucketize"
)
SCATTERS = _names(
    "index_put _index_put_impl index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce "
    "masked_scatter embedding_dense_backward put slice_scatter select_scatter"
)
SORTS = _names("sort argsort msort unique _unique _unique2 unique_dim unique_consecutive kthvalue median topk")
REDUCTIONS = _names(
    "sum nansum mean amax amin aminmax max min argmax argmin any all prod norm linalg_vector_norm var std var_mean "
    "std_mean logsumexp cumsum cumprod logcumsumexp bincount histc count_nonzero equal trace "
    "native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward "
    "_native_batch_norm_legit native_group_norm native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward "
    "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward"
)
SUMS = _names("sum mean")
COPIES = _names("cat stack clone _to_copy copy copy_ contiguous repeat constant_pad_nd _pin_memory expand_copy")
RANDOMS = _names(
    "native_dropout native_dropout_backward bernoulli rand randn rand_like randn_like randint "
    "randint_like randperm uniform normal random exponential multinomial log_normal geometric cauchy"
)
ARITHMETIC = _names(
    "_fused_adam "
    "threshold_backward gelu_backward tril triu diag_embed slice_backward select_backward native_dropout_backward "
    "binary_cross_entropy_with_logits mse_loss mse_loss_backward"
)
WRITES = _names(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange eye linspace fill zero "
    "scalar_tensor"
)
"""Operators that read nothing."""


def _across(args: Any) -> bool:
    """Whether rows are added up, and not the numbers of each row: a sum over the first dimension without the last."""
    x, dims = args[0], args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    places = {dim % x.ndim for dim in dims} if x.ndim else set()
    return 0 in places and x.ndim - 1 not in places


def _form(left: Tensor, right: Tensor, added: Tensor | None) -> str:
    """How the name of a product of two matrices ends."""
    ending = ACROSS if left.shape[-1] > max(left.shape[-2], right.shape[-1]) else ""
    return ending + ADDED if added is not None and added.ndim > 1 and added.shape[0] > 1 else ending


class Operator:
    """One operator overload: its class, and the size of its calls.

    Attributes:
        name: without namespace aten, without the underscore of in-place forms. In the name of their work arithmetic and
            scatters keep it: they write where they read, which takes as little as a third of the time.
        free: a view or an empty tensor: no time.
        view: its outputs are views of its inputs.
        known: it is in one of the tables (or marked elementwise by torch).
    """

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        space, _, plain = schema.name.partition("::")
        plain = plain.removeprefix("_foreach_").removeprefix("_amp_foreach_")
        inplace = plain.endswith("_") and not plain.startswith("__")
        self.name = (plain.rstrip("_") if inplace else plain) if space == "aten" else schema.name
        views = [r.alias_info is not None and not r.alias_info.is_write for r in schema.returns]
        self.view = bool(views) and all(views)
        self.free = self.view or self.name in FREE_NAMES or space in ("profiler", "prim", "prims")
        self._makes = [r.alias_info is None for r in schema.returns]
        self._list_returned = len(schema.returns) == 1 and "[]" in str(schema.returns[0].type)
        self._formula = declared_work(schema.name) or NEIGHBOUR_SUMS.get(self.name)
        self.kind = self._kind(func, "foreach" in schema.name)
        apart = inplace and space == "aten" and self.kind in ("elementwise", "scatter")
        self._named = f"{self.name}_" if apart else self.name
        bits = self._formula.bits if isinstance(self._formula, RowCodec) else None
        self._bits = bits.position if isinstance(bits, BitsArgument) else None
        self.known = self.kind != UNKNOWN
        self._found = torch.Tag.dynamic_output_shape in func.tags  # all is read to find what there is, if nothing

    def _kind(self, func: OpOverload, foreach: bool) -> str:
        if self._formula is not None:
            return self._formula.kind
        tables = (
            (MATRICES, "gemm"), (GATHERS, "gather"), (SCATTERS, "scatter"), (SORTS, "sort"),
            (REDUCTIONS, "reduction"), (COPIES, "copy"), (RANDOMS, "dropout"), (WRITES, "write"),
            (ARITHMETIC, "elementwise"),
        )  # fmt: skip
        for table, kind in tables:
            if self.name in table:
                return kind
        return "elementwise" if foreach or torch.Tag.pointwise in func.tags else UNKNOWN

    def bits(self, args: Any) -> int:
        """Bits per element of a codec that takes them as an argument; 0 for other operators."""
        return int(args[self._bits]) if self._bits is not None else 0

    def work(self, args: Any, inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        """The work of one call."""
        if self.free:
            return FREE
        work = self._work(args, inputs, outputs) if self._formula is None else self._formula(args, inputs, outputs)
        bits = self.bits(args)
        name = f"{self._named}:{bits}" if bits else self._named
        if self.name in SUMS and _across(args):
            name += ACROSS
        elif self.name in ("mm", "addmm"):
            first, second = MATRICES[self.name]
            name += _form(args[first], args[second], args[0] if first else None)
        if outputs and not self._found and not any(output.numel() for output in outputs):
            work = replace(work, nbytes=0, flops=0, entries=0, lines=0)
        return replace(work, fresh=self._fresh(outputs), name=name)

    def _work(self, args: Any, inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        read, wrote = bytes_of(inputs), bytes_of(outputs)
        match self.kind:
            case "gemm":
                return self._product(args, read + wrote, wrote)
            case "gather":
                return Gather()(args, inputs, outputs)
            case "scatter":
                # Written rows are read first; if the operator is not in place, the target is copied.
                lines, width = lines_of(sorted(inputs[1:], key=Tensor.numel)[-1:])
                nbytes = 3 * bytes_of(inputs[1:]) + 2 * self._fresh(outputs)
                return Work("gather", nbytes, lines=lines, width=width)
            case "sort":
                levels = max(1, math.ceil(math.log2(max((t.numel() for t in inputs), default=1) + 1)))
                return Work("reduction", read * levels + wrote)
            case "write":
                return Work("elementwise", wrote)
            case kind:
                return Streamed(kind)(args, inputs, outputs)

    def _product(self, args: Any, nbytes: int, wrote: int) -> Work:
        """A dense product, or a sparse one if its first factor is sparse."""
        left, right = (args[position] for position in MATRICES[self.name])
        columns = 1 if right.ndim < 2 else right.shape[0 if self.name == "linear" else -1]
        if left.layout is not strided:
            row_bytes = columns * right.element_size()
            return Work(
                "spmm", wrote, entries=left._nnz() * columns, width=columns, half=is_half(right), rows=right.shape[0],
                row_bytes=row_bytes,
            )  # fmt: skip
        shortest = min(columns, left.shape[-1], left.numel() // max(left.shape[-1], 1))
        return Work("gemm", nbytes, flops=2 * left.numel() * columns, width=shortest, half=is_half(left))

    def _fresh(self, outputs: list[Tensor]) -> int:
        """Bytes of the largest output with new storage: allocators handle each allocation separately."""
        if self._list_returned:
            return bytes_of(outputs) if self._makes[0] else 0
        makes = self._makes if len(self._makes) == len(outputs) else [True] * len(outputs)
        return max((t.numel() * t.element_size() for t, new in zip(outputs, makes, strict=True) if new), default=0)
