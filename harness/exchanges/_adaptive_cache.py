"""The adaptive vertex cache: a replica's row is sent only when it differs enough from the copy at the receiver.

CDFGNN's Algorithm 2. Sender and receiver keep equal copies of every row: the value that the receiver decoded, not the
sender's original, so no error accumulates and the quantisation error is sent with the next difference. The caches are
memory: they are kept between epochs and in checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.codecs import Codec
from harness.effects import Counts, Rows
from harness.errors import Diverged
from harness.exchanges._gather_scatter import Leg, Replicas
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import encode_rows
from harness.kernels import changed
from harness.rank import Rank

OBSERVED = {"forward": "sent", "backward": "sent-backward"}
"""Share of the rows that may change which were sent."""
ZERO = "zero-backward"
"""Share of the backward rows that are 0 whatever the data, are never sent, and are not counted among the others."""


def empty_cache(replicas: Replicas, rows: Tensor, width: int, *, gather: bool = True, scatter: bool = True) -> Memory:
    """A cache of zeros, for sums of `width` columns with these phases; type and device are those of `rows`, [n, any].

    `part`, [shared + mirrors, d]: own partial rows as added at the masters; `copies`, [mirrors elsewhere, d]: the
    other ranks' partial rows of own masters; `total`, [shared + mirrors, d]: the sums that every replica uses.
    """
    edge, copies = rows.shape[0] - replicas.num_inner, replicas.plan.send_rows.shape[0]
    sizes = {"part": edge} | ({"copies": copies} if gather else {}) | ({"total": edge} if scatter else {})
    return {name: rows.new_zeros(size, width) for name, size in sizes.items()}


@dataclass(frozen=True, eq=False)
class FlagBits:
    """One flag per row of an exchange as bits on the wire: every pair of ranks starts a new byte."""

    bounds: Counts  # int64 [P + 1], where the rows of every peer begin
    num_bytes: Counts  # int64 [P]
    slot: Tensor  # int64 [rows] position of every row's bit

    @classmethod
    def of(cls, counts: Counts, device: torch.device) -> FlagBits:
        """The bits of rows that are grouped by peer."""
        num_bytes, bounds = (counts + 7) // 8, np.concatenate([[0], np.cumsum(counts)])
        if device.type == "meta":
            return cls(bounds, num_bytes, torch.empty(int(bounds[-1]), dtype=torch.int64, device=device))
        shift = 8 * (np.cumsum(num_bytes) - num_bytes) - bounds[:-1]
        slot = np.arange(bounds[-1]) + np.repeat(shift, counts)
        return cls(bounds, num_bytes, torch.from_numpy(slot).to(device))

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.bounds[-1])

    def counts(self, rows: Tensor) -> Counts:
        """Number of these rows, ascending int64 [n], that belong to every peer: int64 [P]."""
        return np.diff(np.searchsorted(rows.cpu().numpy(), self.bounds)).astype(np.int64)

    def pack(self, flags: Tensor) -> Tensor:
        """bool [rows] -> uint8 [sum(num_bytes)], the first row in the lowest bit."""
        room = flags.new_zeros(8 * int(self.num_bytes.sum()), dtype=torch.uint8)
        room = room.index_copy(0, self.slot, flags.to(torch.uint8)).view(-1, 8)
        return (room << torch.arange(8, dtype=torch.uint8, device=flags.device)).sum(1, dtype=torch.uint8)

    def unpack(self, packed: Tensor) -> Tensor:
        """The inverse of `pack`."""
        bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=packed.device)
        return (bits & 1).flatten().index_select(0, self.slot).bool()


class Wires(NamedTuple):
    """The flags of both lists of rows that a rank exchanges."""

    mirrors: FlagBits  # this rank's mirrors by their master's rank
    mirrored: FlagBits  # the other ranks' mirrors of its masters

    @classmethod
    def of(cls, replicas: Replicas) -> Wires:
        """The flags of a rank's replicas."""
        plan = replicas.plan
        device = plan.send_rows.device
        return cls(FlagBits.of(plan.recv_counts, device), FlagBits.of(plan.send_counts, device))


