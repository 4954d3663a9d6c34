"""The elements of every transport: rounds of pairwise transfers, and flows that all ranks begin together.

`Wire` combines the network, the placement of ranks and the clock. `Library` lowers collectives to rounds and flows,
with defaults for any library; `_gloo`, `_nccl` and `_grpc` override them.

A transfer of a round begins when both its ranks have arrived; a rank is done when all its transfers are. Where sockets
and links hold part of a message (a lab's shaped links), its sender is done with it that much earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import simpy
from numba import njit

from harness.effects import AllReduce, Broadcast, Recv, Send, chunk_sizes
from sims.cluster import HostMemory, Placement
from sims.network import FluidNetwork, call_late
from sims.transport._copies import Copies
from sims.units import Quantity

Bytes = np.ndarray  # int64 [ranks]
Waits = Generator[simpy.Event, Any, None]


class Round:
    """Pairwise transfers of one step of an operation: i -> j begins when both have arrived."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._here = np.zeros(wire.size, np.bool_)
        self._group = np.full(wire.size, -1, np.int64)

    def arrive(self, rank: int, transfers: int, outgoing: Bytes, incoming: Bytes) -> Waits:
        """Rank `rank` arrives, with bytes for and from every rank and `transfers` in all, and waits for its end."""
        group, done = self._wire.network.group(transfers)
        self._group[rank] = group
        self._wire.begin(transfers, self._here, self._group, rank, outgoing, incoming)
        yield done
        if self._wire.copies is not None:
            yield from self._wire.copies.ends(group)


@njit(cache=True, nogil=True)
def _transfers(rank: int, outgoing: Bytes, incoming: Bytes) -> tuple[int, int]:
    """Number of transfers that a rank sends to others, and that it receives."""
    sends, receives = 0, 0
    for other in range(outgoing.shape[0]):
        if other != rank:
            sends += outgoing[other] != 0
            receives += incoming[other] != 0
    return sends, receives


@njit(cache=True, nogil=True)
def _begin(
    pairs: np.ndarray, groups: np.ndarray, taken: int, here: np.ndarray, group: np.ndarray, rank: int,
    outgoing: Bytes, incoming: Bytes, host: np.ndarray, acknowledged: float,
) -> int:  # fmt: skip
    """Rank `rank` joins the ranks `here`: its transfers that begin are appended to the first `taken`, sent ones first.
    Returns the new number.

    A transfer to another host also carries the acknowledgements of what comes from there in this round.
    """
    here[rank] = True
    for sends in (True, False):
        given, back = (outgoing, incoming) if sends else (incoming, outgoing)
        for other in range(here.shape[0]):
            if given[other] != 0 and other != rank and here[other]:
                src, dst = (rank, other) if sends else (other, rank)
                more = int(acknowledged * back[other]) if host[other] != host[rank] else 0
                pairs[0, taken], pairs[1, taken], pairs[2, taken], pairs[3, taken] = src, dst, given[other], more
                groups[taken, 0], groups[taken, 1] = group[src], group[dst]
                taken += 1
    return taken


class Transfer:
    """One transfer of an operation, which begins when both its ranks have arrived.

    Attributes:
        left: the event of its sender, whose sockets have taken all of it.
        there: the event of its receiver, which has all of it.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self.left, self.there = env.event(), env.event()


class Operation:
    """The state of one collective, or of one send with its receive.

    Args:
        ranks: how many take part.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.rounds: dict[tuple[int, ...], Round] = {}
        self.messages: dict[tuple[int, int], Transfer] = {}
        self.sends: np.ndarray | None = None  # int64 [from, to]; only if receivers do not know the sizes
        self._arrived = 0
        self._everyone: simpy.Event | None = None
        self._busy: dict[int, float] = {}

    def add_busy(self, rank: int, seconds: float) -> None:
        """Delay the next transfers of rank `rank` by `seconds` of processor time."""
        self._busy[rank] = self._busy.get(rank, 0.0) + seconds

    def take_busy(self, rank: int) -> float:
        """Seconds added for rank `rank` since the last call."""
        return self._busy.pop(rank, 0.0)

    def announce(self, rank: int, sends: Bytes) -> None:
        """Record the bytes that rank `rank` sends to every rank."""
        if self.sends is None:
            self.sends = np.zeros((len(sends), len(sends)), np.int64)
        self.sends[rank] = sends

    def announced(self, rank: int) -> Bytes:
        """Bytes from every rank to this one, as announced so far; zeros if receivers know the sizes."""
        return np.zeros(0, np.int64) if self.sends is None else self.sends[:, rank].copy()

    def gather(self, wire: Wire) -> tuple[simpy.Event, bool]:
        """The event that its ranks wait for, and whether this rank is the last to arrive, which must trigger it."""
        if self._everyone is None:
            self._everyone = wire.env.event()
        self._arrived += 1
        return self._everyone, self._arrived == self.ranks


