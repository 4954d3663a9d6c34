"""Carries effects over the network for the ranks of a placement, through the library that the cluster names.

What every library has in common is here: a rank's software cost per operation, the copy of the rows that it keeps, row
counts that only the sender knows (they travel first, in a round of their own), and the copies of a GPU's tensors to
host memory and back where the library wants them there: whole, before and after. How collectives become transfers is
the library's business (`sims.gloo`, `sims.nccl`, `sims.grpc`). Traffic is not counted here but by `harness.traffic`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import simpy

from harness.effects import (
    COUNT_BYTES,
    AllReduce,
    AllToAll,
    Broadcast,
    Effect,
    HostCopy,
    Recv,
    Send,
)
from sims.collectives import Library, Operation, Waits, Wire
from sims.device import DeviceProfile, Work
from sims.gloo import Gloo
from sims.grpc import Grpc
from sims.nccl import Nccl
from sims.network import FluidNetwork
from sims.placement import Placement
from sims.software import OPERATIONS

LIBRARIES: dict[str, type[Library]] = {"gloo": Gloo, "nccl": Nccl, "grpc": Grpc}

_NO_TAIL = np.zeros(1, np.int32)


class Transport:
    """Carries effects over a network for the ranks of a placement.

    Args:
        profiles: the ranks' devices, for copies in their memory.

    Attributes:
        start_s: seconds that a rank itself spends on an exchange that it starts, beside the flight.
    """

    def __init__(
        self, env: simpy.Environment, network: FluidNetwork, placement: Placement, profiles: Sequence[DeviceProfile]
    ) -> None:
        self.env, self.network, self.placement, self.profiles = env, network, placement, profiles
        spec = placement.cluster.transport
        self._operation_s = {kind: spec.seconds(kind, placement.size) for kind in OPERATIONS}
        self.start_s = self._operation_s["started"] if placement.size > 1 else 0.0
        self._copies: dict[tuple[int, bool], tuple[np.ndarray, np.ndarray]] = {}  # row and latency of a rank's copies
        self.wire = Wire(env, network, placement, spec.message.value)
        self.library = LIBRARIES[spec.kind](self.wire)

    def carry(self, operation: Operation, rank: int, effect: Effect) -> Waits:
        """What rank `rank` waits for, one event after the other, until its part of the effect is done."""
        size = self.placement.size
        if size == 1 and not isinstance(effect, AllToAll):
            return
        if size > 1 and self._operation_s[kind := _kind(effect)]:
            yield self.env.timeout(self._operation_s[kind])
        staged = self.placement.staged
        if staged:
            yield from self.copy(rank, staged_bytes(effect, rank), to_host=True)
        if isinstance(effect, AllToAll):
            yield from self._all_to_all(operation, rank, effect)
        elif isinstance(effect, AllReduce):
            yield from self.library.all_reduce(operation, rank, effect)
        elif isinstance(effect, Broadcast):
            yield from self.library.broadcast(operation, rank, effect)
        elif isinstance(effect, Send | Recv):
            yield from self._pair(operation, rank, effect)
        if staged:
            announced = operation.announced(rank)
            received = int(announced.sum()) if len(announced) else incoming_bytes(effect, rank)
            yield from self.copy(rank, received, to_host=False)

    def copy(self, rank: int, nbytes: int, *, to_host: bool) -> Waits:
        """A copy between the rank's device and host memory; nothing on a CPU."""
        profile = self.profiles[rank]
        if profile.kind != "gpu" or nbytes == 0:
            return
        if (rank, to_host) not in self._copies:
            routes = self.placement.copy_routes(np.asarray([rank]), to_host)
            latency = self.placement.latencies(routes) + profile.launch.value
            self._copies[rank, to_host] = self.network.row(routes), latency
        row, latency = self._copies[rank, to_host]
        group, done = self.network.group(1)
        self.network.add_lanes(row, _NO_TAIL, np.asarray([nbytes]), latency, np.asarray([[group, -1]]))
        yield done

    def _all_to_all(self, operation: Operation, rank: int, effect: AllToAll) -> Waits:
        size = self.placement.size
        sends, unknown = effect.outgoing, effect.unknown
        # Several parts are laid out in one buffer, and cut apart again; the rows that stay are copied by the library.
        several = len(effect.parts) > 1
        yield from self._copied(rank, int(sends.sum()) if several else int(sends[rank]))
        if unknown:
            operation.announce(rank, sends)
            header = np.full(size, unknown * COUNT_BYTES, np.int64)
            yield from self.library.exchange(operation, 0, rank, header, header)
            # Every rank has said what it sends by now, because all counts have arrived here.
            incoming = operation.announced(rank)
        else:
            incoming = effect.incoming
        yield from self.library.exchange(operation, 1, rank, sends, incoming)
        if several:
            yield from self._copied(rank, int(incoming.sum()))

    def _copied(self, rank: int, nbytes: int) -> Waits:
        """A copy in the memory of the rank's device."""
        if nbytes:
            profile = self.profiles[rank]
            yield self.env.timeout(profile.seconds(Work("copy", 2 * nbytes, name="cat")) + profile.host_launch)

    def _pair(self, operation: Operation, rank: int, effect: Send | Recv) -> Waits:
        outgoing, incoming = np.zeros(self.placement.size, np.int64), np.zeros(self.placement.size, np.int64)
        if isinstance(effect, Send):
            outgoing[effect.to] = effect.tensor.numel() * effect.tensor.element_size()
        else:
            incoming[effect.source] = effect.like.numel() * effect.like.element_size()
        yield from self.wire.round(operation, (0,), rank, outgoing, incoming)


def _kind(effect: Effect) -> str:
    """The member of OPERATIONS that an effect is."""
    if isinstance(effect, AllReduce):
        return "all_reduce" if effect.deterministic else "ring"
    if isinstance(effect, AllToAll) and effect.unknown:
        return "counted"
    return "broadcast" if isinstance(effect, Broadcast) else "pair" if isinstance(effect, Send | Recv) else "all_to_all"


def incoming_bytes(effect: Effect, rank: int) -> int:
    """Bytes of what the effect answers, as far as they are known before; 0 for counts that only senders know."""
    if isinstance(effect, AllToAll):
        return int(effect.incoming.sum())
    if isinstance(effect, AllReduce):
        return effect.tensor.numel() * effect.tensor.element_size()
    if isinstance(effect, Broadcast):
        return 0 if rank == effect.root else effect.tensor.numel() * effect.tensor.element_size()
    if isinstance(effect, Recv):
        return effect.like.numel() * effect.like.element_size()
    if isinstance(effect, HostCopy):
        return 0 if effect.to_host else effect.copied_bytes
    return 0


def staged_bytes(effect: Effect, rank: int) -> int:
    """Bytes that a transport through host memory copies from the device first."""
    if isinstance(effect, Broadcast) and rank != effect.root:
        return 0
    return sum(t.numel() * t.element_size() for t in effect.tensors())
