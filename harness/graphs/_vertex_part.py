"""One rank's part of a vertex cut: its edges, its replicas, and the ranks of their masters.

Every undirected edge belongs to one rank and is used there in both directions; a node has a replica on every rank with
one of its edges, and one replica is its master. Nothing here assigns edges, reads files or communicates.

Local rows are in the order inner, shared, mirrors: masters without another replica, masters with mirrors elsewhere,
and mirrors grouped by their master's rank. So masters, replicated rows and mirrors are slices, never index lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from harness.graphs._part import Block, HaloPlan, OnDevice, Totals


@dataclass(frozen=True, eq=False)
class VertexPart(OnDevice):
    """The part of a vertex cut on one rank. n = local rows, m = masters among them (the first rows).

    `plan` is from masters to mirrors (scatter), and reversed from mirrors to masters (gather): `send_rows` are the
    master rows of the other ranks' mirrors, and `recv_counts` are this rank's mirrors by their master's rank.
    """

    rank: int
    num_parts: int
    num_inner: int
    num_masters: int
    nodes: Tensor  # int64 [n] global ids in local order
    block: Block  # [n x n] this rank's edges, both directions; symmetric, so its transpose is itself
    degree: Tensor  # int64 [n] in-degrees in the whole graph
    looped: Tensor  # bool [n] whether the whole graph holds i -> i
    plan: HaloPlan
    x: Tensor | None  # float32 [n, F]; mirrors hold a copy of their master's features
    y: Tensor | None  # int64 [m], or float32 [m, C] (multi-label)
    train: Tensor  # int64 local rows, ascending, masters only; empty without a split
    val: Tensor
    test: Tensor
    totals: Totals

    replica: ClassVar[int] = 0  # of a vertex cut every rank has a part of its own

    @property
    def num_local(self) -> int:
        """Replicas on this rank."""
        return self.block.num_rows

    @property
    def num_shared(self) -> int:
        """Masters that have mirrors on other ranks."""
        return self.num_masters - self.num_inner

    @property
    def num_mirrors(self) -> int:
        """Replicas whose master is on another rank."""
        return self.num_local - self.num_masters

    def shapes_only(self) -> VertexPart:
        """The same part on the meta device."""
        return self.to("meta")

    @classmethod
    def describe(
        cls,
        rank: int,
        num_inner: int,
        num_shared: int,
        mirrors: np.ndarray,
        mirrored: np.ndarray,
        num_edges: int,
        totals: Totals,
    ) -> VertexPart:
        """A part of shapes only, from counts, for graphs that do not fit in memory.

        `mirrors`, int [P]: mirrors here by their master's rank; `mirrored`, int [P]: mirrors of this rank's masters by
        the rank that holds them. `num_edges`: undirected edges of the rank, no self loops. Split sizes are the
        graph's, scaled by the share of masters and rounded.
        """

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        num_masters = num_inner + num_shared
        num_local = num_masters + int(mirrors.sum())
        splits = (totals.num_train, totals.num_val, totals.num_test)
        train, val, test = (empty(round(num_masters * count / max(totals.num_nodes, 1))) for count in splits)
        y = empty(num_masters, totals.num_classes, dtype=torch.float32) if totals.multilabel else empty(num_masters)
        return cls(
            rank=rank,
            num_parts=len(mirrors),
            num_inner=num_inner,
            num_masters=num_masters,
            nodes=empty(num_local),
            block=Block.meta(num_local, num_local, 2 * num_edges),
            degree=empty(num_local),
            looped=empty(num_local, dtype=torch.bool),
            plan=HaloPlan.meta(mirrored, mirrors.astype(np.int64)),
            x=empty(num_local, totals.num_features, dtype=torch.float32) if totals.num_features else None,
            y=y if totals.num_classes else None,
            train=train,
            val=val,
            test=test,
            totals=totals,
        )
