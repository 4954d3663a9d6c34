"""Exchanges of other packages: what they declare to return decides alone how a layer is computed with them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.codecs import Cast
from harness.errors import ProgramError
from harness.exchanges import (
    AllBlocks,
    AttentionPull,
    BlockPull,
    Blocks,
    HaloPull,
    HaloPush,
    LayerExchange,
    Returns,
    Route,
)
from harness.graphs import Part
from harness.methods.bases.base import Facts
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.methods.registry import parse_method
from harness.methods.vanilla import Vanilla
from harness.nn import GNN, Conv, GATConv
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(40, 160, seed=3)
EXACT = Cast(None)


class Wrapped:
    """An exchange of an unknown class around one of the project."""

    def __init__(self, inner: Any, returns: Returns) -> None:
        self.inner, self.returns = inner, returns

    def input(self, h: Tensor) -> Tensor:
        rows: Tensor = self.inner.input(h)
        return rows

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = await self.inner.forward(rank, x)
        return found

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        gradient: Tensor = await self.inner.adjoint(rank, *gradients)
        return gradient


class RowsAsTheyAre:
    """Input rows -> own and halo rows, which the layer maps; backwards gradients go back to the owners."""

    def __init__(self, route: Route, layer: int) -> None:
        self.push = HaloPush(route, layer, EXACT, EXACT)

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        return await self.push.forward(rank, x)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        return await self.push.adjoint(rank, *gradients)


@dataclass(frozen=True, kw_only=True)
class Foreign(EdgeCut):
    """A method of another package whose exchange returns one kind."""

    returns: str = "messages"

    name = "foreign"
    facts = Facts(cut="edge", exact=True, paper="an example")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> EdgeCutState:
        state = await super().setup(rank, part, model)
        object.__setattr__(state, "blocks", await Blocks.of(rank, part.plan, len(part.nodes)))
        return state

    def exchange(self, l: int, model: GNN, state: Any, plan: Any) -> LayerExchange:
        return Wrapped(self.made(l, model, state), self.returns)  # type: ignore[arg-type]

    def made(self, l: int, model: GNN, state: Any) -> Any:
        """An exchange of the project of the wanted kind."""
        layer, aggregation = model.layers[l], model.aggregation(l)
        if isinstance(layer, GATConv):
            return AttentionPull(state.route, l, (EXACT, EXACT), state.graph, layer)
        assert isinstance(layer, Conv) and aggregation is not None
        ways = AllBlocks(state.blocks, l, "forward"), AllBlocks(state.blocks, l, "backward")
        return {
            "messages": HaloPush(state.route, l, EXACT, EXACT),
            "rows": RowsAsTheyAre(state.route, l),
            "sum": HaloPull(state.route, l, EXACT, EXACT, state.graph, aggregation),
            "layer": BlockPull(layer, state.graph, *ways),
        }.get(self.returns)


CASES = [
    *itertools.product(["messages", "rows", "sum"], ["sage", "gcn"], ["aggregate-first", "linear-first"]),
    *itertools.product(["layer"], ["sage", "gcn"], ["aggregate-first"]),  # a BlockPull aggregates first
    ("attention", "gat", "auto"),
]


@pytest.mark.parametrize(("returns", "kind", "order"), CASES)
def test_unknown_exchanges_train_exactly_by_what_they_declare(returns: str, kind: str, order: str) -> None:
    parts = make_parts(GRAPH, owners(GRAPH, 3, "hash"), 3)
    model = make_model(kind, GRAPH, order=order)
    found, wanted = (step(method, model, parts) for method in (Foreign(returns=returns), Vanilla()))
    assert found[0] == pytest.approx(wanted[0], rel=1e-10)
    assert relative_error(found[1], wanted[1]) < 1e-10


@pytest.mark.parametrize(
    ("method", "message"),
    [(Foreign(returns="everything"), "Wrapped declares returns = 'everything'; .* messages, rows, sum"),
     (Foreign(returns=""), "Wrapped declares returns = ''")],
)  # fmt: skip
def test_an_unknown_kind_is_refused_by_name(method: Foreign, message: str) -> None:
    parts, model = make_parts(GRAPH, owners(GRAPH, 2, "hash"), 2), make_model("sage", GRAPH)
    with pytest.raises(ProgramError, match=message):
        step(method, model, parts)


def test_an_exchange_that_declares_nothing_is_refused() -> None:
    class Silent(Foreign):
        def exchange(self, l: int, model: GNN, state: Any, plan: Any) -> LayerExchange:
            return RowsAsTheyAre(state.route, l)  # type: ignore[return-value]

    parts, model = make_parts(GRAPH, owners(GRAPH, 2, "hash"), 2), make_model("sage", GRAPH)
    with pytest.raises(ProgramError, match="exchange RowsAsTheyAre does not declare what it returns"):
        step(Silent(), model, parts)


def test_sums_are_no_rows_to_drop() -> None:
    class Late(Foreign):
        def drops_late(self) -> bool:
            return True

    parts, model = make_parts(GRAPH, owners(GRAPH, 2, "hash"), 2), make_model("sage", GRAPH)
    with pytest.raises(ProgramError, match="foreign drops halo rows, and exchange Wrapped returns none"):
        step(Late(returns="sum"), model, parts)


@pytest.mark.parametrize(
    ("text", "kind"),
    [*itertools.product(["vanilla", "vanilla:style=pull", "sar", "ec-graph", "roc", "cagnet", "adaqp"], ["sage"]),
     *itertools.product(["vanilla", "vanilla:style=pull", "sar", "ec-graph"], ["gat"])],
)  # fmt: skip
def test_built_in_exchanges_declare_a_kind(text: str, kind: str) -> None:
    """Outputs of `forward` are as many as the kind says."""
    method, seen = parse_method(text), []
    base = type(method)

    class Watched(base):  # type: ignore[misc, valid-type]
        def exchange(self, l: int, model: GNN, state: Any, plan: Any) -> Any:
            made = super().exchange(l, model, state, plan)
            inner = made.forward

            async def forward(rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
                outputs: tuple[Tensor, ...] = await inner(rank, x)
                seen.append((made.returns, len(outputs)))
                return outputs

            object.__setattr__(made, "forward", forward)
            return made

    parts = make_parts(GRAPH, owners(GRAPH, 3, "hash"), 3, torch.float32)
    step(Watched(**vars(method)), make_model(kind, GRAPH, dtype=torch.float32), parts)
    assert seen and all(count == (2 if returns in ("messages", "rows") else 1) for returns, count in seen)
