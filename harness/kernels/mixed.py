"""The operators `haloscope::quantize_mixed` and `haloscope::dequantize_mixed`: rows with 2, 4 or 8 bits each.

Codes are those of `quantize`, row by row, in one array of bytes without gaps: row r has bytes offsets[r] to offsets[r +
1], ceil(width * bits / 8) of them. Side information is [n, 2], scale and minimum, in bf16; both are rounded (up and
down) before the codes are drawn, so that their expectation still is the row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.kernels._mixed_cpu import dequantize_mixed_range, quantize_mixed_range
from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import not_finite
from harness.kernels.random import stream_of
from harness.kernels.threads import over_rows
from harness.kernels.work import MeanBits, RowCodec, declare_work


@custom_operator(
    "haloscope::quantize_mixed",
    "(Tensor rows, Tensor row_bits, Tensor offsets, int key, int nbytes) -> (Tensor, Tensor)",
)
def quantize_mixed(rows: Tensor, row_bits: Tensor, offsets: Tensor, key: int, nbytes: int) -> tuple[Tensor, Tensor]:
    """Float rows [n, width], uint8 bits [n], int64 offsets [n + 1] -> codes uint8 [nbytes] and side bf16 [n, 2].

    ValueError for nan and inf.
    """
    rows = rows.float().contiguous()
    codes = torch.empty(nbytes, dtype=torch.uint8)
    side = torch.zeros((rows.shape[0], 2), dtype=torch.float32)
    if rows.numel():
        arrays = (rows.numpy(), row_bits.numpy(), offsets.numpy(), stream_of(key), codes.numpy(), side.numpy())
        bad: list[int] = []

        def piece(start: int, stop: int) -> None:
            first = quantize_mixed_range(*arrays, start, stop)
            if first >= 0:
                bad.append(first)

        over_rows(piece, rows.shape[0], rows.nbytes)
        if bad:
            raise not_finite(min(bad))
    return codes, side.bfloat16()


@custom_operator(
    "haloscope::dequantize_mixed", "(Tensor codes, Tensor side, Tensor row_bits, Tensor offsets, int width) -> Tensor"
)
def dequantize_mixed(codes: Tensor, side: Tensor, row_bits: Tensor, offsets: Tensor, width: int) -> Tensor:
    """Codes uint8, side [n, 2], bits and offsets as for `quantize_mixed` -> float32 [n, width]."""
    out = torch.empty((side.shape[0], width), dtype=torch.float32)
    if out.numel():
        sides = side.float().contiguous().numpy()
        arrays = (codes.contiguous().numpy(), sides, row_bits.numpy(), offsets.numpy(), out.numpy())

        def piece(start: int, stop: int) -> None:
            dequantize_mixed_range(*arrays, start, stop)

        over_rows(piece, side.shape[0], out.nbytes)
    return out


@quantize_mixed.register_fake
def _(rows: Tensor, row_bits: Tensor, offsets: Tensor, key: int, nbytes: int) -> tuple[Tensor, Tensor]:
    side = rows.new_empty((rows.shape[0], 2), dtype=torch.bfloat16)
    return rows.new_empty(nbytes, dtype=torch.uint8), side


declare_work("haloscope::quantize_mixed", RowCodec(rows=0, bits=MeanBits(codes=None)))


@dequantize_mixed.register_fake
def _(codes: Tensor, side: Tensor, row_bits: Tensor, offsets: Tensor, width: int) -> Tensor:
    return side.new_empty((side.shape[0], width), dtype=torch.float32)


declare_work("haloscope::dequantize_mixed", RowCodec(rows=None, bits=MeanBits(codes=0)))


@quantize_mixed.register_kernel("cuda")
def _(rows: Tensor, row_bits: Tensor, offsets: Tensor, key: int, nbytes: int) -> tuple[Tensor, Tensor]:
    from harness.kernels import _mixed_cuda as mixed_cuda

    return mixed_cuda.quantize_mixed_cuda(rows, row_bits, offsets, key, nbytes)


@dequantize_mixed.register_kernel("cuda")
def _(codes: Tensor, side: Tensor, row_bits: Tensor, offsets: Tensor, width: int) -> Tensor:
    from harness.kernels import _mixed_cuda as mixed_cuda

    return mixed_cuda.dequantize_mixed_cuda(codes, side, row_bits, offsets, width)
