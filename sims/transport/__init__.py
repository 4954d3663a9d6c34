"""Communication libraries: how gloo, NCCL and gRPC lower an effect to transfers, and their software costs.

Contains `presets/*.toml`. `Transport` is the entry point; each library has its own file.
"""

from sims.transport._collectives import Operation
from sims.transport._transport import Transport, incoming_bytes
from sims.transport._tuning import TransportFile, load_tuning

__all__ = [
    "Operation",
    "Transport",
    "TransportFile",
    "incoming_bytes",
    "load_tuning",
]
