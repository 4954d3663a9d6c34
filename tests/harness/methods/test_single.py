"""The two styles of training on one device: equal gradients, the orders of their libraries, the memory of messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import RunConfig
from harness.conformance import reference_gradients
from harness.errors import InputError
from harness.graphs import Graph
from harness.methods.registry import parse_method
from harness.methods.single import Single
from harness.nn import GNN, GCNConv, SAGEConv
from harness.running import run
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import graphs, owners, random_graph

STYLES = ("fused", "gather")
KINDS = ("gcn", "gcn-no-loop", "sage", "gat")
ORDERS = ("method", "aggregate-first", "linear-first", "auto")
EDGES = 60_000  # of `HEAVY`, both directions
HEAVY = {"dataset": "synthetic:nodes=600,degree=100,features=16,classes=5", "parts": 1, "epochs": 2, "threads": 1}


def stepped(method: Single, model: GNN, graph: Graph) -> tuple[float, list[torch.Tensor]]:
    loss, gradients, _ = step(method, model, make_parts(graph, owners(graph, 1, "hash"), 1))
    return loss, gradients


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", STYLES)
@given(graph=graphs(), order=st.sampled_from(ORDERS), layer0=st.sampled_from(["precompute", "cache", "exchange"]))
@settings(deadline=None, max_examples=8)
def test_both_styles_are_exact_in_every_order(style: Any, kind: str, graph: Graph, order: str, layer0: Any) -> None:
    model = make_model(kind, graph, order=order)
    loss, wanted = reference_gradients(copy.deepcopy(model), graph)
    method = Single(style=style, layer0="cache" if kind == "gat" and layer0 == "precompute" else layer0)
    found_loss, found = stepped(method, model, graph)
    assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
    assert relative_error(found, wanted) < 1e-10


@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_gather_follows_the_edges_of_a_directed_graph(kind: str) -> None:
    graph = random_graph(30, 120, seed=4, symmetric=False)
    model = make_model(kind, graph)
    loss, wanted = stepped(Single(), model, graph)
    found_loss, found = stepped(Single(style="gather"), model, graph)
    assert found_loss == pytest.approx(loss, rel=1e-12) and relative_error(found, wanted) < 1e-12


@pytest.mark.parametrize(
    ("style", "kind", "first"),
    [
        ("fused", "gcn", [True, False, True]),
        ("fused", "sage", [True, False, True]),
        ("gather", "gcn", [True, True, True]),
        ("gather", "sage", [False, False, False]),
    ],
)
def test_a_layer_has_the_order_of_its_library(style: Any, kind: str, first: list[bool]) -> None:
    """Narrower, as wide, narrower: 5 -> 4 -> 4 -> 3."""
    graph = random_graph(30, 90, seed=3, features=5, classes=3)
    model = make_model(kind, graph, hidden=4)
    assert [model.linear_first(l) for l in range(3)] == [False] * 3
    stepped(Single(style=style), model, graph)
    assert [model.linear_first(l) for l in range(3)] == first


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("order", "first"), [("aggregate-first", False), ("linear-first", True)])
def test_an_order_that_is_set_holds_for_both_styles(style: Any, order: str, first: bool) -> None:
    graph = random_graph(30, 90, seed=3)
    model = make_model("gcn", graph, order=order)
    stepped(Single(style=style), model, graph)
    assert [model.linear_first(l) for l in range(3)] == [first] * 3


def priced(style: str, **values: Any) -> dict[str, Any]:
    """The summary of a modelled run."""
    config = {**HEAVY, "mode": "sim", "eval_every": -1, "layer0": "cache", "cluster": "ethernet-10g"}
    found = run(RunConfig.of(**{**config, "method": f"single:style={style}", "hidden": 64, **values}))
    assert found.graph["num_edges"] == EDGES
    return found.summary()


def extra(kind: str, **values: Any) -> float:
    """Bytes per edge that gather needs beyond fused at its peak, in one order and one number of layers."""
    peaks = [priced(style, model=kind, shapes_only=True, **values)["peak_memory"] for style in ("gather", "fused")]
    return float(peaks[0] - peaks[1]) / EDGES


@pytest.mark.parametrize(("kind", "copies", "lists"), [("gcn", 2, 20), ("sage", 1, 16)])
def test_messages_take_their_copies_of_the_widest_layer_only(kind: str, copies: int, lists: int) -> None:
    """Two copies with weights and one without, as autograd keeps none: the number of layers does not matter."""
    for layers in (2, 4):
        found = extra(kind, layers=layers, order="linear-first")
        assert found == pytest.approx(4 * 64 * copies + lists, rel=0.03)
    wider = extra(kind, layers=2, order="linear-first", hidden=128)
    assert wider == pytest.approx(4 * 128 * copies + lists, rel=0.03)


def test_attention_keeps_the_gathered_rows_of_every_layer() -> None:
    two, three = (extra("gat", layers=layers, hidden=32, heads=2) for layers in (2, 3))
    assert three - two == pytest.approx(4 * 64, rel=0.05)
    assert two > 4 * 64 * 3


def test_gather_takes_longer_in_the_model() -> None:
    gather, fused = (priced(style, model="gcn", shapes_only=True)["epoch_seconds"] for style in ("gather", "fused"))
    assert gather > 4 * fused


def test_real_memory_grows_as_predicted() -> None:
    """Resident memory of real processes, and live tensors in the model. Rows are wide, so that the addition's own
    scratch memory, which the model leaves out, is small beside them."""
    values = {"dataset": "synthetic:nodes=1500,degree=200,features=16,classes=5", "model": "gcn", "layers": 2}
    values |= {"hidden": 128, "layer0": "cache", "parts": 1, "epochs": 2, "eval_every": -1, "threads": 1}
    grown = {}
    for mode in ("sim", "real"):
        peaks = {}
        for style in STYLES:
            found = run(RunConfig.of(**values, mode=mode, method=f"single:style={style}", order="linear-first"))
            peaks[style] = found.summary()["peak_memory"]
        grown[mode] = peaks["gather"] - peaks["fused"]
    assert grown["sim"] > 2 * 4 * 128 * 290_000
    assert grown["real"] == pytest.approx(grown["sim"], rel=0.15)


def test_layers_that_no_list_of_edges_fits_are_refused() -> None:
    graph = random_graph(20, 60, seed=2)
    method = parse_method("single:style=gather")
    mixed = GNN([GCNConv(4, 3), SAGEConv(3, 2)], [4, 3, 2])
    foreign = GNN([torch.nn.Identity()], [4, 4])
    totals = make_parts(graph, owners(graph, 1, "hash"), 1)[0].totals
    for model in (mixed, foreign):
        parse_method("single").check(model, totals, 1)
        with pytest.raises(InputError, match="all alike; use style=fused"):
            method.check(model, totals, 1)
    method.check(make_model("sage", graph, linear_layers=1), totals, 1)
