"""Neighbour sums of float32 rows by a C function of ours (`neighbour_sums.c`), where the machine has a C compiler."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from harness.kernels.threads import equal_entries, num_ranges, run_ranges
from harness.machine import THIS_PROCESSOR, native_library

_SOURCE = Path(__file__).with_name("neighbour_sums.c")
_FLAGS = ("-O3", THIS_PROCESSOR, "-ffp-contract=off")
_INDICES = (torch.int32, torch.int64)


class _Sums(ctypes.Structure):
    """`struct sums` of the source."""

    _fields_: ClassVar = [
        ("starts", ctypes.c_void_p), ("columns", ctypes.c_void_p), ("entries", ctypes.c_int64), ("x", ctypes.c_void_p),
        ("num_columns", ctypes.c_int64), ("width", ctypes.c_int64), ("out", ctypes.c_void_p),
    ]  # fmt: skip


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled function, made once in a process; None where it cannot be."""
    path = native_library(_SOURCE, _FLAGS)
    if path is None:
        return None
    library = ctypes.CDLL(str(path))
    library.neighbour_sums.argtypes = [ctypes.POINTER(_Sums), ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    library.neighbour_sums.restype = ctypes.c_int64
    return library


def sums_natively(indptr: Tensor, indices: Tensor, x: Tensor) -> bool:
    """Whether `native_sums` takes these tensors here."""
    plain = x.dtype == torch.float32 and x.ndim == 2 and not (x.is_cuda or x.is_meta)
    return plain and indptr.dtype == indices.dtype and indices.dtype in _INDICES and _library() is not None


def native_sums(indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
    """out[r] = sum of x[indices[e]] for e in [indptr[r], indptr[r+1]), with the bits of `embedding_bag`.

    Args:
        indptr, indices: int32 or int64, both the same, [n_rows + 1] and [nnz].
        x: float32 [n_cols, d] on the CPU.

    Returns:
        float32 [n_rows, d]; it does not depend on the number of threads.

    Raises:
        IndexError: an entry is outside the rows of x, or a row outside the entries.
    """
    library = _library()
    assert library is not None, "asked without sums_natively"
    indptr, indices, x = indptr.contiguous(), indices.contiguous(), x.contiguous()
    out = x.new_empty((indptr.shape[0] - 1, x.shape[1]))
    call = _Sums(
        indptr.data_ptr(), indices.data_ptr(), indices.shape[0], x.data_ptr(), *x.shape, out.data_ptr()
    )  # fmt: skip
    wide = int(indices.dtype == torch.int64)

    def piece(start: int, stop: int) -> None:
        wrong = library.neighbour_sums(call, wide, start, stop)
        if wrong >= 0:
            raise IndexError(f"row {wrong} has an entry outside the {x.shape[0]} rows that are summed")

    pieces = num_ranges(indices.shape[0] * x.shape[1] * x.element_size())
    run_ranges(piece, equal_entries(indptr.numpy(), indices.shape[0], pieces))
    return out
