"""`haloscope export`: result files into the formats of experiment trackers."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.shared.cells import writable
from harness.console import show, stdout
from harness.errors import InputError
from harness.running.results import load_result
from harness.trackers import TrackedRun, checked_tracker, export_records, tracked_run

PLACES = {"mlflow": "mlruns", "wandb": "wandb", "tensorboard": "tb"}
"""Where each tracker's own tools look first."""


def main(args: argparse.Namespace) -> int:
    """Write every result."""
    folder = args.out or Path(PLACES[args.to])
    checked_tracker(args.to)
    writable(folder, folder=True)
    runs, left_out = tracked_runs(args.results)
    written = export_records(runs, args.to, folder, args.title)
    if not args.quiet:
        show([f"{len(written)} runs -> {folder}", *left_out, *next_lines(args.to, folder)], stdout())
    return 0


def tracked_runs(places: list[Path]) -> tuple[list[TrackedRun], list[str]]:
    """The results of files and folders, finished when their files were written; why files of a folder are left out.

    Raises:
        InputError: a file that is no result, a folder that is not there, or no result at all.
    """
    runs, left_out = list[TrackedRun](), list[str]()
    for place in places:
        if not place.exists():
            raise InputError(f"{place}: no such result file or folder of results")
        for path in sorted(place.glob("*.json")) if place.is_dir() else [place]:
            try:
                runs.append(tracked_run(load_result(path), path))
            except InputError as error:
                if not place.is_dir():
                    raise
                left_out.append(f"left out: {error}")
    if not runs:
        raise InputError(f"{', '.join(map(str, places))}: no result files there ({len(left_out)} that are no results)")
    return runs, left_out


def next_lines(tracker: str, folder: Path) -> list[str]:
    """How the tracker takes what was written."""
    return {
        "mlflow": [
            f"mlflow migrate-filestore --source {folder} --target sqlite:///mlflow.db",
            f"or read as it is: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}",
        ],
        "wandb": ["to log to W&B itself: import harness; harness.load_results(FOLDER).log_to_wandb(project=NAME)"],
        "tensorboard": [f"tensorboard --logdir {folder}"],
    }[tracker]
