"""Weights & Biases: the files of a run as it keeps them (config, history, summary), or the runs logged through it.

W&B imports no files of others; `log_to_wandb` is the line that logs results with its package, offline or not. The files
are for everything else that reads its history as JSON lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import InputError
from harness.machine import write_atomically
from harness.trackers._scalars import TrackedRun


def write_wandb(runs: Sequence[TrackedRun], folder: Path, title: str) -> list[Path]:
    """Write a folder per run: `config.yaml`, `wandb-history.jsonl` (a line per epoch), `wandb-summary.json`."""
    return [_write_run(run, folder / title / f"run-{run.run_id}") for run in runs]


def _write_run(run: TrackedRun, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    config = {name: {"value": value} for name, value in run.parameters().items()}
    rows = [{"_step": step, "_timestamp": run.time, **values} for step, values in run.series()]
    last = {"_step": rows[-1]["_step"], "_timestamp": run.time} if rows else {}
    about = {"display_name": run.name, "state": "finished" if run.done else "failed"}
    contents = {
        "config.yaml": msgspec.json.format(msgspec.json.encode(config), indent=1),  # JSON is YAML
        "wandb-history.jsonl": b"".join(msgspec.json.encode(row) + b"\n" for row in rows),
        "wandb-summary.json": msgspec.json.encode({**last, **run.summary()}),
        "wandb-metadata.json": msgspec.json.encode(about),
    }
    for name, content in contents.items():
        write_atomically(place / name, content, durable=False)
    return place


def log_to_wandb(runs: Sequence[TrackedRun], project: str, **settings: Any) -> None:
    """Log every run through the package `wandb`, which has to be installed.

    Args:
        settings: more arguments of `wandb.init`, such as mode="offline" or group="sweep".

    Raises:
        InputError: the package is not there.
    """
    try:
        import wandb
    except ModuleNotFoundError:
        raise InputError("logging to W&B needs its package (pip install wandb); --to wandb writes files") from None
    for run in runs:
        with wandb.init(
            project=project, id=run.run_id, name=run.name, config=run.parameters(), **settings
        ) as logged:  # fmt: skip
            for step, values in run.series():
                logged.log(values, step=step)
            logged.summary.update(run.summary())
