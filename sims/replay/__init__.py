"""Recordings of what ranks did, without tensor values: replayed on other clusters, repeated, drawn as a timeline."""

from sims.replay._device_choices import on_device
from sims.replay._recording import RECORDING_FORMAT, Recorder, Recording, load_recording
from sims.replay._repeats import Repeats
from sims.replay._replay import Changes, Replay, needed, record, record_placed, refusal, unchanged
from sims.replay._settled import SettledEpochs, settled_epochs
from sims.replay._timeline import traced

__all__ = [
    "RECORDING_FORMAT",
    "Changes",
    "Recorder",
    "Recording",
    "Repeats",
    "Replay",
    "SettledEpochs",
    "load_recording",
    "needed",
    "on_device",
    "record",
    "record_placed",
    "refusal",
    "settled_epochs",
    "traced",
    "unchanged",
]
