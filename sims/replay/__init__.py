"""What ranks did, without the numbers: recorded, played again on other clusters, repeated, drawn as a timeline."""

from sims.replay._recording import FORMAT, Recorder, Recording, load
from sims.replay._repeats import Repeats
from sims.replay._replay import Replay, record, record_placed, refusal
from sims.replay._timeline import traced

__all__ = [
    "FORMAT",
    "Recorder",
    "Recording",
    "Repeats",
    "Replay",
    "load",
    "record",
    "record_placed",
    "refusal",
    "traced",
]
