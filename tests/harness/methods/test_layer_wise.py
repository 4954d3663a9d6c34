"""FastGCN and LADIES: what is drawn and with what probability, unbiased sums and their variance, empty rows, shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from harness import loopback
from harness.errors import InputError
from harness.graphs import Graph, from_edges
from harness.kernels.importance import inclusion
from harness.methods.bases.layer_wise import EVERY_NODE, LayerWise
from harness.methods.fastgcn import FastGCN
from harness.methods.ladies import LADIES
from harness.methods.registry import parse_method
from harness.nn import GNN, Aggregation
from harness.rank import Rank
from harness.sampling import SampledBatch, column_norms, column_squares, poisson_variance, replacement_variance
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

KINDS = pytest.mark.parametrize("kind", ["sage", "gcn", "gcn-no-loop"])
METHODS = pytest.mark.parametrize("method", [FastGCN, LADIES])
DRAWS = 400


def crossed(directed: bool = False) -> Graph:
    """Random edges, two hubs, nodes without any edge; 40 nodes."""
    base = random_graph(36, 70, seed=3)
    ends = np.stack([base.indices, np.repeat(np.arange(36), np.diff(base.indptr))])
    hubs = np.stack([np.repeat([1, 2], 30), np.tile(np.arange(5, 35), 2)])
    edges = np.concatenate([ends, hubs] if directed else [ends, hubs, hubs[::-1]], 1)
    rng = np.random.default_rng(1)
    data: dict[str, Any] = {"x": rng.standard_normal((40, 5)).astype(np.float32), "y": rng.integers(0, 3, 40)}
    return from_edges("crossed", edges, 40, dedupe=True, num_classes=3, train=np.arange(40), **data)


def matrix(graph: Graph, kind: str) -> np.ndarray:
    """The propagation matrix of a model."""
    dense = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), (graph.num_nodes,) * 2).toarray()
    degree = dense.sum(1)
    if kind == "sage":
        return dense / np.maximum(degree, 1)[:, None]
    if kind == "gcn":
        return (dense + np.eye(len(dense))) / np.sqrt(np.outer(degree + 1, degree + 1))
    return dense / np.sqrt(np.outer(np.maximum(degree, 1), np.maximum(degree, 1)))


def batches(
    method: LayerWise,
    graph: Graph,
    model: GNN,
    num_parts: int = 1,
    epochs: Sequence[int] = (0,),
    seeds: np.ndarray | None = None,
) -> list[list[SampledBatch]]:
    """By rank and epoch, the batch of step 0 for all own nodes, or those of `seeds` (numbers in the whole graph)."""
    parts = make_parts(graph, owners(graph, num_parts, "hash"), num_parts)

    async def program(rank: Rank) -> list[SampledBatch]:
        part, found = parts[rank.index], []
        state = await method.setup(rank, part, model)
        rows = np.arange(len(part.nodes)) if seeds is None else np.flatnonzero(np.isin(part.nodes.numpy(), seeds))
        ids = state.neighbours.own(torch.from_numpy(rows))
        for epoch in epochs:
            rank.epoch = epoch
            found.append(await method.draw(rank, part, model, state, {}, ids, 0))
        return found

    return loopback.run_ranks(program, num_parts)


def sampled(batch: SampledBatch, layer: int, destinations: torch.Tensor, num_nodes: int) -> np.ndarray:
    """The dense sampled matrix of a layer, [N, N], by number in the whole graph."""
    made = batch.layers[layer]
    assert made is not None and made.weight is not None
    rows = np.repeat(np.arange(made.block.num_rows), np.diff(made.block.indptr.numpy()))
    dense = np.zeros((num_nodes, num_nodes))
    sources = batch.nodes[layer].numpy()
    np.add.at(dense, (destinations.numpy()[rows], sources[made.block.indices.numpy()]), made.weight.numpy())
    return dense


def one_layer(kind: str, graph: Graph) -> GNN:
    return make_model(kind, graph, layers=1, norm="none")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("num_parts", [1, 3])
@KINDS
def test_column_norms_are_those_of_the_whole_matrix(kind: str, num_parts: int, directed: bool) -> None:
    graph = crossed(directed)
    aggregation = {"sage": "mean", "gcn": "gcn", "gcn-no-loop": "symmetric"}[kind]
    parts = make_parts(graph, owners(graph, num_parts, "hash"), num_parts)

    async def program(rank: Rank) -> Any:
        return (await column_norms(rank, parts[rank.index], Aggregation(aggregation))).numpy()  # type: ignore[arg-type]

    found = np.empty(graph.num_nodes)
    for part, norms in zip(parts, loopback.run_ranks(program, num_parts), strict=True):
        found[part.nodes.numpy()] = norms
    np.testing.assert_allclose(found, column_squares(sp.csr_matrix(matrix(graph, kind))), atol=1e-12)


def whole_q(graph: Graph, kind: str, norm: str) -> np.ndarray:
    squares = column_squares(sp.csr_matrix(matrix(graph, kind)))
    q = squares if norm == "square" else np.sqrt(squares)
    found: np.ndarray = q / q.sum()
    return found


@pytest.mark.parametrize(
    ("kind", "norm", "sampling"),
    [("sage", "square", "replace"), ("gcn", "root", "poisson"), ("gcn-no-loop", "square", "poisson")],
)
@METHODS
def test_sums_are_unbiased_with_the_variance_of_the_formula(
    kind: str, method: Callable[..., LayerWise], norm: str, sampling: str
) -> None:
    """With all nodes as targets, LADIES draws as FastGCN does. One rank, so that all targets share a draw."""
    graph, count = crossed(), 12
    options = {"normalise": "none"} if method is LADIES else {}
    p, y = matrix(graph, kind), np.random.default_rng(2).standard_normal((40, 3)) + 0.3
    q, whole = whole_q(graph, kind, norm), sp.csr_matrix(p)
    destinations = torch.arange(40)
    made = method(nodes=count, norm=norm, sampling=sampling, **options)
    (drawn,) = batches(made, graph, one_layer(kind, graph), epochs=range(DRAWS))
    errors = np.array([sampled(batch, 0, destinations, 40) @ y - p @ y for batch in drawn])
    squares = np.square(errors).sum((1, 2))
    if sampling == "replace":
        formula = replacement_variance(whole, y, q, count)
    else:
        chance = np.zeros(40)
        chance[q > 0] = inclusion(q[q > 0], count)
        formula = poisson_variance(whole, y, chance)
    assert abs(squares.mean() - formula) < 4.5 * squares.std() / DRAWS**0.5
    spread = errors.std(0) / DRAWS**0.5 + np.abs(errors).max() / DRAWS
    assert (np.abs(errors.mean(0)) < 4.5 * spread + 1e-12).all()


@METHODS
def test_the_authors_draws_are_biased_and_say_so(method: Callable[..., LayerWise]) -> None:
    graph = crossed()
    options = {"normalise": "none"} if method is LADIES else {}
    p, y = matrix(graph, "gcn"), np.ones((40, 1))
    made = method(nodes=25, sampling="authors", **options)
    (drawn,) = batches(made, graph, one_layer("gcn", graph), epochs=range(400))
    errors = np.array([sampled(batch, 0, torch.arange(40), 40) @ y - p @ y for batch in drawn])
    bias, variance = np.square(errors.mean(0)).sum(), errors.var(0).sum()
    assert bias > 20 * variance / 400
    assert not made.promises().unbiased and method(nodes=25, **options).promises().unbiased


@METHODS
def test_every_node_drawn_is_the_whole_sum(method: Callable[..., LayerWise]) -> None:
    graph = crossed()
    for kind in ("sage", "gcn"):
        made = method(nodes=EVERY_NODE, sampling="ordered")
        (one,) = batches(made, graph, one_layer(kind, graph))
        np.testing.assert_allclose(sampled(one[0], 0, torch.arange(40), 40), matrix(graph, kind), atol=1e-12)


def drawn_nodes(batch: SampledBatch, layer: int) -> set[int]:
    """Sources of a layer of a gcn, which are the drawn nodes."""
    return set(batch.nodes[layer].tolist())


def test_fastgcn_draws_the_same_on_every_rank_for_every_partition_and_batch() -> None:
    graph = crossed()
    model, made = make_model("gcn", graph, layers=3), FastGCN(nodes=9)
    (alone,) = batches(made, graph, model, epochs=range(4))
    layers = [{frozenset(drawn_nodes(batch, l)) for batch in alone} for l in range(3)]
    assert all(len(found) == 4 for found in layers), "another draw in every epoch"
    assert alone[0].nodes[0].tolist() != alone[0].nodes[1].tolist(), "and in every layer"
    for num_parts in (2, 3, 5):
        for seeds in (None, np.arange(7)):
            for rank in batches(made, graph, model, num_parts, range(4), seeds):
                for mine, theirs in zip(rank, alone, strict=True):
                    assert [drawn_nodes(mine, l) for l in range(3)] == [drawn_nodes(theirs, l) for l in range(3)]


def test_draws_of_two_layers_are_independent() -> None:
    graph = crossed()
    (drawn,) = batches(FastGCN(nodes=9), graph, make_model("gcn", graph, layers=2), epochs=range(DRAWS))
    seen = np.zeros((2, DRAWS, 40))
    for epoch, batch in enumerate(drawn):
        for l in range(2):
            seen[l, epoch, batch.nodes[l].numpy()] = 1
    centred = seen - seen.mean(1, keepdims=True)
    spread = np.outer(seen[0].std(0), seen[1].std(0)) / DRAWS**0.5
    assert (np.abs(centred[0].T @ centred[1] / DRAWS) <= 5 * spread + 1e-9).all()


def test_ladies_draws_among_the_neighbours_of_the_layer() -> None:
    """Of every layer's destinations; and nodes near to nobody are never drawn."""
    graph = crossed()
    model, seeds = make_model("gcn", graph, layers=2), np.array([6, 7, 12, 39])
    reads = matrix(graph, "gcn") > 0
    for rank in batches(LADIES(nodes=6), graph, model, 2, range(60), seeds):
        for batch in rank:
            upper, lower = batch.nodes[1].numpy(), batch.nodes[0].numpy()
            assert reads[np.ix_(seeds, upper)].any(0).all()
            assert not len(upper) or reads[np.ix_(upper, lower)].any(0).all()


