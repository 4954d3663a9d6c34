"""How many bits every row of a pull gets: ranks report how much their rows vary, rank 0 decides (AdaQP).

Rows of one pair of ranks are sorted by their variance and cut into groups. Rank 0 is told the variance of every group
and returns its bits; owners then tell their readers the bits of every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harness.codecs import BitGroups, choose_bits
from harness.effects import Counts, Direction, Rows
from harness.exchanges._error_feedback import label_of
from harness.exchanges._memory import Memory
from harness.graphs import HaloPlan, LocalGraph
from harness.nn import Aggregation
from harness.rank import Rank


class CodedMessage(NamedTuple):
    """A message whose rows get bits."""

    layer: int
    direction: Direction
    width: int
    aggregation: Aggregation

    @property
    def label(self) -> str:
        """Its name in labels and in the memory."""
        return label_of(self.direction, self.layer)


@dataclass(frozen=True, eq=False)
class BitAssignment:
    """What an assignment needs, besides what the rows of the last epochs were.

    Attributes:
        messages: M > 0 messages, all with the rows of `plan`.
        counts: int64 [P, P], rows that every rank sends to every other; without numbers only this rank's are known.
        weights: float32 [rows sent, M], sums of the squared factors with which readers add a row to their own.
        group: rows of a group.
        weight: of the variance against the time, from 0 to 1.
    """

    plan: HaloPlan
    messages: tuple[CodedMessage, ...]
    counts: np.ndarray
    weights: Tensor
    group: int
    weight: float

    @classmethod
    async def of(
        cls,
        rank: Rank,
        plan: HaloPlan,
        graph: LocalGraph,
        messages: Sequence[CodedMessage],
        group: int,
        weight: float,
    ) -> BitAssignment:
        """Every rank learns how many rows are sent, and owners the weights of their rows."""
        counts = torch.zeros(rank.size, rank.size, dtype=torch.float64)
        counts[rank.index] = torch.from_numpy(plan.send_counts.astype(np.float64))
        summed = await rank.all_reduce(counts.to(rank.device), label="rows sent", direction="other")
        known = (counts if rank.shapes_only else summed.cpu()).numpy().astype(np.int64)
        factors = torch.stack([squared_factors(graph, m.aggregation, m.direction) for m in messages], 1)
        rows = [Rows(factors, plan.recv_counts, plan.send_counts)]
        weights = (await rank.all_to_all(rows, label="squared factors")).tensors[0]
        return cls(plan, tuple(messages), known, weights, group, weight)

    def num_groups(self, sender: int) -> int:
        """Groups of one message over all receivers of a rank's rows."""
        return int((-(-self.counts[sender] // self.group)).sum())

    async def assign(self, rank: Rank, trace: Memory) -> dict[str, Memory]:
        """Bits of sent and of read rows by label, under "sent" and "read", from the summed squared ranges of rows."""
        groups, order = self.num_groups(rank.index), None
        sums = torch.empty(len(self.messages), groups, device=rank.device)
        if not rank.shapes_only:
            scores = torch.stack([trace[m.label] for m in self.messages]) * self.weights.t()
            order, found = self._grouped(rank.index, scores.double().cpu().numpy())
            sums = torch.from_numpy(found.astype(np.float32)).to(rank.device)
        bits = await self._decided(rank, sums)
        sent = torch.empty(len(self.plan.send_rows), len(self.messages), dtype=torch.uint8, device=rank.device)
        if order is not None:
            sizes = self._sizes(rank.index)
            by_row = np.repeat(bits.cpu().numpy(), sizes, axis=1)
            for m in range(len(self.messages)):
                sent[torch.from_numpy(order[m]).to(sent.device), m] = torch.from_numpy(by_row[m]).to(sent.device)
        rows = [Rows(sent, self.plan.send_counts, self.plan.recv_counts)]
        read = (await rank.all_to_all(rows, label="bits of rows")).tensors[0]
        return {
            name: {m.label: table[:, at].contiguous() for at, m in enumerate(self.messages)}
            for name, table in (("sent", sent), ("read", read))
        }

    async def _decided(self, rank: Rank, sums: Tensor) -> Tensor:
        """Bits of this rank's groups, uint8 [M, groups], as rank 0 chooses them from the variances of all groups."""
        mine = np.where(np.arange(rank.size) == 0, sums.numel(), 0)
        reported = await rank.all_to_all([Rows(sums.flatten(), mine, None)], label="variances of groups")
        variances, theirs = reported.tensors[0], reported.counts[0]
        chosen = torch.empty(len(variances), dtype=torch.uint8, device=rank.device)
        if rank.index == 0 and not rank.shapes_only:
            chosen = torch.from_numpy(self.solved(variances.cpu().numpy())).to(rank.device)
        returned = await rank.all_to_all([Rows(chosen, theirs, mine)], label="bits of groups")
        bits: Tensor = returned.tensors[0].view(sums.shape)
        return bits

    def solved(self, reported: np.ndarray) -> np.ndarray:
        """Bits of all groups, uint8, in the order of their variances: by rank, message and group."""
        size, count = len(self.counts), len(self.messages)
        by_rank = np.split(reported, np.cumsum([self.num_groups(r) * count for r in range(size)])[:-1])
        variances = [mine.reshape(count, -1) for mine in by_rank]
        groups = [-(-self.counts[r] // self.group) for r in range(size)]
        sender = np.repeat(np.arange(size), [g.sum() for g in groups])
        receiver = np.concatenate([np.repeat(np.arange(size), g) for g in groups])
        rows = np.concatenate([self._sizes(r) for r in range(size)])
        bits = []
        for m, message in enumerate(self.messages):
            variance = np.concatenate([mine[m] for mine in variances]).astype(np.float64)
            bits.append(choose_bits(BitGroups(sender, receiver, rows, variance, message.width), self.weight, size))
        ends = np.cumsum([g.sum() for g in groups])
        return np.concatenate(
            [np.concatenate([b[end - g.sum() : end] for b in bits]) for g, end in zip(groups, ends, strict=True)]
        )

    def _sizes(self, sender: int) -> Counts:
        """Rows of every group of a rank, receiver by receiver; the last of each may be shorter."""
        sizes = [np.diff(np.append(np.arange(0, n, self.group), n)) for n in self.counts[sender] if n]
        return np.concatenate(sizes).astype(np.int64) if sizes else np.zeros(0, np.int64)

    def _grouped(self, sender: int, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sent rows by receiver and falling score, int64 [M, n], and the sums of their groups [M, groups]."""
        receiver = np.repeat(np.arange(len(self.counts)), self.counts[sender])
        order = np.stack([np.lexsort((-mine, receiver)) for mine in scores])
        ends = np.cumsum(self._sizes(sender))
        summed = np.pad(np.cumsum(np.take_along_axis(scores, order, 1), 1), ((0, 0), (1, 0)))
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        return order, summed[:, ends] - summed[:, starts]


def squared_factors(graph: LocalGraph, aggregation: Aggregation, direction: Direction) -> Tensor:
    """Sum of the squares of the factors with which the rank's rows add every halo row, float32 [n_halo].

    Forwards the factor of halo row j in row i is r_i c_j; backwards, in the transpose, c_i r_j.
    """
    like = torch.empty(0, dtype=torch.float32, device=graph.degree.device)
    own, halo = (aggregation.scale(degree, like).square() for degree in (graph.degree, graph.halo_degree))
    inner, outer = own, halo
    if aggregation.kind == "mean":
        inner, outer = (own, torch.ones_like(halo)) if direction == "forward" else (torch.ones_like(own), halo)
    total: Tensor = torch.ops.haloscope.gather_sum(graph.halo.t_indptr, graph.halo.t_indices, inner)
    return (total * outer)[:, 0]