@dataclass(frozen=True)
class Flows:
    """The flows that a pipelined collective begins at once.

    Attributes:
        routes: int32 [flows, width].
        payload: [flows], bytes; links count these.
        latency_s: seconds before the first byte of every flow.
        share: payload per byte on the wire.
    """

    routes: np.ndarray
    payload: np.ndarray
    latency_s: float
    share: float = 1.0


class Wire:
    """Transfers between the ranks of a placement.

    Args:
        message_s: seconds of software that a rank pays for every message of a round, one after the other.
        copies: what transfers take of the cores that ranks share; None if nothing.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: FluidNetwork,
        placement: Placement,
        message_s: float,
        copies: Copies | None = None,
    ) -> None:
        self.copies = copies
        self.env, self.network, self.placement, self.message_s = env, network, placement, message_s
        self.size = placement.size
        self.library: Library
        self._taken = 0  # number of transfers that begin in this instant
        # their src, dst, bytes and acknowledgements, and groups
        self._pairs, self._groups = np.empty((4, 0), np.int64), np.empty((0, 2), np.int32)
        self.acknowledged = placement.cluster.acknowledged.value
        self._buffers, self._messages = placement.cluster.buffers, np.ones(self.size, np.int64)  # of a rank at once

    def begin(
        self, most: int, here: np.ndarray, group: np.ndarray, rank: int, outgoing: Bytes, incoming: Bytes
    ) -> None:
        """Begin a rank's transfers, at most `most`, with the ranks `here`; those of one instant are one batch.

        Args:
            here: bool [ranks], the ranks that have arrived.
            group: int64 [ranks], the groups that count each rank's transfers.
        """
        if self._taken + most > len(self._groups):
            more = self._taken + most
            self._pairs = np.concatenate([self._pairs, np.empty((4, more), np.int64)], axis=1)
            self._groups = np.concatenate([self._groups, np.empty((more, 2), np.int32)])
        if self._buffers is not None:
            self._messages[rank] = max(1, int((outgoing[self.placement.host != self.placement.host[rank]] != 0).sum()))
        idle = self._taken == 0
        self._taken = _begin(
            self._pairs, self._groups, self._taken, here, group, rank, outgoing, incoming, self.placement.host,
            self.acknowledged,
        )  # fmt: skip
        if not self.network.timing:  # nothing has to meet: all transfers of an instant would be those of all ranks
            self._add_begun()
        elif idle and self._taken:
            call_late(self.env, self._add_begun)

    def _add_begun(self, _: simpy.Event | None = None) -> None:
        pairs = self._pairs[:, : self._taken].copy()
        src, dst, payload, acknowledgements = pairs
        groups, self._taken = self._groups[: self._taken].copy(), 0
        segments = self.placement.segments_of(src, dst)
        timing = self.network.timing  # otherwise bytes alone are counted
        latency = self.library.latency(src, dst, payload, *segments) if timing else np.zeros(len(src))
        if timing and self.copies is not None:
            self.copies.begin_round(pairs[:3], groups)
        nbytes = payload + acknowledgements
        if timing and self._buffers is not None:
            nbytes -= self._hold(pairs, groups, segments)
        self.network.add_by_segments(*segments, nbytes, latency, groups, last=True)
        if acknowledgements.any():
            self.network.account(self.placement.routes(src, dst), -acknowledgements)

    def _hold(self, pairs: np.ndarray, groups: np.ndarray, segments: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Bytes of every transfer of a round that are on their way when its sender is done, int64 [n]: they begin when
        the others have arrived, and the receivers' groups (which are replaced in `groups`) wait for them."""
        assert self._buffers is not None
        src, dst, payload, _ = pairs
        held, rates = np.zeros(len(src), np.int64), self.placement.route_capacities(*segments)
        for at in np.flatnonzero(self.placement.host[src] != self.placement.host[dst]).tolist():
            held[at] = self._buffers.hold(int(payload[at]), float(rates[at]), int(self._messages[src[at]]))
            if held[at]:
                of_receiver, way = np.asarray([[groups[at, 1], -1]]), (segments[0][[at]], segments[1][[at]])
                groups[at, 1], sent = self.network.group(1)
                assert sent.callbacks is not None
                sent.callbacks.append(partial(self._add_held, way, held[[at]], of_receiver))
        return held

    def _add_held(
        self, segments: tuple[np.ndarray, np.ndarray], held: np.ndarray, groups: np.ndarray, _: simpy.Event
    ) -> None:
        self.network.add_by_segments(*segments, held, np.zeros(1), groups)

    def round(
        self, operation: Operation, number: tuple[int, ...], rank: int, outgoing: Bytes, incoming: Bytes
    ) -> Waits:
        """A rank's part of one round: its processor's busy time, the software cost of its messages, its transfers."""
        sends, receives = _transfers(rank, outgoing, incoming)
        if busy := operation.take_busy(rank) + sends * self.message_s:
            yield self.env.timeout(busy)
        if sends + receives:
            if number not in operation.rounds:
                operation.rounds[number] = Round(self)
            yield from operation.rounds[number].arrive(rank, sends + receives, outgoing, incoming)

    def message(self, operation: Operation, src: int, dst: int, nbytes: int) -> Transfer:
        """The transfer from `src` to `dst`, for the one that arrives; it begins when the other has arrived too."""
        message = operation.messages.pop((src, dst), None)
        if message is not None:
            self.env.process(self._carry(message, np.asarray([src]), np.asarray([dst]), nbytes))
            return message
        message = operation.messages[src, dst] = Transfer(self.env)
        return message

    def _carry(self, message: Transfer, src: Bytes, dst: Bytes, nbytes: int) -> Waits:
        """Move a message: first what its sender waits for, then what buffers hold by then."""
        place, segments = self.placement, self.placement.segments_of(src, dst)
        latency, held = self.library.latency(src, dst, np.asarray([nbytes]), *segments), 0
        if (buffers := place.cluster.buffers) is not None and place.host[src[0]] != place.host[dst[0]]:
            held = buffers.hold(nbytes, float(place.route_capacities(*segments)[0]))
        sent, received = list[simpy.Event](), list[simpy.Event]()
        if self.copies is not None:
            each = self.copies.seconds(src, dst, np.asarray([nbytes]))[0].tolist()
            sent, received = (self.copies.begin(int(end[0]), s) for end, s in zip((src, dst), each, strict=True))
        if nbytes > held:
            yield self._flow(segments, nbytes - held, latency)
            latency = np.zeros(1)
        rest = self._flow(segments, held, latency) if held else None
        yield from sent
        message.left.succeed()
        if rest is not None:
            yield rest
        yield from received
        message.there.succeed()

    def _flow(self, segments: tuple[np.ndarray, np.ndarray], nbytes: int, latency: np.ndarray) -> simpy.Event:
        group, done = self.network.group(1)
        self.network.add_by_segments(*segments, np.asarray([nbytes]), latency, np.asarray([[group, -1]]))
        return done

    def meet(self, operation: Operation, rank: int) -> Waits:
        """Wait until every rank has arrived and has spent its processor's busy time; nothing travels."""
        if busy := operation.take_busy(rank):
            yield self.env.timeout(busy)
        everyone, last = operation.gather(self)
        if last:
            everyone.succeed()
        yield everyone

    def together(self, operation: Operation, rank: int, flows: Callable[[], Flows], copies_s: float = 0.0) -> Waits:
        """The last rank that arrives begins the flows; every rank is done when all of them are. `copies_s`: seconds of
        this rank's shared cores that its part of them takes."""
        if busy := operation.take_busy(rank):
            yield self.env.timeout(busy)
        everyone, last = operation.gather(self)
        if last:
            all_flows = flows()
            count = len(all_flows.payload)
            group, done = self.network.group(count)
            nbytes = all_flows.payload / all_flows.share
            groups = np.stack([np.full(count, group), np.full(count, -1)], axis=1)
            self.network.add(all_flows.routes, nbytes, np.full(count, all_flows.latency_s), groups)
            overhead = all_flows.payload.astype(np.int64) - nbytes.astype(np.int64)
            if overhead.any():
                self.network.account(all_flows.routes, overhead)
            everyone.succeed(done)
        done = yield everyone
        copies = self.copies.begin(rank, copies_s) if self.copies is not None else []
        yield done
        yield from copies


