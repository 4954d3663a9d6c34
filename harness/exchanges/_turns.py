"""Halo rows that are fetched in turns: in an epoch those of one slice, so that each is fetched once in a round of them.

What EC-Graph ran under the name of DistGNN (its repository, October 2021). Rows of other turns are zero, or those that
arrived in their last turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from harness.codecs import Cast
from harness.effects import Direction, Rows
from harness.exchanges._error_feedback import label_of
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import ship
from harness.graphs import HaloPlan, LocalGraph
from harness.rank import Rank

Bins = Literal["targets", "halo"]


@dataclass(frozen=True, eq=False)
class Turn:
    """The part of a halo that is fetched in one turn: the plan of its rows, and their places in the halo."""

    number: int
    plan: HaloPlan
    places: Tensor  # int64 [sum(plan.recv_counts)], ascending
    num_halo: int

    @classmethod
    async def of(cls, rank: Rank, graph: LocalGraph, plan: HaloPlan, index: int, count: int, bins: Bins) -> Turn:
        """Turn `index` of `count`; owners are told once which rows it has, 4 bytes a row and 8 a pair of ranks.

        Args:
            bins: targets cuts the rank's own nodes, in local order, into `count` slices, and a turn fetches all
                neighbours of one slice; halo deals the halo nodes themselves out to the turns.
        """
        if rank.shapes_only:
            share = 1 / count if bins == "halo" else rank.rate("fetched rows")
            recv, send = (np.floor(share * c + 0.5).astype(np.int64) for c in (plan.recv_counts, plan.send_counts))
            return cls(index, HaloPlan.meta(send, recv), plan.send_rows.new_empty(int(recv.sum())), graph.num_halo)
        places = _places(graph, index, count, bins)
        ends = np.cumsum(plan.recv_counts)
        cuts = np.searchsorted(places.cpu().numpy(), ends, side="left")
        recv = np.diff(cuts, prepend=0).astype(np.int64)
        first = torch.from_numpy(np.repeat(ends - plan.recv_counts, recv)).to(places.device)
        wanted = (places - first).to(torch.int32)
        received = await rank.all_to_all([Rows(wanted, recv, None)], label=f"turn {index}")
        send = received.counts[0]
        first = torch.from_numpy(np.repeat(np.cumsum(plan.send_counts) - plan.send_counts, send)).to(places.device)
        rows = plan.send_rows[received.tensors[0].long() + first]
        return cls(index, HaloPlan(rows, send, recv), places, graph.num_halo)


def _places(graph: LocalGraph, index: int, count: int, bins: Bins) -> Tensor:
    """The halo nodes of a turn, int64, ascending."""
    if bins == "halo":
        return torch.arange(graph.num_halo, device=graph.halo.indices.device)[index::count]
    begin, end = (graph.num_own * at // count for at in (index, index + 1))
    first, last = (int(graph.halo.indptr[at]) for at in (begin, end))
    found: Tensor = torch.unique(graph.halo.indices[first:last])
    return found.long()


@dataclass(frozen=True, eq=False)
class FetchTurn:
    """The halo's rows in a turn: its own as they are, the others zero or remembered. Bytes: 4 d a row of the turn.

    Attributes:
        memory: where rows are remembered, by label; None leaves zeros.
    """

    turn: Turn
    layer: int
    direction: Direction
    memory: Memory | None

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        plan, label = self.turn.plan, label_of(self.direction, self.layer)
        rows = await ship(
            rank, x.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts, Cast(None),
            label=f"{label} turn {self.turn.number}", direction=self.direction, layer=self.layer,
        )  # fmt: skip
        before = None if self.memory is None else self.memory.get(label)
        halo = x.new_zeros(self.turn.num_halo, x.shape[1]) if before is None else before
        halo = halo.index_copy(0, self.turn.places, rows)
        if self.memory is not None:
            self.memory[label] = halo
        return halo
