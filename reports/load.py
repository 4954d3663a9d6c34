"""A folder of result files as data frames: a row per epoch, or a row per run. Reads; never runs anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness import results
from harness.errors import InputError
from harness.summary import row_of


def records(folder: Path) -> list[dict[str, Any]]:
    """Every result record in `folder`, in the order of the file names.

    Raises:
        InputError: no such folder, or a file in it is not a result.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    return [results.load(path) for path in sorted(folder.glob("*.json"))]


def epochs(folder: Path) -> pd.DataFrame:
    """A row per epoch: loss, accuracies, `seconds.*`, `bytes.*`, with `config.*`, `run_id` and `state` beside."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    return results.collect(folder)


def runs(folder: Path) -> pd.DataFrame:
    """A row per run, with the columns of `harness.summary.row_of`."""
    return pd.DataFrame([row_of(record) for record in records(folder)])
