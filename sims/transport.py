"""Lowers effects to transfers on the fluid network, the way the communication libraries really run them.

* All-to-all: every pair is a transfer that begins when both its ranks are there; a rank is done when all its transfers
  are. Row counts that only the sender knows travel first, in a round of their own.
* All-reduce, deterministic: an all-to-all of chunks, then an all-to-all of their sums. Otherwise a ring of 2 (P - 1)
  steps that starts when all are there; each step takes as long as its slowest neighbour transfer.
* Broadcast: a binomial tree (gloo/broadcast.cc). Send and receive: one transfer.

A rank's software cost (per operation and per message it sends) and the copy of the rows it keeps come before its bytes.
Over gloo, tensors of a GPU cross the bus whole before and after. Traffic is not counted here but by `harness.traffic`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

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
    chunk_sizes,
)
from sims.device import DeviceProfile, Work
from sims.network import FluidNetwork, call_late, run_flows
from sims.placement import Placement

Bytes = np.ndarray  # int64 [ranks]
Waits = Generator[simpy.Event, Any, None]


class Phase:
    """One round of pairwise transfers: i -> j begins when both have arrived."""

    def __init__(self, transport: Transport) -> None:
        size = transport.placement.size
        self._transport = transport
        self._out = np.zeros((size, size), np.int64)
        self._here = np.zeros(size, np.bool_)
        self._group = np.full(size, -1, np.int64)

    def arrive(self, rank: int, outgoing: Bytes, incoming: Bytes) -> simpy.Event | None:
        """Rank `rank` is there with bytes for and from every rank; answers the end of its part, None without part."""
        outgoing, incoming = outgoing.copy(), incoming.copy()
        outgoing[rank] = incoming[rank] = 0
        to, source = np.flatnonzero(outgoing), np.flatnonzero(incoming)
        if len(to) + len(source) == 0:
            return None
        self._group[rank], done = self._transport.network.group(len(to) + len(source))
        self._out[rank], self._here[rank] = outgoing, True
        to, source = to[self._here[to]], source[self._here[source]]
        src = np.concatenate([np.full(len(to), rank), source])
        dst = np.concatenate([to, np.full(len(source), rank)])
        if len(src):
            self._transport.begin(src, dst, self._out[src, dst], self._group[src], self._group[dst])
        return done


class Operation:
    """One collective, or one send with its receive, as its ranks carry it out."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.payload: dict[int, Bytes] = {}  # bytes to every rank, by the ranks that have arrived
        self.arrived = 0
        self.everyone: simpy.Event | None = None

    def received(self, rank: int) -> int:
        """Bytes of an all-to-all that are known to go to this rank."""
        return int(sum(sends[rank] for sends in self.payload.values()))


