"""CDFGNN's quantiser: every row in b bits per value, rounded to the nearest of equally spaced levels.

Deterministic, hence biased for a single value; a sender that keeps the decoded rows (the adaptive cache) sends the
error with the next difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.codecs._stochastic import ROW_BITS
from harness.errors import InputError
from harness.kernels import linear, quantize  # noqa: F401  (registers the operators)
from harness.kernels.packed import code_bytes


@dataclass(frozen=True)
class LinearRows:
    """b-bit codes between a row's extremes (CDFGNN, Eq. 22 and 23), with scale and minimum in fp32 per row.

    Eq. 22 as printed has 2**b + 1 levels, which do not fit b bits; here levels run from 0 to 2**b - 1, so the error
    of a value is at most (max - min) / (2 (2**b - 1)), half a level; rows whose range exceeds 3.4e38 are clipped. A
    constant row is sent exactly. The paper sends maximum and minimum: the same bytes.

    Raises InputError for other bits than 1, 2, 4, 8 or 16.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        if self.bits not in ROW_BITS:
            raise InputError(f"a linear codec has {', '.join(map(str, ROW_BITS))} bits per value, not {self.bits}")

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, ...]:
        """Float rows [n, d] -> codes uint8 [n, ceil(d b / 8)] and side fp32 [n, 2] = (scale, minimum).

        `key` is not used. ValueError "row r holds nan or inf" for the first such row; values beyond float32 count.
        """
        codes, side = linear.quantize_linear(rows, self.bits)
        return codes, side

    def decode(self, payload: tuple[Tensor, ...], width: int, dtype: torch.dtype) -> Tensor:
        """[n, width] of `dtype`, computed in float32."""
        codes, side = payload
        rows: Tensor = torch.ops.haloscope.dequantize_rows(codes, side, self.bits, width)
        return rows.to(dtype)

    def payload(self, width: int, dtype: torch.dtype) -> tuple[tuple[int, torch.dtype], ...]:
        """Codes, and side information of two columns."""
        return (code_bytes(width, self.bits), torch.uint8), (2, torch.float32)
