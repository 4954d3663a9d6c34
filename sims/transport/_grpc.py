"""gRPC: parameter servers and pulls of neighbour rows, point to point.

Every transfer is a call: a request whose response contains the bytes (a pull), or the bytes followed by an
acknowledgement (a push). Each rank serves the range of the parameters with its number, so that an all-reduce is a push
of every range to its server and a pull of the sums (EC-Graph, Sec. III: range-based partition of parameters).
"""

from __future__ import annotations

import numpy as np

from harness.effects import Broadcast
from sims.transport._collectives import Bytes, Library, Operation, Waits


class Grpc(Library):
    """Calls between host memories. All-reduce is always push and pull.

    A response says its own length: counts that only the sender knows travel inside it, not in a call before it.
    """

    software = "ec-graph"
    counts_first = False

    def latency(self, src: Bytes, dst: Bytes, nbytes: Bytes, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """The round trip."""
        placement = self.wire.placement
        both: np.ndarray = placement.route_latencies(head, tail)
        both += placement.route_latencies(*placement.segments_of(dst, src))
        return both

    def broadcast(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        """All members of the group pull from the root."""
        nbytes = effect.tensor.numel() * effect.tensor.element_size()
        outgoing, incoming = np.zeros(self.wire.size, np.int64), np.zeros(self.wire.size, np.int64)
        if rank == effect.root:
            outgoing[effect.members(self.wire.size)] = nbytes
            outgoing[rank] = 0
        else:
            incoming[effect.root] = nbytes
        yield from self.wire.round(operation, (0,), rank, outgoing, incoming)
