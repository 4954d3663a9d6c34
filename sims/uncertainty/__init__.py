"""How sure a prediction is: ranges of its inputs, intervals of epochs by replay, and which inputs matter most."""

from sims.uncertainty._draws import Draws
from sims.uncertainty._inputs import PACE, Input, inputs_of
from sims.uncertainty._interval import (
    FEWEST_REPLAYS,
    REPLAYS,
    RecordedPrediction,
    interval_of,
    left_open_on,
    replays_for,
)
from sims.uncertainty._predict import predicted, prediction_of, recorded_epochs

__all__ = [
    "FEWEST_REPLAYS",
    "PACE",
    "REPLAYS",
    "Draws",
    "Input",
    "RecordedPrediction",
    "inputs_of",
    "interval_of",
    "left_open_on",
    "predicted",
    "prediction_of",
    "recorded_epochs",
    "replays_for",
]
