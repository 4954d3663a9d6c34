"""Rows in another float type, or as they are; the uncompressed codecs that every exact method uses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import unknown

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


@dataclass(frozen=True)
class Cast:
    """Round every value to `dtype` (to nearest, ties to even); no side information.

    `Cast()` sends rows unchanged, of any type and without a copy; they are not checked, so nan and inf pass. Raises
    InputError for a type that is not one of `NAMES`.
    """

    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in NAMES:
            raise unknown("float type", str(self.dtype).removeprefix("torch."), [str(d)[6:] for d in NAMES])

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, ...]:
        """Rows [n, d] -> one tensor [n, d]; the rows themselves where the type is right. `key` is not used.

        With a type, ValueError for the first row with nan or inf, or with a value beyond the type (65504 in fp16).
        """
        if self.dtype is None:
            return (rows,)
        cast = rows.to(self.dtype)
        if not cast.is_meta and not bool((finite := cast.isfinite()).all()):
            row = int((~finite).any(1).nonzero()[0, 0])
            reason = f"does not fit {NAMES[self.dtype]}" if bool(rows[row].isfinite().all()) else "holds nan or inf"
            raise ValueError(f"row {row} {reason}")
        return (cast,)

    def decode(self, payload: tuple[Tensor, ...], width: int, dtype: torch.dtype) -> Tensor:
        """[n, width] of `dtype`; the payload itself where the type is right."""
        return payload[0].to(dtype)

    def payload(self, width: int, dtype: torch.dtype) -> tuple[tuple[int, torch.dtype], ...]:
        """One tensor as wide as the rows."""
        return ((width, self.dtype or dtype),)
