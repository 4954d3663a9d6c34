"""Parts that several ranks hold: the grid of ranks, and a part as each of its holders sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.graphs._part import Part


@dataclass(frozen=True)
class RankGrid:
    """Ranks in rows and columns: the `replicas` ranks of a row hold the same part, a column holds every part once.

    Rank r is in row r // replicas and in column r % replicas.
    """

    size: int
    replicas: int

    def row(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold the part of a rank."""
        first = rank - rank % self.replicas
        return tuple(range(first, first + self.replicas))

    def column(self, rank: int) -> tuple[int, ...]:
        """The ranks of a rank's column, by their parts."""
        return tuple(range(rank % self.replicas, self.size, self.replicas))


def replicated(part: Part, grid: RankGrid, rank: int) -> Part:
    """A part of `grid.size // grid.replicas`, as `rank` of the grid holds it: halo rows come from its own column."""
    if grid.replicas == 1:
        return part
    column = list(grid.column(rank))
    send, recv = np.zeros((2, grid.size), np.int64)
    send[column], recv[column] = part.plan.send_counts, part.plan.recv_counts
    plan = replace(part.plan, send_counts=send, recv_counts=recv)
    return replace(part, rank=rank, num_parts=grid.size, replica=rank % grid.replicas, plan=plan)
