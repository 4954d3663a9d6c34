"""Compiles every Triton kernel for GPUs that need not be here: `python -m tests.support.compiled_kernels`.

Operators are called with CPU tensors, and what they would launch is compiled to machine code instead: the launches' own
arguments decide the types and constants. Prints the names of the kernels that were compiled.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from harness.graphs import Block
from harness.kernels import (  # noqa: F401 (operators)
    bucket,
    linear,
    mixed,
    norm_relu_dropout,
    quantize,
    relu_dropout,
    trend,
    triton_code,
)
from harness.kernels.dropout import keyed_dropout
from harness.kernels.random import streams_in_memory
from harness.nn._attention import Attended, attend
from tests.support.kernel_devices import INTERPRETED, KernelDevice

CAPABILITY = 90
"""Of the GPU: an H100."""

_TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.uint8: "u8", torch.uint16: "u16",
    torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
_OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + _TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def compiling(done: set[str]) -> Any:
    """A launch that compiles, adding the kernel's name to `done`."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        options = {name: named.pop(name) for name in _OPTIONS if name in named}
        values = dict(zip(kernel.arg_names, args, strict=False)) | named
        constants = {p.name: values[p.name] for p in kernel.params if p.is_constexpr}
        types = {name: "constexpr" if name in constants else _type(values[name]) for name in kernel.arg_names}
        assert all(0 < size < 2**31 for size in grid), f"{kernel.__name__} has the grid {grid}"
        source = ASTSource(kernel, types, constexprs={(kernel.arg_names.index(n),): v for n, v in constants.items()})
        compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
        done.add(f"{kernel.__module__}.{kernel.__name__}")

    return run


def call_operators() -> None:
    """Call every operator that launches kernels."""
    ops, x = torch.ops.haloscope, torch.randn(70, 33)
    for bits in (4, 16):
        codes, side = ops.quantize_rows(x, bits, 1, bits == 4)
        ops.dequantize_rows(codes, side, bits, 33)
    ops.quantize_rows(torch.randn(3, 9001), 2, 1, False)
    ops.quantize_linear(x, 2)
    row_bits = torch.tensor([2, 4, 8], dtype=torch.uint8).repeat(24)[:70]
    offsets = torch.nn.functional.pad(((33 * row_bits.long() + 7) // 8).cumsum(0), (1, 0))
    codes, side = ops.quantize_mixed(x, row_bits, offsets, 1, int(offsets[-1]))
    ops.dequantize_mixed(codes, side, row_bits, offsets, 33)
    for rows in (x, x.bfloat16()):
        keyed_dropout(rows, torch.arange(70), 0.5, 1)
    side, starts = torch.tensor([[-5.0, 5.0], [0.0, 1.0]]), torch.tensor([0, 40, 70])
    codes, _ = ops.bucket_encode(x, side, starts, 4, True)
    ops.bucket_decode(codes, side, starts, 4, 33)
    given = (x, x, 0.1, side, starts, 4)
    codes, flags = ops.trend_choose(x, *given)
    ops.trend_score(x, *given)
    for chosen in (flags, flags[:, 0]):
        ops.trend_restore(codes.flatten(), chosen, torch.zeros(70, dtype=torch.int64), *given)
    torch.ops.haloscope.relu_dropout(x, torch.arange(70), 0.5, 1)
    affine = torch.randn(3, 33)
    for rows, p in ((x, 0.5), (x.bfloat16(), 0.0)):
        out = ops.norm_relu_dropout(rows, affine, torch.arange(70), 1e-5, p, 1)
        ops.norm_relu_dropout_backward(rows, rows, out, affine, 1e-5, p)
    own = Block.from_csr(torch.arange(71).int().numpy(), torch.arange(70).int().numpy(), 70)
    for rows in (x, torch.randn(70, 300), x.bfloat16()):
        ops.gather_sum(own.indptr, own.indices, rows)
    ops.gather_weighted_sum(own.indptr, own.indices, torch.rand(70, 3), x.view(70, 3, 11))
    for heads, width in ((1, 16), (4, 64)):
        scores, rows = torch.randn(70, heads), torch.randn(70, heads, width)
        values = [v.clone().requires_grad_() for v in (scores, scores, scores, rows, rows)]
        attend(own, own, 0.2, Attended(*values)).sum().backward()


def main() -> None:
    """Compile all that is called, and print the kernels' names."""
    if INTERPRETED:
        sys.exit("TRITON_INTERPRET must be 0")
    done: set[str] = set()
    triton_code.triton.runtime.jit.JITFunction.run = compiling(done)
    with KernelDevice("interpreted").kernels():
        call_operators()
        with streams_in_memory(lambda key: torch.zeros(1, dtype=torch.int64)):  # as in CUDA graphs
            call_operators()
    print("\n".join(sorted(done)))


if __name__ == "__main__":
    main()
