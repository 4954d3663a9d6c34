"""NCCL: rings, trees and sums in NVLink switches, a pipelined broadcast, and grouped sends and receives in rounds.

An all-reduce takes the algorithm and protocol of least time in NCCL's own tuning model, whose constants are in
`presets/nccl.toml` (`_tuning`). What it then puts on the network are flows over the links that its rings or trees
cross (`_communicator`), so that other traffic shares them; a protocol's flags and padding travel along, but links count
the payload. A group of ranks has a communicator of its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numba import njit

from harness.effects import AllReduce, Broadcast, Collective
from sims.transport._collectives import Bytes, Library, Operation, Waits, Wire
from sims.transport._communicator import Communicator
from sims.transport._tuning import Tuning, load_tuning


class Nccl(Library):
    """NCCL: transfers between device memories.

    Simplification: the rounds of grouped sends and receives (`latency`) are those of a communicator of all ranks, also
    where they belong to an all-reduce in rank order of a group.
    """

    staged = False
    software = "h100-8"
    communicators: ClassVar[type[Communicator]] = Communicator
    queued: ClassVar[bool] = False
    """Whether operations follow each other closely (`Communicator`)."""

    @classmethod
    def tuning(cls) -> Tuning:
        return load_tuning()

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        place, cluster = wire.placement, wire.placement.cluster
        self.constants: Tuning = cluster.constants or load_tuning()
        self.hosts = len(place.ranks_on_host)
        self._per_host = int(place.ranks_on_host.max())
        self._intra = "nvlink" if {"peer", "mesh"} & set(cluster.links) else "pci"
        self._communicators: dict[tuple[int, ...] | None, Communicator] = {}

    def latency(self, src: Bytes, dst: Bytes, nbytes: Bytes, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """The start of the kernel, the hops up to the transfer's own round, and the time to fill its first chunk.

        Short messages go under LL, others under Simple; a kernel starts as that of a ring does. A rank serves as many
        peers at once as it has channels, in NCCL's order: by distance of hosts, then of devices. Rounds follow each
        other without a gap, so that the cost of a round is its hop.
        """
        place, grouped = self.wire.placement, self.constants.grouped
        near = "chunk_nvlink" if self._intra == "nvlink" else "chunk"
        seconds: np.ndarray = _grouped(
            src, dst, nbytes, place.host, place.slot, place.route_latencies(head, tail),
            place.route_capacities(head, tail), self.hosts, self._per_host, int(grouped["peers"].value),
            self._grouped_steps(), grouped["LL"].value, grouped[near].value, grouped["chunk"].value,
        )  # fmt: skip
        return seconds

    def _grouped_steps(self) -> np.ndarray:
        """Seconds of the start, of a hop in the host and of one between hosts; of short and of long messages."""
        ring, steps = self.constants.seconds["ring"], ("base", self._intra, "network")
        return np.asarray([[ring[step][protocol].value for step in steps] for protocol in ("LL", "Simple")])

    def all_reduce(self, operation: Operation, rank: int, effect: AllReduce) -> Waits:
        """In rank order, or by NCCL's fastest algorithm."""
        if effect.deterministic:
            yield from super().all_reduce(operation, rank, effect)
            return
        nbytes, among = effect.tensor.numel() * effect.tensor.element_size(), self.communicator(effect)
        yield from self.wire.together(operation, rank, lambda: among.fastest(nbytes, ("ring", "tree", "nvls")))

    def broadcast(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        """Pipelined along the rings from the root."""
        nbytes, among = effect.tensor.numel() * effect.tensor.element_size(), self.communicator(effect)
        yield from self.wire.together(operation, rank, lambda: among.fastest(nbytes, (f"from {effect.root}",)))

    def communicator(self, effect: Collective) -> Communicator:
        """The communicator of a collective's ranks."""
        if effect.among not in self._communicators:
            self._communicators[effect.among] = self.communicators(
                effect.members(self.wire.size), self.wire.placement, self.wire.network.capacity, self.constants,
                self._intra, self.queued,
            )  # fmt: skip
        return self._communicators[effect.among]


@njit(cache=True, nogil=True)
def _grouped(
    src: Bytes,
    dst: Bytes,
    nbytes: Bytes,
    host: np.ndarray,
    slot: np.ndarray,
    latency: np.ndarray,
    bandwidth: np.ndarray,
    hosts: int,
    per_host: int,
    peers: int,
    steps: np.ndarray,
    short: float,
    near_chunk: float,
    far_chunk: float,
) -> np.ndarray:
    """`Nccl.latency` of transfers; chunks are rounded to powers of two.

    With that, transfers of many sizes that begin together cause few events of the network.

    `steps`: seconds of the start, of a hop in the host and of one between hosts; up to `short` bytes, and beyond.
    """
    seconds = np.empty(src.shape[0])
    for at in range(src.shape[0]):
        away, apart = host[dst[at]] - host[src[at]], slot[dst[at]] - slot[src[at]]
        turn = (away % hosts * per_host + apart % per_host - 1) // peers
        start, near, far = steps[0 if nbytes[at] <= short else 1]
        hop, chunk = (near, near_chunk) if away == 0 else (far, far_chunk)
        filled = 1.0
        while filled < min(nbytes[at], chunk):
            filled *= 2
        seconds[at] = start + (turn + 1) * max(hop, latency[at]) + filled / bandwidth[at]
    return seconds
