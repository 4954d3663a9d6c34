"""The row quantisers in torch operators, on any device: the reference in tests, and CUDA without Triton.

They give the codes of the CPU kernels bit for bit. See `quantize` and `linear` for the definitions and the layout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels._quantize_cpu import FLOAT_MAX, HALF_MAX, LIFT, RANGE_MAX, TINY_SCALE
from harness.kernels.packed import code_bytes, not_finite
from harness.kernels.random import UNIFORM_BITS, element_bits_torch, row_words_torch


def half_floor(x: Tensor) -> Tensor:
    """The largest multiple of the fp16 spacing at x that is not above x; float32 in and out."""
    exponent = (((x.view(torch.int32) >> 23) & 0xFF) - 127).clamp(min=-14)
    quantum = ((exponent - 10 + 127) << 23).view(torch.float32)
    return torch.floor(x / quantum) * quantum


def row_grid(rows: Tensor, bits: int, half: bool) -> tuple[Tensor, Tensor]:
    """Scale and minimum [n] of float32 rows [n, d > 0], on the fp16 grid if `half`. ValueError for nan and inf."""
    low, high = torch.aminmax(rows, dim=1)
    finite = torch.isfinite(low) & torch.isfinite(high)
    if not finite.all():  # waits for the device, which is needed to name the row
        raise not_finite(int(torch.nonzero(~finite)[0, 0]))
    levels = float(2**bits - 1)
    if half:
        low = half_floor(low).clamp(-float(HALF_MAX), float(HALF_MAX))
    scale = covering(low, high, levels)
    if half:
        scale = (-half_floor(-scale)).clamp(max=float(HALF_MAX))
    return scale, low


def covering(low: Tensor, high: Tensor, levels: float) -> Tensor:
    """Scales of rows, rounded up: low + levels * scale is not below high, but for rows wider than `RANGE_MAX`."""
    spread = (high - low).clamp(0.0, float(RANGE_MAX))
    scale = spread / torch.full_like(spread, levels)  # a tensor, because CUDA multiplies by the inverse of a number
    return torch.where(scale * levels < spread, (scale.view(torch.int32) + 1).view(torch.float32), scale)


def fraction_bits(bits: int) -> int:
    """Fractional bits of the fixed-point form, so that it stays below 2**31."""
    return min(UNIFORM_BITS, 31 - bits)


def factors(scale: Tensor, one: float) -> tuple[Tensor, Tensor]:
    """Two factors per row, together `one` / scale, neither of which overflows; 1 and 0 for a constant row."""
    up = torch.where((scale > 0) & (scale < float(TINY_SCALE)), float(LIFT), 1.0)
    zero = torch.zeros((), device=scale.device)
    return up, torch.where(scale > 0, one / (scale * up), zero)


def empty_codes(rows: Tensor, bits: int, half: bool) -> tuple[Tensor, Tensor]:
    """Uninitialised codes, and sides of rows without elements."""
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    return codes, rows.new_zeros((rows.shape[0], 2), dtype=torch.float16 if half else torch.float32)


def quantize_torch(rows: Tensor, bits: int, key: int, half: bool) -> tuple[Tensor, Tensor]:
    """`quantize_rows` in torch operators, any device."""
    codes, side = empty_codes(rows, bits, half)
    if not rows.numel():
        return codes, side
    rows, fraction = rows.float(), fraction_bits(bits)
    scale, low = row_grid(rows, bits, half)
    up, mul = factors(scale, float(2**fraction))
    top = float((2**bits - 1) * 2**fraction)
    fixed = ((rows - low[:, None]) * up[:, None] * mul[:, None]).clamp(0.0, top).long()
    words = row_words_torch(key, torch.arange(rows.shape[0], device=rows.device))
    noise = element_bits_torch(*words, rows.shape[1]) >> (UNIFORM_BITS - fraction)
    levels = (fixed + noise) >> fraction
    return pack_torch(levels, bits), torch.stack((scale, low), dim=1).to(side.dtype)


def pack_torch(levels: Tensor, bits: int) -> Tensor:
    """Codes int64 [n, width] -> uint8 [n, ceil(width bits / 8)] in the layout of `quantize`."""
    if bits >= 8:
        planes = [(levels >> shift) & 0xFF for shift in range(0, bits, 8)]
        return torch.stack(planes, dim=2).to(torch.uint8).flatten(1)
    plane = code_bytes(levels.shape[1], bits)
    levels = torch.nn.functional.pad(levels, (0, plane * (8 // bits) - levels.shape[1]))
    shifts = torch.arange(0, 8, bits, device=levels.device)[:, None]
    return (levels.view(-1, 8 // bits, plane) << shifts).sum(1).to(torch.uint8)


def dequantize_torch(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    """`dequantize_rows` in torch operators, any device."""
    if bits == 16:
        levels = codes[:, 0::2].int() | (codes[:, 1::2].int() << 8)
    else:
        shifts = torch.arange(0, 8, bits, device=codes.device)[:, None]
        levels = ((codes[:, None, :].int() >> shifts) & (2**bits - 1)).flatten(1)[:, :width]
    scale, low = side.float().unbind(1)
    return (low[:, None] + levels.float() * scale[:, None]).clamp(max=float(FLOAT_MAX))


def quantize_linear_torch(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """`quantize_linear` in torch operators, any device."""
    codes, side = empty_codes(rows, bits, False)
    if not rows.numel():
        return codes, side
    rows, levels = rows.float(), float(2**bits - 1)
    scale, low = row_grid(rows, bits, False)
    up, mul = factors(scale, 1.0)
    codes = ((rows - low[:, None]) * up[:, None] * mul[:, None]).clamp(0.0, levels) + 0.5
    return pack_torch(codes.long(), bits), torch.stack((scale, low), dim=1)
