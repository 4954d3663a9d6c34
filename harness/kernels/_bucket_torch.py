"""The bucket codec in torch operators, on any device: the reference in tests, and CUDA without Triton.

It gives the codes of the CPU kernels bit for bit. Buckets are computed in double precision, one row of numbers per
group, as `bucket_cpu.grid_of` does. See `bucket` for definition and layout.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harness.kernels._bucket_cpu import DOWN, HUGE, NOWHERE, TINY, UP


class Grids(NamedTuple):
    """`bucket_cpu.Grid` for every group, each [G], or for every row, each [n, 1]; `first` is the same for all."""

    lift: Tensor
    low: Tensor
    step: Tensor
    inverse: Tensor
    unlift: Tensor
    top: Tensor
    split: Tensor
    below: Tensor
    above: Tensor
    first: int


def grids_of_groups(side: Tensor, bits: int) -> Grids:
    """The buckets of every group, from `side` [G, 2]."""
    low, high = side.double().unbind(1)
    crosses = (low < 0) & (high > 0) if bits > 1 else torch.zeros_like(low, dtype=torch.bool)
    first = 1 if bits > 1 else 0
    intervals = (2**bits - first) - crosses.double()
    step = (high - low) / intervals
    lift = torch.where((step > 0) & (step < TINY), UP, 1.0)
    lift = torch.where(torch.maximum(low.abs(), high.abs()) > HUGE, DOWN, lift)
    whole = torch.where(crosses, step, 1.0)
    split = torch.where(crosses, torch.minimum((-low / whole).floor(), intervals - 1), float(NOWHERE))
    below = torch.where(crosses, (low + split * step).clamp(max=0.0) * 0.5, 0.0)
    above = torch.where(crosses, (low + (split + 1) * step).clamp(min=0.0) * 0.5, 0.0)
    inverse = torch.where(step > 0, 1.0 / torch.where(step > 0, step * lift, 1.0), 0.0)
    return Grids(
        lift.float(), (low * lift).float(), (step * lift).float(), inverse.float(), (1.0 / lift).float(),
        (intervals - 1).int(), split.int(), below.float(), above.float(), first,
    )  # fmt: skip


def grids(side: Tensor, starts: Tensor, bits: int) -> Grids:
    """The buckets of the group of every row."""
    *numbers, first = grids_of_groups(side, bits)
    counts = starts.diff()
    return Grids(*[number.repeat_interleave(counts)[:, None] for number in numbers], first)  # type: ignore


def codes_of(rows: Tensor, grid: Grids) -> Tensor:
    """Code of every value, int32 [n, d]; rows are float32."""
    crosses = grid.split != NOWHERE
    at = ((rows * grid.lift - grid.low) * grid.inverse).int()
    positive = rows > 0
    limit = torch.where(positive, grid.top, torch.where(crosses, grid.split, grid.top))
    bottom = torch.where(positive & crosses, grid.split, 0)
    at = torch.maximum(torch.minimum(at, limit), bottom)
    codes = at + grid.first + (positive & crosses).int()
    return torch.where(rows == 0, 0, codes) if grid.first else codes


def values_of(codes: Tensor, grid: Grids) -> Tensor:
    """The midpoint of every code, float32 [n, d]."""
    bucket = codes - grid.first
    crosses = grid.split != NOWHERE
    at = bucket - (crosses & (bucket > grid.split)).int()
    value = (grid.low + (at.float() + 0.5) * grid.step) * grid.unlift
    value = torch.where(bucket == grid.split, grid.below, value)
    value = torch.where(bucket == grid.split + 1, grid.above, value)
    return torch.where(bucket >= 0, value, 0.0)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes [n, d] -> uint8 [n, ceil(d B / 8)] in planes."""
    num_rows, width = codes.shape
    if bits >= 8:
        planes = [(codes >> shift) & 0xFF for shift in range(0, bits, 8)]
        return torch.stack(planes, dim=2).to(torch.uint8).view(num_rows, width * bits // 8)
    plane = (width * bits + 7) // 8
    padded = torch.nn.functional.pad(codes, (0, plane * (8 // bits) - width))
    shifts = torch.arange(0, 8, bits, device=codes.device, dtype=codes.dtype)[:, None]
    return (padded.view(num_rows, 8 // bits, plane) << shifts).sum(1).to(torch.uint8)


def unpack(packed: Tensor, bits: int, width: int) -> Tensor:
    """The inverse of `pack`, int32 [n, width]."""
    if bits == 16:
        return packed[:, 0::2].int().bitwise_or(packed[:, 1::2].int() << 8)
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.int32)[:, None]
    codes: Tensor = ((packed[:, None, :].int() >> shifts) & (2**bits - 1)).flatten(1)
    return codes[:, :width]


def encode(rows: Tensor, side: Tensor, starts: Tensor, bits: int, keep_error: bool) -> tuple[Tensor, Tensor]:
    """`bucket_encode`, any device."""
    rows, grid = rows.float(), grids(side, starts, bits)
    codes = codes_of(rows, grid)
    error = rows - values_of(codes, grid) if keep_error else rows.new_empty((0, rows.shape[1]))
    return pack(codes, bits), error


def decode(codes: Tensor, side: Tensor, starts: Tensor, bits: int, width: int) -> Tensor:
    """`bucket_decode`, any device."""
    return values_of(unpack(codes, bits, width), grids(side, starts, bits))
