"""Rows of packed codes of any codec: the bytes of a row, and the error for a row that cannot be coded."""

from __future__ import annotations

MIXED_BITS = (2, 4, 8)
"""Bits per element among which rows of one message may differ."""


def code_bytes(width: int, bits: int) -> int:
    """Bytes of one row of codes."""
    return (width * bits + 7) // 8


def not_finite(row: int) -> ValueError:
    """The error for a row that cannot be coded; the caller adds rank, layer and epoch."""
    return ValueError(f"row {row} holds nan or inf")
