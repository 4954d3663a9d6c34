"""Boundary exchanges of the edge cut, each with its adjoint: push and pull.

Push (BNS-GCN, PipeGCN, Sylvie): halo rows are received, their gradients are sent back to the owners and added there.
Pull (EC-Graph, CAGNET): complete gradients of own rows are sent to all ranks that have them as neighbours, and the
receiver multiplies by the adjacency itself. Both send the same rows on a symmetric graph.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from harness.codecs import Codec
from harness.effects import Counts, Direction, Received, Rows
from harness.errors import Diverged
from harness.exchanges._returns import Returns
from harness.graphs import HaloPlan, LocalGraph
from harness.nn import Aggregation
from harness.rank import Rank


async def ship(
    rank: Rank, rows: Tensor, send: Counts, recv: Counts, codec: Codec, *, label: str, direction: Direction, layer: int,
    beside: Callable[[], None] | None = None,
) -> Tensor:  # fmt: skip
    """Encode `rows` [sum(send), d], exchange them, decode: [sum(recv), d].

    Args:
        beside: computes something while the rows travel.

    Raises:
        Diverged: the codec met nan or inf; the message names rank, layer and epoch.
    """
    payload = encode_rows(rank, rows, codec, label=label, direction=direction, layer=layer)
    exchange = rank.all_to_all(
        [Rows(part, send, recv) for part in payload], label=label, direction=direction, layer=layer
    )
    if beside is None:
        received: Received = await exchange
    else:
        handle = await rank.start(exchange)
        beside()
        received = await rank.wait(handle)
    with rank.span("codec"):
        return codec.decode(received.tensors, rows.shape[1], rows.dtype)


Ship = Callable[..., Awaitable[Tensor]]
"""A function with the signature of `ship`, which exchanges rows."""


def encode_rows(
    rank: Rank, rows: Tensor, codec: Codec, *, label: str, direction: Direction, layer: int
) -> tuple[Tensor, ...]:
    """The payload of `rows`. Raises Diverged, naming rank, layer and epoch, where the codec met nan or inf."""
    with rank.span("codec"):
        return encoding(rank, rows, codec, label=label, direction=direction, layer=layer)()


def encoding(
    rank: Rank, rows: Tensor, codec: Codec, *, label: str, direction: Direction, layer: int
) -> Callable[[], tuple[Tensor, ...]]:
    """A function that returns the payload of `rows`, the same whenever it is called: random numbers are of this epoch.

    It raises Diverged as `encode_rows` does.
    """
    key = rank.key(f"codec/{label}", layer)
    where = f"rank {rank.index}, layer {layer}, epoch {rank.epoch}: {direction} {label}"

    def encode() -> tuple[Tensor, ...]:
        try:
            return codec.encode(rows, key)
        except ValueError as error:
            raise Diverged(f"{where}: {error}") from None

    return encode


@dataclass(frozen=True, eq=False)
class Route:
    """A halo plan with the index that adds returned rows: row r of the rank was sent as rows
    `positions[indptr[r]:indptr[r+1]]` of the send buffer, int64."""

    plan: HaloPlan
    indptr: Tensor
    positions: Tensor

    @classmethod
    def of(cls, plan: HaloPlan, num_own: int) -> Route:
        """The route of a plan for a rank with `num_own` own rows."""
        rows = plan.send_rows
        if rows.is_meta:
            return cls(plan, rows.new_empty(num_own + 1), rows.new_empty(rows.shape[0]))
        counts = torch.bincount(rows, minlength=num_own)
        indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return cls(plan, indptr, torch.argsort(rows, stable=True))

    def add_back(self, own: Tensor, returned: Tensor) -> Tensor:
        """`own` [n_own, d] plus every returned row at the row it was sent from, in the order of sending."""
        if not self.plan.send_rows.shape[0]:
            return own
        added: Tensor = torch.ops.haloscope.gather_sum(self.indptr, self.positions, returned)
        return added.add_(own)  # over the sums, which nobody else has


@dataclass(frozen=True, eq=False)
class HaloPush:
    """Own rows -> (own rows, halo rows); halo gradients -> owners, which add them.

    `scale` multiplies the rows sent forwards and the gradients returned (BNS-GCN's 1/p); a number, or a tensor with one
    value per sent row. `ship` exchanges the rows: at once, or an epoch late (`_pipeline`).
    """

    route: Route
    layer: int
    codec: Codec
    backward_codec: Codec
    scale: float | Tensor | None = None
    ship: Ship = ship

    returns: ClassVar[Returns] = "messages"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [n_own, d] -> (x, halo [n_halo, d])."""
        return x, await self.fetched(rank, x)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_own [n_own, d], g_halo [n_halo, d]) -> g_x [n_own, d]."""
        g_own, g_halo = gradients
        return self.route.add_back(g_own, await self.returned(rank, g_halo))

    async def fetched(self, rank: Rank, x: Tensor) -> Tensor:
        """The halo rows [n_halo, d], of own rows x [n_own, d]."""
        plan = self.route.plan
        rows = self._scaled(x.index_select(0, plan.send_rows))
        return await self.ship(
            rank, rows, plan.send_counts, plan.recv_counts, self.codec,
            label=f"h{self.layer}", direction="forward", layer=self.layer,
        )  # fmt: skip

    async def returned(self, rank: Rank, g_halo: Tensor) -> Tensor:
        """The gradients that readers have of the rows sent, in the order of sending, from those of the halo rows."""
        plan = self.route.plan
        return self._scaled(
            await self.ship(
                rank,
                g_halo,
                plan.recv_counts,
                plan.send_counts,
                self.backward_codec,
                label=f"g{self.layer}",
                direction="backward",
                layer=self.layer,
            )  # fmt: skip
        )

    def _scaled(self, rows: Tensor) -> Tensor:
        if self.scale is None:
            return rows
        return rows * (self.scale if isinstance(self.scale, float) else self.scale[:, None].to(rows.dtype))


@dataclass(frozen=True, eq=False)
class HaloPull:
    """Own rows -> their aggregation over own and halo rows; backwards the complete gradients of own rows are sent.

    Needs a symmetric graph (the same send lists serve both directions) and an aggregation that is linear in rows.
    """

    route: Route
    layer: int
    codec: Codec
    backward_codec: Codec
    graph: LocalGraph
    aggregation: Aggregation

    returns: ClassVar[Returns] = "sum"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        return (self.aggregation.forward(self.graph, x, await self._halo(rank, x, self.codec, "forward", "h")),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T [g_z; halo of g_z]."""
        (g_z,) = gradients
        halo = await self._halo(rank, g_z, self.backward_codec, "backward", "g")
        return self.aggregation.adjoint(self.graph, g_z, halo)

    async def _halo(
        self, rank: Rank, x: Tensor, codec: Codec, direction: Direction, name: str,
        beside: Callable[[], None] | None = None,
    ) -> Tensor:  # fmt: skip
        plan = self.route.plan
        rows = x.index_select(0, plan.send_rows)
        return await ship(
            rank, rows, plan.send_counts, plan.recv_counts, codec,
            label=f"{name}{self.layer}", direction=direction, layer=self.layer, beside=beside,
        )  # fmt: skip
