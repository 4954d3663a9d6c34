"""gloo: all-to-all with all transfers at once, all-reduce as a ring of segments, broadcast as a tree of messages.

As in facebookincubator/gloo (alltoall.cc, allreduce.cc, broadcast.cc) and as torch.distributed uses it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.effects import AllReduce, Broadcast, Recv, Send
from sims.network import fair_shares
from sims.transport._collectives import Flows, Library, Operation, Waits

SEGMENT_BYTES = 1 << 20
"""Largest segment of a ring, bytes."""


@dataclass(frozen=True)
class Segments:
    """How the ring cuts a tensor: `per_rank` segments, at least two, of `nbytes` for every rank."""

    per_rank: int
    nbytes: int

    @classmethod
    def of(cls, nbytes: int, width: int, size: int) -> Segments:
        """The segments of `nbytes` with elements of `width` bytes among `size` ranks."""
        segment = min(math.ceil(nbytes / (2 * size) / width), SEGMENT_BYTES // width) * width
        segment = max(segment, width)
        return cls(max(math.ceil(math.ceil(nbytes / segment) / size), 2), segment)

    def latency(self, size: int, hop_s: float, bandwidth: float) -> float:
        """Latency of the whole ring in seconds, for neighbours with latency `hop_s` and `bandwidth`.

        Reduce-scatter and all-gather send (size - 1) x per_rank segments each, two in flight, over one socket: a
        segment is sent after the one before it, and after the arrival of the one two before. The hops of all but the
        first are hidden if a segment takes longer than a hop.
        """
        steps = (size - 1) * self.per_rank
        return 2 * hop_s + (steps - 2) * max(0.0, hop_s - self.nbytes / bandwidth)


class Gloo(Library):
    """gloo: transfers between host memories over sockets."""

    def all_reduce(self, operation: Operation, rank: int, effect: AllReduce) -> Waits:
        """In rank order, or by the library's ring, in which all ranks proceed at the pace of the slowest."""
        if effect.deterministic:
            yield from super().all_reduce(operation, rank, effect)
            return
        copies, size = self.wire.copies, self.wire.size
        sent = int(effect.sent(rank, size).sum())
        copies_s = 0.0 if copies is None else copies.ring_seconds(rank, effect.members(size), sent)
        yield from self.wire.together(operation, rank, lambda: self._ring(effect), copies_s)

    def pair(self, operation: Operation, rank: int, effect: Send | Recv) -> Waits:
        """A send is done when the rank's socket has taken the tensor, a receive when it is there."""
        wire, sends = self.wire, isinstance(effect, Send)
        if busy := operation.take_busy(rank) + sends * wire.message_s:
            yield wire.env.timeout(busy)
        if isinstance(effect, Send):
            tensor, src, dst = effect.tensor, rank, effect.to
        else:
            tensor, src, dst = effect.like, effect.source, rank
        message = wire.message(operation, src, dst, tensor.numel() * tensor.element_size())
        yield message.left if sends else message.there

    def broadcast(self, operation: Operation, rank: int, effect: Broadcast) -> Waits:
        """A binomial tree: a rank that has the tensor sends it to all its children at once, and is done when its
        sockets have taken it."""
        wire, members, at = self.wire, effect.members(self.wire.size), effect.place(rank)
        count, nbytes = len(members), effect.tensor.numel() * effect.tensor.element_size()
        place = (at - effect.place(effect.root)) % count
        if busy := operation.take_busy(rank):
            yield wire.env.timeout(busy)
        if place:
            parent = members[(at - (1 << place.bit_length() - 1)) % count]
            yield wire.message(operation, int(parent), rank, nbytes).there
        sent = []
        for step in range(place.bit_length(), (count - 1).bit_length()):
            if place + (1 << step) < count:
                if wire.message_s:
                    yield wire.env.timeout(wire.message_s)
                sent.append(wire.message(operation, rank, int(members[(at + (1 << step)) % count]), nbytes))
        for message in sent:
            yield message.left

    def _ring(self, effect: AllReduce) -> Flows:
        wire, ranks = self.wire, effect.members(self.wire.size)
        size, width = len(ranks), effect.tensor.element_size()
        routes = wire.placement.routes(ranks, np.roll(ranks, -1))
        hops = wire.placement.latencies(routes) + wire.message_s
        pace = fair_shares(wire.network.capacity, routes)
        segments = Segments.of(effect.tensor.numel() * width, width, size)
        latency = max(segments.latency(size, hop, rate) for hop, rate in zip(hops.tolist(), pace.tolist(), strict=True))
        hosts = wire.placement.host[ranks]
        across = bool((hosts != np.roll(hosts, -1)).any())  # a host's link carries what it sends, and acknowledgements
        share = 1 / (1 + wire.acknowledged) if across else 1.0
        return Flows(routes, np.asarray([effect.sent(r, wire.size).sum() for r in ranks.tolist()]), latency, share)
