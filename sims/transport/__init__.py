"""Communication libraries: how gloo, NCCL and gRPC lower an effect to transfers, and their software costs.

Contains `presets/*.toml`. `Transport` is the entry point; each library has its own file, and one line in `LIBRARIES`.
Other packages use the entry-point group `haloscope.transports`: a subclass of `Library`.
"""

from sims.transport._collectives import Flows, Library, Operation, Waits, Wire
from sims.transport._transport import LIBRARIES, Transport, incoming_bytes
from sims.transport._tuning import TransportFile

__all__ = [
    "Flows",
    "LIBRARIES",
    "Library",
    "Operation",
    "Transport",
    "TransportFile",
    "Waits",
    "Wire",
    "incoming_bytes",
]
