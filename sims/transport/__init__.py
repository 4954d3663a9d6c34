"""Communication libraries: how gloo, NCCL and gRPC lower an effect to transfers, and their software costs.

Contains `presets/*.toml`. `Transport` is the entry point; each library has its own file.
"""

from sims.transport._collectives import Operation
from sims.transport._nccl import load_tuning
from sims.transport._transport import Transport, incoming_bytes

__all__ = [
    "Operation",
    "Transport",
    "incoming_bytes",
    "load_tuning",
]
