"""TensorBoard: a folder of event files per run, written by the package itself (the extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.trackers._scalars import TrackedRun

EVENTS = "events.out.tfevents.*"


def check_tensorboard() -> None:
    """Raises InputError where the package is not there."""
    if find_spec("tensorboard") is None:
        raise InputError("TensorBoard's files need its package: pip install 'haloscope[tensorboard]'")


def write_tensorboard(runs: Sequence[TrackedRun], folder: Path, title: str) -> list[Path]:
    """Write a folder per run with a scalar per value and epoch, and the settings as text; earlier files go.

    Raises:
        InputError: the package is not there.
    """
    check_tensorboard()
    return [_write_run(run, folder / title / run.run_id[:12]) for run in runs]


def _write_run(run: TrackedRun, place: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    for path in place.glob(EVENTS):  # TensorBoard would draw both
        path.unlink()
    writer: Any = SummaryWriter(str(place))
    try:
        rows = "".join(f"| {name} | {value} |\n" for name, value in run.parameters().items())
        writer.add_text("settings", f"{run.name}\n\n| setting | value |\n|---|---|\n{rows}", 0, run.time)
        for step, values in [*run.series(), (0, run.summary())]:
            for name, value in values.items():
                writer.add_scalar(name, value, step, run.time)
    finally:
        writer.close()
    return place
