"""The formats by name, and the one call that writes results in any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import InputError, unknown
from harness.trackers._mlflow import write_mlflow
from harness.trackers._scalars import TrackedRun
from harness.trackers._tensorboard import check_tensorboard, write_tensorboard
from harness.trackers._wandb import write_wandb

TRACKERS: dict[str, Callable[[Sequence[TrackedRun], Path, str], list[Path]]] = {
    "mlflow": write_mlflow,
    "wandb": write_wandb,
    "tensorboard": write_tensorboard,
}
"""Name -> what writes runs into a folder, under the title of their experiment."""


def checked_tracker(tracker: str) -> str:
    """The name of a tracker. Raises InputError for an unknown one, or one that lacks its package."""
    if tracker not in TRACKERS:
        raise unknown("tracker", tracker, TRACKERS)
    if tracker == "tensorboard":
        check_tensorboard()
    return tracker


def export_records(runs: Sequence[TrackedRun], tracker: str, folder: Path, title: str = "haloscope") -> list[Path]:
    """Write runs in the format of a tracker; returns what was written, a folder per run. Writing again replaces.

    Args:
        title: name of the experiment (W&B: project) that they belong to; one folder.

    Raises:
        InputError: an unknown tracker, one that lacks its package, or a folder that cannot be written.
    """
    write = TRACKERS[checked_tracker(tracker)]
    if not title or title in (".", "..") or "/" in title:
        raise InputError(f"title {title!r}: the name of an experiment is a name of a folder")
    try:
        return write(runs, folder, title)
    except OSError as error:
        raise InputError(f"cannot write {error.filename or folder}: {error.strerror}") from None
