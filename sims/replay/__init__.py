"""Recordings of what ranks did, without tensor values: replayed on other clusters, repeated, drawn as a timeline."""

from sims.replay._device_choices import on_device
from sims.replay._recording import RECORDING_FORMAT, Recorder, Recording, load_recording
from sims.replay._repeats import Repeats
from sims.replay._replay import Changes, Replay, enough_epochs, needed, record, record_placed, refusal, unchanged
from sims.replay._timeline import traced

__all__ = [
    "RECORDING_FORMAT",
    "Changes",
    "Recorder",
    "Recording",
    "Repeats",
    "Replay",
    "enough_epochs",
    "load_recording",
    "needed",
    "on_device",
    "record",
    "record_placed",
    "refusal",
    "traced",
    "unchanged",
]
