"""The neighbour sampler and the batches made of it: uniform, keyed, exact where all neighbours are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.conformance import adjacency, dense_forward
from harness.errors import InputError
from harness.graphs import Graph, LocalGraph, Part
from harness.nn import GNN, training_loss
from harness.partition.edge import build_parts
from harness.rank import Rank
from harness.sampling import NeighbourSampler, batch_logits, batch_part, batches
from harness.sampling._minibatch import BatchGraphs
from harness.sampling._neighbours import sample_neighbours
from tests.harness.partition.test_partition import check_block, pairs
from tests.support.conformance import make_model
from tests.support.graphs import graphs, random_graph

EVERY = 1000  # a fan-out beyond every degree here


def whole(graph: Graph) -> Part:
    """The graph as one part in double precision."""
    (part,) = build_parts(graph, np.zeros(graph.num_nodes, np.int32), 1)
    assert part.x is not None
    return replace(part, x=part.x.double())


def draw(graph: Graph, model: GNN, fanouts: list[int], rows: torch.Tensor, step: int = 0) -> tuple[BatchGraphs, Part]:
    part = whole(graph)
    return NeighbourSampler.of(part, model, fanouts).sample(Rank(0, 1), rows, step), part


@given(graph=graphs(symmetric=False), fanout=st.integers(1, 6), key=st.integers(0, 2**63 - 1), data=st.data())
def test_samples_are_distinct_neighbours_whoever_else_is_drawn_for(
    graph: Graph, fanout: int, key: int, data: st.DataObject
) -> None:
    seeds = np.array(data.draw(st.permutations(range(graph.num_nodes))), np.int64)
    indptr, drawn = sample_neighbours(graph.indptr, graph.indices, seeds, fanout, key)
    assert (np.diff(indptr) == np.minimum(graph.in_degree[seeds], fanout)).all()
    for row, seed in enumerate(seeds):
        mine = drawn[indptr[row] : indptr[row + 1]].tolist()
        assert len(set(mine)) == len(mine)
        assert set(mine) <= set(graph.indices[graph.indptr[seed] : graph.indptr[seed + 1]].tolist())
        alone = sample_neighbours(graph.indptr, graph.indices, seeds[row : row + 1], fanout, key)[1]
        assert mine == alone.tolist()  # in this order too: the scratch is clean for every seed


@pytest.mark.parametrize("fanout", [1, 4, 9])
def test_every_neighbour_and_every_pair_is_equally_likely(fanout: int) -> None:
    """Chi-square over 20,000 seeds with the neighbours 0..9: single places, and pairs of places."""
    degree, draws = 10, 20_000
    indptr, indices = np.arange(draws + 1) * degree, np.tile(np.arange(degree), draws)
    drawn = sample_neighbours(indptr, indices, np.arange(draws), fanout, 7)[1].reshape(draws, fanout)
    taken = np.zeros((draws, degree), np.int64)
    np.put_along_axis(taken, drawn, 1, axis=1)
    share = fanout / degree
    counts = taken.sum(0)
    # Ten indicators a draw with variance share (1 - share), which sum to a constant: 9 degrees of freedom.
    statistic = ((counts - draws * share) ** 2).sum() / (draws * share * (1 - share)) * (degree - 1) / degree
    assert statistic < 33.8  # exceeded once in 10,000
    together = (taken.T @ taken)[np.triu_indices(degree, 1)] / draws
    chance = share * (fanout - 1) / (degree - 1)
    spread = max((chance * (1 - chance) / draws) ** 0.5, 1e-12)
    assert np.abs(together - chance).max() < 5 * spread  # 45 pairs: once in 39,000


def test_places_of_a_large_neighbourhood_are_drawn_evenly() -> None:
    """Chi-square of 16 equal stretches of 30,000 neighbours, 15 degrees of freedom; a row larger than any scratch."""
    degree, draws, fanout = 30_000, 400, 50
    indptr = np.arange(draws + 1) * degree
    drawn = sample_neighbours(indptr, np.tile(np.arange(degree), draws), np.arange(draws), fanout, 11)[1]
    counts = np.bincount(drawn * 16 // degree, minlength=16)
    expected = draws * fanout / 16
    assert ((counts - expected) ** 2 / expected).sum() < 44.3  # exceeded once in 10,000


def test_samples_depend_on_the_key_and_not_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds = random_graph(300, 3000, seed=2), np.arange(300)
    first = sample_neighbours(graph.indptr, graph.indices, seeds, 5, 1)
    monkeypatch.setattr("harness.kernels.threads.num_ranges", lambda num_bytes: 3)
    threaded = sample_neighbours(graph.indptr, graph.indices, seeds, 5, 1)
    assert all((a == b).all() for a, b in zip(first, threaded, strict=True))
    assert (sample_neighbours(graph.indptr, graph.indices, seeds, 5, 2)[1] != first[1]).any()


def edges_of(graph: LocalGraph, rows: torch.Tensor) -> list[tuple[int, int]]:
    """(destination, source) of all edges of a layer's graph, in rows of the part."""
    ids, found = rows.numpy(), list[tuple[int, int]]()
    for block, shift in ((graph.own, 0), (graph.halo, graph.num_own)):
        check_block(block)
        rows_, columns = pairs(block.indptr, block.indices).T
        found += zip(ids[rows_].tolist(), ids[columns + shift].tolist(), strict=True)
    return found


