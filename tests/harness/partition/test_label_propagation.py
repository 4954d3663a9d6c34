"""The own multilevel cut: levels are the graph they stand for, bounds hold, METIS's volume; what `auto` means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Graph, from_edges
from harness.partition import _cutting, cutting
from harness.partition.edge import assign, quality
from harness.partition.partitioners import _label_propagation as propagation
from harness.partition.partitioners import undirected
from tests.harness.partition.test_partition import communities, graphs


def first_level(graph: Graph) -> propagation.Level:
    adjacency = undirected(graph.indptr, graph.indices, graph.is_symmetric(), np.int32)
    return propagation.Level(*adjacency, np.empty(0, np.int32), np.ones(graph.num_nodes, np.int64))


def dense(level: propagation.Level) -> np.ndarray:
    """Weights of edges, int [N, N]."""
    found = np.zeros((len(level.node_weight),) * 2, np.int64)
    rows = np.repeat(np.arange(len(found)), np.diff(level.indptr))
    np.add.at(found, (rows, level.indices), level.edge_weight if len(level.edge_weight) else 1)
    return found


@settings(deadline=None, max_examples=50)
@given(graph=graphs(), most=st.integers(1, 6), passes=st.integers(1, 4), seed=st.integers(0, 5))
def test_levels_stand_for_the_first_graph(graph: Graph, most: int, passes: int, seed: int) -> None:
    level = first_level(graph)
    whole = np.arange(graph.num_nodes)
    for _ in range(2):
        cluster, count = propagation._clusters(level, most, passes, np.uint64(seed + 1))
        assert sorted(set(cluster.tolist())) == list(range(count))
        merged = np.zeros((count, len(cluster)), np.int64)
        merged[cluster, np.arange(len(cluster))] = 1
        assert (merged @ level.node_weight)[cluster].max(initial=0) <= max(most, level.node_weight.max(initial=0))
        expected = merged @ dense(level) @ merged.T
        np.fill_diagonal(expected, 0)
        level = propagation._contract(level, cluster, count)
        whole = cluster[whole]
        assert (dense(level) == expected).all() and (level.node_weight == np.bincount(whole, minlength=count)).all()


def weighted(nodes: list[int], edges: list[tuple[int, int, int]]) -> propagation.Level:
    """A level with nodes of these weights, and edges (one end, other end, weight)."""
    matrix = np.zeros((len(nodes), len(nodes)), np.int32)
    for one, other, weight in edges:
        matrix[one, other] = matrix[other, one] = weight
    rows, columns = np.nonzero(matrix)
    indptr = np.searchsorted(rows, np.arange(len(nodes) + 1)).astype(np.int64)
    return propagation.Level(indptr, columns.astype(np.int32), matrix[rows, columns], np.asarray(nodes, np.int64))


def test_heavy_edges_decide() -> None:
    level = weighted([2, 1, 1, 1], [(0, 1, 5), (1, 2, 2), (1, 3, 2), (2, 3, 2)])
    cluster, count = propagation._clusters(level, 3, 1, np.uint64(7))
    assert count == 2 and cluster[0] == cluster[1] != cluster[2] == cluster[3]
    fork = weighted([1, 1, 1], [(0, 1, 1), (0, 2, 5)])
    for random in range(1, 30):  # by number of edges, both ends would be equal
        assert propagation._clusters(fork, 2, 1, np.uint64(random))[0].tolist() == [0, 1, 0]
    owner, size = np.asarray([0, 1, 1, 1], np.int32), np.asarray([2, 3])
    propagation._refine(level, owner, size, 3, 1)  # by number of edges, node 1 would stay
    assert owner.tolist() == [0, 0, 1, 1] and size.tolist() == [3, 2]


@settings(deadline=None, max_examples=50)
@given(graph=graphs(), num_parts=st.integers(2, 4), coarse=st.booleans(), data=st.data())
def test_moves_cut_no_more_and_fill_no_part(graph: Graph, num_parts: int, coarse: bool, data: st.DataObject) -> None:
    level = first_level(graph)
    if coarse:
        level = propagation._contract(level, *propagation._clusters(level, 3, 2, np.uint64(1)))
    nodes = len(level.node_weight)
    given_owner = data.draw(st.lists(st.integers(0, num_parts - 1), min_size=nodes, max_size=nodes))
    owner = np.asarray(given_owner, np.int32)
    size = np.bincount(owner, level.node_weight, num_parts).astype(np.int64)
    before, full = int((dense(level) * (owner[:, None] != owner)).sum()), int(size.max())
    propagation._refine(level, owner, size, full, 3)
    assert (size == np.bincount(owner, level.node_weight, num_parts)).all() and size.max() <= full
    assert (dense(level) * (owner[:, None] != owner)).sum() <= before


def test_a_part_that_is_too_large_loses_nodes() -> None:
    level = first_level(communities(400))
    owner, size = np.zeros(400, np.int32), np.asarray([400, 0, 0, 0])
    propagation._refine(level, owner, size, 110, 3)
    assert size.max() <= 110 and (size == np.bincount(owner, minlength=4)).all()


def grid(side: int) -> Graph:
    at = np.random.default_rng(0).permutation(side * side).reshape(side, side)
    rows, columns = (np.stack([a.ravel(), b.ravel()]) for a, b in ((at[:-1], at[1:]), (at[:, :-1], at[:, 1:])))
    return from_edges("grid", np.concatenate([rows, columns], axis=1), side * side, undirected=True)


def hubs(num_nodes: int) -> Graph:
    """A tree in which most nodes hang on a few: without a second choice its leaves would stay alone."""
    other = (np.random.default_rng(0).random(num_nodes) ** 6 * num_nodes).astype(np.int64)
    return from_edges("hubs", np.stack([np.arange(num_nodes), other]), num_nodes, undirected=True)


@pytest.mark.parametrize("graph", [communities(3000, groups=8), grid(60), hubs(4000)], ids=lambda graph: graph.name)
def test_its_volume_is_that_of_metis_on_networks_meshes_and_trees(
    monkeypatch: pytest.MonkeyPatch, graph: Graph
) -> None:
    monkeypatch.setattr(propagation, "_FEW_ENTRIES", 2000)
    level = first_level(graph)
    finer, coarsest = propagation._coarsened(level, 4, 3, 0)
    assert finer and len(coarsest.indices) < len(level.indices) / 4
    ours, metis, other = (
        quality(graph, assign(graph, name, 4), 4) for name in ("label-propagation", "metis-cut", "hash")
    )
    assert ours.volume < min(1.25 * metis.volume, 0.9 * other.volume)
    assert max(ours.inner) <= max(-(-graph.num_nodes // 4), int(1.03 * graph.num_nodes / 4))


def test_it_depends_on_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "_FEW_ENTRIES", 2000)
    graph = communities(2000)
    first = assign(graph, "label-propagation", 4, seed=1)
    assert (assign(graph, "label-propagation", 4, seed=1) == first).all()
    assert (assign(graph, "label-propagation", 4, seed=2) != first).any()


@pytest.mark.parametrize("option", ["passes=0", "refinements=0", "imbalance=0"])
def test_options_out_of_range(option: str) -> None:
    with pytest.raises(InputError, match=option.partition("=")[0]):
        assign(communities(20), f"label-propagation:{option}", 2)


def test_auto_takes_it_for_large_graphs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    graph, settings = communities(100), {"overlap": 0.5, "degrees": "local", "loss": "own", "master": "worker"}

    def chosen(cut: str) -> str:
        made = cutting("auto", cut, settings if cut == "overlap" else {}).parts(graph, 2, 0, 0, 1)
        return str(made.settings["partitioner"]).partition(":")[0]

    monkeypatch.setattr(_cutting, "LARGE_EDGES", graph.num_edges + 1)
    assert [chosen(cut) for cut in ("edge", "overlap", "vertex")] == ["metis-cut", "metis-cut", "ebv"]
    monkeypatch.setattr(_cutting, "LARGE_EDGES", graph.num_edges)
    assert [chosen(cut) for cut in ("edge", "overlap", "vertex")] == ["label-propagation", "label-propagation", "ebv"]
