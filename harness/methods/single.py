"""One device, the whole graph: the reference every method is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.codecs import Cast
from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import HaloPush, LayerExchange
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN, Conv, GCNConv, Order
from harness.rank import Rank


@dataclass(frozen=True, kw_only=True)
class Single(EdgeCut):
    """Full-graph training without partitions, as DGL and PyG do it on one device; runs with one rank and sends nothing.

    Both styles have the same losses and gradients, up to rounding; they differ in memory and time. With E edges (gcn
    has a loop at every node beside them) and rows of width d:
    fused (DGL): one sparse product sums the neighbours of a node; no row per edge exists, forwards or backwards.
    gather (PyG without its optional kernels): a layer gathers E rows, weights them and adds them up with scatter_add.
    4 E d bytes for the mean of sage, 8 E d with the weights of gcn, forwards and again backwards, one layer after the
    other: the backward pass keeps no message. gat keeps the gathered rows, 4 E heads d bytes in every layer, for the
    gradient of its attention, and needs up to three times as much more while a layer's backward pass runs. The list of
    edges takes 16 E bytes, and 4 E for weights.

    Where the run's `order` is left at `method`, a layer has the order of its library: fused maps rows first where that
    makes them narrower (DGL's GraphConv and SAGEConv); gather maps first in gcn and aggregates first in sage (PyG's
    GCNConv and SAGEConv). gat maps first in both. Any other `order` holds for both styles.

    Chosen: weights of gcn are computed once (`cached=True` of PyG's GCNConv). layer0=precompute aggregates the input
    once, by the fused product; neither library does that, so layer0=cache compares with them. The sparse blocks that
    parts have in any case (16 E bytes) are held beside the list of edges.

    In brief:
        travels: nothing
        bytes: 0
        memory: with style=gather 4 E d bytes beside the rows of the widest layer, 8 E d where messages have weights, 4
            E d in every layer of attention; E edges

    Options:
        style: fused, a sparse product; gather, a message for every edge.
    """

    style: Literal["fused", "gather"] = "fused"

    name = "single"
    bf16 = True
    facts = Facts(cut="none", exact=True, repeats=True, static=True, paper="DGL and PyG on one device")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if num_parts != 1:
            raise InputError(f"method single runs on one rank, not {num_parts}; use --parts 1 or vanilla")
        if self.style == "gather" and model.precision != "fp32":
            raise InputError("style=gather computes in fp32 only; use style=fused")
        if self.style == "gather" and len({_kind(model, l) for l in _reading(model)} | {None}) != 2:
            raise InputError("style=gather needs layers of haloscope (gcn, sage, gat), all alike; use style=fused")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> EdgeCutState:
        """With the list of edges where messages travel on it."""
        model.prefer([self._order(layer) for layer in model.layers])
        state = await super().setup(rank, part, model)
        if self.style == "fused":
            return state
        layer = model.layers[_reading(model)[0]]
        assert isinstance(layer, Conv) and part.x is not None
        return replace(state, graph=layer.edge_graph(state.graph, part.x))

    def _order(self, layer: Any) -> Order:
        """The order of linear map and aggregation in the library that the style stands for."""
        if self.style == "fused":
            return "auto"
        return "linear-first" if isinstance(layer, GCNConv) else "aggregate-first"

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        return HaloPush(state.route, l, Cast(None), Cast(None))

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 0


def _reading(model: GNN) -> list[int]:
    """The layers that read neighbours."""
    return [l for l in range(model.depth) if model.exchanges(l)]


def _kind(model: GNN, l: int) -> Any:
    """What layers that share one list of edges have in common; None for a layer of another package."""
    layer = model.layers[l]
    return (type(layer), layer.aggregation) if isinstance(layer, Conv) else None
