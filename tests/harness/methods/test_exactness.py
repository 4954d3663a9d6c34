"""Exact methods: loss and gradients equal those of one process on the whole graph, however it is partitioned."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.conformance import reference_gradients
from harness.graphs import Graph
from harness.methods.bns_gcn import BNSGCN
from harness.methods.vanilla import Vanilla
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import graphs, owners, random_graph

PARTS = (1, 2, 3, 4, 8)
OWNERS = ("hash", "random", "first", "halves")


def assert_exact(
    method: Vanilla | BNSGCN,
    kind: str,
    graph: Graph,
    parts: int,
    owner: str,
    *,
    single: bool = False,
    **options: object,
) -> None:
    """In double precision to 1e-10, far below any error of the method; or in `single` precision to 1e-6."""
    dtype, tolerance = (torch.float32, 1e-6) if single else (torch.float64, 1e-10)
    model = make_model(kind, graph, dtype=dtype, **options)
    loss, wanted = reference_gradients(copy.deepcopy(model).double(), graph)
    built = make_parts(graph, owners(graph, parts, owner), parts, dtype)
    found_loss, found, _ = step(method, model, built)
    assert found_loss == pytest.approx(loss, rel=tolerance, abs=1e-9)
    assert relative_error([f.double() for f in found], wanted) < tolerance


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_single_precision_is_exact_to_one_in_a_million(parts: int, kind: str) -> None:
    graph = random_graph(200, 800, seed=8)
    for style in ("push", "pull"):
        assert_exact(Vanilla(style=style), kind, graph, parts, "random", single=True, norm="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
@given(graph=graphs(), owner=st.sampled_from(OWNERS), layer0=st.sampled_from(["auto", "cache", "exchange"]))
@settings(deadline=None, max_examples=6)
def test_push_is_exact(parts: int, kind: str, graph: Graph, owner: str, layer0: str) -> None:
    assert_exact(Vanilla(layer0=layer0), kind, graph, parts, owner)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
@given(graph=graphs(), owner=st.sampled_from(OWNERS), layer0=st.sampled_from(["auto", "cache", "exchange"]))
@settings(deadline=None, max_examples=6)
def test_pull_is_exact(parts: int, kind: str, graph: Graph, owner: str, layer0: str) -> None:
    assert_exact(Vanilla(style="pull", layer0=layer0), kind, graph, parts, owner)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("method", [Vanilla(), Vanilla(style="pull"), BNSGCN(p=1.0)])
def test_attention_with_averaged_heads_is_exact(parts: int, method: Vanilla | BNSGCN) -> None:
    graph = random_graph(60, 240, seed=9)
    assert_exact(method, "gat", graph, parts, "random", heads=3, hidden_heads="mean")


@pytest.mark.parametrize("order", ["linear-first", "auto"])
@pytest.mark.parametrize("style", ["push", "pull"])
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_order_of_linear_map_changes_nothing(kind: str, style: str, order: str) -> None:
    graph = random_graph(30, 90, seed=3)
    assert_exact(Vanilla(style=style), kind, graph, 3, "random", order=order)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_directed_graphs_are_exact_with_push(kind: str) -> None:
    graph = random_graph(30, 120, seed=4, symmetric=False)
    if kind == "gcn":  # the reference and the layer both normalise by in-degrees
        assert_exact(Vanilla(layer0="exchange"), kind, graph, 3, "random")
    else:
        assert_exact(Vanilla(), kind, graph, 4, "random")


def test_trailing_dense_layers_exchange_nothing() -> None:
    graph = random_graph(30, 90, seed=5)
    assert_exact(Vanilla(), "sage", graph, 3, "hash", linear_layers=1)
    model = make_model("sage", graph, linear_layers=1)
    _, _, traffic = step(Vanilla(), model, make_parts(graph, owners(graph, 3, "hash"), 3))
    assert set(traffic[0].layers["forward"]) == {1}


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_p_of_one_is_vanilla_bit_for_bit(kind: str) -> None:
    graph = random_graph(40, 160, seed=6)
    parts = make_parts(graph, owners(graph, 4, "random"), 4, torch.float32)
    model = make_model(kind, graph, dtype=torch.float32)
    loss, wanted, sent = step(Vanilla(), model, parts)
    for sampling in ("bernoulli", "fixed"):
        found_loss, found, found_sent = step(BNSGCN(p=1.0, sampling=sampling), model, parts)  # type: ignore[arg-type]
        assert found_loss == loss
        assert all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))
        assert [s.layers for s in found_sent] == [s.layers for s in sent]


def test_dropout_masks_do_not_depend_on_the_partition() -> None:
    graph = random_graph(40, 160, seed=7)
    gradients = []
    for parts in (1, 4):
        model = make_model("sage", graph, dropout=0.5)
        model.train()
        built = make_parts(graph, owners(graph, parts, "hash"), parts)
        gradients.append(step(Vanilla(layer0="cache"), model, built)[1])
    assert relative_error(gradients[0], gradients[1]) < 1e-10


def test_empty_owner_leaves_ranks_without_rows() -> None:
    graph = random_graph(6, 12, seed=1)
    built = make_parts(graph, np.zeros(6, np.int32), 3)
    assert [len(p.nodes) for p in built] == [6, 0, 0]