@KINDS
def test_rows_are_scaled_to_their_whole_sums(kind: str) -> None:
    graph = crossed()
    (drawn,) = batches(LADIES(nodes=6), graph, one_layer(kind, graph), epochs=range(30))
    whole = matrix(graph, kind).sum(1)
    for batch in drawn:
        sums = sampled(batch, 0, torch.arange(40), 40).sum(1)
        there = sums > 0
        np.testing.assert_allclose(sums[there], whole[there])
        assert 0 < there.sum() < 40


def test_the_bias_of_scaled_rows_falls_with_the_draws() -> None:
    graph = crossed()
    p, y = matrix(graph, "gcn"), np.random.default_rng(2).standard_normal((40, 3))
    biases = []
    for count in (40, 400):
        (drawn,) = batches(LADIES(nodes=count), graph, one_layer("gcn", graph), epochs=range(DRAWS))
        errors = np.array([sampled(batch, 0, torch.arange(40), 40) @ y - p @ y for batch in drawn])
        biases.append(np.square(errors.mean(0)).sum() - errors.var(0).sum() / DRAWS)
    assert biases[0] > 0 and abs(biases[1]) < biases[0] / 20


@METHODS
def test_rows_without_a_drawn_neighbour_are_recorded(method: Callable[..., LayerWise]) -> None:
    graph = crossed()
    model, parts = make_model("sage", graph, layers=2), make_parts(graph, owners(graph, 3, "hash"), 3)
    made = method(nodes=5)

    async def program(rank: Rank) -> Any:
        state = await made.setup(rank, parts[rank.index], model)
        ids = state.neighbours.own(torch.arange(len(parts[rank.index].nodes)))
        batch = await made.draw(rank, parts[rank.index], model, state, {}, ids, 0)
        empty = [int((layer.block.indptr.diff() == 0).sum()) for layer in batch.layers if layer is not None]
        return empty, rank.take_observed()

    for empty, observed in loopback.run_ranks(program, 3):
        assert [observed[f"empty_rows/{l}"][0] for l in range(2)] == empty and sum(empty) > 0
        assert observed["empty_rows/1"][1] in (13, 14)


