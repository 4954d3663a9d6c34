"""The amount of work of one operator, independent of devices."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "unknown"
"""The kind of an operator that is in no table; it is charged by its bytes, as elementwise."""


@dataclass(frozen=True)
class Work:
    """The amount of work of one operator.

    Attributes:
        kind: a member of `_profile.CLASSES`, "free" (a view or an empty tensor), or UNKNOWN.
        nbytes: bytes read and written; for codec those of the uncoded rows, for spmm those written.
        flops: multiplications and additions (gemm).
        entries: stored entries times columns (spmm).
        width: columns (spmm); the shortest side of the two factors (gemm).
        bits: bits per element (codec).
        fresh: bytes of new tensors it writes.
        name: the operator (and its bits), for devices that timed it.
    """

    kind: str
    nbytes: int = 0
    flops: int = 0
    entries: int = 0
    width: int = 0
    bits: int = 0
    fresh: int = 0
    name: str = ""


FREE = Work("free")
