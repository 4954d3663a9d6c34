"""Induced subgraphs against brute force and PyG, and the clusters of Cluster-GCN."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from harness.graphs import Block, Graph
from harness.sampling import Clusters, in_turn, induced_subgraph
from tests.support.graphs import random_graph


def block_of(graph: Graph) -> Block:
    return Block.from_csr(graph.indptr.astype(np.int32), graph.indices.astype(np.int32), graph.num_nodes)


def pairs(block: Block) -> list[tuple[int, int]]:
    """(destination, source) of every entry, in order."""
    rows = np.repeat(np.arange(block.num_rows), np.diff(block.indptr.numpy()))
    return list(zip(rows.tolist(), block.indices.tolist(), strict=True))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_edges_are_those_of_brute_force_and_of_pyg(share: float) -> None:
    graph = random_graph(50, 200, seed=4)
    whole = block_of(graph)
    rows = torch.from_numpy(np.flatnonzero(np.random.default_rng(1).random(50) < share))
    found, number = induced_subgraph(whole, rows, 0), {int(v): i for i, v in enumerate(rows)}
    every = pairs(whole)
    wanted = [(e, number[v], number[u]) for e, (v, u) in enumerate(every) if v in number and u in number]
    assert found.edges.tolist() == [e for e, _, _ in wanted]
    assert pairs(found.block) == [(v, u) for _, v, u in wanted]
    with warnings.catch_warnings():  # of its other modules, about other packages
        warnings.simplefilter("ignore")
        from torch_geometric.utils import subgraph
    index = torch.tensor([[u for _, u in every], [v for v, _ in every]])
    kept, _ = subgraph(rows, index, relabel_nodes=True, num_nodes=50)
    assert pairs(found.block) == sorted(zip(kept[1].tolist(), kept[0].tolist(), strict=True))


def test_the_transpose_and_its_edge_map() -> None:
    found = induced_subgraph(block_of(random_graph(50, 200, seed=4)), torch.arange(5, 45), 0).block
    again = Block.from_csr(found.indptr.numpy(), found.indices.numpy(), found.num_rows).with_edge_map()
    for name in ("t_indptr", "t_indices", "t_edge"):
        assert torch.equal(getattr(found, name), getattr(again, name))


def test_all_nodes_give_the_block_itself() -> None:
    whole = block_of(random_graph(50, 200, seed=4))
    found = induced_subgraph(whole, torch.arange(50), 0)
    assert torch.equal(found.block.indices, whole.indices) and torch.equal(found.block.t_indices, whole.t_indices)
    assert torch.equal(found.edges, torch.arange(whole.nnz))


def test_every_node_is_in_one_cluster() -> None:
    block = block_of(random_graph(120, 500, seed=2))
    clusters = Clusters.of(block, 8, seed=0)
    assert len(clusters) == 8 and sorted(clusters.nodes.tolist()) == list(range(120))
    assert torch.equal(clusters.union(np.arange(8)), torch.arange(120))
    assert all(np.all(np.diff(c) > 0) for c in np.split(clusters.nodes, clusters.starts[1:-1]))
    assert np.array_equal(Clusters.of(block, 8, seed=0).nodes, clusters.nodes)


def test_no_more_clusters_than_nodes() -> None:
    clusters = Clusters.of(block_of(random_graph(7, 9)), 20, seed=0)
    assert len(clusters) == 7 and clusters.union(np.array([4, 1])).tolist() == [1, 4]
    assert len(clusters.union(np.array([], np.int64))) == 0


def test_an_epoch_has_every_cluster_once() -> None:
    batches = in_turn(12, 5, np.random.default_rng(0))
    assert [len(b) for b in batches] == [5, 5, 2] and sorted(np.concatenate(batches).tolist()) == list(range(12))
    assert in_turn(0, 5, np.random.default_rng(0)) == []


def test_edges_between_clusters_are_kept_as_often_as_both_are_chosen() -> None:
    """A cross edge is in a batch with probability (b - 1) / (c - 1), b of c clusters at a time."""
    graph, (c, b), epochs = random_graph(120, 500, seed=2), (12, 4), 300
    block = block_of(graph)
    clusters = Clusters.of(block, c, seed=0)
    label = np.empty(120, np.int64)
    label[clusters.nodes] = np.repeat(np.arange(c), np.diff(clusters.starts))
    rows = np.repeat(np.arange(120), graph.in_degree)
    cross = label[rows] != label[graph.indices]
    kept = np.zeros(graph.num_edges)
    shares = []
    for epoch in range(epochs):
        kept[:] = 0
        for chosen in in_turn(c, b, np.random.default_rng(epoch)):
            kept[induced_subgraph(block, clusters.union(chosen), 0).edges.numpy()] += 1
        assert np.all(kept[~cross] == 1)
        shares.append(kept[cross].mean())
    error = np.std(shares, ddof=1) / epochs**0.5
    assert abs(np.mean(shares) - (b - 1) / (c - 1)) < 4 * error
