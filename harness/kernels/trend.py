"""The operators that choose, per row or element, between a bucket code and a prediction, and their inverse.

They are the arithmetic of ReqEC-FP (EC-Graph, Eq. 7 to 10): predicted = base + rate * step, compressed = the bucket
codec's midpoint, average = the mean of both; the form nearest to the true value in L1 is used, and codes of predicted
values are not sent.

Flags: 0 compressed, 1 predicted, 2 average. `side` and `starts` are those of `bucket`, and so is the layout of a whole
row's codes; where single elements are chosen, the codes of a row lie side by side, lowest bits first, ceil(k B / 8)
bytes for k codes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.kernels._trend_cpu import AVERAGE as AVERAGE
from harness.kernels._trend_cpu import COMPRESSED as COMPRESSED
from harness.kernels._trend_cpu import PREDICTED as PREDICTED
from harness.kernels._trend_cpu import choose_range, restore_elements_range, restore_range, score_range
from harness.kernels.custom_operator import custom_operator
from harness.kernels.packed import code_bytes
from harness.kernels.threads import over_rows
from harness.kernels.work import BitsArgument, RowCodec, declare_work

_TREND = "Tensor base, Tensor rate, float step, Tensor side, Tensor starts, int bits"
_FORMS = f"(Tensor rows, {_TREND}) -> (Tensor, Tensor)"


def _float(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.float().contiguous().numpy()
    return array


@custom_operator("haloscope::trend_score", _FORMS)
def trend_score(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """Rows [n, d] -> codes uint8 [n, ceil(d B / 8)]; L1 errors float32 [n, 3] of predicted, average, compressed."""
    codes = torch.empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    scores = torch.zeros((rows.shape[0], 3), dtype=torch.float32)
    if rows.numel():
        x, start_at, slope = _float(rows), _float(base), _float(rate)
        packed = codes.numpy().view(np.uint16) if bits == 16 else codes.numpy()
        sides, groups, target = _float(side), starts.numpy(), scores.numpy()

        def piece(start: int, stop: int) -> None:
            score_range(x, start_at, slope, np.float32(step), sides, groups, bits, packed, target, start, stop)

        over_rows(piece, rows.shape[0], 3 * x.nbytes)
    return codes, scores


@custom_operator("haloscope::trend_choose", _FORMS)
def trend_choose(
    rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int
) -> tuple[Tensor, Tensor]:
    """Rows [n, d] -> codes uint8 [n, ceil(d B / 8)], those of a row's sent elements first, and flags uint8 [n, d]."""
    codes = torch.zeros((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    flags = torch.empty(rows.shape, dtype=torch.uint8)
    if rows.numel():
        x, start_at, slope, packed = _float(rows), _float(base), _float(rate), codes.numpy()
        sides, groups, target = _float(side), starts.numpy(), flags.numpy()

        def piece(start: int, stop: int) -> None:
            choose_range(x, start_at, slope, np.float32(step), sides, groups, bits, packed, target, start, stop)

        over_rows(piece, rows.shape[0], 3 * x.nbytes)
    return codes, flags


@custom_operator("haloscope::trend_restore", f"(Tensor packed, Tensor flags, Tensor offsets, {_TREND}) -> Tensor")
def trend_restore(
    packed: Tensor, flags: Tensor, offsets: Tensor, base: Tensor, rate: Tensor, step: float,
    side: Tensor, starts: Tensor, bits: int,
) -> Tensor:  # fmt: skip
    """Rows float32 [n, d] from flags uint8 [n] or [n, d], and codes uint8 [bytes] that begin at `offsets` int64 [n]."""
    out = torch.empty(base.shape, dtype=torch.float32)
    if out.numel():
        kernel = restore_range if flags.ndim == 1 else restore_elements_range
        given = (packed.numpy(), flags.contiguous().numpy(), offsets.numpy(), _float(base), _float(rate))
        sides, groups, target = _float(side), starts.numpy(), out.numpy()

        def piece(start: int, stop: int) -> None:
            kernel(*given, np.float32(step), sides, groups, bits, target, start, stop)

        over_rows(piece, out.shape[0], 3 * out.nbytes)
    return out


def _codes_like(rows: Tensor, bits: int) -> Tensor:
    return rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)


@trend_score.register_fake
def _(rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int) -> object:
    return _codes_like(rows, bits), rows.new_empty((rows.shape[0], 3), dtype=torch.float32)


declare_work("haloscope::trend_score", RowCodec(rows=0, bits=BitsArgument(6)))


@trend_choose.register_fake
def _(rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int) -> object:
    return _codes_like(rows, bits), rows.new_empty(rows.shape, dtype=torch.uint8)


declare_work("haloscope::trend_choose", RowCodec(rows=0, bits=BitsArgument(6)))


@trend_restore.register_fake
def _(
    packed: Tensor, flags: Tensor, offsets: Tensor, base: Tensor, rate: Tensor, step: float,
    side: Tensor, starts: Tensor, bits: int,
) -> Tensor:  # fmt: skip
    return base.new_empty(base.shape, dtype=torch.float32)


declare_work("haloscope::trend_restore", RowCodec(rows=None, bits=BitsArgument(8)))


@trend_score.register_kernel("cuda")
def _(rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int) -> object:
    from harness.kernels import _trend_cuda as trend_cuda

    return trend_cuda.score_cuda(rows, base, rate, step, side, starts, bits)


@trend_choose.register_kernel("cuda")
def _(rows: Tensor, base: Tensor, rate: Tensor, step: float, side: Tensor, starts: Tensor, bits: int) -> object:
    from harness.kernels import _trend_cuda as trend_cuda

    return trend_cuda.choose_cuda(rows, base, rate, step, side, starts, bits)


@trend_restore.register_kernel("cuda")
def _(
    packed: Tensor, flags: Tensor, offsets: Tensor, base: Tensor, rate: Tensor, step: float,
    side: Tensor, starts: Tensor, bits: int,
) -> Tensor:  # fmt: skip
    from harness.kernels import _trend_cuda as trend_cuda

    return trend_cuda.restore_cuda(packed, flags, offsets, base, rate, step, side, starts, bits)