@given(graph=graphs(), fanouts=st.lists(st.integers(1, 4), min_size=3, max_size=3), data=st.data())
def test_layers_of_a_batch_hold_the_sampled_edges(graph: Graph, fanouts: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(graph.num_nodes)))
    rows = torch.tensor(order[: data.draw(st.integers(1, graph.num_nodes))])
    batch, part = draw(graph, make_model("sage", graph), fanouts, rows)
    assert batch.rows[: len(rows)].tolist() == rows.tolist() and batch.rows.unique().numel() == len(batch.rows)
    wanted = rows
    for l in (2, 1, 0):
        layer = batch.graphs[l]
        assert layer.num_own == len(wanted)
        edges = edges_of(layer, batch.rows)
        assert len(set(edges)) == len(edges) == int(layer.degree.sum())
        for at, v in enumerate(wanted.tolist()):
            mine = {u for d, u in edges if d == v}
            neighbours = set(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist())
            assert mine <= neighbours and len(mine) == min(len(neighbours), fanouts[l]) == int(layer.degree[at])
        new = {u for _, u in edges} - set(wanted.tolist())
        wanted = batch.rows[: layer.num_own + layer.num_halo]
        assert wanted[layer.num_own :].tolist() == sorted(new)
        assert layer.halo_degree.tolist() == graph.in_degree[sorted(new)].tolist()
    assert len(wanted) == len(batch.rows) and part.totals.num_nodes == graph.num_nodes


@pytest.mark.parametrize("order", ["aggregate-first", "linear-first"])
@pytest.mark.parametrize("kind", ["sage", "gat"])
@given(graph=graphs(), data=st.data())
def test_a_batch_with_all_neighbours_computes_what_the_whole_graph_does(
    order: str, kind: str, graph: Graph, data: st.DataObject
) -> None:
    model = make_model(kind, graph, order=order)
    some = data.draw(st.permutations(range(graph.num_nodes)))[: data.draw(st.integers(1, graph.num_nodes))]
    rows = torch.tensor(some)
    batch, part = draw(graph, model, [EVERY] * 3, rows)
    found = batch_logits(Rank(0, 1), model, part, batch, 0)
    assert part.x is not None
    assert torch.allclose(found, dense_forward(model, adjacency(graph), part.x)[rows], rtol=1e-10, atol=1e-10)


def test_trailing_dense_layers_sample_nothing() -> None:
    graph = random_graph(40, 160, seed=3)
    model = make_model("sage", graph, linear_layers=1)
    rows = torch.arange(7)
    batch, part = draw(graph, model, [EVERY, EVERY], rows)
    assert batch.graphs[2].own.nnz == batch.graphs[2].num_halo == 0
    assert part.x is not None
    wanted = dense_forward(model, adjacency(graph), part.x)[rows]
    assert torch.allclose(batch_logits(Rank(0, 1), model, part, batch, 0), wanted, rtol=1e-10)


