"""Full-graph layers that sum neighbours and the node itself with other weights than the model's: for evaluation only.

Methods that train with such sums (Cluster-GCN's diagonal enhancement, AliGraph's plain sums) are evaluated with them.
Not in the registry: as a way of training it has no source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from harness.errors import InputError
from harness.graphs import Block
from harness.methods.bases.edge_cut import EdgeCutState
from harness.methods.vanilla import Vanilla
from harness.nn import GNN, Drop, aggregate, edge_rows
from harness.tape import Tape


@dataclass(frozen=True, kw_only=True)
class SelfWeighted(Vanilla):
    """Exact layers with z_v = r_v (sum of neighbours + own x the node's own row).

    Options:
        own: weight of the own row; 0 for no self loop.
        mean: r_v = 1 / (degree + 1), without a self loop 1 / degree; otherwise 1.
    """

    layer0: Literal["auto", "precompute", "cache", "exchange"] = "exchange"
    own: float = 1.0
    mean: bool = False

    name = "self-weighted"

    def scale(self, degree: Tensor, like: Tensor) -> Tensor:
        """r of rows with these degrees, [n, 1]."""
        if not self.mean:
            return like.new_ones(degree.shape[0], 1)
        counted = degree + 1 if self.own else degree.clamp(min=1)
        return counted.to(like.dtype).reciprocal()[:, None]

    def weights(self, block: Block, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights of a block's edges, and [rows, 1] of the own rows, with the block's own degrees."""
        scale = self.scale(block.indptr.diff(), like)
        return scale[:, 0].index_select(0, edge_rows(block)), self.own * scale if self.own else None

    async def _layer(
        self, l: int, model: GNN, state: EdgeCutState, plan: Any, tape: Tape, h: Tensor, above: Drop | None
    ) -> Tensor:
        """Exchange and compute one layer; its rows are dropped as the layer above wants them."""
        exchange = self.exchange(l, model, state, plan)
        own, halo, h = await tape.apply(exchange, model.message(l, h), h)
        z = aggregate(state.graph.own, own) + aggregate(state.graph.halo, halo)
        z = (z + self.own * own) * self.scale(state.graph.degree, own)
        return model.combine(l, h, z, transformed=model.linear_first(l), drop=above)


def refuse_attention(what: str, model: GNN) -> None:
    """Raise InputError, about `what`, for a model with a layer whose neighbour sum is no linear one."""
    if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
        raise InputError(f"{what} weighs sums over neighbours, and attention has none; use gcn or sage")
