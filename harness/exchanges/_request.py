"""Requests of a pull: a reader names the rows that it wants, and owners reply (EC-Graph, Alg. 3 and 5, line 1)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from harness.effects import Direction, Rows
from harness.exchanges._error_feedback import Boundary, Fetch, label_of
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class Requested:
    """A fetch whose readers first send the numbers of the wanted nodes to the owners.

    The owners know the lists since the graph was partitioned, so the numbers cost bytes and time and decide nothing.
    Bytes: 4 a row, counted as other under the label `request h1` (or g1).

    Attributes:
        nodes: int32 [n_halo], the global numbers of the halo rows.
    """

    fetch: Fetch
    boundary: Boundary
    layer: int
    direction: Direction
    nodes: Tensor

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        plan = self.boundary.plan
        wanted = Rows(self.nodes, plan.recv_counts, plan.send_counts)
        await rank.all_to_all([wanted], label=f"request {label_of(self.direction, self.layer)}", layer=self.layer)
        return await self.fetch(rank, x)
