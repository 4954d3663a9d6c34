"""The protocol of codecs: rows to a payload of row-aligned tensors, whose columns are known before, and back."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Codec(Protocol):
    """Rows [n, d] to a payload of row-aligned tensors and back; any slice of rows of a payload is a payload."""

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, ...]:
        """Rows [n, d] -> tensors with first dimension n; all randomness is a function of `key`.

        Raises ValueError, naming the row, for a value that the codec cannot represent.
        """

    def decode(self, payload: tuple[Tensor, ...], width: int, dtype: torch.dtype) -> Tensor:
        """The payload of n rows -> [n, width] of `dtype`."""

    def payload(self, width: int, dtype: torch.dtype) -> tuple[tuple[int, torch.dtype], ...]:
        """Columns and type of every tensor that `encode` returns for rows of `width` values of `dtype`.

        Their bytes are those of a row on the wire, side information included.
        """
