"""The forward pass that all full-graph edge-cut methods share; subclasses define their exchanges.

It also handles the input layer: `precompute` aggregates the input features once with all boundary nodes, `cache` keeps
the halo nodes' features, `exchange` fetches them every epoch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from torch import Tensor

from harness.codecs import Cast
from harness.effects import Direction
from harness.errors import InputError, ProgramError
from harness.exchanges import (
    AttentionExchange,
    HaloPull,
    HaloPush,
    LayerExchange,
    Memory,
    OverlappedPull,
    OverlappedPush,
    Route,
    returned_by,
    ship,
)
from harness.graphs import LocalGraph, Part
from harness.methods.bases.base import Method, Seen, WireBytes, all_reduce_bytes
from harness.nn import GNN, Drop, GATConv
from harness.rank import Rank
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class EdgeCutState:
    """The result of `setup`: the graph in the model's form, the route of the halo, and the input layer."""

    graph: LocalGraph
    route: Route
    layer0: str
    halo_x: Tensor | None  # [n_halo, F], layer0 = cache
    z0: Tensor | None  # [n_own, F] aggregated input, layer0 = precompute


def exchanged_layers(model: GNN, layer0: str, mapped: bool = False) -> list[tuple[int, Direction]]:
    """The (layer, direction) pairs that exchange rows in every epoch; raw input has no gradient.

    `mapped`: whether attention layers send rows that they have mapped already, which have a gradient in layer 0 too.
    """
    found: list[tuple[int, Direction]] = []
    for l in range(model.depth):
        if model.exchanges(l) and (l > 0 or layer0 == "exchange"):
            found.append((l, "forward"))
            if l > 0 or model.linear_first(l) or (mapped and isinstance(model.layers[l], GATConv)):
                found.append((l, "backward"))
    return found


def message_width(model: GNN, l: int) -> int:
    """Values per row that layer l sends: the width of its input, or of its output if the linear map comes first."""
    layer = model.layers[l]
    if not model.linear_first(l):
        return model.widths[l]
    return layer.heads * layer.width if isinstance(layer, GATConv) else model.widths[l + 1]