def test_sampled_means_are_unbiased_in_the_first_layer() -> None:
    """The mean over draws of a sampled neighbour mean is the exact one: all entries within 5 standard errors."""
    graph = random_graph(30, 300, seed=4)
    model, rank, draws = make_model("sage", graph, layers=1), Rank(0, 1), 600
    part = whole(graph)
    sampler, rows = NeighbourSampler.of(part, model, [4]), torch.arange(30)
    with torch.no_grad():
        found = torch.stack(
            [batch_logits(rank, model, part, sampler.sample(rank, rows, step), step) for step in range(draws)]
        )
        assert part.x is not None
        exact = dense_forward(model, adjacency(graph), part.x)
    error = (found.mean(0) - exact) / (found.std(0) / draws**0.5).clamp(min=1e-9)
    assert float(error.abs().max()) < 5.0 and float(found.std(0).min()) > 0  # 90 entries: once in 19,000


def test_batches_hold_every_training_node_once_in_an_order_of_the_epoch() -> None:
    part, rank = whole(random_graph(50, 100, seed=5)), Rank(1, 3)
    epochs = []
    for epoch in (0, 0, 1):
        rank.epoch = epoch
        found = batches(rank, part, 8)
        assert [len(batch) for batch in found] == [8, 8, 8, 6]
        assert torch.cat(found).sort().values.tolist() == part.train.tolist()
        epochs.append(torch.cat(found).tolist())
    assert epochs[0] == epochs[1] != epochs[2]
    assert batches(rank, replace(part, train=part.train[:0]), 8) == []


def test_a_batch_carries_the_loss_of_its_own_rows() -> None:
    part = whole(random_graph(50, 100, seed=6))
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [(batch, batch_part(part, batch)) for batch in batches(Rank(0, 1), part, 7)]
    total = sum(float(training_loss(logits[batch], narrowed)) for batch, narrowed in parts)
    assert total == pytest.approx(float(training_loss(logits, part)))


def test_shapes_follow_the_shares_of_a_recorded_run() -> None:
    """On meta tensors a batch has the sizes that the recorded shares say, and runs forwards and backwards."""
    graph = random_graph(200, 2400, seed=7)
    model, rank = make_model("gat", graph, dtype=torch.float32), Rank(0, 1)
    part = replace(whole(graph), x=torch.from_numpy(np.asarray(graph.x)))
    rows = torch.arange(20)
    real = NeighbourSampler.of(part, model, [5, 4, 3]).sample(rank, rows, 0)
    meta = Rank(0, 1, device="meta")
    shapes, ghost = part.shapes_only(), model.to("meta")
    sampler = NeighbourSampler.of(shapes, ghost, [5, 4, 3])
    with pytest.raises(InputError, match="sampled_edges/2"):
        sampler.sample(meta, rows.to("meta"), 0)
    meta.rates = {name: part / whole for name, (part, whole) in rank.take_observed().items()}
    batch = sampler.sample(meta, rows.to("meta"), 0)
    assert batch.rows.is_meta and batch.rows.shape == real.rows.shape
    for got, wanted in zip(batch.graphs, real.graphs, strict=True):
        assert (got.num_own, got.num_halo) == (wanted.num_own, wanted.num_halo)
        assert abs(got.own.nnz + got.halo.nnz - wanted.own.nnz - wanted.halo.nnz) <= len(wanted.degree)  # self loops
    logits = batch_logits(meta, ghost, shapes, batch, 0)
    assert logits.is_meta and logits.shape == (20, 3)
    training_loss(logits, batch_part(shapes, rows.to("meta"))).backward()
    assert [len(batch) for batch in batches(meta, shapes, 50)] == [50, 50, 20]


def test_the_operator_and_its_shapes_agree() -> None:
    graph, rows = random_graph(60, 300, seed=8), torch.arange(9)
    part = whole(graph)
    arguments = (part.graph.own.indices, part.graph.own.indptr, rows, 3, 5)
    arrays = torch.ops.haloscope.sample_block(*arguments, [])
    expected = [arrays[1].numel(), arrays[5].numel(), arrays[8].numel()]
    fake = torch.ops.haloscope.sample_block(*(t.to("meta") for t in arguments[:3]), 3, 5, expected)
    assert [(t.shape, t.dtype) for t in fake] == [(t.shape, t.dtype) for t in arrays]
    torch.library.opcheck(torch.ops.haloscope.sample_block.default, (*arguments, expected), test_utils="test_schema")
