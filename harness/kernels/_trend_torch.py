"""The choice between codes and predictions in torch operators: the reference in tests, and CUDA without Triton.

Codes, flags of single elements and restored rows are those of the CPU kernels bit for bit; L1 sums agree to rounding,
which is enough because only the sender chooses. See `trend` for the definitions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels._bucket_torch import codes_of, grids, pack, unpack, values_of
from harness.kernels._trend_cpu import AVERAGE, COMPRESSED, PREDICTED


def _forms(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """Codes int32 [n, d], and the absolute errors [3, n, d] of predicted, average and compressed values."""
    rows, grid = rows.float(), grids(side, starts, bits)
    codes = codes_of(rows, grid)
    value, guess = values_of(codes, grid), base.float() + rate.float() * step
    return codes, (torch.stack([guess, (guess + value) * 0.5, value]) - rows).abs()


def _bounded(errors: Tensor, dim: int) -> Tensor:
    """Errors of predicted and average values, infinite for nan; errors of codes are finite."""
    trend, code = errors.split([2, 1], dim)
    trend = torch.nan_to_num(trend, nan=torch.inf, posinf=torch.inf)
    return torch.cat([trend, code.clamp(max=torch.finfo(torch.float32).max)], dim)


def score(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """`trend_score`, any device."""
    codes, errors = _forms(rows, base, rate, step, side, starts, bits)
    return pack(codes, bits), _bounded(errors.sum(2).t(), 1)


def choose(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """`trend_choose`, any device."""
    codes, errors = _forms(rows, base, rate, step, side, starts, bits)
    predicted, averaged, compressed = _bounded(errors, 0).unbind(0)
    flags = torch.where(averaged <= compressed, AVERAGE, COMPRESSED)
    flags = torch.where((predicted <= averaged) & (predicted <= compressed), PREDICTED, flags)
    sent = flags != PREDICTED
    at = (sent.cumsum(1) - 1).clamp(min=0)
    packed = codes.new_zeros((codes.shape[0], (codes.shape[1] * bits + 7) // 8))
    kept = torch.where(sent, codes, 0)
    if bits == 16:
        packed.scatter_add_(1, 2 * at, kept & 255).scatter_add_(1, 2 * at + 1, kept >> 8)
    else:
        packed.scatter_add_(1, at * bits // 8, kept << (at * bits % 8).int())
    return packed.to(torch.uint8), flags.to(torch.uint8)


def restore(
    packed: Tensor, flags: Tensor, offsets: Tensor, base: Tensor, rate: Tensor, step: float,
    side: Tensor, starts: Tensor, bits: int,
) -> Tensor:  # fmt: skip
    """`trend_restore`, any device."""
    guess = base.float() + rate.float() * step
    codes = _rows_of(packed, flags, offsets, bits, base.shape[1])
    value = values_of(codes, grids(side, starts, bits))
    which = flags[:, None] if flags.ndim == 1 else flags
    coded = torch.where(which == AVERAGE, (guess + value) * 0.5, value)
    return torch.where(which == PREDICTED, guess, coded)


def _rows_of(packed: Tensor, flags: Tensor, offsets: Tensor, bits: int, width: int) -> Tensor:
    """Codes int32 [n, width]; undefined for values that were not sent."""
    room = torch.nn.functional.pad(packed, (0, width * 2))  # so that rows without codes can be read too
    if flags.ndim == 1:
        columns = torch.arange((width * bits + 7) // 8, device=packed.device)
        return unpack(room[offsets[:, None] + columns], bits, width)
    at = ((flags != PREDICTED).cumsum(1) - 1).clamp(min=0)
    if bits == 16:
        first = offsets[:, None] + 2 * at
        return room[first].int().bitwise_or(room[first + 1].int() << 8)
    codes = room[offsets[:, None] + at * bits // 8].int() >> (at * bits % 8).int()
    return codes.bitwise_and(2**bits - 1)