@dataclass(frozen=True, kw_only=True)
class EdgeCut(Method):
    """Layer by layer: exchange boundary rows, then compute on (own, halo) rows.

    Options:
        layer0: precompute | cache | exchange; auto = precompute where aggregation is linear, else cache.
    """

    layer0: Literal["auto", "precompute", "cache", "exchange"] = "auto"

    def input_layer(self, model: GNN) -> str:
        """The resolved `layer0`. Raises InputError for precompute with a layer that does not support it."""
        possible = model.aggregation(0) is not None
        if self.layer0 == "precompute" and not possible:
            raise InputError("layer0=precompute needs a first layer with linear aggregation (gcn, sage); use cache")
        return ("precompute" if possible else "cache") if self.layer0 == "auto" else self.layer0

    def treats_input(self, model: GNN) -> str:
        """The resolved `layer0`."""
        return self.input_layer(model)

    def maps_first(self, model: GNN, l: int) -> bool:
        """Not where the input is aggregated once."""
        return model.linear_first(l) and (l > 0 or self.treats_input(model) != "precompute")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> EdgeCutState:
        """Fetch the halo features once if the input layer needs them."""
        self.validate()
        self.check(model, part.totals, part.num_parts)
        if self.drops_late():
            model.aggregate_first(range(model.depth))
        graph = part.graph
        if model.self_loops:
            looped = graph.with_self_loops()
            graph = replace(looped, own=looped.own.with_edge_map(), halo=looped.halo.with_edge_map())
        route, layer0 = Route.of(part.plan, graph.num_own), self.input_layer(model)
        halo_x, z0 = None, None
        if layer0 != "exchange":
            assert part.x is not None
            halo_x = await self.fetch_features(rank, part, part.x)
        if layer0 == "precompute":
            aggregation = model.aggregation(0)
            assert aggregation is not None and halo_x is not None and part.x is not None
            z0, halo_x = model.rounded(aggregation.forward(graph, part.x, halo_x)), None
        return EdgeCutState(graph, route, layer0, halo_x if halo_x is None else model.rounded(halo_x), z0)

    async def fetch_features(self, rank: Rank, part: Part, x: Tensor) -> Tensor:
        """The input features of the halo nodes, as this rank keeps them for the whole run."""
        rows, counts = x.index_select(0, part.plan.send_rows), (part.plan.send_counts, part.plan.recv_counts)
        return await ship(rank, rows, *counts, Cast(None), label="features", direction="other", layer=-1)

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int | None:
        """Bytes of one row that layer l sends, with side information; None if no formula is stated."""
        return None

    def maps_attention(self) -> bool:
        """Whether attention layers map rows before they are exchanged, whatever the model's order."""
        return False

    def rows_sent(self, ranks: Sequence[Seen]) -> int:
        """Rows sent in one layer and direction of an epoch, summed over ranks."""
        return sum(int(seen.part.plan.recv_counts.sum()) for seen in ranks)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """Rows x `row_bytes` in every layer that exchanges (raw input has no gradient), and the all-reduce."""
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        rows = self.rows_sent(ranks)
        for l, direction in exchanged_layers(model, ranks[0].state.layer0, self.maps_attention()):
            row = self.row_bytes(model, l, direction)
            if row is None:
                return None
            found[direction][l] = rows * row
        return found

    def boundary_share(self) -> float:
        """Share of the boundary nodes whose rows are held in an epoch."""
        return 1.0

    def measures(self, part: Part, model: GNN, state: EdgeCutState) -> dict[str, float]:
        """Bytes of features kept for the backward pass by BNS-GCN's Eq. 4: (3 inner + boundary) x input width x 4,
        summed over layers; the boundary counts where a layer holds halo rows."""
        n_in, n_bd, total = len(part.nodes), len(part.halo_nodes), 0.0
        for l in range(model.depth):
            exchanged = l > 0 or state.layer0 == "exchange"
            held = self.boundary_share() if exchanged else float(state.layer0 == "cache")
            total += (3 * n_in + n_bd * held * model.exchanges(l)) * model.widths[l] * 4
        return {"feature_bytes": total}

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> Any:
        """Per-epoch data, such as a sample, which is passed to `view` and `exchange`.

        A method whose exchanges keep state between epochs includes the memory in it.
        """
        return None

    def view(self, state: EdgeCutState, plan: Any) -> LocalGraph:
        """The graph of this epoch."""
        return state.graph

    def cached_input(self, part: Part, model: GNN, state: EdgeCutState, plan: Any, key: int) -> Tensor:
        """Messages of the halo nodes of this epoch's graph, from their cached features, with dropout under `key`."""
        assert state.halo_x is not None
        return model.message(0, model.drop(state.halo_x, part.halo_nodes, key))

    @abstractmethod
    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange | None:
        """The exchange before layer l, or None if no boundary row is needed in this epoch.

        Its `returns` decides how the layer is computed with it (`harness.exchanges.Returns`).
        """

    async def forward(
        self, rank: Rank, part: Part, model: GNN, state: EdgeCutState, memory: Memory, tape: Tape
    ) -> Tensor:
        plan = await self.begin(rank, part, state, memory)
        assert part.x is not None
        h = model.rounded(part.x)
        for l in range(model.depth):
            key, above = rank.key("dropout", l, per_rank=False), self._drop_above(rank, l, part, model, state)
            if l == 0 and state.z0 is not None:
                z0 = model.drop(state.z0, part.nodes, rank.key("dropout/z", 0, per_rank=False))
                own = model.drop(h, part.nodes, key) if model.reads_own(0) else h
                h = model.combine(0, own, z0, transformed=False, drop=above)
                continue
            if self._late(l, model, state):
                h = await self._dropped_late(rank, l, part, model, state, plan, tape, h, above)
                continue
            if l == 0:  # above, the layer below has dropped them
                h = model.drop(h, part.nodes, key)
            if l == 0 and state.halo_x is not None:
                halo = self.cached_input(part, model, state, plan, key)
                h = model.update(0, self.view(state, plan), h, model.message(0, h), halo, above)
            elif model.exchanges(l):
                h = await self._layer(l, model, state, plan, tape, h, above)
            else:
                h = model.update(l, state.graph, h, h, h[:0], above)
        return h

    def _late(self, l: int, model: GNN, state: EdgeCutState) -> bool:
        """Whether layer l drops its input rows after their exchange."""
        return model.exchanges(l) and (l > 0 or state.halo_x is None) and self.drops_late()

    def _drop_above(self, rank: Rank, l: int, part: Part, model: GNN, state: EdgeCutState) -> Drop | None:
        """The dropout of layer l + 1, where it is the first thing that happens to the rows of layer l."""
        if l + 1 == model.depth or self._late(l + 1, model, state):
            return None
        return Drop(part.nodes, rank.key("dropout", l + 1, per_rank=False))

    def overlaps(self) -> bool:
        """Whether own neighbours are summed while halo rows travel."""
        return False

    def _overlapped(self, exchange: LayerExchange, model: GNN, l: int) -> LayerExchange:
        """The exchange with sums beside it, where the method overlaps them and the aggregation is linear in rows."""
        if not self.overlaps() or model.aggregation(l) is None or type(exchange) is not HaloPull:
            return exchange
        return OverlappedPull(**vars(exchange))

    def drops_late(self) -> bool:
        """Whether dropout comes after the exchange, with masks of their own for halo rows, instead of before it."""
        return False

    async def _dropped_late(
        self, rank: Rank, l: int, part: Part, model: GNN, state: EdgeCutState, plan: Any, tape: Tape, h: Tensor,
        above: Drop | None,
    ) -> Tensor:  # fmt: skip
        """Exchange, drop, compute one layer; every rank draws masks of its halo rows alone."""
        exchange = self.exchange(l, model, state, plan)
        assert exchange is not None
        if returned_by(exchange) not in ("messages", "rows"):
            raise ProgramError(f"{self.name} drops halo rows, and exchange {type(exchange).__name__} returns none")
        own, halo = await tape.apply(exchange, h)
        own = model.drop(own, part.nodes, rank.key("dropout", l, per_rank=False))
        halo = model.drop(halo, part.halo_nodes, rank.key("dropout/halo", l))
        return model.update(l, self.view(state, plan), own, own, halo, above)

    async def _layer(
        self, l: int, model: GNN, state: EdgeCutState, plan: Any, tape: Tape, h: Tensor, above: Drop | None
    ) -> Tensor:
        """Exchange and compute one layer, as the exchange declares; its rows are dropped as the layer above wants."""
        exchange, graph = self.exchange(l, model, state, plan), self.view(state, plan)
        if exchange is None:
            message = model.message(l, h)
            return model.update(l, graph, h, message, message[:0], above)
        match returned_by(exchange):
            case "attention":
                return await self._attention(l, model, cast(AttentionExchange, exchange), tape, h, above)
            case "layer":
                if not h.requires_grad:  # input features: the exchange has the gradients of the weights
                    h = h.detach().requires_grad_()
                out, h = await tape.apply(exchange, h, h)
                return model.combine(l, h, out, transformed=True, drop=above)
            case "rows":
                own, halo = await tape.apply(exchange, h)
                return model.update(l, graph, own, model.message(l, own), model.message(l, halo), above)
            case "sum":
                return await self._sum(l, model, self._overlapped(exchange, model, l), tape, h, above)
            case "messages":
                if isinstance(exchange, HaloPush) and self.overlaps() and model.aggregation(l) is not None:
                    return await self._pushed_beside_sums(l, model, exchange, graph, tape, h, above)
                return await self._messages(l, model, exchange, graph, tape, h, above)

    async def _attention(
        self, l: int, model: GNN, exchange: AttentionExchange, tape: Tape, h: Tensor, above: Drop | None
    ) -> Tensor:
        """A layer whose exchange returns the rows that attention sums."""
        layer = model.layers[l]
        assert isinstance(layer, GATConv)
        (out,) = await tape.apply(exchange, exchange.input(h))
        return model.combine(l, h, layer.pulled(out), transformed=True, drop=above)

    async def _sum(
        self, l: int, model: GNN, exchange: LayerExchange, tape: Tape, h: Tensor, above: Drop | None
    ) -> Tensor:
        """A layer whose exchange aggregates messages."""
        message = model.message(l, h)
        z, h = await tape.apply(exchange, message, h)
        return model.combine(l, h, z, transformed=model.linear_first(l), drop=above)

    async def _messages(
        self, l: int, model: GNN, exchange: LayerExchange, graph: LocalGraph, tape: Tape, h: Tensor,
        above: Drop | None,
    ) -> Tensor:  # fmt: skip
        """A layer that aggregates the messages which the exchange returns."""
        message = model.message(l, h)
        if message is h:
            own, halo = await tape.apply(exchange, h)
            return model.update(l, graph, own, own, halo, above)
        own, halo, h = await tape.apply(exchange, message, h)
        return model.update(l, graph, h, own, halo, above)

    async def _pushed_beside_sums(
        self, l: int, model: GNN, push: HaloPush, graph: LocalGraph, tape: Tape, h: Tensor, above: Drop | None
    ) -> Tensor:
        """A layer whose own neighbours are summed while the push's halo rows travel."""
        aggregation, again = model.aggregation(l), model.reads_own(l)
        assert aggregation is not None
        exchange = OverlappedPush(push, graph, aggregation, own=again and not model.linear_first(l))
        message, keep = model.message(l, h), [h] if again and not exchange.own else []
        z, *rows = await tape.apply(exchange, message, *keep)
        return model.combine(l, rows[0] if rows else z, z, transformed=model.linear_first(l), drop=above)


@dataclass(frozen=True, kw_only=True)
class OverlappingEdgeCut(EdgeCut):
    """Base of synchronous methods that push or pull halo rows at once.

    Options:
        overlap: sum own neighbours while halo rows travel, and backwards while gradients do; losses and bytes are the
            same. Layers whose aggregation is not linear in rows (attention) exchange first.
    """

    overlap: bool = False

    def overlaps(self) -> bool:
        return self.overlap