class Tuned(Protocol):
    """Constants of a library that predictions rest on."""

    def quantities(self) -> list[Quantity]:
        """Every number that has a source."""
        ...

    def latencies(self) -> list[Quantity]:
        """Those that are seconds."""
        ...

    def slower(self, factor: float) -> Tuned:
        """A copy with all seconds multiplied."""
        ...


class Library(HostMemory):
    """How a communication library carries out collectives; the defaults are valid for any that moves host memory.

    Attributes:
        counts_first: whether row counts that only the sender knows travel in a round of their own, because receivers
            have to name the size of what they receive.
    """

    counts_first: ClassVar[bool] = True

    @classmethod
    def tuning(cls) -> Tuned | None:
        """Constants of its own, None where it has none."""
        return None

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        wire.library = self

    def latency(self, src: Bytes, dst: Bytes, nbytes: Bytes, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Latency of each transfer of a round, in seconds, float64 [n].

        `head`, `tail`: segments of their routes (see `Placement.segments_of`).
        """
        return self.wire.placement.route_latencies(head, tail)

    def exchange(self, operation: Operation, number: int, rank: int, outgoing: Bytes, incoming: Bytes) -> Waits:
        """An all-to-all of bytes; by default all transfers at once."""
        yield from self.wire.round(operation, (number,), rank, outgoing, incoming)

    def all_reduce(self, operation: Operation, rank: int, effect: AllReduce) -> Waits:
        """An all-reduce in rank order: an all-to-all of chunks to the ranks that add them, then one of their sums."""
        members = effect.members(self.wire.size)
        chunks, mine = np.zeros(self.wire.size, np.int64), np.zeros(self.wire.size, np.int64)
        chunks[members] = chunk_sizes(effect.tensor.numel(), len(members)) * effect.tensor.element_size()
        mine[members] = chunks[rank]
        yield from self.exchange(operation, 0, rank, chunks, mine)
        yield from self.exchange(operation, 1, rank, mine, chunks)

    def pair(self, operation: Operation, rank: int, effect: Send | Recv) -> Waits:
        """A send, or its receive."""
        outgoing, incoming = np.zeros(self.wire.size, np.int64), np.zeros(self.wire.size, np.int64)
        if isinstance(effect, Send):
            outgoing[effect.to] = effect.tensor.numel() * effect.tensor.element_size()
        else:
            incoming[effect.source] = effect.like.numel() * effect.like.element_size()
        yield from self.wire.round(operation, (0,), rank, outgoing, incoming)

    def broadcast(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        """A broadcast by a binomial tree: every round doubles the number of ranks with the tensor."""
        size, members = self.wire.size, effect.members(self.wire.size)
        count, at = len(members), effect.place(rank)
        nbytes = effect.tensor.numel() * effect.tensor.element_size()
        place = (at - effect.place(effect.root)) % count
        for step in range((count - 1).bit_length()):
            outgoing, incoming = np.zeros(size, np.int64), np.zeros(size, np.int64)
            reach = 1 << step
            if place < reach and place + reach < count:
                outgoing[members[(at + reach) % count]] = nbytes
            elif reach <= place < 2 * reach:
                incoming[members[(at - reach) % count]] = nbytes
            yield from self.wire.round(operation, (step,), rank, outgoing, incoming)
