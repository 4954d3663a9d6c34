"""Looks up printed scores by table and row, so that none is typed twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import InputError
from reports.core import load

SCORES = ("test_accuracy", "f1_micro")


def printed_score(table: str, where: Mapping[str, Any]) -> float:
    """The one score of a published table whose row has these values.

    Args:
        where: column -> value; the metric is an accuracy or F1 unless it is given.

    Raises:
        InputError: no such row, several with different values, or an unknown column.
    """
    frame = load.published(table)
    for column, wanted in where.items():
        if column not in frame.columns:
            raise InputError(f"{table} has no column {column}; it has {', '.join(frame.columns)}")
        frame = frame[frame[column] == (float(wanted) if isinstance(wanted, int | float) else wanted)]
    if "metric" not in where:
        frame = frame[frame["metric"].isin(SCORES)]
    values = sorted(set(frame["value"].dropna()))
    if len(values) != 1:
        raise InputError(f"{table}: {len(values)} different scores with {dict(where)}")
    return float(values[0])


def source(table: str, where: Mapping[str, Any]) -> str:
    """One line that says where a score is printed."""
    return f"{table}: {', '.join(f'{key} {value}' for key, value in where.items())}"
