"""Dropout on a vertex cut: masks of all replicas equal those of one process, in every layer and input layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.methods.cdfgnn import CDFGNN
from harness.methods.single import Single
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import random_graph
from tests.support.vertex import vertex_parts

PLAIN = CDFGNN(cache=False, quantise=False)
UNCHANGED = CDFGNN(quantise=False, rule="fixed", eps0=0.0, last="half")
KINDS = ("gcn", "sage", "gat")
INPUTS = (*((kind, "exchange") for kind in KINDS), ("gcn", "precompute"), ("sage", "precompute"))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_masks_do_not_depend_on_the_cut(kind: str) -> None:
    graph, gradients = random_graph(40, 160, seed=7), []
    for parts in (1, 4):
        model = make_model(kind, graph, dropout=0.5)
        model.train()
        gradients.append(step(PLAIN, model, vertex_parts(graph, parts))[1])  # type: ignore[arg-type]
    assert relative_error(gradients[0], gradients[1]) < 1e-10


@pytest.mark.parametrize(("kind", "layer0"), INPUTS)
@pytest.mark.parametrize("method", [PLAIN, UNCHANGED], ids=str)
def test_with_dropout_it_trains_what_one_process_trains(kind: str, layer0: str, method: CDFGNN) -> None:
    """In a precomputed input layer dropout applies to the aggregated row, including the node's own term."""
    graph = random_graph(40, 160, seed=7)
    model = make_model(kind, graph, dropout=0.5, order="aggregate-first")
    model.train()
    whole = make_parts(graph, np.zeros(graph.num_nodes, np.int32), 1)
    loss, wanted, _ = step(Single(layer0=layer0), model, whole)  # type: ignore[arg-type]
    found_loss, found, _ = step(replace(method, layer0=layer0), model, vertex_parts(graph, 3))  # type: ignore[arg-type]
    assert found_loss == pytest.approx(loss, rel=1e-10)
    assert relative_error(found, wanted) < 1e-10
