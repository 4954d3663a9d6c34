"""Published times of operators on GPUs, and their prediction by the device model of every simulated run."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path

import numpy as np

from harness.errors import InputError
from harness.kernels.work import Work
from sims import units
from sims.device import CountedRates, DeviceProfile, GammaRates, Popularity, load_device
from sims.records import TEXT, choice, filled, key

TIMED = {
    "neighbour-sum": "rows summed over the stored entries of a sparse matrix",
    "product": "rows x columns by columns x width",
}
"""Operator of a table -> what was timed."""

COLUMNS_OF_TABLE = ["name", "rows", "columns", "entries", "width", "law", "us"]
KRONECKER = 0.76, 0.24  # Graph500's generator: shares of the edges at nodes with a bit 0, and with a bit 1
_FP32 = 4
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A table of `operators.toml`."""

    device: str = key("a file of `devices`, or a shipped profile", TEXT)
    operator: str = key("what was timed", choice(*TIMED))
    software: str = key("library and its version", TEXT)
    source: str = key("address", TEXT)
    note: str = key("what else is known", TEXT, default="")
    calibrating: str = key("names of rows that a number of the device comes from", TEXT, default="")


@dataclass(frozen=True)
class TimedOperator:
    """One published time.

    Attributes:
        name: of the matrix, or the sizes.
        work: what was done.
        popularity: how often the rows that it reads are read.
        seconds: as published.
        calibrating: whether a number of its device comes from it.
    """

    name: str
    work: Work
    popularity: Popularity
    seconds: float
    calibrating: bool


@dataclass(frozen=True)
class OperatorTable:
    """Published times of one operator with one library on one device."""

    name: str
    device: DeviceProfile
    operator: str
    software: str
    source: str
    note: str
    rows: tuple[TimedOperator, ...]

    def errors(self, device: DeviceProfile | None = None) -> np.ndarray:
        """predicted / published - 1 of every row, float64, on its own device or another profile of it."""
        profile = device or self.device
        predicted = [profile.seconds(row.work, row.popularity) for row in self.rows]
        found: np.ndarray = np.asarray(predicted) / np.asarray([row.seconds for row in self.rows]) - 1
        return found


def load_operators(folder: Path = _FOLDER) -> list[OperatorTable]:
    """The tables of a folder, in the order of its `operators.toml`. Raises InputError for malformed files."""
    top = units.read_toml(folder / "operators.toml", "published")
    tables = []
    for name in top.values:
        given = filled(_Source, top.table(name))
        rows = _rows(folder / "operators" / f"{name}.csv", given)
        own = folder / "devices" / f"{given.device}.toml"
        device = load_device(own if own.is_file() else given.device)
        tables.append(OperatorTable(name, device, given.operator, given.software, given.source, given.note, rows))
    return tables


def without_cache(device: DeviceProfile) -> DeviceProfile:
    """The profile with every row read from memory."""
    return replace(device, cache=None)


def _rows(path: Path, given: _Source) -> tuple[TimedOperator, ...]:
    with path.open(newline="") as file:
        header, *lines = csv.reader(file)
    if header != COLUMNS_OF_TABLE:
        raise InputError(f"{path.name}: must have the columns {','.join(COLUMNS_OF_TABLE)}")
    found = []
    for name, *numbers, law, microseconds in lines:
        rows, columns, entries, width = map(int, numbers)
        work = _sum(rows, columns, entries, width)
        if given.operator == "product":
            work = _product(rows, columns, width)
        calibrating = name in given.calibrating.split()
        found.append(TimedOperator(name, work, _popularity(law, columns), float(microseconds) / 1e6, calibrating))
    return tuple(found)


def _sum(rows: int, columns: int, entries: int, width: int) -> Work:
    return Work(
        "spmm", _FP32 * rows * width, entries=entries * width, width=width, rows=columns, row_bytes=_FP32 * width
    )  # fmt: skip


def _product(rows: int, columns: int, width: int) -> Work:
    nbytes = _FP32 * (rows * columns + columns * width + rows * width)
    return Work("gemm", nbytes, flops=2 * rows * columns * width, width=min(rows, columns, width))


def _popularity(law: str, columns: int) -> Popularity:
    """The law of degrees that a row names: a coefficient of variation, or Graph500's Kronecker graphs."""
    if law != "kronecker":
        return GammaRates(float(law or 0.0))
    bits, (zero, one) = columns.bit_length() - 1, KRONECKER
    ones = range(bits + 1)
    return CountedRates([zero ** (bits - k) * one**k for k in ones], [comb(bits, k) for k in ones])
