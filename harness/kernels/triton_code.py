"""Shared code of the Triton kernels: the compiler if it is installed, random bits, and the shape of a launch.

Without Triton, `triton` is None and the kernels are plain functions that are not called: CUDA tensors are then handled
by torch operators. Fused multiply-adds are off in every launch; otherwise bits would differ from those of the CPU.

With TRITON_INTERPRET=1 in the environment, Triton itself runs kernels in Python, on the CPU: it decides when they are
defined, that is when this module is imported, and so only before the first GPU kernel of a process. Tests do that where
there is no GPU; operators on CPU tensors never come here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from harness.kernels import random

try:
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ImportError:
    triton = tl = None

STREAM = "stream"
"""Name of the argument that differs between calls: kernels are not specialised on its value."""


def jit(kernel: Callable[..., Any]) -> Any:
    """The kernel compiled by Triton."""
    return triton.jit(kernel, do_not_specialize=[STREAM]) if triton is not None else kernel


def constant(value: float) -> Any:
    """A module's constant in the form that kernels can access."""
    return tl.constexpr(value) if tl is not None else value


_GOLDEN, _MIX_A, _MIX_B = constant(random.GOLDEN), constant(random.MIX_A), constant(random.MIX_B)
_LOW_A, _LOW_B = constant(random.LOW_A), constant(random.LOW_B)


@jit
def row_words(stream, row):  # type: ignore[no-untyped-def]
    """`random.row_words` of rows int64; `stream` is mix64(key) as a signed word, or where it lies in memory."""
    word = tl.load(stream) if stream.dtype.is_ptr() else stream
    z = word.to(tl.uint64) + row.to(tl.uint64) * _GOLDEN
    z = (z ^ (z >> 30)) * _MIX_A
    z = (z ^ (z >> 27)) * _MIX_B
    z = z ^ (z >> 31)
    return z.to(tl.uint32), (z >> 32).to(tl.uint32)


@jit
def element_words(low, high, column):  # type: ignore[no-untyped-def]
    """The 32 bits whose upper ones are `random.element_bits`."""
    x = low + column.to(tl.uint32)
    x = ((x ^ (x >> 16)) * _LOW_A) ^ high
    x = (x ^ (x >> 15)) * _LOW_B
    return x ^ (x >> 15)


def takes(x: torch.Tensor) -> bool:
    """Whether kernels for float32 alone can run on x, which may have any type and no elements."""
    return triton is not None and x.dtype == torch.float32 and x.numel() > 0


def current_stream(device: torch.device) -> int:
    """The stream on which kernels of this thread run; 0 where they are interpreted."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0


def rows_at_once(plane: int, planes: int, elements: int, widest: int, warps: int = 4) -> dict[str, Any]:
    """The tile of one program: ROWS rows, and COLUMNS of each of `planes` planes, about `elements` values in all.

    `widest`: the most values of one row per tile. `warps`: warps of 32 threads per program.
    """
    columns = min(triton.next_power_of_2(plane), max(1, widest // planes))
    rows = max(1, elements // (planes * columns))
    return {"ROWS": rows, "COLUMNS": columns, "num_warps": warps, "enable_fp_fusion": False}
