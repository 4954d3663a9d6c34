"""The result of a run: one JSON file per run, keyed by the hash of its config, written once and renamed into place.

Also merges the records of all ranks into one record per epoch. File names and logs are never parsed.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from harness.config import RunConfig
from harness.errors import InputError
from harness.machine import Reserved, core_count, write_atomically
from harness.rank import COMPONENTS

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
PACKAGES = ("haloscope", "torch", "numpy", "numba", "pymetis", "simpy")


class RankEpoch(msgspec.Struct):
    """One rank's record of one epoch."""

    epoch: int
    loss: float | None  # global loss per training node; None with shapes only
    seconds: dict[str, float]  # components, hidden, epoch; empty without a clock
    layers: dict[str, dict[int, int]]  # direction -> layer -> bytes sent
    to: bytes  # int64 [ranks], bytes sent to every rank: as a list of thousands, most of a run's memory
    counts: list[list[float]] | None  # true positives, false positives, false negatives of train, val, test
    peak_memory: int  # bytes so far
    observed: dict[str, list[float]] = {}  # name -> [part, whole] (`Rank.observe`)
    others: dict[str, int] = {}  # bytes of direction "other" by what they are (`Traffic.others`)


class RankResult(msgspec.Struct):
    """One rank's records."""

    rank: int
    epochs: list[RankEpoch]
    facts: dict[str, Any] = {}
    measures: dict[str, float] = {}  # `Method.measures`
    interrupted: bool = False  # stopped on request before its last epoch, with a checkpoint


@dataclass
class Result:
    """One run in the schema of the result file. Seconds, bytes; scores are fractions in [0, 1].

    Scores are accuracies, or micro-F1 where nodes have several labels (`graph["multilabel"]`).
    """

    config: RunConfig
    state: str
    epochs: list[dict[str, Any]]
    graph: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    inputs: dict[str, str] = field(
        default_factory=dict
    )  # hashes of inputs beside config and graph (`OpenedRun.inputs`)

    @property
    def run_id(self) -> str:
        """SHA-256 of the canonical config."""
        return self.config.run_id()

    def summary(self) -> dict[str, Any]:
        """The median epoch after the first (its components sum to it), mean bytes after the first, best accuracies."""
        seconds: dict[str, float] = (typical_epoch(self.epochs) or {"seconds": {}})["seconds"]
        best = _best(self.epochs)
        return {
            "epoch_seconds": seconds.get("epoch"),
            "seconds": seconds,
            "bytes_per_epoch": _mean_bytes(self.epochs),
            "peak_memory": max((max(e["peak_memory"], default=0) for e in self.epochs), default=0),
            "final_loss": self.epochs[-1]["loss"] if self.epochs else None,
            "best_val": best.get("val"),
            "test_at_best_val": best.get("test"),
            "best_test": max((e["test"] for e in self.epochs if e["test"] is not None), default=None),
        }

    def to_dict(self) -> dict[str, Any]:
        """The whole record, ready for JSON."""
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "state": self.state,
            "message": self.message,
            "config": self.config.flat(),
            "environment": {**environment(), "inputs": self.inputs},
            "graph": self.graph,
            "facts": self.facts,
            "epochs": self.epochs,
            "summary": self.summary(),
        }

    def encoded(self) -> bytes:
        """The content of the result file."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=1)

    def save(self, folder: Path) -> Path:
        """Write `<folder>/<run id>.json` atomically; returns the path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.run_id}.json"
        write_atomically(path, self.encoded())
        return path


AHEAD_OF_EPOCHS = 16 << 20
"""Bytes of disk that a result takes at a time, before the epochs that need them: some thousands."""


