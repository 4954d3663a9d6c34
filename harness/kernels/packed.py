"""Rows of packed codes, whatever they code: how many bytes one takes, and the error of a row that cannot be coded."""

from __future__ import annotations


def code_bytes(width: int, bits: int) -> int:
    """Bytes of one row of codes."""
    return (width * bits + 7) // 8


def not_finite(row: int) -> ValueError:
    """The error of a row that cannot be coded; the caller knows rank, layer and epoch."""
    return ValueError(f"row {row} holds nan or inf")
