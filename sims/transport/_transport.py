"""Carries effects over the network for the ranks of a placement, through the library that the cluster names.

What every library has in common is here: a rank's software cost per operation, the copy of the rows that it keeps, row
counts that only the sender knows (they travel first, in a round of their own, or with the rows), and the copies of a
GPU's tensors to host memory and back where the library wants them there: whole, before and after. How collectives
become transfers is the library's business (`_gloo`, `_nccl`, `_grpc`). Traffic is not counted here but by
`harness.traffic`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import simpy

from harness.effects import COUNT_BYTES, AllReduce, AllToAll, Broadcast, Effect, HostCopy, Recv, Send
from harness.registry import Registry
from sims.cluster import NO_LINK, OPERATIONS, TRANSPORTS, Placement
from sims.device import DeviceProfile, Work
from sims.network import FluidNetwork
from sims.transport._buses import Bus
from sims.transport._collectives import Library, Operation, Waits, Wire
from sims.transport._copies import Copies
from sims.transport._gloo import Gloo
from sims.transport._grpc import Grpc
from sims.transport._nccl import Nccl

LIBRARIES: Registry[type[Library]] = Registry(
    TRANSPORTS.kind, TRANSPORTS.group, {"gloo": Gloo, "nccl": Nccl, "grpc": Grpc}
)

_NO_TAIL = np.zeros(1, np.int32)


class Transport:
    """Carries effects over a network for the ranks of a placement.

    Args:
        profiles: the ranks' devices, for copies in their memory.
        work: begins seconds of work on the cores that a rank shares and returns its end; without it no rank shares any.
        library: takes the place of the cluster's own.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: FluidNetwork,
        placement: Placement,
        profiles: Sequence[DeviceProfile],
        work: Callable[[int, float], simpy.Event] | None = None,
        library: type[Library] | None = None,
    ) -> None:
        self.env, self.network, self.placement, self.profiles = env, network, placement, profiles
        spec = placement.cluster.transport
        self._spec, self._operation_s = spec, {kind: spec.seconds(kind, placement.size) for kind in OPERATIONS}
        # by kind, number of members, and whether it follows: the same of groups, and of that the seconds of cores
        self._of_group_s = dict[tuple[str, int, bool], float]()
        self._of_cores_s = dict[tuple[str, int, bool], float]()
        self._ended = [-math.inf] * placement.size  # when a rank's last operation did
        self._rested_share = spec.rested_share(placement.size) if spec.following else None
        self._ways: dict[tuple[int, bool], Callable[[int, float], Waits]] = {}
        self._copies: dict[bool, tuple[np.ndarray, np.ndarray]] = {}  # to host -> routes and latencies by rank
        self._buses: dict[int, Bus] = {}  # by link
        self._staged = [placement.staged and profile.kind == "gpu" for profile in profiles]
        shares = [self._shares(rank) for rank in range(placement.size)] if work is not None else []
        copies, framing = None, placement.cluster.framing
        if work is not None and any(shares) and (spec.copying or framing):
            each = (1 / rate.value if rate else 0.0 for rate in (spec.copying, framing))
            copies = Copies(work, shares, placement.host, *each)
        self.wire = Wire(env, network, placement, spec.message.value, copies)
        self.library = (library or LIBRARIES.find(spec.kind))(self.wire)

    def hidden_seconds(self, rank: int, effect: Effect) -> tuple[float, float]:
        """What an exchange that it starts costs a rank beside the flight, in seconds of its cores: what passes until it
        goes on, and by how much the compute that hides the exchange takes longer."""
        if self.placement.size == 1 or isinstance(effect, HostCopy):
            return 0.0, 0.0
        beside, sent = self._spec.beside, int(effect.sent(rank, self.placement.size).sum())
        if self._spec.copying is not None and self.wire.copies is not None and self.wire.copies.shares[rank]:
            beside = None  # copies take their cores where and when they run
        since = self.env.now - self._ended[rank]
        spent = self._software_s(self._fixed_s, "started", self.placement.size, since)
        return spent, sent / beside.value if beside else 0.0

    def core_seconds(self, rank: int, effect: Effect, begins: float) -> float:
        """What the software of an effect that begins at a time takes of cores that its rank shares, in seconds."""
        size = self.placement.size if effect.among is None else len(effect.among)
        return self._software_s(self._on_cores_s, _kind(effect), size, begins - self._ended[rank]) if size > 1 else 0.0

    def carry(self, operation: Operation, rank: int, effect: Effect, *, paid: bool = False) -> Waits:
        """What rank `rank` waits for, one event after the other, until its part of the effect is done.

        Args:
            paid: its software has taken the cores that the rank shares.
        """
        size = self.placement.size if effect.among is None else len(effect.among)
        if size == 1 and not isinstance(effect, AllToAll):
            return
        if size > 1 and paid:
            operation.add_busy(rank, self._unexplained_s(rank, _kind(effect), size))
        elif size > 1:
            since = self.env.now - self._ended[rank]
            operation.add_busy(rank, self._software_s(self._fixed_s, _kind(effect), size, since))
        staged = self._staged[rank]
        if staged and (nbytes := staged_bytes(effect, rank)):
            yield from self.copy(rank, nbytes, to_host=True, after=operation.take_busy(rank))
        if isinstance(effect, AllToAll):
            yield from self._all_to_all(operation, rank, effect)
        elif isinstance(effect, AllReduce):
            yield from self.library.all_reduce(operation, rank, effect)
        elif isinstance(effect, Broadcast):
            yield from self.library.broadcast(operation, rank, effect)
        elif isinstance(effect, Send | Recv):
            yield from self.library.pair(operation, rank, effect)
        if staged:
            counted = isinstance(effect, AllToAll) and effect.unknown
            received = int(operation.announced(rank).sum()) if counted else incoming_bytes(effect, rank)
            yield from self.copy(rank, received, to_host=False)
        self._ended[rank] = self.env.now

    def _shares(self, rank: int) -> bool:
        profile = self.profiles[rank]
        return profile.kind == "cpu" and self.placement.shared_cores(rank, profile.cores) is not None

    def _software_s(self, of: Callable[[str, int, bool], float], kind: str, ranks: int, apart_s: float) -> float:
        """A rank's software cost of an operation of so many ranks, so long after the end of its last one: `of` what
        it costs after a rest, and where it follows another at once."""
        rested = of(kind, ranks, False)
        if self._rested_share is None:
            return rested
        following = of(kind, ranks, True)
        return following + max(0.0, rested - following) * self._rested_share(apart_s)

    def _fixed_s(self, kind: str, ranks: int, following: bool) -> float:
        if ranks == self.placement.size and not following:
            return self._operation_s[kind]
        if (kind, ranks, following) not in self._of_group_s:
            self._of_group_s[kind, ranks, following] = self._spec.seconds(kind, ranks, following=following)
        return self._of_group_s[kind, ranks, following]

    def _on_cores_s(self, kind: str, ranks: int, following: bool) -> float:
        if (kind, ranks, following) not in self._of_cores_s:
            self._of_cores_s[kind, ranks, following] = self._spec.core_seconds(kind, ranks, following=following)
        return self._of_cores_s[kind, ranks, following]

    def _unexplained_s(self, rank: int, kind: str, ranks: int) -> float:
        """Seconds of an operation that its software's turns on shared cores do not explain: latencies, wake-ups.

        From operations that follow one another, in which ranks arrive together: of n ranks on m cores each waits for
        its turn, so that they end after ceil(i / m) times what one needs, i = 1 to n.
        """
        places = max(1, self.placement.cluster.cores // self.profiles[rank].cores)
        sharing = min(ranks, self.placement.core_ranks(rank))
        rounds, rest = divmod(sharing, places)
        turns = (rounds + 1) * (places * rounds / 2 + rest) / sharing
        return max(0.0, self._fixed_s(kind, ranks, True) - turns * self._on_cores_s(kind, ranks, True))

    def copy(self, rank: int, nbytes: int, *, to_host: bool, after: float = 0.0) -> Waits:
        """A copy between the rank's device and host memory that begins in `after` seconds; nothing on a CPU."""
        if nbytes == 0 or self.profiles[rank].kind != "gpu":
            return
        if (rank, to_host) not in self._ways:
            self._ways[rank, to_host] = self._way(rank, to_host)
        yield from self._ways[rank, to_host](nbytes, after)

    def _way(self, rank: int, to_host: bool) -> Callable[[int, float], Waits]:
        """How a rank's copies go: over the network, or over the one link that nothing but copies ever crosses."""
        if to_host not in self._copies:
            every = self.placement.copy_routes(np.arange(self.placement.size), to_host)
            self._copies[to_host] = every, self.placement.latencies(every)
        routes, latencies = self._copies[to_host]
        bus = self.placement.cluster.links.get("bus")
        # what was measured on a device is from the call to the arrival, its launch included
        launch = 0.0 if bus is not None and bus.latency.source == "measured" else self.profiles[rank].launch.value
        latency, link = float(latencies[rank]) + launch, int(routes[rank, 0])
        if not self.placement.staged or routes.shape[1] > 1 or link == NO_LINK:
            return partial(self._copy_over_network, self.network.segment(routes[[rank]]), np.asarray([latency]))
        if link not in self._buses:
            self._buses[link] = Bus(self.network, link)
        return partial(self._buses[link].copy, latency)

    def _copy_over_network(self, route: np.ndarray, latency: np.ndarray, nbytes: int, after: float) -> Waits:
        if after:
            yield self.env.timeout(after)
        group, done = self.network.group(1)
        self.network.add_by_segments(route, _NO_TAIL, np.asarray([nbytes]), latency, np.asarray([[group, -1]]))
        yield done

    def _all_to_all(self, operation: Operation, rank: int, effect: AllToAll) -> Waits:
        size = self.placement.size
        sends, unknown = effect.outgoing, effect.unknown
        # Several parts are laid out in one buffer, and cut apart again; the rows that stay are copied by the library.
        several = len(effect.parts) > 1
        operation.add_busy(rank, self._copy_s(rank, effect.outgoing_bytes if several else int(sends[rank])))
        if unknown:
            operation.announce(rank, sends)
            header = np.full(size, unknown * COUNT_BYTES, np.int64)
            if self.library.counts_first:
                yield from self.library.exchange(operation, 0, rank, header, header)
                # Every rank has said what it sends by now, because all counts have arrived here.
                incoming = operation.announced(rank)
            else:  # with the rows; the model knows them from the moment at which all ranks are there
                yield from self.wire.meet(operation, rank)
                sends, incoming = sends + header, operation.announced(rank) + header
        else:
            incoming = effect.incoming
        yield from self.library.exchange(operation, 1, rank, sends, incoming)
        if several and (seconds := self._copy_s(rank, int(incoming.sum()) if unknown else effect.incoming_bytes)):
            yield self.env.timeout(seconds)

    def _copy_s(self, rank: int, nbytes: int) -> float:
        """Seconds of a copy in the memory of the rank's device."""
        profile = self.profiles[rank]
        return profile.seconds(Work("copy", 2 * nbytes, name="cat")) + profile.host_launch if nbytes else 0.0


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
        return effect.incoming_bytes
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
