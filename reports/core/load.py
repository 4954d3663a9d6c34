"""Result files and the papers' published numbers as data frames. Reads; never runs anything."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import InputError, unknown
from harness.running import results
from harness.running.summary import row_of

PUBLISHED = Path(__file__).parents[1] / "published"
MB, GB = 1e6, 1e9  # bytes; decimal, as the papers' volumes, bandwidths and memories are read
GIB = 2**30  # bytes; what the worked example of EC-Graph's introduction calls GB
NUMBERS = ("value", "layers", "partitions", "machines", "overlap_pct", "partition_index", "gpus_per_node", "spread")


def records(folder: Path) -> list[dict[str, Any]]:
    """Every result record in `folder`, in the order of the file names.

    Raises:
        InputError: no such folder, or a file in it is not a result.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    return [results.load_result(path) for path in sorted(folder.glob("*.json"))]


def epochs(folder: Path) -> pd.DataFrame:
    """A row per epoch: loss, accuracies, `seconds.*`, `bytes.*`, with `config.*`, `run_id` and `state` beside."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    return results.collect(folder).frame


def runs(folder: Path) -> pd.DataFrame:
    """A row per run, with the columns of `harness.running.summary.row_of`."""
    return pd.DataFrame([row_of(record) for record in records(folder)])


def published(name: str) -> pd.DataFrame:
    """The numbers of one printed table ("sylvie-table3") as a fresh frame, a row per number.

    `NUMBERS` are float64, nan where the cell is empty; all other columns are text, "" where empty.

    Raises:
        InputError: no such table (the nearest one is named).
    """
    return _published(name).copy()


@cache
def _published(name: str) -> pd.DataFrame:
    path = PUBLISHED / f"{name}.csv"
    if not path.is_file():
        raise unknown("published table", name, [file.stem for file in PUBLISHED.glob("*.csv")])
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in frame.columns.intersection(list(NUMBERS)):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return frame


def text(paper: str) -> pd.DataFrame:
    """Numbers of a paper's running text, with `section` and `quote` (a few words, to find the place)."""
    return published(f"{paper}-text")


def claims(paper: str) -> pd.DataFrame:
    """A paper's claims on its figures and tables; `ordering` is that of `metric`, largest first."""
    frame = published(f"{paper}-figures")
    return frame[frame["kind"] == "claim"].reset_index(drop=True)


def setup(paper: str) -> dict[str, Any]:
    """A paper's testbed, data sets, models and settings as printed, to be changed at will.

    Raises:
        InputError: an unknown paper.
    """
    return deepcopy(_setup(paper))


@cache
def _setup(paper: str) -> dict[str, Any]:
    path = PUBLISHED / f"{paper}-setup.toml"
    if not path.is_file():
        raise unknown("paper", paper, [file.stem.removesuffix("-setup") for file in PUBLISHED.glob("*-setup.toml")])
    return tomllib.loads(path.read_text())


def entry(paper: str, kind: str, **where: Any) -> dict[str, Any]:
    """The one entry of a kind ("dataset", "model", "baseline") in a paper's set-up that has these values.

    Raises:
        InputError: there is none, or there are several.
    """
    matching = entries(paper, kind, **where)
    if len(matching) != 1:
        raise InputError(f"{len(matching)} entries [[{kind}]] in the set-up of {paper} with {where}")
    return matching[0]


def entries(paper: str, kind: str, **where: Any) -> list[dict[str, Any]]:
    """All entries of a kind in a paper's set-up that have these values."""
    return [deepcopy(e) for e in _setup(paper)[kind] if all(e.get(key) == wanted for key, wanted in where.items())]


def value(frame: pd.DataFrame, **where: Any) -> float:
    """The one value of a published frame whose columns have these values. Raises InputError unless there is one."""
    chosen = select(frame, **where)
    if len(chosen) != 1:
        raise InputError(f"{len(chosen)} published values with {where}")
    return float(chosen["value"].iloc[0])


def select(frame: pd.DataFrame, **where: Any) -> pd.DataFrame:
    """The rows whose columns have these values, or for which a given predicate is true."""
    for column, wanted in where.items():
        series = frame[column]
        frame = frame[series.map(wanted) if isinstance(wanted, Callable) else series == wanted]  # type: ignore[arg-type]
    return frame
