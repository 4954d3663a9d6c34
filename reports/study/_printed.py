"""Looks up printed scores, and how uncertain they are, by table and row, so that no number is typed twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from scipy import stats

from harness.errors import InputError
from reports.core import load

SCORES = ("test_accuracy", "f1_micro")
ROUNDING = 0.01  # of a difference of two scores that are printed with two decimals


def printed_score(table: str, where: Mapping[str, Any]) -> float:
    """The one score of a published table whose row has these values.

    Args:
        where: column -> value; the metric is an accuracy or F1 unless it is given.

    Raises:
        InputError: no such row, several with different values, or an unknown column.
    """
    values = sorted(set(_rows(table, where)["value"].dropna()))
    if len(values) != 1:
        raise InputError(f"{table}: {len(values)} different scores with {dict(where)}")
    return float(values[0])


def printed_spread(table: str, where: Mapping[str, Any]) -> float | None:
    """What is printed behind the score with "+-"; None where nothing is. Raises InputError as `printed_score` does."""
    values = sorted(set(_rows(table, where)["spread"].dropna()))
    return float(values[0]) if len(values) == 1 else None


def uncertainty(first: float, second: float, runs: int) -> float:
    """How far a printed difference may be off, from the printed +- of both scores; points.

    Args:
        runs: behind each of the two scores: half of Student's 95 % interval for the difference of their means then; 0
            where the paper does not say: the +- in quadrature, one standard deviation of the difference of single runs.
    """
    together = math.hypot(first, second)
    return float(stats.t.ppf(0.975, 2 * runs - 2)) * together / math.sqrt(runs) if runs else together


def printed_runs(paper: str) -> int:
    """Runs behind every score of a paper; 0 where it does not say."""
    return int(load.setup(paper).get("model_notes", {}).get("runs_averaged", 0))


def _rows(table: str, where: Mapping[str, Any]) -> pd.DataFrame:
    frame = load.published(table)
    for column, wanted in where.items():
        if column not in frame.columns:
            raise InputError(f"{table} has no column {column}; it has {', '.join(frame.columns)}")
        frame = frame[frame[column] == (float(wanted) if isinstance(wanted, int | float) else wanted)]
    return frame if "metric" in where else frame[frame["metric"].isin(SCORES)]


def source(table: str, where: Mapping[str, Any]) -> str:
    """One line that says where a score is printed."""
    return f"{table}: {', '.join(f'{key} {value}' for key, value in where.items())}"
