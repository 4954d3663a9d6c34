"""The exchange of a vertex cut: partial rows of all replicas are summed at the master, and the sum goes back to all.

Gather and scatter (CDFGNN, Sec. 3.2) are one linear map from the replicas' partial rows to the same total on every
replica, and that map is its own adjoint: what a replica computes from a total is computed on every replica, so its
gradients are partial sums again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from harness.codecs import Cast, Codec
from harness.effects import Rows
from harness.exchanges._push_pull import Route, encode_rows, ship
from harness.graphs import HaloPlan, VertexPart
from harness.rank import Rank


class Leg(NamedTuple):
    """One sum over replicas: its name, where its bytes are counted, and which of its phases run.

    With `zero_mirrors` the mirrors' partial rows are 0 whatever the data: gradients of a loss on masters.
    """

    name: str
    layer: int
    direction: Literal["forward", "backward"]
    gather: bool = True
    scatter: bool = True
    zero_mirrors: bool = False


@dataclass(frozen=True, eq=False)
class Replicas:
    """The replicas of a rank: local rows are inner, then shared masters, then mirrors (`VertexPart`).

    `route` is in terms of shared masters: `plan.send_rows` are theirs, counted from the first shared one.
    """

    num_inner: int
    num_shared: int
    route: Route

    @classmethod
    def of(cls, part: VertexPart) -> Replicas:
        """The replicas of a part."""
        plan = replace(part.plan, send_rows=part.plan.send_rows - part.num_inner)
        return cls(part.num_inner, part.num_shared, Route.of(plan, part.num_shared))

    @property
    def plan(self) -> HaloPlan:
        """Mirrors of the shared masters by rank, and this rank's mirrors by their master's rank."""
        return self.route.plan

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the inner rows, the shared masters and the mirrors of x [n, d]."""
        masters = self.num_inner + self.num_shared
        return x[: self.num_inner], x[self.num_inner : masters], x[masters:]


class ReplicaSync(Protocol):
    """Synchronises replicas, from partial rows to totals: exactly, quantised, or with a cache."""

    async def total(self, rank: Rank, x: Tensor, leg: Leg) -> Tensor:
        """Partial rows x [n, d] -> their sums over replicas [n, d].

        Without `leg.gather` the mirrors' partial rows are 0 and not sent; without `leg.scatter` the mirrors' totals are
        not needed and are 0. Raises Diverged if nan or inf would have to be encoded.
        """
        ...


@dataclass(frozen=True, eq=False)
class PlainSync:
    """Every partial row and every total is sent, in every leg, through one codec.

    Every replica uses the decoded total, the master too, so replicas stay equal bit by bit.
    """

    replicas: Replicas
    codec: Codec = Cast(None)

    async def total(self, rank: Rank, x: Tensor, leg: Leg) -> Tensor:
        inner, shared, mirrors = self.replicas.split(x)
        if leg.gather:
            shared = self.replicas.route.add_back(shared, await self._gather(rank, mirrors, leg))
        if not leg.scatter:
            return torch.cat([inner, shared, torch.zeros_like(mirrors)])
        return torch.cat([inner, *await self._scatter(rank, shared, leg)])

    async def _gather(self, rank: Rank, mirrors: Tensor, leg: Leg) -> Tensor:
        plan, label = self.replicas.plan, f"{leg.name}{leg.layer}/gather"
        counts = plan.recv_counts, plan.send_counts
        return await ship(rank, mirrors, *counts, self.codec, label=label, direction=leg.direction, layer=leg.layer)

    async def _scatter(self, rank: Rank, totals: Tensor, leg: Leg) -> tuple[Tensor, Tensor]:
        """Totals of shared masters -> the decoded totals, for shared masters and for mirrors."""
        plan, label = self.replicas.plan, f"{leg.name}{leg.layer}/scatter"
        payload = encode_rows(rank, totals, self.codec, label=label, direction=leg.direction, layer=leg.layer)
        with rank.span("codec"):
            decoded = self.codec.decode(payload, totals.shape[1], totals.dtype)
        rows = [Rows(t.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts) for t in payload]
        received = await rank.all_to_all(rows, label=label, direction=leg.direction, layer=leg.layer)
        with rank.span("codec"):
            return decoded, self.codec.decode(received.tensors, totals.shape[1], totals.dtype)


@dataclass(frozen=True, eq=False)
class ReplicaSum:
    """Partial rows [n, d] -> their sums over replicas [n, d], and the same backwards.

    Args:
        sync: how partial rows become totals.
        layer: where its bytes are counted.
        half: the totals are used on masters only (the last layer): gather forwards, scatter backwards. Mirrors' totals
            are 0.
        last: no exchange follows, so that gradients of the totals are 0 on mirrors.
        name: of the rows, in labels.
    """

    sync: ReplicaSync
    layer: int
    half: bool = False
    last: bool = False
    name: str = "z"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n, d] -> (totals [n, d],)."""
        return (await self.sync.total(rank, x, Leg(self.name, self.layer, "forward", scatter=not self.half)),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_totals [n, d],) -> g_x [n, d]: each replica's gradient is the sum of all replicas'."""
        return await self.sync.total(
            rank,
            gradients[0],
            Leg(f"g-{self.name}", self.layer, "backward", gather=not self.half, zero_mirrors=self.last),
        )


async def replica_maximum(rank: Rank, replicas: Replicas, x: Tensor, layer: int) -> Tensor:
    """The largest of all replicas' values, exact, on every replica: x [n, d] -> [n, d]. No gradient."""
    inner, shared, mirrors = replicas.split(x)
    sync, leg = PlainSync(replicas), Leg("maximum", layer, "forward")
    returned = await sync._gather(rank, mirrors, leg)
    at = replicas.plan.send_rows[:, None].expand_as(returned)
    shared = shared.scatter_reduce(0, at, returned, "amax")
    return torch.cat([inner, *await sync._scatter(rank, shared, leg)])
