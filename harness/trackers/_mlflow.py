"""MLflow's file store: a folder that `mlflow migrate-filestore` imports, and that MLflow reads as it is.

The layout is that of MLflow's file store, which is kept for old data: a folder an experiment with `meta.yaml`, in it a
folder a run with `meta.yaml`, `params/NAME`, `metrics/NAME` (lines of milliseconds since 1970, value and step) and
`tags/NAME`. YAML is written as JSON, which it contains.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.machine import write_atomically
from harness.trackers._scalars import TrackedRun

FINISHED, FAILED = 3, 4
"""MLflow's numbers of states."""

LONGEST = 6000
"""Characters that MLflow allows in the value of a parameter."""

NOT_ALLOWED = re.compile(r"[^\w\-. /]|(?<![^/])\.{1,2}(?![^/])|(?<![^/])(?=/)|(?<![^/])$")
"""What a name may not contain: odd characters, and parts that are no name of a file."""


def write_mlflow(runs: Sequence[TrackedRun], folder: Path, title: str) -> list[Path]:
    """Write the runs as one experiment of a file store at `folder`; returns a folder per run.

    A run that is there already is written again; those of other results stay.
    """
    number = str(int(hashlib.sha256(title.encode()).hexdigest()[:15], 16))
    place = folder / number
    first = min((_milliseconds(run) for run in runs), default=0)
    _yaml(
        place / "meta.yaml",
        {
            "artifact_location": place.resolve().as_uri(), "creation_time": first, "experiment_id": number,
            "last_update_time": first, "lifecycle_stage": "active", "name": title,
        },
    )  # fmt: skip
    return [_write_run(run, place, number) for run in runs]


def _write_run(run: TrackedRun, experiment: Path, number: str) -> Path:
    place, now = experiment / run.run_id, _milliseconds(run)
    for each in ("params", "metrics", "tags", "artifacts"):
        (place / each).mkdir(parents=True, exist_ok=True)
    for name, value in run.parameters().items():
        _text(place / "params" / NOT_ALLOWED.sub("_", name), str(value)[:LONGEST])
    lines: dict[str, list[str]] = {}
    for step, values in [*run.series(), (0, run.summary())]:
        for name, value in values.items():
            lines.setdefault(NOT_ALLOWED.sub("_", name), []).append(f"{now} {value!r} {step}\n")
    for name, written in lines.items():
        _text(place / "metrics" / name, "".join(written))
    tags = {"mlflow.runName": run.name, "mlflow.note.content": run.record["message"], "run_id": run.record["run_id"]}
    for name, value in tags.items():
        _text(place / "tags" / name, str(value))
    seconds = sum(values.get("seconds/epoch", 0.0) for _, values in run.series())
    measured = run.record["config"]["mode"] == "real"
    about = {
        "artifact_uri": (place / "artifacts").resolve().as_uri(), "deleted_time": None, "end_time": now,
        "entry_point_name": "", "experiment_id": number, "lifecycle_stage": "active", "run_id": run.run_id,
        "run_name": run.name, "run_uuid": run.run_id, "source_name": "", "source_type": 4, "source_version": "",
        "start_time": now - round(seconds * 1000) * measured, "status": FINISHED if run.done else FAILED, "tags": [],
        "user_id": "haloscope",
    }  # fmt: skip
    _yaml(place / "meta.yaml", about)
    return place


def _milliseconds(run: TrackedRun) -> int:
    return round(run.time * 1000)


def _yaml(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n", durable=False)


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)  # names with a slash are folders
    write_atomically(path, text.encode(), durable=False)  # some fifty files a run, all from a file that stays
