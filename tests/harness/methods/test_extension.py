"""Extensions as in the README: a method in one small class, and a layer as any module with the same call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.codecs import Cast, Codec
from harness.config import ModelConfig
from harness.exchanges import HaloPull, HaloPush, Late, LayerExchange, Memory
from harness.graphs import LocalGraph, Part
from harness.methods.bases.base import Facts
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState
from harness.methods.bns_gcn import BNSGCN
from harness.methods.vanilla import Vanilla
from harness.nn import GNN, aggregate, build_model
from harness.nn._layers import SAGEConv
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(40, 160, seed=11)


@dataclass(frozen=True, kw_only=True)
class HalfForward(EdgeCut):
    """The README's example."""

    name = "half-forward"
    facts = Facts(cut="edge", exact=False, lossy=True, paper="an example")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        return HaloPush(state.route, l, codec=Cast(torch.float16), backward_codec=Cast(None))


class GatedSum(nn.Module):
    """A layer of another package: not linear in its rows, with only the required call."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, graph: LocalGraph, own: Tensor, halo: Tensor) -> Tensor:
        own_rows, halo_rows = (self.value(t) * torch.sigmoid(self.gate(t)) for t in (own, halo))
        return own_rows + aggregate(graph.own, own_rows) + aggregate(graph.halo, halo_rows)


def test_a_method_in_one_class_sends_what_it_says() -> None:
    parts = make_parts(GRAPH, owners(GRAPH, 3, "hash"), 3, torch.float32)
    model = make_model("sage", GRAPH, dtype=torch.float32, hidden=6)
    rows = sum(len(part.halo_nodes) for part in parts)
    _, found, traffic = step(HalfForward(), model, parts)
    forward = [sum(t.layers["forward"][l] for t in traffic) for l in (1, 2)]
    backward = [sum(t.layers["backward"][l] for t in traffic) for l in (1, 2)]
    assert forward == [rows * 6 * 2] * 2 and backward == [rows * 6 * 4] * 2
    _, wanted, _ = step(Vanilla(), model, parts)
    assert 0 < relative_error(found, wanted) < 0.01


class Doubled:
    """A codec of another package: what the protocol demands, and nothing else. Rows travel twice as large."""

    def encode(self, rows: Tensor, key: int) -> tuple[Tensor, ...]:
        return (2 * rows,)

    def decode(self, payload: tuple[Tensor, ...], width: int, dtype: torch.dtype) -> Tensor:
        return payload[0].to(dtype) / 2

    def payload(self, width: int, dtype: torch.dtype) -> tuple[tuple[int, torch.dtype], ...]:
        return ((width, dtype),)


@pytest.mark.parametrize("style", ["push", "pull", "late"])
def test_a_foreign_codec_needs_three_functions(style: str) -> None:
    """At once and, in its first epochs, behind the rank's compute."""
    codec: Codec = Doubled()

    @dataclass(frozen=True, kw_only=True)
    class WithCodec(EdgeCut):
        name = "with-codec"
        facts = Facts(cut="edge", exact=True, paper="an example")

        async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> Late:
            return Late(memory, style != "late", "background")

        def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Late) -> LayerExchange:
            aggregation = model.aggregation(l)
            if style == "pull" and aggregation is not None:
                return HaloPull(state.route, l, codec, codec, state.graph, aggregation)
            return HaloPush(state.route, l, codec, codec, ship=plan.ship)

    parts = make_parts(GRAPH, owners(GRAPH, 3, "hash"), 3)
    model = make_model("sage", GRAPH)
    found, wanted = (step(method, model, parts) for method in (WithCodec(), Vanilla()))
    sent = [outcome[2][0].layers["forward"] for outcome in (found, wanted)]
    assert sent[0] == sent[1] and sum(sent[0].values()) > 0
    if style != "late":
        assert relative_error(found[1], wanted[1]) < 1e-10


def test_a_foreign_layer_trains_exactly_on_any_number_of_parts() -> None:
    torch.manual_seed(0)
    widths = [GRAPH.num_features, 5, GRAPH.num_classes]
    model = GNN([GatedSum(*widths[:2]), GatedSum(*widths[1:])], widths, norm="layer").double()
    outcomes = [step(Vanilla(), model, make_parts(GRAPH, owners(GRAPH, p, "random"), p)) for p in (1, 4)]
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-10)
    assert relative_error(outcomes[1][1], outcomes[0][1]) < 1e-10
    sampled = step(BNSGCN(p=0.5), model, make_parts(GRAPH, owners(GRAPH, 4, "hash"), 4))[1]
    assert all(bool(g.isfinite().all()) and float(g.abs().max()) > 0 for g in sampled)


def test_models_of_a_config_are_the_same_on_every_call_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    a, b = (build_model(ModelConfig(name="sage"), 5, 2, seed=3) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(before, torch.random.get_rng_state())
    assert isinstance(a.layers[0], SAGEConv)