class Transport:
    """Carries effects over a network for the ranks of a placement.

    Args:
        profile: the ranks' device, for copies in its memory.
    """

    def __init__(
        self, env: simpy.Environment, network: FluidNetwork, placement: Placement, profile: DeviceProfile
    ) -> None:
        self.env, self.network, self.placement, self.profile = env, network, placement, profile
        self.spec = placement.cluster.transport
        self._stages = placement.staged and profile.kind == "gpu"
        self._begun: list[tuple[np.ndarray, ...]] = []
        self._ring_seconds: dict[tuple[int, int], float] = {}

    def begin(self, src: Bytes, dst: Bytes, nbytes: Bytes, src_group: Bytes, dst_group: Bytes) -> None:
        """Begin transfers src[i] -> dst[i] that the two groups count; those of one instant go together."""
        if not self._begun:
            call_late(self.env, self._add_begun)
        self._begun.append((src, dst, nbytes, src_group, dst_group))

    def _add_begun(self) -> None:
        src, dst, nbytes, *groups = (np.concatenate(column) for column in zip(*self._begun, strict=True))
        self._begun.clear()
        routes = self.placement.routes(src, dst)
        self.network.add(routes, nbytes, self.placement.latencies(routes), np.stack(groups, axis=1))

    def carry(self, operation: Operation, rank: int, effect: Effect) -> Waits:
        """What rank `rank` waits for, one event after the other, until its part of the effect is done."""
        size = self.placement.size
        if size == 1 and not isinstance(effect, AllToAll):
            return
        if size > 1 and self.spec.operation.value:
            yield self.env.timeout(self.spec.operation.value)
        if self._stages:
            yield from self.copy(rank, staged_bytes(effect, rank), to_host=True)
        if isinstance(effect, AllToAll):
            yield from self._all_to_all(operation, rank, effect)
        elif isinstance(effect, AllReduce):
            reduce = self._chunks if effect.deterministic else self._ring
            yield from reduce(operation, rank, effect)
        elif isinstance(effect, Broadcast):
            yield from self._tree(operation, rank, effect)
        elif isinstance(effect, Send | Recv):
            yield from self._pair(operation, rank, effect)
        if self._stages:
            yield from self.copy(rank, incoming_bytes(effect, rank) or operation.received(rank), to_host=False)

    def copy(self, rank: int, nbytes: int, *, to_host: bool) -> Waits:
        """A copy between the rank's device and host memory; nothing on a CPU."""
        if self.profile.kind != "gpu" or nbytes == 0:
            return
        routes = self.placement.copy_routes(np.asarray([rank]), to_host)
        group, done = self.network.group(1)
        latency = self.placement.latencies(routes) + self.profile.launch.value
        self.network.add(routes, np.asarray([nbytes]), latency, np.asarray([[group, -1]]))
        yield done

    def _all_to_all(self, operation: Operation, rank: int, effect: AllToAll) -> Waits:
        size = self.placement.size
        sends = sum((part.send * part.row_bytes for part in effect.parts), np.zeros(size, np.int64))
        operation.payload[rank] = sends
        if sends[rank]:
            yield self.env.timeout(self.profile.seconds(Work("copy", 2 * int(sends[rank]))))
        unknown = sum(part.recv is None for part in effect.parts)
        if unknown:
            header = np.full(size, unknown * COUNT_BYTES, np.int64)
            yield from self._round(operation, 0, rank, header, header)
        # With unknown counts every rank has said what it sends by now, because all counts have arrived here.
        incoming = sum(
            (part.recv * part.row_bytes for part in effect.parts if part.recv is not None), np.zeros(size, np.int64)
        )
        if unknown:
            incoming = np.asarray([operation.payload[r][rank] for r in range(size)])
        yield from self._round(operation, 1, rank, sends, incoming)

    def _chunks(self, operation: Operation, rank: int, effect: AllReduce) -> Waits:
        size, width = self.placement.size, effect.tensor.element_size()
        chunks = chunk_sizes(effect.tensor.numel(), size) * width
        mine = np.full(size, chunks[rank])
        yield from self._round(operation, 0, rank, chunks, mine)
        yield from self._round(operation, 1, rank, mine, chunks)

    def _ring(self, operation: Operation, rank: int, effect: AllReduce) -> Waits:
        if operation.everyone is None:
            operation.everyone = self.env.event()
        operation.arrived += 1
        if operation.arrived == self.placement.size:
            operation.everyone.succeed()
            sent = [effect.sent(r, self.placement.size) for r in range(self.placement.size)]
            routes = self._ring_routes()
            self.network.account(routes, np.asarray([row.sum() for row in sent]))
        yield operation.everyone
        yield self.env.timeout(self.ring_seconds(effect.tensor.numel(), effect.tensor.element_size()))

    def ring_seconds(self, elements: int, width: int) -> float:
        """Seconds of a ring all-reduce of so many elements of `width` bytes, undisturbed by other transfers."""
        known = self._ring_seconds.get((elements, width))
        if known is not None:
            return known
        size = self.placement.size
        chunks, ranks, routes = chunk_sizes(elements, size) * width, np.arange(size), self._ring_routes()
        latency = self.placement.latencies(routes) + self.spec.message.value
        steps: dict[bytes, float] = {}
        total = 0.0
        for step in range(2 * (size - 1)):
            # Scatter-reduce sends chunk (rank - step); the all-gather begins with the complete chunk, rank + 1.
            moved = chunks[(ranks - step if step < size - 1 else ranks + size - step) % size]
            key = moved.tobytes()
            if key not in steps:
                used = moved > 0
                finish = run_flows(self.network.capacity, routes[used], moved[used], 0.0, latency[used])
                steps[key] = float(finish.max(initial=0.0))
            total += steps[key]
        self._ring_seconds[elements, width] = total
        return total

    def _ring_routes(self) -> np.ndarray:
        ranks = np.arange(self.placement.size)
        return self.placement.routes(ranks, (ranks + 1) % self.placement.size)

    def _tree(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        size = self.placement.size
        nbytes = effect.tensor.numel() * effect.tensor.element_size()
        place = (rank - effect.root) % size
        for step in range((size - 1).bit_length()):
            outgoing, incoming = np.zeros(size, np.int64), np.zeros(size, np.int64)
            reach = 1 << step
            if place < reach and place + reach < size:
                outgoing[(rank + reach) % size] = nbytes
            elif reach <= place < 2 * reach:
                incoming[(rank - reach) % size] = nbytes
            yield from self._round(operation, step, rank, outgoing, incoming)

    def _pair(self, operation: Operation, rank: int, effect: Send | Recv) -> Waits:
        outgoing, incoming = np.zeros(self.placement.size, np.int64), np.zeros(self.placement.size, np.int64)
        if isinstance(effect, Send):
            outgoing[effect.to] = effect.tensor.numel() * effect.tensor.element_size()
        else:
            incoming[effect.source] = effect.like.numel() * effect.like.element_size()
        yield from self._round(operation, 0, rank, outgoing, incoming)

    def _round(self, operation: Operation, number: int, rank: int, outgoing: Bytes, incoming: Bytes) -> Waits:
        """One phase of an operation: the software cost of the rank's messages, then its transfers."""
        messages = np.count_nonzero(outgoing) - (outgoing[rank] > 0)
        if messages and self.spec.message.value:
            yield self.env.timeout(float(messages) * self.spec.message.value)
        while number >= len(operation.phases):
            operation.phases.append(Phase(self))
        done = operation.phases[number].arrive(rank, outgoing, incoming)
        if done is not None:
            yield done


def incoming_bytes(effect: Effect, rank: int) -> int:
    """Bytes of what the effect answers, as far as they are known before; 0 for counts that only senders know."""
    if isinstance(effect, AllToAll):
        return sum(int(part.recv.sum()) * part.row_bytes for part in effect.parts if part.recv is not None)
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
