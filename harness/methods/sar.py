"""SAR: sequential aggregation and rematerialisation, exact training with few halo rows in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import LayerExchange, Pieces, SequentialAttention, SequentialSum
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState, message_width
from harness.nn import GNN, Conv, GATConv
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class SARState(EdgeCutState):
    """The state of an edge cut, and the halo cut by owner."""

    pieces: Pieces


@dataclass(frozen=True, kw_only=True)
class SAR(EdgeCut):
    """Exact full-graph training that fetches, uses and frees the rows of one remote part after the other.

    Bytes per epoch of GCN and GraphSAGE are those of vanilla: halo rows x width x 4 per exchanged layer, and the same
    backwards, since sums need no rows again. Attention with H heads of width D sends 4 (H D + H) per halo row
    forwards, z and source scores, and 8 (H D + H) backwards: both are fetched again, and their gradients returned.
    Halo rows in memory: at most those of depth + 1 parts, instead of all parts and layers; of attention, edge scores
    besides. Nothing is kept between epochs. The rounds of a layer follow each other, P - 1 of them per fetch; gradients
    of sums are on their way back while the rank's own edges are summed.

    In brief:
        travels: boundary rows of every layer forwards, their gradients backwards, one remote part at a time
        bytes: 4 d a halo row, layer and direction; attention 4 (H D + H) forwards and 8 (H D + H) backwards with H
            heads of width D
        memory: halo rows of depth + 1 parts in one layer, instead of all parts and layers

    Options:
        depth: rounds that are on their way while the rows of one are added; 1 is the authors' default.
    """

    depth: int = 1

    name = "sar"
    facts = Facts(cut="edge", exact=True, repeats=True, static=True, paper="SAR; the comparison of Sylvie")

    def validate(self) -> None:
        if self.depth < 0:
            raise InputError(f"sar: depth must be at least 0, not {self.depth}")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if any(not isinstance(model.layers[l], Conv) for l in range(model.depth)):
            raise InputError("sar needs layers of haloscope (gcn, sage, gat); use vanilla")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> SARState:
        state = await super().setup(rank, part, model)
        pieces = Pieces.of(state.graph, part.plan, self.depth)
        return SARState(state.graph, state.route, state.layer0, state.halo_x, state.z0, pieces)

    def measures(self, part: Part, model: GNN, state: SARState) -> dict[str, float]:  # type: ignore[override]
        return {
            "halo rows in memory at a time (rows)": state.pieces.most_rows(part.rank),
            "halo rows (rows)": int(part.plan.recv_counts.sum()),
        }

    def maps_attention(self) -> bool:
        return True

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        layer = model.layers[l]
        if isinstance(layer, GATConv):
            return (4 if direction == "forward" else 8) * layer.heads * (layer.width + 1)
        return 4 * message_width(model, l)

    def exchange(self, l: int, model: GNN, state: SARState, plan: Any) -> LayerExchange:  # type: ignore[override]
        layer, aggregation = model.layers[l], model.aggregation(l)
        if isinstance(layer, GATConv):
            return SequentialAttention(state.pieces, l, layer)
        assert aggregation is not None
        return SequentialSum(state.pieces, l, aggregation)
