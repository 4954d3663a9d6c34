"""Sums over the replicas of a vertex cut that are completed late and in turns: DistGNN's delayed partial aggregates.

A leaf (mirror) sends its partial row to the root (master), which adds it to its own, and returns the total. The leaves
of a rank are cut into r bins, of which an epoch sends one. A message takes r epochs each way, so it is waited for when
its bin has its next turn; nothing of it is kept after the epoch in which it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.effects import Counts, Handle, Received, Rows
from harness.exchanges._gather_scatter import Leg, PlainSync, Replicas
from harness.exchanges._memory import Memory
from harness.graphs import VertexPart
from harness.rank import Rank

ID_BYTES = 4


@dataclass(frozen=True, eq=False)
class LeafBin:
    """The leaves of a rank that send in one turn.

    Attributes:
        number: of the turn, from 0.
        rows: int64 [k], counted from the rank's first mirror, ascending, hence grouped by their root's rank.
        ids: int32 [k], position of every leaf among all leaves of this rank that have their root on that rank.
        counts: int64 [P], leaves by their root's rank.
    """

    number: int
    rows: Tensor
    ids: Tensor
    counts: Counts


def leaf_bins(part: VertexPart, count: int) -> tuple[LeafBin, ...]:
    """The bins of a rank: its S replicated nodes, roots and leaves, in the order of their global ids, cut into `count`
    bins of ceil(S / count); roots send nothing, so a bin has at most as many leaves. Without numbers, equal shares."""
    mirrors, device = part.plan.recv_counts, part.nodes.device
    if device.type == "meta":
        shares = [mirrors * (at + 1) // count - mirrors * at // count for at in range(count)]
        rows = [torch.empty(int(share.sum()), dtype=torch.int64, device=device) for share in shares]
        return tuple(LeafBin(b, r, r.to(torch.int32), c) for b, (r, c) in enumerate(zip(rows, shares, strict=True)))
    split = part.nodes[part.num_inner :]
    place = torch.empty_like(split)
    place[torch.argsort(split)] = torch.arange(len(split), device=device)
    number = place[part.num_shared :] // max(-(-len(split) // count), 1)
    ends = np.cumsum(mirrors)
    first = torch.from_numpy(np.repeat(ends - mirrors, mirrors)).to(device)
    position = torch.arange(len(number), device=device) - first
    found = []
    for b in range(count):
        mine = torch.nonzero(number == b).squeeze(1)
        counts = np.diff(np.searchsorted(mine.cpu().numpy(), ends), prepend=0).astype(np.int64)
        found.append(LeafBin(b, mine, position[mine].to(torch.int32), counts))
    return tuple(found)


class DelayedSum:
    """Partial rows [n, d] and partial degrees -> sums and degrees as far as they are known in this epoch.

    With r bins, an epoch sends one of them. With r = 1 roots and leaves wait for their messages within the epoch, and
    all sums are complete. With r > 1 roots add what leaves sent r epochs ago, and leaves take in the place of their own
    sum what roots returned r epochs ago; rows that get nothing have the sum over the rank's own edges. Without bins
    nothing is sent.

    The gradient is passed on as it is (a clone's gradient belongs to its own partial row), or `exact`: the sum of all
    replicas' gradients, for sums that are complete. One object serves one layer of one epoch.

    Args:
        degree: int64 [n], edges of this rank by row.
        bins: those of `leaf_bins`, or none.
        memory: messages under way, by layer and bin.

    Attributes:
        known: int64 [n], degrees that belong to the sums, once `forward` is done.
    """

    def __init__(
        self, replicas: Replicas, degree: Tensor, bins: tuple[LeafBin, ...], layer: int, memory: Memory, *, exact: bool
    ) -> None:
        self.replicas, self.known, self.bins, self.layer = replicas, degree, bins, layer
        self.memory, self.exact = memory, exact

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n, d] -> (sums [n, d],)."""
        if not self.bins:
            return (x,)
        inner, shared = self.replicas.num_inner, self.replicas.num_shared
        edge = torch.cat([self.known[inner:, None].to(x.dtype), x[inner:]], 1)
        turn = self.bins[rank.epoch % len(self.bins)]
        up, down = f"leaves {self.layer} bin {turn.number}", f"roots {self.layer} bin {turn.number}"
        if len(self.bins) > 1:
            arrived, returned = self.memory.pop(up, None), self.memory.pop(down, None)
            self.memory[up] = await self._send_up(rank, turn, edge[shared:], up)
        else:
            arrived, returned = await self._send_up(rank, turn, edge[shared:], up), None
        if arrived is not None:
            message, counts = await received(rank, arrived)
            slots = self._add(edge, message, counts)
            totals = await self._send_down(rank, turn, edge.index_select(0, slots), counts, down)
            if len(self.bins) > 1:
                self.memory[down] = totals
            else:
                returned = totals
        if returned is not None:
            edge = edge.index_copy(0, turn.rows + shared, (await received(rank, returned))[0])
        self.known = torch.cat([self.known[:inner], edge[:, 0].to(self.known.dtype)])
        return (torch.cat([x[:inner], edge[:, 1:]]),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_sums [n, d],) -> the gradient of x."""
        (g,) = gradients
        return await PlainSync(self.replicas).total(rank, g, Leg("g-z", self.layer, "backward")) if self.exact else g

    async def _send_up(self, rank: Rank, turn: LeafBin, leaves: Tensor, label: str) -> Handle:
        """Start sending [degree, row] and the id of every leaf of the bin, in one message to every root's rank."""
        message = torch.cat([_bytes(leaves.index_select(0, turn.rows)), _bytes(turn.ids[:, None])], 1)
        rows = [Rows(message, turn.counts, None)]
        handle: Handle = await rank.start(rank.all_to_all(rows, label=label, direction="forward", layer=self.layer))
        return handle

    def _add(self, edge: Tensor, message: Tensor, counts: Counts) -> Tensor:
        """Add arrived rows to their roots' in `edge`, in place; returns the roots, one for every arrived row."""
        plan = self.replicas.plan
        first = np.repeat(np.cumsum(plan.send_counts) - plan.send_counts, counts)
        ids = _typed(message[:, -ID_BYTES:], torch.int32)[:, 0].long()
        slots = plan.send_rows.index_select(0, ids + torch.from_numpy(first).to(ids.device))
        edge.index_add_(0, slots, _typed(message[:, :-ID_BYTES], edge.dtype))
        return slots

    async def _send_down(self, rank: Rank, turn: LeafBin, totals: Tensor, counts: Counts, label: str) -> Handle:
        """Start returning [degree, total] to the leaves that sent theirs."""
        rows = [Rows(totals, counts, turn.counts)]
        handle: Handle = await rank.start(rank.all_to_all(rows, label=label, direction="forward", layer=self.layer))
        return handle


async def received(rank: Rank, entry: Handle | Memory) -> tuple[Tensor, Counts]:
    """A message that was started, or restored from a checkpoint: its rows, and how many came from every rank."""
    if isinstance(entry, Handle):
        found: Received = await rank.wait(entry)
        return found.tensors[0], found.counts[0]
    return entry["message"], entry["counts"].cpu().numpy()


async def drain_delayed(rank: Rank, memory: Memory) -> None:
    """Wait for every message under way; what arrived replaces the handles in the memory."""
    for label in list(memory):
        if isinstance(memory[label], Handle):
            message, counts = await received(rank, memory[label])
            memory[label] = {"message": message, "counts": torch.tensor(counts)}


def _bytes(rows: Tensor) -> Tensor:
    return rows.contiguous().view(torch.uint8)


def _typed(columns: Tensor, dtype: torch.dtype) -> Tensor:
    """Columns of bytes as values; the copy is aligned, and has the usual strides also without rows."""
    flat = columns.clone(memory_format=torch.contiguous_format).flatten()
    return flat.view(dtype).view(columns.shape[0], columns.shape[1] // dtype.itemsize)
