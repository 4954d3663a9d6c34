"""Published curves as files: times of one operation by message size, with machine, software and address."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import InputError
from sims import units
from sims.cluster import Cluster, known_clusters, load_cluster
from sims.records import TEXT, choice, filled, integer, key

FOLDER = Path(__file__).parent
CURVE_OPERATIONS = {
    "all-reduce": "sum of a buffer of so many bytes per rank",
    "broadcast": "a buffer of so many bytes from rank 0",
    "all-to-all": "a buffer of so many bytes per rank, an equal part of it for every rank",
    "ring-shift": "every rank sends so many bytes to the next one and receives as many from the one before",
    "send-receive": "so many bytes from one rank to another, one way",
}
"""Operation -> what a size of its curve counts."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A table of `curves.toml`."""

    machine: str = key("a file of `machines`, or a shipped cluster", TEXT)
    operation: str = key("what was timed", choice(*CURVE_OPERATIONS))
    ranks: int = key("ranks", integer(2))
    launches: int = key("devices that one process drives, whose kernels it launches in turn; 0: none", integer(0))
    software: str = key("library and its version", TEXT)
    source: str = key("address", TEXT)
    note: str = key("what else is known", TEXT, default="")


@dataclass(frozen=True)
class PublishedCurve:
    """One published curve.

    Attributes:
        name: of its file in `curves`.
        machine: a file of `machines`, or a shipped cluster.
        operation: a member of CURVE_OPERATIONS.
        launches: devices that one process drives; 0 where nothing is launched.
        software, source, note: library and version, address, what else is known.
        nbytes: int64 [points], ascending.
        seconds: float64 [points], of one operation (of NCCL's tests: out of place).
    """

    name: str
    machine: str
    operation: str
    ranks: int
    launches: int
    software: str
    source: str
    note: str
    nbytes: np.ndarray
    seconds: np.ndarray


def load_curves(folder: Path = FOLDER) -> list[PublishedCurve]:
    """The curves of a folder, in the order of its `curves.toml`. Raises InputError for malformed files."""
    top = units.read_toml(folder / "curves.toml", "published")
    files = {path.stem for path in (folder / "curves").glob("*.csv")}
    if lost := sorted(files ^ set(top.values)):
        raise InputError(f"published curves: {lost[0]} has a table in curves.toml or a file in curves, not both")
    curves = []
    for name in top.values:
        entry = filled(_Entry, top.table(name))
        nbytes, seconds = _points(folder / "curves" / f"{name}.csv")
        known = vars(entry) | {"nbytes": nbytes, "seconds": seconds}
        curves.append(PublishedCurve(name=name, **known))
    return curves


def machine_of(curve: PublishedCurve) -> Cluster:
    """The cluster that a curve was measured on."""
    if curve.machine in known_clusters():
        return load_cluster(curve.machine)
    return load_cluster(FOLDER / "machines" / f"{curve.machine}.toml")


def _points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and seconds of a CSV file with the columns bytes and us, sizes ascending."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if not rows or rows[0] != ["bytes", "us"] or len(rows) < 2:
        raise InputError(f"{path.name}: must have the columns bytes,us and at least one row")
    try:
        nbytes = np.asarray([int(row[0]) for row in rows[1:]], np.int64)
        seconds = np.asarray([float(row[1]) for row in rows[1:]]) / 1e6
    except (ValueError, IndexError):
        raise InputError(f"{path.name}: a row is not a whole number of bytes and a number of microseconds") from None
    if (np.diff(nbytes) <= 0).any() or nbytes[0] < 1 or (seconds <= 0).any():
        raise InputError(f"{path.name}: sizes must ascend, and sizes and times be more than 0")
    return nbytes, seconds