def bytes_of_shapes(method: LayerWise, graph: Graph, model: GNN, rates: dict[str, float]) -> list[Any]:
    """Bytes by direction and layer of one epoch on meta tensors, over all ranks."""
    parts = make_parts(graph, owners(graph, 4, "hash"), 4, torch.float32)

    async def program(rank: Rank) -> Any:
        rank.rates = rates
        part, meta = parts[rank.index].shapes_only(), copy.deepcopy(model).to("meta")
        state = await method.setup(rank, part, meta)
        rank.traffic.take()
        await method.epoch(rank, part, meta, state, {}, method.optimizer(rank, meta, 0.01, 0.0))
        return rank.traffic.take().layers

    return loopback.run_ranks(program, 4, make_rank=lambda i: Rank(i, 4, device="meta"))


@METHODS
@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_shapes_with_recorded_rates_send_as_many_bytes(method: Callable[..., LayerWise], kind: str) -> None:
    graph = random_graph(400, 3000, features=8, seed=5)
    model, made = make_model(kind, graph, dtype=torch.float32, layers=3), method(nodes=60, batch=30)
    parts = make_parts(graph, owners(graph, 4, "hash"), 4, torch.float32)

    async def program(rank: Rank) -> Any:
        part, mine = parts[rank.index], copy.deepcopy(model)
        state = await made.setup(rank, part, mine)
        rank.traffic.take()
        await made.epoch(rank, part, mine, state, {}, made.optimizer(rank, mine, 0.01, 0.0))
        return rank.traffic.take().layers, rank.take_observed()

    ran = loopback.run_ranks(program, 4)
    sums: dict[str, np.ndarray] = {}
    for _, observed in ran:
        for name, pair in observed.items():
            sums[name] = sums.get(name, np.zeros(2)) + pair
    rates = {name: part / max(whole, 1) for name, (part, whole) in sums.items()}
    shapes = bytes_of_shapes(made, graph, model, rates)
    for direction in ("forward", "other", "reduce"):
        for layer in ran[0][0].get(direction, {}):
            real, without = (sum(r.get(direction, {}).get(layer, 0) for r in each) for each in (
                [traffic for traffic, _ in ran], shapes))  # fmt: skip
            assert without == pytest.approx(real, rel=0.05), (direction, layer)


@pytest.mark.parametrize("name", ["fastgcn", "ladies"])
def test_what_cannot_be_sampled_is_refused(name: str) -> None:
    for text, message in ((f"{name}:nodes=0", "nodes must be 1 or more"), (f"{name}:batch=-1", "batch must be 0")):
        with pytest.raises(InputError, match=message):
            parse_method(text)
    graph = crossed()
    totals = replace(make_parts(graph, owners(graph, 1, "hash"), 1)[0].totals)
    with pytest.raises(InputError, match="attention has not: use gcn or sage"):
        parse_method(name).check(make_model("gat", graph), totals, 2)
