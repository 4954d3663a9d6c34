"""Samples drawn once over a partitioned graph: fan-outs, uniformity, the same edges however the graph is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness import loopback
from harness.conformance import reference_gradients
from harness.graphs import Graph, Part, from_edges
from harness.methods.ec_graph_s import ECGraphS
from harness.rank import Rank
from harness.sampling import EVERYTHING, Sample, sample_layers
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(60, 240, seed=3)
PARTS = (1, 2, 3, 4, 8)


def draw(graph: Graph, parts: list[Part], fanouts: list[int], keys: list[int]) -> list[Sample]:
    async def program(rank: Rank) -> Sample:
        return await sample_layers(rank, parts[rank.index], fanouts, keys)

    return loopback.run_ranks(program, len(parts))


def edges(parts: list[Part], samples: list[Sample], l: int, which: str) -> set[tuple[int, int]]:
    """Global (reader, read) pairs of one layer, from the forward graphs of all ranks or from the reverse ones."""
    found = set()
    for part, sample in zip(parts, samples, strict=True):
        layer, nodes = sample.layers[l], part.nodes[sample.nodes].numpy()
        graph = layer.graph if which == "graph" else layer.reverse
        boundary = layer.forward if which == "graph" else layer.backward
        far = halo_ids(parts, samples, part.rank, l, which)
        assert graph.halo.num_cols == len(far) == boundary.plan.recv_counts.sum()
        for block, ids in ((graph.own, nodes), (graph.halo, far)):
            rows = np.repeat(nodes, np.diff(block.indptr.numpy()))
            columns = ids[block.indices.numpy()]
            pairs = zip(rows, columns, strict=True) if which == "graph" else zip(columns, rows, strict=True)
            found |= {(int(a), int(b)) for a, b in pairs}
    return found


def halo_ids(parts: list[Part], samples: list[Sample], rank: int, l: int, which: str) -> np.ndarray:
    """Global ids of received rows, from the senders' plans."""
    pieces = [np.empty(0, np.int64)]
    for part, sample in zip(parts, samples, strict=True):
        layer = sample.layers[l]
        plan = (layer.forward if which == "graph" else layer.backward).plan
        begin = int(plan.send_counts[:rank].sum())
        rows = plan.send_rows[begin : begin + int(plan.send_counts[rank])]
        pieces.append(part.nodes[sample.nodes][rows].numpy())
    return np.concatenate(pieces)


def full_edges(graph: Graph) -> set[tuple[int, int]]:
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return set(zip(rows.tolist(), graph.indices.tolist(), strict=True))


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("owner", ["hash", "random", "first", "halves"])
def test_the_same_edges_are_kept_however_the_graph_is_cut(parts: int, owner: str) -> None:
    fanouts, keys = [2, 3], [5, 6]
    whole = make_parts(GRAPH, owners(GRAPH, 1, "hash"), 1)
    built = make_parts(GRAPH, owners(GRAPH, parts, owner), parts)
    one, many = draw(GRAPH, whole, fanouts, keys), draw(GRAPH, built, fanouts, keys)
    degree = np.diff(GRAPH.indptr)
    assert GRAPH.train is not None
    needed = set(GRAPH.train.tolist())
    for l in (1, 0):
        wanted = edges(whole, one, l, "graph")
        found = edges(built, many, l, "graph")
        assert found == wanted == edges(built, many, l, "reverse")
        assert found <= full_edges(GRAPH)
        for node in range(GRAPH.num_nodes):
            kept = sum(reader == node for reader, _ in found)
            assert kept == (min(degree[node], fanouts[l]) if node in needed else 0)
        needed |= {read for _, read in found}
        for part, sample in zip(built, many, strict=True):
            ids, far = part.nodes[sample.nodes].numpy(), halo_ids(built, many, part.rank, l, "graph")
            assert part.halo_nodes[sample.layers[l].read].tolist() == far.tolist()
            assert sample.layers[l].graph.degree.tolist() == np.minimum(degree[ids], fanouts[l]).tolist()
            assert sample.layers[l].graph.halo_degree.tolist() == np.minimum(degree[far], fanouts[l]).tolist()
    assert {int(n) for part, sample in zip(built, many, strict=True) for n in part.nodes[sample.nodes]} == needed


def test_all_neighbours_are_kept_where_they_fit() -> None:
    built = make_parts(GRAPH, owners(GRAPH, 3, "hash"), 3)
    samples = draw(GRAPH, built, [EVERYTHING, EVERYTHING], [1, 2])
    assert GRAPH.train is not None
    train = set(GRAPH.train.tolist())
    assert edges(built, samples, 1, "graph") == {e for e in full_edges(GRAPH) if e[0] in train}


