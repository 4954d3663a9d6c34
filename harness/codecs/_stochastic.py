"""Sylvie's quantiser: every row in b bits per value by unbiased stochastic rounding between its own extremes.

The arithmetic is one operator per direction (`kernels.quantize`); the method decides which rows are sent, and with
how many bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import InputError
from harness.kernels import quantize  # noqa: F401  (registers the operators)
from harness.kernels.packed import code_bytes
from harness.kernels.random import signed64

ROW_BITS = (1, 2, 4, 8, 16)
SIDES = ("fp32", "fp16")


@dataclass(frozen=True)
class StochasticRows:
    """b-bit stochastic codes with a scale and a minimum per row (Sylvie, Eq. 3 to 5).

    With B = 2**b - 1 and scale = (max - min) / B of a row h, Eq. 3 and 4 send code = floor((h - min) / scale + u)
    with u uniform in [0, 1), and Eq. 5 decodes min + scale * code. The expectation is h (Eq. 6) and no error
    exceeds the scale. With f the fractional part of (h - min) / scale, the variance of a decoded row of D
    values is scale**2 * sum f (1 - f), at most D scale**2 / 4; Eq. 7 prints D (max - min)**2 / (6 B**2), which is
    its mean when f is uniform (Theorem 1's assumption), not a bound for every row.

    `side` is the type of scale and minimum on the wire: "fp32" (8 bytes per row) or "fp16" (4 bytes, as the
    authors' code and Table 3 have it). fp16 rounds the minimum down and the scale up *before* the codes are drawn,
    so the expectation still is h. Clipped, hence biased, are only rows whose range exceeds 3.4e38, and with fp16 rows
    that leave [-65504, min + 65504 B]. A constant row is sent exactly with "fp32".

    Raises InputError for other bits or sides.
    """

    bits: int = 1
    side: str = "fp32"

    def __post_init__(self) -> None:
        if self.bits not in ROW_BITS:
            raise InputError(f"a stochastic codec has {', '.join(map(str, ROW_BITS))} bits per value, not {self.bits}")
        if self.side not in SIDES:
            raise InputError(f"side information is fp32 or fp16, not {self.side!r}")

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, ...]:
        """Float rows [n, d] -> codes uint8 [n, ceil(d b / 8)] and side [n, 2] = (scale, minimum).

        The random bits of element (r, c) depend on (key, r, c) only. ValueError "row r holds nan or inf" for the
        first such row; values beyond float32 count as inf.
        """
        codes, side = torch.ops.haloscope.quantize_rows(rows, self.bits, signed64(key), self.side == "fp16")
        return codes, side

    def decode(self, payload: tuple[Tensor, ...], width: int, dtype: torch.dtype) -> Tensor:
        """[n, width] of `dtype`, computed in float32."""
        codes, side = payload
        rows: Tensor = torch.ops.haloscope.dequantize_rows(codes, side, self.bits, width)
        return rows.to(dtype)

    def payload(self, width: int, dtype: torch.dtype) -> tuple[tuple[int, torch.dtype], ...]:
        """Codes, and side information of two columns."""
        return (code_bytes(width, self.bits), torch.uint8), (2, torch.float16 if self.side == "fp16" else torch.float32)
