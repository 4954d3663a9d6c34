"""One run of one config, or its earlier result; where results and tables are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness import running
from harness.console import count_progress, progress_of, show, stderr, stdout
from harness.errors import InputError
from harness.kernels.first_use import compiling_said
from harness.machine import write_atomically
from harness.running import Checkpoints, OpenedRun, prepare, results
from sims.study import SimulatedCluster
from sims.uncertainty import interval_of, predicted, recorded_epochs

Reuse = Literal["same", "any"]
"""Whether a result counts with the code of now, and a measured one here alone; or whatever code made it, and where."""

PLACE_AND_CODE = ("host", "libraries", "code", "method", "simulator")
"""Inputs that say where and by which code a result was made, not of what."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its record, the path of its result file, and whether the result is from an earlier run."""

    record: dict[str, Any]
    path: Path
    reused: bool

    def location(self) -> str:
        """The line that names the result file."""
        return f"result: {self.path}" + (f" (finished earlier{self._where()}; --force runs it again)" * self.reused)

    def _where(self) -> str:
        host = self.record["environment"].get("inputs", {}).get("host", "")
        return f" on {host}" if host else ""


def run_or_reuse(
    opened: OpenedRun,
    out: Path,
    *,
    force: bool = False,
    reuse: Reuse = "same",
    quiet: bool = False,
    title: str = "",
    checkpoints: Checkpoints | None = None,
    replays: int = 0,
) -> FinishedRun:
    """Carry out a run, unless `out` holds its finished result; writes the result.

    Args:
        replays: of the interval that a prediction gets; 0 for none.

    Raises:
        InputError: bad input; raised before anything is written.
        HaloscopeError: the run failed; its result says so too (`running.run_opened`).
    """
    config = opened.config
    path = out / f"{config.run_id()}.json"
    if not force:
        record = finished(path, lambda: opened, reuse=reuse)
        if record is not None:
            return FinishedRun(record_with_interval(record, opened, path, replays, quiet), path, reused=True)
    with (
        compiling_said(_nothing if quiet else _say),
        progress_of(title or f"{config.training.method}, {config.run.mode}", config.training.epochs, quiet) as progress,
    ):
        running.run_opened(opened, progress, checkpoints, results.ResultFile(config, out))
    record = results.load_result(path)
    return FinishedRun(record_with_interval(record, opened, path, replays, quiet), path, reused=False)


def record_with_interval(
    record: dict[str, Any], opened: OpenedRun, path: Path, replays: int, quiet: bool
) -> dict[str, Any]:
    """The record of a prediction with its 90 % interval, which is also written; any other record as it is.

    With 0 replays an interval that is kept in the file is left out of the record.
    """
    if not replays:
        return without_interval(record)
    driver, seconds = opened.driver, record["summary"]["seconds"]
    known = record["facts"].get("interval", {}).get("replays", 0)
    if not isinstance(driver, SimulatedCluster) or not seconds or known == replays:
        return record
    config = opened.config
    if opened.plan.method.facts.timed:
        return record  # a recording is valid for its own times only
    method = config.training.method
    with progress_of(f"recording {method} for its interval", recorded_epochs(config), quiet) as progress:
        made = predicted(config, driver.placement, progress)
    with count_progress(f"replays for the interval of {method}", 1 + replays, quiet) as replayed:
        found = interval_of(replace(made, replayed=replayed), seconds, replays)
    record["facts"]["interval"] = found
    write_atomically(path, as_json(record))
    return record


def without_interval(record: dict[str, Any]) -> dict[str, Any]:
    """The record without the interval that a prediction may have."""
    return {**record, "facts": {name: fact for name, fact in record["facts"].items() if name != "interval"}}


def _say(line: str) -> None:
    show([line], stderr())


def _nothing(line: str) -> None:
    pass


def writable(path: Path | None, folder: bool) -> None:
    """Raise InputError if a file or folder could not be written, before any work is done. Creates nothing."""
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        raise InputError(f"{path} is {'not a folder' if folder else 'a folder'}; choose another place")
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK) or (nearest != path and not nearest.is_dir()):
        raise InputError(f"cannot write {path}: {nearest} is not writable")


def json_target(target: str | None) -> Path | None:
    """The file of `--json`, or None for stdout and without the flag. Raises InputError if it cannot be written."""
    path = None if target in (None, "-") else Path(str(target))
    writable(path, folder=False)
    return path


def as_json(content: Any) -> bytes:
    """Indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def deliver(content: Any, tables: list[Any], target: str | None, quiet: bool = False) -> None:
    """Write JSON to its target and tables to stdout, or to stderr if JSON goes to stdout."""
    if target is not None:
        if target == "-":
            stdout().file.write(as_json(content).decode())
        else:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(target), as_json(content))
    if not quiet:
        show(tables, stderr() if target == "-" else stdout())


def finished(
    path: Path, opening: Callable[[], OpenedRun], states: Collection[str] = ("done",), reuse: Reuse = "same"
) -> dict[str, Any] | None:
    """The record at `path` if it ended in one of `states` and is up to date: equal version, inputs, graph and code of
    the partitioner.

    None if there is no such record; the run is opened only where there may be one.

    Args:
        reuse: any also takes what was made by other code, or measured on another machine or with other libraries.
    """
    if not path.exists():
        return None
    try:
        record = results.load_result(path)
        made = record["environment"]
        if record["state"] not in states or made["versions"].get("haloscope") != _version() or "inputs" not in made:
            return None
        opened = opening()
        before, now = made["inputs"], opened.inputs()
        if reuse == "any":
            before, now = ({k: v for k, v in inputs.items() if k not in PLACE_AND_CODE} for inputs in (before, now))
        if before != now:
            return None
        cut = record["graph"].get("partition", {}).get("code", "")
        fingerprint, cut_by = prepare(opened.config, opened.plan.cut).made_of()
        same = record["graph"].get("fingerprint") == fingerprint and (reuse == "any" or cut == cut_by)
        return record if same else None
    except InputError:
        return None  # not a result, or its inputs cannot be read: a new run reports the error


def _version() -> str | None:
    try:
        return version("haloscope")
    except PackageNotFoundError:
        return None