def test_every_neighbour_is_as_likely_as_any_other() -> None:
    """Chi-square over one node of 20 neighbours, 5 kept, 800 keys: beyond 60 with 19 degrees of freedom is < 1e-5."""
    nodes = 21
    hub = np.array([[0] * 20 + list(range(1, 21)), list(range(1, 21)) + [0] * 20])
    graph = from_edges(
        "star", hub, nodes, x=np.zeros((nodes, 1), np.float32), y=np.zeros(nodes, np.int64), num_classes=2,
        train=np.array([0]), val=np.array([1]), test=np.array([2]),
    )  # fmt: skip
    built = make_parts(graph, owners(graph, 3, "hash"), 3)
    counts, together = np.zeros(nodes), 0
    for key in range(800):
        kept = {read for _, read in edges(built, draw(graph, built, [5], [key]), 0, "graph")}
        assert len(kept) == 5
        counts[list(kept)] += 1
        together += 1 in kept and 2 in kept
    # Without replacement the statistic is 15 / 19 of a chi-square with 19 degrees of freedom.
    expected = 800 * 5 / 20
    assert ((counts[1:] - expected) ** 2 / expected).sum() / (15 / 19) < 60
    pairs = 800 * (5 * 4) / (20 * 19)
    assert abs(together - pairs) < 4.5 * pairs**0.5


@pytest.mark.parametrize("parts", [1, 3])
def test_repeated_edges_count_as_several_neighbours(parts: int) -> None:
    """A hub with four neighbours of five edges each, 7 kept: rows are divided by the sampled degree."""
    ends = np.repeat(np.arange(1, 5), 5)
    hub, nodes = np.array([[0] * 20 + ends.tolist(), ends.tolist() + [0] * 20]), 5
    graph = from_edges(
        "repeated", hub, nodes, x=np.zeros((nodes, 1), np.float32), y=np.zeros(nodes, np.int64), num_classes=2,
        train=np.array([0]), val=np.array([1]), test=np.array([2]),
    )  # fmt: skip
    built, shares = make_parts(graph, owners(graph, parts, "hash"), parts), set()
    for key in range(20):
        sample = draw(graph, built, [7], [key])[0]
        layer, row = sample.layers[0], built[0].nodes[sample.nodes].tolist().index(0)
        kept = [int(block.indptr[row + 1] - block.indptr[row]) for block in (layer.graph.own, layer.graph.halo)]
        assert sum(kept) == 7 == int(layer.graph.degree[row])
        shares.add(tuple(kept))
    assert parts == 1 or len(shares) > 2


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_without_a_limit_gradients_are_exact(parts: int, kind: str) -> None:
    for order in ("aggregate-first", "linear-first"):
        model = make_model(kind, GRAPH, order=order)
        loss, wanted = reference_gradients(model, GRAPH)
        method = ECGraphS(fanouts="full/full/full", fp="exact", bp="exact")
        found_loss, found, _ = step(method, model, make_parts(GRAPH, owners(GRAPH, parts, "random"), parts))
        assert found_loss == pytest.approx(loss, rel=1e-10) and relative_error(found, wanted) < 1e-10


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_sampled_gradients_are_derivatives_of_the_sampled_loss_for_any_number_of_parts(kind: str) -> None:
    method, model = ECGraphS(fanouts="2/3/1", fp="exact", bp="exact"), make_model(kind, GRAPH)
    outcomes: list[tuple[float, list[torch.Tensor], Any]] = []
    for parts in PARTS:
        built = make_parts(GRAPH, owners(GRAPH, parts, "random"), parts)
        outcomes.append(step(method, model, built))
        assert outcomes[-1][0] == pytest.approx(outcomes[0][0], rel=1e-10)
        assert relative_error(outcomes[-1][1], outcomes[0][1]) < 1e-10
    assert GRAPH.train is not None
    direction = [
        torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(1)) for p in model.parameters()
    ]
    slope = sum(float((g * d).sum()) for g, d in zip(outcomes[0][1], direction, strict=True)) * len(GRAPH.train)
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter, along in zip(model.parameters(), direction, strict=True):
                parameter += sign * 1e-6 * along
        losses.append(step(method, model, built)[0])
        with torch.no_grad():
            for parameter, along in zip(model.parameters(), direction, strict=True):
                parameter -= sign * 1e-6 * along
    assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)
