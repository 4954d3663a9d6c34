"""A push that treats own rows as sent ones: they too are encoded and decoded, in both directions (Sylvie, Table 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from harness.codecs import Codec
from harness.effects import Rows
from harness.exchanges._push_pull import Route, encode_rows, ship
from harness.exchanges._returns import Returns
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class QuantisedPush:
    """A push in which own rows are quantised too, with the same codes that their readers receive."""

    route: Route
    layer: int
    codec: Codec

    returns: ClassVar[Returns] = "messages"

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [n_own, d] -> (decoded x, decoded halo [n_halo, d])."""
        plan, label = self.route.plan, f"h{self.layer}"
        payload = encode_rows(rank, x, self.codec, label=label, direction="forward", layer=self.layer)
        parts = [Rows(part.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts) for part in payload]
        received = await rank.all_to_all(parts, label=label, direction="forward", layer=self.layer)
        with rank.span("codec"):
            own, halo = (self.codec.decode(rows, x.shape[1], x.dtype) for rows in (payload, received.tensors))
        return own, halo

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_own, g_halo) -> decoded g_own plus the decoded halo gradients of all readers, [n_own, d]."""
        g_own, g_halo = gradients
        plan, l = self.route.plan, self.layer
        returned = await ship(
            rank, g_halo, plan.recv_counts, plan.send_counts, self.codec, label=f"g{l}", direction="backward", layer=l
        )
        payload = encode_rows(rank, g_own, self.codec, label=f"own g{l}", direction="backward", layer=l)
        with rank.span("codec"):
            own = self.codec.decode(payload, g_own.shape[1], g_own.dtype)
        return self.route.add_back(own, returned)