class ResultFile:
    """The file of one run's result, `<folder>/<run id>.json`: in its context there is space for it on the disk.

    A full disk then loses no epoch that was computed. Space is taken for the epochs to come as the run goes on, not
    for all at once: it may be told to train for millions and be stopped. Folders that it made are removed again where
    nothing is written.
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config, self.path = config, folder / f"{config.run_id()}.json"
        self._made: list[Path] = []
        self._reserved: Reserved | None = None
        self._room = 0  # bytes

    def __enter__(self) -> ResultFile:
        """Take the space. Raises InputError where there is too little, or the folder cannot be written to."""
        folder = self.path.parent
        self._made = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._room = self._needed(0)
            self._reserved = Reserved(self.path, self._room)
        except OSError as error:
            self._clear()
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None
        return self

    def make_room(self, epochs: int) -> None:
        """Take the space of the epoch that follows so many. Raises InputError where the disk is full."""
        assert self._reserved is not None
        if self._size(epochs + 1) <= self._room:
            return
        try:
            self._reserved.grow(self._needed(epochs))
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}; it has the epochs so far") from None
        self._room = self._needed(epochs)

    def write(self, result: Result) -> None:
        """Write the result; call once, in the context. Raises InputError if the disk refuses it all the same."""
        assert self._reserved is not None
        try:
            self._reserved.write(result.encoded())
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None

    def __exit__(self, *_: object) -> None:
        assert self._reserved is not None
        self._reserved.close()
        self._clear()

    def _clear(self) -> None:
        """Remove the folders that were made, as far as they are empty."""
        for place in self._made:
            with contextlib.suppress(OSError):
                place.rmdir()

    def _needed(self, epochs: int) -> int:
        """Bytes to take after so many epochs: for the next one, and more in one go."""
        return min(self._size(self.config.training.epochs), self._size(epochs + 1) + AHEAD_OF_EPOCHS)

    def _size(self, epochs: int) -> int:
        """More bytes than a result of so many epochs has: each has a line for each layer, component and rank."""
        config = self.config
        epochs = min(epochs, config.training.epochs)
        ranks = 256 * config.cut.parts  # `rank_seconds`
        return 64 * 1024 + ranks + epochs * (4096 + 64 * config.model.layers + 32 * config.cut.parts)


def environment() -> dict[str, Any]:
    """Machine and versions, for the record."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": core_count(),
        "versions": versions,
    }


