"""gRPC: parameter servers and neighbours that are asked, point to point.

Every transfer is a call: a request goes out, the answer brings the bytes (a pull), or the bytes go out and are
acknowledged (a push). Each rank also serves the range of the parameters that has its number, so that an all-reduce is
a push of every range to its server and a pull of their sums (EC-Graph, Sec. III: range-based partition of parameters).
"""

from __future__ import annotations

import numpy as np

from harness.effects import Broadcast
from sims.transport._collectives import Bytes, Library, Operation, Waits


class Grpc(Library):
    """Calls between host memories. All-reduce is push and pull, whether or not the order of the sum matters."""

    software = "ec-graph"

    def latency(self, src: Bytes, dst: Bytes, nbytes: Bytes, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """There and back."""
        placement = self.wire.placement
        both: np.ndarray = placement.route_latencies(head, tail)
        both += placement.route_latencies(*placement.segments_of(dst, src))
        return both

    def broadcast(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        """Everyone pulls from the root."""
        nbytes = effect.tensor.numel() * effect.tensor.element_size()
        outgoing, incoming = np.zeros(self.wire.size, np.int64), np.zeros(self.wire.size, np.int64)
        if rank == effect.root:
            outgoing[:] = nbytes
            outgoing[rank] = 0
        else:
            incoming[effect.root] = nbytes
        yield from self.wire.round(operation, (0,), rank, outgoing, incoming)
