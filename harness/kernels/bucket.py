"""The operators `haloscope::bucket_encode` and `haloscope::bucket_decode`: rows as numbers of buckets of a range.

They are the arithmetic of `codecs.Bucket` (EC-Graph, Sec. IV-A) with one definition for all devices; for ledgers and
meta tensors they are one operator each.

Buckets of [low, high] in B bits. B = 1: two halves, codes 0 and 1. B > 1: code 0 is zero itself; a range that does not
cross zero has 2**B - 1 equal intervals; one that does has 2**B - 2, of which the one that holds zero is cut there into
two buckets. Codes count buckets from the lowest; a code decodes to its bucket's midpoint. A constant is sent exactly.

Layout: a row takes ceil(width * B / 8) bytes. Below 8 bits, byte j holds the codes of the columns j, j + R, j + 2R, ...
from the lowest bits up, R being the bytes of the row: planes, as in `quantize`. 16-bit codes are little-endian.
`side` is float32 [G, 2], low and high of G groups of rows; rows `starts[g] .. starts[g + 1] - 1` are group g.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.kernels._bucket_cpu import decode_range, encode_range
from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import code_bytes
from harness.kernels.threads import over_rows
from harness.kernels.work import BitsArgument, RowCodec, declare_work


@custom_operator(
    "haloscope::bucket_encode",
    "(Tensor rows, Tensor side, Tensor starts, int bits, bool keep_error) -> (Tensor, Tensor)",
)
def bucket_encode(rows: Tensor, side: Tensor, starts: Tensor, bits: int, keep_error: bool) -> tuple[Tensor, Tensor]:
    """Float rows [n, d] -> codes uint8 [n, ceil(d B / 8)] and rows minus their decoded form, float32 [n, d].

    Without `keep_error` the second is [0, d]. Values must be finite and lie in their group's range.
    """
    rows = rows.float().contiguous()
    codes = torch.empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    error = torch.empty((rows.shape[0] if keep_error else 0, rows.shape[1]), dtype=torch.float32)
    if rows.numel():
        packed = codes.numpy().view(np.uint16) if bits == 16 else codes.numpy()
        x, sides, groups, left = rows.numpy(), side.contiguous().numpy(), starts.numpy(), error.numpy()

        def piece(start: int, stop: int) -> None:
            encode_range(x, sides, groups, bits, packed, left, start, stop)

        over_rows(piece, rows.shape[0], rows.nbytes)
    return codes, error


@custom_operator(
    "haloscope::bucket_decode", "(Tensor codes, Tensor side, Tensor starts, int bits, int width) -> Tensor"
)
def bucket_decode(codes: Tensor, side: Tensor, starts: Tensor, bits: int, width: int) -> Tensor:
    """Codes uint8 [n, ceil(width B / 8)] -> float32 [n, width]."""
    out = torch.empty((codes.shape[0], width), dtype=torch.float32)
    if out.numel():
        packed = codes.contiguous().numpy().view(np.uint16) if bits == 16 else codes.contiguous().numpy()
        sides, groups, target = side.contiguous().numpy(), starts.numpy(), out.numpy()

        def piece(start: int, stop: int) -> None:
            decode_range(packed, sides, groups, bits, target, start, stop)

        over_rows(piece, codes.shape[0], out.nbytes)
    return out


@bucket_encode.register_fake
def _(rows: Tensor, side: Tensor, starts: Tensor, bits: int, keep_error: bool) -> tuple[Tensor, Tensor]:
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    return codes, rows.new_empty((rows.shape[0] if keep_error else 0, rows.shape[1]), dtype=torch.float32)


declare_work("haloscope::bucket_encode", RowCodec(rows=0, bits=BitsArgument(3)))


@bucket_decode.register_fake
def _(codes: Tensor, side: Tensor, starts: Tensor, bits: int, width: int) -> Tensor:
    return codes.new_empty((codes.shape[0], width), dtype=torch.float32)


declare_work("haloscope::bucket_decode", RowCodec(rows=None, bits=BitsArgument(3)))


@bucket_encode.register_kernel("cuda")
def _(rows: Tensor, side: Tensor, starts: Tensor, bits: int, keep_error: bool) -> tuple[Tensor, Tensor]:
    from harness.kernels import _bucket_cuda as bucket_cuda

    return bucket_cuda.encode(rows, side, starts, bits, keep_error)


@bucket_decode.register_kernel("cuda")
def _(codes: Tensor, side: Tensor, starts: Tensor, bits: int, width: int) -> Tensor:
    from harness.kernels import _bucket_cuda as bucket_cuda

    return bucket_cuda.decode(codes, side, starts, bits, width)
