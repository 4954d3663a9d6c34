"""The operators `haloscope::quantize_rows` and `haloscope::dequantize_rows`: stochastic b-bit codes of rows.

They are the arithmetic of `codecs.StochasticRows` (Sylvie, Eq. 3 to 5) with one definition for all devices; for ledgers
and meta tensors they are one operator each.

A row h is coded with levels = 2**bits - 1, scale = (max - min) / levels (rounded up) and fixed point of F = min(24,
31 - bits) fractional bits: code = (int(min((h - min) / scale, levels) * 2**F) + F random bits) >> F. The bits of
element (r, c) are those of `random` for (key, row r, column c), so codes are equal on every device and thread count.
With half side information, minimum and scale are first rounded to fp16 (down and up).

Layout: a row takes B = ceil(width * bits / 8) bytes. Below 8 bits, byte j holds the codes of the columns j, j + B,
j + 2B, ... from the lowest bits up: planes, not neighbours, so that both directions are straight vector loops.
16-bit codes are little-endian. Side information is [n, 2]: scale, minimum.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.kernels._quantize_cpu import dequantize_range, quantize_range
from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import code_bytes, not_finite
from harness.kernels.random import stream_of
from harness.kernels.threads import over_rows
from harness.kernels.work import BitsArgument, RowCodec, declare_work


@custom_operator("haloscope::quantize_rows", "(Tensor rows, int bits, int key, bool half_side) -> (Tensor, Tensor)")
def quantize_rows(rows: Tensor, bits: int, key: int, half_side: bool) -> tuple[Tensor, Tensor]:
    """Float rows [n, width] -> codes uint8 [n, B] and side fp16 or fp32 [n, 2]. ValueError for nan and inf."""
    rows = rows.float().contiguous()
    num_rows, width = rows.shape
    codes = torch.empty((num_rows, code_bytes(width, bits)), dtype=torch.uint8)
    side = torch.zeros((num_rows, 2), dtype=torch.float32)
    if rows.numel():
        x, sides, stream, bad = rows.numpy(), side.numpy(), stream_of(key), []
        packed = codes.numpy().view(np.uint16) if bits == 16 else codes.numpy()

        def piece(start: int, stop: int) -> None:
            first = quantize_range(x, bits, stream, half_side, packed, sides, start, stop)
            if first >= 0:
                bad.append(first)

        over_rows(piece, num_rows, rows.nbytes)
        if bad:
            raise not_finite(min(bad))
    return codes, side.half() if half_side else side


@custom_operator("haloscope::dequantize_rows", "(Tensor codes, Tensor side, int bits, int width) -> Tensor")
def dequantize_rows(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    """Codes uint8 [n, B] and side [n, 2] -> float32 [n, width]."""
    num_rows = codes.shape[0]
    out = torch.empty((num_rows, width), dtype=torch.float32)
    if out.numel():
        packed, sides, target = codes.contiguous().numpy(), side.float().contiguous().numpy(), out.numpy()
        packed = packed.view(np.uint16) if bits == 16 else packed

        def piece(start: int, stop: int) -> None:
            dequantize_range(packed, sides, bits, target, start, stop)

        over_rows(piece, num_rows, out.nbytes)
    return out


@quantize_rows.register_fake
def _(rows: Tensor, bits: int, key: int, half_side: bool) -> tuple[Tensor, Tensor]:
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    return codes, rows.new_empty((rows.shape[0], 2), dtype=torch.float16 if half_side else torch.float32)


declare_work("haloscope::quantize_rows", RowCodec(rows=0, bits=BitsArgument(1)))


@dequantize_rows.register_fake
def _(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    return codes.new_empty((codes.shape[0], width), dtype=torch.float32)


declare_work("haloscope::dequantize_rows", RowCodec(rows=None, bits=BitsArgument(2)))


@quantize_rows.register_kernel("cuda")
def _(rows: Tensor, bits: int, key: int, half_side: bool) -> tuple[Tensor, Tensor]:
    from harness.kernels import _quantize_cuda as quantize_cuda

    return quantize_cuda.quantize(rows, bits, key, half_side)


@dequantize_rows.register_kernel("cuda")
def _(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    from harness.kernels import _quantize_cuda as quantize_cuda

    return quantize_cuda.dequantize(codes, side, bits, width)
