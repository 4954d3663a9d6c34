"""EC-Graph's compression: every value as the index of its bucket in a matrix's range.

The arithmetic is one operator per direction (`kernels.bucket`); the method decides which rows are sent, with how many
bits, and what is done with the error. It is not a `Codec`: the range belongs to a matrix, not to a row, so rows
alone cannot be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.errors import InputError
from harness.kernels import bucket  # noqa: F401  (registers the operators)

BUCKET_BITS = (1, 2, 4, 8, 16)
SCOPES = ("matrix", "requested", "row")
TABLES = ("range", "values")


@dataclass(frozen=True)
class Bucket:
    """b-bit bucket numbers, decoded to bucket midpoints (EC-Graph, Sec. IV-A, Fig. 3).

    One bit: the two halves of the range. More: one code is zero itself, and the range has 2**b - 1 equal intervals, or
    2**b - 2 where it crosses zero, the one that contains zero being split there in two; so zeros and signs are
    preserved. The error is at most half an interval, (high - low) / 2 / intervals, and float32's own rounding. A
    constant range is exact. Deterministic and biased: compensating the error is up to the method.

    `scope`: one range for a whole matrix (the authors'), one for the rows of every request (Alg. 6, line 4), or one for
    every row. `table`: a range travels as its two ends in fp32, 8 bytes, from which the values of the buckets follow;
    or, as the paper has it, as a table of the 2**bits values, 4 * 2**bits bytes.

    Raises InputError for other bits, scopes or tables.
    """

    bits: int = 2
    scope: str = "matrix"
    table: str = "range"

    def __post_init__(self) -> None:
        if self.bits not in BUCKET_BITS:
            raise InputError(f"a bucket codec has {', '.join(map(str, BUCKET_BITS))} bits per value, not {self.bits}")
        if self.scope not in SCOPES:
            raise InputError(f"a bucket codec's range is that of a {', '.join(SCOPES)}, not {self.scope!r}")
        if self.table not in TABLES:
            raise InputError(f"a bucket codec sends {' or '.join(TABLES)}, not {self.table!r}")

    def measure(self, rows: Tensor, matrix: Tensor, counts: np.ndarray | None = None) -> Tensor:
        """Lowest and highest value, float32 [1, 2] over `rows` and `matrix` together, or [n, 2] of every row.

        Where requests have ranges of their own: [G, 2] of the groups of `counts` rows each.

        ValueError "boundary row r holds nan or inf" for the first such row of `rows`, "own row r" for one of a `matrix`
        that is another tensor; values beyond float32 count as inf.
        """
        if self.scope == "row":
            side = _extremes(rows, 1)
            _refuse(rows, side, "boundary")
            return side
        if self.scope == "requested":
            assert counts is not None
            pieces = [_extremes(piece) for piece in rows.split(counts.tolist())] if len(counts) else []
            side = torch.stack(pieces) if pieces else rows.new_zeros((0, 2), dtype=torch.float32)
            _refuse(rows, side, "boundary")
            return side
        side = _extremes(torch.stack([_extremes(rows), _extremes(matrix)]) if rows is not matrix else matrix)
        if rows is not matrix:
            _refuse(matrix, side, "own")
        _refuse(rows, side, "boundary")
        return side[None]

    def starts(self, side: Tensor, counts: np.ndarray) -> Tensor:
        """First row of every group of `side`, int64 [G + 1]: groups of `counts` rows, or single rows."""
        if side.is_meta:
            return torch.empty(side.shape[0] + 1, dtype=torch.int64, device="meta")
        sizes = np.ones(side.shape[0], np.int64) if self.scope == "row" else counts
        return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])).to(side.device)

    def encode(
        self, rows: Tensor, side: Tensor, counts: np.ndarray | None = None, *, keep_error: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Rows [n, d] of one matrix -> codes uint8 [n, ceil(d b / 8)] and rows minus their decoded form, fp32 [n, d].

        Without `keep_error` the second has no rows. `side` is the result of `measure`, `counts` what that was given.
        """
        starts = self.starts(side, np.asarray([rows.shape[0]]) if counts is None else counts)
        codes, error = torch.ops.haloscope.bucket_encode(rows, side, starts, self.bits, keep_error)
        return codes, error

    def decode(self, codes: Tensor, side: Tensor, starts: Tensor, width: int) -> Tensor:
        """Codes of rows in groups that begin at `starts` -> float32 [n, width]."""
        rows: Tensor = torch.ops.haloscope.bucket_decode(codes, side, starts, self.bits, width)
        return rows

    @property
    def range_bytes(self) -> int:
        """Bytes of one range."""
        return 8 if self.table == "range" else 4 * 2**self.bits


def _extremes(values: Tensor, dim: int | None = None) -> Tensor:
    """Lowest and highest value, float32 [2] or [n, 2]; zeros where there are no values."""
    if not values.numel():
        return values.new_zeros((2,) if dim is None else (values.shape[0], 2), dtype=torch.float32)
    low, high = torch.aminmax(values) if dim is None else torch.aminmax(values, dim=dim)
    return torch.stack([low, high], -1).float()


def _refuse(rows: Tensor, side: Tensor, what: str) -> None:
    """Raise ValueError if a row is not finite; reads the rows only where their range is not finite."""
    if side.is_meta or bool(side.isfinite().all()):
        return
    bad = (~rows.float().isfinite()).any(1)
    if bool(bad.any()):
        raise ValueError(f"{what} row {int(bad.nonzero()[0, 0])} holds nan or inf")