def typical_epoch(epochs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The epoch of median duration after the first; the shorter of the middle two if their number is even, and None
    where no epoch has seconds."""
    timed = [e for e in epochs if e["seconds"]]
    steady = sorted(timed[1:] or timed, key=lambda e: float(e["seconds"]["epoch"]))
    return steady[(len(steady) - 1) // 2] if steady else None


def _best(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    judged = [e for e in epochs if e["val"] is not None]
    return max(judged, key=lambda e: e["val"]) if judged else {}


def _mean_bytes(epochs: list[dict[str, Any]]) -> float | None:
    """Mean over the epochs after the first, because the traffic of caches and trends differs between epochs."""
    steady = epochs[1:] or epochs
    return statistics.fmean(_total_bytes(epoch) for epoch in steady) if steady else None


def _total_bytes(epoch: dict[str, Any]) -> int:
    b = epoch["bytes"]
    return int(sum(b["forward"]) + sum(b["backward"]) + b["reduce"] + b["other"])


def merge(ranks: list[RankResult], depth: int, tiers: list[str], tier_of: np.ndarray) -> list[dict[str, Any]]:
    """One record per epoch from the records of all ranks.

    Seconds are means over ranks; the epoch is that of the slowest rank, and the idle time of the others counts as
    `wait`, so that the components sum to the epoch. Bytes are sums over ranks. `tier_of[from][to]` indexes `tiers`.
    """
    return [_merge_epoch([r.epochs[at] for r in ranks], depth, tiers, tier_of) for at in range(len(ranks[0].epochs))]


def rank_seconds(
    ranks: Sequence[Sequence[Mapping[str, float]]], epochs: list[dict[str, Any]]
) -> dict[str, list[float]]:
    """Seconds of every rank in the typical one of the merged `epochs`, to 9 digits: component -> [ranks]; empty where
    there is none.

    What a rank waited at the end of the epoch for the slowest one is not in them.

    `ranks`: seconds of every rank by epoch.
    """
    typical = typical_epoch(epochs)
    if typical is None:
        return {}
    at = next(number for number, epoch in enumerate(epochs) if epoch is typical)
    seconds = [rank[at] for rank in ranks]
    names = [name for name in ("epoch", *COMPONENTS, "hidden") if any(each.get(name) for each in seconds)]
    return {name: [float(f"{each.get(name, 0.0):.9g}") for each in seconds] for name in names}


def _merge_epoch(parts: list[RankEpoch], depth: int, tiers: list[str], tier_of: np.ndarray) -> dict[str, Any]:
    from harness.nn import micro_f1  # imports torch, which reading results does not need

    scores: list[float | None] = [None, None, None]
    counts = parts[0].counts
    if counts is not None:
        scores = [micro_f1(row) for row in counts]
    by_tier = dict.fromkeys(tiers, 0)
    for part, codes in zip(parts, tier_of, strict=False):
        sent = np.frombuffer(part.to, np.int64)
        code = codes[: len(sent)]
        for number, name in enumerate(tiers):
            by_tier[name] += int(sent[code == number].sum())
    flat = {name: sum(sum(p.layers.get(name, {}).values()) for p in parts) for name in ("reduce", "other")}
    layered = {
        name: [sum(p.layers.get(name, {}).get(l, 0) for p in parts) for l in range(depth)]
        for name in ("forward", "backward")
    }
    return {
        "epoch": parts[0].epoch,
        "loss": parts[0].loss,
        "train": scores[0],
        "val": scores[1],
        "test": scores[2],
        "seconds": _merge_seconds(parts),
        "bytes": {**layered, **flat, "others": _merge_others(parts), "tiers": by_tier},
        "peak_memory": [p.peak_memory for p in parts],
        "observed": _merge_observed(parts),
    }


def _merge_others(parts: list[RankEpoch]) -> dict[str, int]:
    """Bytes of direction "other" over all ranks, by what they are."""
    names = sorted({name for p in parts for name in p.others})
    return {name: sum(p.others.get(name, 0) for p in parts) for name in names}


def _merge_observed(parts: list[RankEpoch]) -> dict[str, float]:
    """Every observed ratio over all ranks, without ratios whose whole is zero."""
    names = sorted({name for p in parts for name in p.observed})
    sums = {name: [sum(p.observed.get(name, [0.0, 0.0])[at] for p in parts) for at in (0, 1)] for name in names}
    return {name: part / whole for name, (part, whole) in sums.items() if whole}


def _merge_seconds(parts: list[RankEpoch]) -> dict[str, float]:
    if not parts[0].seconds:
        return {}
    mean = {name: statistics.fmean(p.seconds.get(name, 0.0) for p in parts) for name in (*COMPONENTS, "hidden")}
    epoch = max(p.seconds["epoch"] for p in parts)
    idle = epoch - sum(mean[name] for name in COMPONENTS)
    mean["wait"] += idle if idle > 1e-9 * epoch else 0.0  # less is rounding
    return {"epoch": epoch, **mean}


def load_result(path: Path) -> dict[str, Any]:
    """A result file as a dict. Raises InputError if it is not one."""
    try:
        record = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot read result {path}: {reason}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a haloscope result of schema {SCHEMA}")
    try:
        whole = msgspec.convert(record, _Whole)
        if "interval" in whole.facts:
            _check_draws(msgspec.convert(whole.facts["interval"], _Interval))
    except msgspec.ValidationError as error:
        raise InputError(f"result {path} is damaged: {error}") from None
    return {**msgspec.structs.asdict(whole), **record}


class _Config(msgspec.Struct):
    """What commands read of the config of a result, whatever its version."""

    method: str
    mode: str
    cluster: str
    dataset: str
    model: str
    layers: int
    hidden: int
    parts: int


_Positive = Annotated[float, msgspec.Meta(gt=0.0)]


class _Input(msgspec.Struct):
    """An uncertain input of an interval."""

    source: str


class _Interval(msgspec.Struct):
    """What commands read of the interval of a prediction."""

    share: float
    replays: int
    seconds: dict[str, tuple[float, float]]
    ratios: list[_Positive]
    inputs: list[_Input]
    depth: str = ""


def _check_draws(interval: _Interval) -> None:
    if len(interval.ratios) != interval.replays:
        raise msgspec.ValidationError(f"{len(interval.ratios)} ratios of {interval.replays} replays")


class _Whole(msgspec.Struct):
    """What every result has; a record that was written by hand for its rates may lack what has a default."""

    run_id: str
    config: _Config
    epochs: list[dict[str, Any]]
    state: str = ""
    message: str = ""
    environment: dict[str, Any] = {}
    graph: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    summary: dict[str, Any] = {}


@dataclass(frozen=True)
class Collected:
    """The results of a folder.

    Attributes:
        frame: a row per epoch, with the config beside it.
        without_epochs: run id -> state and message of results that have no epoch, such as of runs that did not fit.
        unreadable: one line for every file that is not a whole result.
    """

    frame: pd.DataFrame
    without_epochs: dict[str, str]
    unreadable: tuple[str, ...]


def collect(folder: Path) -> Collected:
    """All results of a folder."""
    import pandas as pd  # here, because it takes a sixth of a rank's import time

    frames, empty, unreadable = [], dict[str, str](), list[str]()
    for path in sorted(folder.glob("*.json")):
        try:
            record = load_result(path)
        except InputError as error:
            unreadable.append(str(error))
            continue
        if not record["epochs"]:
            empty[record["run_id"]] = ": ".join(filter(None, (record["state"], record["message"])))
            continue
        frame = pd.json_normalize(record["epochs"])
        for key, value in record["config"].items():
            frame[f"config.{key}"] = value
        frames.append(frame.assign(run_id=record["run_id"], state=record["state"]))
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    return Collected(frame, empty, tuple(unreadable))