@dataclass(frozen=True, eq=False)
class CachedSync:
    """Sums over replicas in which only rows that moved are sent (Alg. 2); one for all layers of one epoch.

    For every row, with z the partial row and c its cached value: where max |z - c| > threshold * max |c|, the
    difference is sent to the master and added to c on both sides. Masters treat their own partial rows alike. A master
    whose sum changed, or differs by as much from its mirrors' copies, sends them the difference. Rows without other
    replicas are used unchanged.

    Args:
        replicas, wires: which ranks share which rows.
        codec: of the differences; None sends the rows themselves, exactly.
        threshold: relative, 0 sends every row that changed at all.
        memory: direction -> layer -> cache (`empty_cache`); entries are replaced.
    """

    replicas: Replicas
    wires: Wires
    codec: Codec | None
    threshold: float
    memory: Memory

    async def total(self, rank: Rank, x: Tensor, leg: Leg) -> Tensor:
        caches, layer = self.memory[leg.direction], str(leg.layer)
        cache: Memory = dict(caches[layer])
        sent = whole = 0
        num_shared = self.replicas.num_shared
        edge = x[self.replicas.num_inner :]
        flags = self._moved(rank, leg, edge, cache["part"])
        active, mirrors = flags[:num_shared], flags[num_shared:]
        own = torch.where(active[:, None], edge[:num_shared], cache["part"][:num_shared])
        cache["part"] = torch.cat([own, cache["part"][num_shared:]])
        if leg.gather:
            sent, active = await self._gather(rank, leg, edge[num_shared:], mirrors, active, cache)
            if leg.zero_mirrors:
                rank.observe(
                    ZERO, len(self.wires.mirrors), len(self.wires.mirrors) + len(self.wires.mirrored), leg.layer
                )
            else:
                whole = len(self.wires.mirrors)
            own = self.replicas.route.add_back(own, cache["copies"])
        if leg.scatter:
            if self.codec is not None:  # the coding error of the total sent last may exceed the threshold
                active = active | self._moved(rank, leg, own, cache["total"][:num_shared])
            sent += await self._scatter(rank, leg, own, active, cache)
            whole += len(self.wires.mirrored)
            edge = cache["total"]
        else:
            edge = torch.cat([own, torch.zeros_like(edge[num_shared:])])
        caches[layer] = cache
        rank.observe(OBSERVED[leg.direction], sent, whole, leg.layer)
        return torch.cat([x[: self.replicas.num_inner], edge])

    async def _gather(
        self, rank: Rank, leg: Leg, z: Tensor, flags: Tensor, active: Tensor, cache: Memory
    ) -> tuple[int, Tensor]:
        """Send mirrors' partial rows z to the masters; returns the rows sent, and the masters to be sent back."""
        num_shared = self.replicas.num_shared
        with rank.span("codec"):
            rate = 0.0 if leg.zero_mirrors else self._rate(rank, leg, len(self.wires.mirrors))
            rows, counts = self._chosen(rank, flags, self.wires.mirrors, rate)
            before = cache["part"].index_select(0, rows + num_shared)
            payload, after = self._difference(rank, leg, "gather", z.index_select(0, rows), before)
            cache["part"] = cache["part"].index_copy(0, rows + num_shared, after)
        wires = self.wires.mirrors, self.wires.mirrored
        got, received = await self._swap(rank, leg, "gather", flags, payload, counts, *wires)
        with rank.span("codec"):
            before = cache["copies"].index_select(0, got)
            cache["copies"] = cache["copies"].index_copy(0, got, self._arrived(received, before))
        masters = self.replicas.plan.send_rows.index_select(0, got)
        return int(counts.sum()), active.index_fill(0, masters, True)

    async def _scatter(self, rank: Rank, leg: Leg, total: Tensor, active: Tensor, cache: Memory) -> int:
        """Send changed totals of shared masters to their mirrors, encoded once for all of them; returns rows sent."""
        num_shared, slots = self.replicas.num_shared, self.replicas.plan.send_rows
        with rank.span("codec"):
            changed_masters = _where(active, round(self._rate(rank, leg, num_shared) * num_shared))
            before = cache["total"].index_select(0, changed_masters)
            payload, after = self._difference(rank, leg, "scatter", total.index_select(0, changed_masters), before)
            totals = cache["total"].index_copy(0, changed_masters, after)
            flags = active.index_select(0, slots)
            rows, counts = self._chosen(rank, flags, self.wires.mirrored, self._rate(rank, leg, len(slots)))
            place = (active.cumsum(0) - 1).index_select(0, slots.index_select(0, rows))
            payload = tuple(part.index_select(0, place) for part in payload)
        wires = self.wires.mirrored, self.wires.mirrors
        got, received = await self._swap(rank, leg, "scatter", flags, payload, counts, *wires)
        with rank.span("codec"):
            got = got + num_shared
            cache["total"] = totals.index_copy(0, got, self._arrived(received, totals.index_select(0, got)))
        return int(counts.sum())

    async def _swap(
        self,
        rank: Rank,
        leg: Leg,
        phase: str,
        flags: Tensor,
        payload: tuple[Tensor, ...],
        counts: Counts,
        outgoing: FlagBits,
        incoming: FlagBits,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Exchange flags and flagged rows with all peers; returns which rows arrived, int64 [k], and their payload."""
        bits = Rows(outgoing.pack(flags), outgoing.num_bytes, incoming.num_bytes)
        rows = [Rows(part, counts, None) for part in payload]
        label = f"{leg.name}{leg.layer}/{phase}"
        received = await rank.all_to_all([bits, *rows], label=label, direction=leg.direction, layer=leg.layer)
        packed, *parts = received.tensors
        return _where(incoming.unpack(packed), parts[0].shape[0]), tuple(parts)

    def _moved(self, rank: Rank, leg: Leg, rows: Tensor, cached: Tensor) -> Tensor:
        """Line 4: which rows differ too much from their cached values, bool [n]."""
        with rank.span("codec"):
            try:
                flags: Tensor = changed.changed_rows(rows, cached, self.threshold)
            except ValueError as error:
                raise Diverged(
                    f"rank {rank.index}, layer {leg.layer}, epoch {rank.epoch}: {leg.direction} {leg.name}: {error}"
                ) from None
        return flags

    def _difference(
        self, rank: Rank, leg: Leg, phase: str, rows: Tensor, before: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The payload that updates `before` to `rows`, and the updated rows as decoded from it."""
        if self.codec is None:
            return (rows,), rows
        label = f"{leg.name}{leg.layer}/{phase}"
        payload = encode_rows(rank, rows - before, self.codec, label=label, direction=leg.direction, layer=leg.layer)
        return payload, self._arrived(payload, before)

    def _arrived(self, payload: tuple[Tensor, ...], before: Tensor) -> Tensor:
        """The receiver's rows after a payload; the sender computes the same, bit by bit."""
        if self.codec is None:
            return payload[0]
        return before + self.codec.decode(payload, before.shape[1], before.dtype)

    def _chosen(self, rank: Rank, flags: Tensor, wire: FlagBits, rate: float) -> tuple[Tensor, Counts]:
        """The flagged rows, ascending int64, and their number for each peer; of tensors without numbers, that share."""
        if rank.shapes_only:
            counts = np.floor(rate * np.diff(wire.bounds) + 0.5).astype(np.int64)
            return _where(flags, int(counts.sum())), counts
        rows = _where(flags, 0)
        return rows, wire.counts(rows)

    def _rate(self, rank: Rank, leg: Leg, num_rows: int) -> float:
        """The recorded share of rows sent, for tensors without numbers."""
        if not rank.shapes_only or not num_rows:
            return 0.0
        return rank.rate(OBSERVED[leg.direction], leg.layer)


def _where(flags: Tensor, count: int) -> Tensor:
    """Positions of the flags that are set, int64; on the meta device `count` of them."""
    if flags.is_meta:
        return torch.empty(count, dtype=torch.int64, device="meta")
    return torch.nonzero(flags).squeeze(1)
