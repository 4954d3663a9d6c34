"""Rows of one message with different numbers of bits: AdaQP's quantiser, with scale and minimum in bf16."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.effects import Counts
from harness.kernels import mixed  # noqa: F401  (registers the operators)
from harness.kernels.packed import code_bytes
from harness.kernels.random import signed64

MIXED_SIDE_BYTES = 4


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Stochastic codes of rows that are grouped by rank, with 2, 4 or 8 bits per value as each row has it.

    Rounding is that of `StochasticRows`, unbiased between a row's extremes. The payload is not row-aligned: codes are
    one array of bytes, ceil(width bits / 8) of every row, beside 4 bytes of side information a row.

    Attributes:
        bits: uint8 [n].
        offsets: int64 [n + 1], where the codes of every row begin.
        nbytes: int64 [P], bytes of codes by rank.
    """

    bits: Tensor
    offsets: Tensor
    width: int
    nbytes: Counts

    @classmethod
    def of(cls, bits: Tensor, width: int, counts: Counts, share: float = 1.0) -> MixedRows:
        """The layout of `counts` rows by rank. Without numbers codes take `share` of their bytes at 8 bits."""
        if bits.is_meta:
            offsets = torch.empty(bits.shape[0] + 1, dtype=torch.int64, device=bits.device)
            return cls(bits, offsets, width, np.floor(share * counts * code_bytes(width, 8) + 0.5).astype(np.int64))
        sizes = (bits.long() * width + 7) // 8
        offsets = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        bounds = offsets.cpu().numpy()[np.concatenate([[0], np.cumsum(counts)])]
        return cls(bits, offsets, width, np.diff(bounds))

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, Tensor]:
        """Float rows [n, width] -> codes uint8 [sum(nbytes)] and side bf16 [n, 2] = (scale, minimum).

        The random bits of element (r, c) depend on (key, r, c) only. ValueError "row r holds nan or inf" for the first
        such row.
        """
        total = int(self.nbytes.sum())
        codes, side = torch.ops.haloscope.quantize_mixed(rows, self.bits, self.offsets, signed64(key), total)
        return codes, side

    def decode(self, codes: Tensor, side: Tensor, dtype: torch.dtype) -> Tensor:
        """[n, width] of `dtype`, computed in float32."""
        rows: Tensor = torch.ops.haloscope.dequantize_mixed(codes, side, self.bits, self.offsets, self.width)
        return rows.to(dtype)

    def squared_ranges(self, side: Tensor) -> Tensor:
        """(maximum - minimum)^2 of every row as its codes cover it, float32 [n]."""
        levels = (2.0 ** self.bits.float()) - 1
        return (side[:, 0].float() * levels).square()
