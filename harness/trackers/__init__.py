"""Results in the formats of experiment trackers: MLflow, Weights & Biases, TensorBoard.

`_scalars` says what of a result is a parameter, a value of an epoch, or a value of the whole run, the same for all of
them; a file for each tracker writes that. Nothing here needs a tracker's package but TensorBoard's event files, which
its own writer makes.
"""

from __future__ import annotations

from harness.trackers._exported import TRACKERS, checked_tracker, export_records
from harness.trackers._scalars import TrackedRun, tracked_run
from harness.trackers._wandb import log_to_wandb

__all__ = ["TRACKERS", "TrackedRun", "checked_tracker", "export_records", "log_to_wandb", "tracked_run"]
