"""From a config to a prediction whose uncertainty can be asked for: a recording of a few epochs."""

from __future__ import annotations

from collections.abc import Collection

from harness.config import RunConfig
from harness.running import Progress, plan_of
from sims.cluster import Placement
from sims.replay import Replay, record_placed, settled_epochs
from sims.uncertainty._inputs import inputs_of
from sims.uncertainty._interval import RecordedPrediction


def recorded_epochs(config: RunConfig) -> int:
    """How many epochs `predicted` records of a config."""
    return min(settled_epochs(config).recorded, config.training.epochs)


def predicted(config: RunConfig, placement: Placement, progress: Progress | None = None) -> RecordedPrediction:
    """Record as many epochs of a config as its times settle in, and collect the uncertain inputs.

    Raises:
        InputError: as `sims.replay.record`.
    """
    short = config.changed(epochs=recorded_epochs(config), eval_every=-1, mode="sim")
    return prediction_of(short, Replay(record_placed(plan_of(short), placement, progress)), placement)


def prediction_of(
    config: RunConfig, replay: Replay, placement: Placement, exact: Collection[str] = ()
) -> RecordedPrediction:
    """The same of a recording that exists; `exact`: names of inputs that are given."""
    cluster = placement.cluster
    inputs = inputs_of(cluster, replay.recording.graph, exact, config.model.precision)
    return RecordedPrediction(config, replay, cluster, inputs)
