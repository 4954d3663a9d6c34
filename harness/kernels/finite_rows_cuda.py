"""Rows that are not finite, as the codecs' kernels on CUDA report them: the first one, in memory of their stream."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from harness.kernels.packed import not_finite

NONE = 2**62
"""What the memory holds while all rows were finite."""


@functools.cache
def bad_row(device: torch.device, stream: int) -> Tensor:
    """Memory in which the kernels of a stream write the first row that is not finite."""
    return torch.full((1,), NONE, device=device)


def refuse(bad: Tensor, num_rows: int) -> None:
    """Raise ValueError with the first of these rows that is not finite; waits for the device.

    Not while a CUDA graph is captured, in which nothing runs; see `refuse_late`.
    """
    if bad.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    first = int(bad)
    if first < num_rows:
        bad.fill_(NONE)
        raise not_finite(first)


def refuse_late(bad: Tensor) -> None:
    """`refuse` for all rows that graphs were given since it was last called."""
    refuse(bad, NONE)
