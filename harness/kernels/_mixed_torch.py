"""The codec of rows with different numbers of bits in torch operators: the reference in tests, and CUDA without Triton.

They give the codes of the CPU kernels bit for bit. See `mixed` for the definition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels._mixed_cpu import BRAIN_MAX
from harness.kernels._quantize_torch import covering, dequantize_torch, factors, fraction_bits, pack_torch
from harness.kernels.packed import MIXED_BITS, not_finite
from harness.kernels.random import UNIFORM_BITS, element_bits_torch, row_words_torch


def brain_floor_torch(x: Tensor) -> Tensor:
    """The largest bf16 that is not above x, as float32."""
    word = x.view(torch.int32)
    word = torch.where((word < 0) & ((word & 0xFFFF) != 0), word + 0x10000, word)
    return (word & -0x10000).view(torch.float32)


def quantize_mixed_torch(
    rows: Tensor, row_bits: Tensor, offsets: Tensor, key: int, nbytes: int
) -> tuple[Tensor, Tensor]:
    """`quantize_mixed` in torch operators, any device."""
    codes = rows.new_zeros(nbytes, dtype=torch.uint8)
    side = rows.new_zeros((rows.shape[0], 2), dtype=torch.bfloat16)
    if not rows.numel():
        return codes, side
    rows = rows.float()
    low, high = torch.aminmax(rows, dim=1)
    finite = torch.isfinite(low) & torch.isfinite(high)
    if not finite.all():  # waits for the device, which is needed to name the row
        raise not_finite(int(torch.nonzero(~finite)[0, 0]))
    low = brain_floor_torch(low).clamp(min=-float(BRAIN_MAX))
    for bits in MIXED_BITS:
        at = torch.nonzero(row_bits == bits).squeeze(1)
        fraction, levels = fraction_bits(bits), float(2**bits - 1)
        scale = -brain_floor_torch(-covering(low[at], high[at], levels))
        up, mul = factors(scale, float(2**fraction))
        shifted = (rows[at] - low[at][:, None]) * up[:, None] * mul[:, None]
        fixed = shifted.clamp(0.0, levels * 2**fraction).long()
        noise = element_bits_torch(*row_words_torch(key, at), rows.shape[1]) >> (UNIFORM_BITS - fraction)
        packed = pack_torch((fixed + noise) >> fraction, bits)
        codes[_places(offsets, at, packed.shape[1])] = packed
        side[at] = torch.stack((scale, low[at]), dim=1).bfloat16()
    return codes, side


def dequantize_mixed_torch(codes: Tensor, side: Tensor, row_bits: Tensor, offsets: Tensor, width: int) -> Tensor:
    """`dequantize_mixed` in torch operators, any device."""
    out = torch.empty((side.shape[0], width), dtype=torch.float32, device=side.device)
    for bits in MIXED_BITS:
        at = torch.nonzero(row_bits == bits).squeeze(1)
        packed = codes[_places(offsets, at, -(-width * bits // 8))]
        out[at] = dequantize_torch(packed, side[at], bits, width)
    return out


def _places(offsets: Tensor, at: Tensor, size: int) -> Tensor:
    """Positions of the codes of some rows, int64 [k, size]."""
    return offsets[at][:, None] + torch.arange(size, device=offsets.device)
