"""Overlapping parts: Algorithm 1 against a naive search, induced subgraphs, splits, counts, and the cache."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from harness.datasets import load, training_graph
from harness.errors import InputError
from harness.graphs import Graph, Part, from_edges
from harness.partition.edge import OverlapQuality, PartitionFolder, open_partition, partitioned
from harness.partition.overlap import overlapped
from harness.partition.overlap._parts import copies_per_part, sample_copies
from tests.conftest import real_data
from tests.harness.partition.test_partition import check_block, counts_of, pairs
from tests.harness.partition.test_partition_store import same
from tests.support.graphs import graphs, owners, random_graph

OVERLAPS = (0.0, 0.1, 0.5, 1.0, 3.0, 100.0)


@pytest.fixture()
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def naive_rings(graph: Graph, owner: np.ndarray, part: int, other: int) -> list[set[int]]:
    """Nodes of `other` by their distance to `part` along edges that stay in `other` after the first."""
    into: dict[int, set[int]] = {v: set() for v in range(graph.num_nodes)}
    for v in range(graph.num_nodes):
        into[v] = {int(u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    reached = {v for v in range(graph.num_nodes) if owner[v] == part}
    ring, known, rings = reached, set(reached), []
    while ring:
        ring = {u for v in ring for u in into[v] if owner[u] == other} - known
        known |= ring
        rings.append(ring)
    return [ring for ring in rings if ring]


@given(
    graph=st.booleans().flatmap(lambda symmetric: graphs(symmetric=symmetric)),
    parts=st.integers(1, 5),
    kind=st.sampled_from(["hash", "random", "first", "halves"]),
    overlap=st.sampled_from(OVERLAPS),
    seed=st.integers(0, 3),
)
def test_rings_are_taken_whole_while_they_fit_and_sampled_where_they_do_not(
    graph: Graph, parts: int, kind: str, overlap: float, seed: int
) -> None:
    owner = owners(graph, parts, kind)
    copies = sample_copies(graph, owner, parts, overlap, seed)
    assert len(copies) == parts
    for part, found in enumerate(copies):
        assert (np.diff(found) > 0).all() and not (owner[found] == part).any()  # ascending: nothing is added twice
        own = int((owner == part).sum())
        for other in set(range(parts)) - {part}:
            mine = {int(v) for v in found if owner[v] == other}
            left = int(overlap * own / (parts - 1) + 1e-9)
            for ring in naive_rings(graph, owner, part, other):
                assert len(mine & ring) == min(len(ring), left)
                left -= len(mine & ring)
                mine -= ring
            assert not mine, "a node without a path into the part, or from beyond the budget"


def test_budgets_are_per_other_part_and_rounded_down() -> None:
    assert copies_per_part(0.1, 1000, 5) == 25  # the example of Section 3.1
    assert copies_per_part(0.29, 100, 2) == 29
    assert copies_per_part(0.5, 7, 3) == 1
    assert copies_per_part(0.5, 7, 1) == 0


def test_the_ring_that_does_not_fit_is_drawn_uniformly() -> None:
    """A star of 12 foreign nodes, 3 of them taken: chi-square over 2,000 seeds, 11 degrees of freedom."""
    leaves = np.arange(6, 18)
    graph = from_edges("star", np.stack([np.zeros(12, np.int64), leaves]), 18, undirected=True)
    owner = (np.arange(18) >= 6).astype(np.int32)
    draws = 2000
    counts = np.zeros(18)
    for seed in range(draws):
        (found, _) = sample_copies(graph, owner, 2, 0.5, seed)
        assert len(found) == 3
        counts[found] += 1
    expected = draws * 3 / 12
    # Drawn without replacement, the counts vary by (1 - 3/12) 12/11 of what independent ones would.
    statistic = ((counts[leaves] - expected) ** 2 / expected).sum() * 11 / 12 / (1 - 3 / 12)
    assert statistic < 37.4  # exceeded once in 10,000


def test_samples_depend_on_the_seed_alone() -> None:
    graph = random_graph(200, 900, seed=1)
    owner = owners(graph, 4, "random")
    first, again, other = (sample_copies(graph, owner, 4, 0.2, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other, strict=True))


def held_nodes(folder: PartitionFolder, graph: Graph, overlap: float, rank: int, seed: int = 0) -> list[int]:
    copies = sample_copies(graph, folder.owner, folder.num_parts, overlap, seed)[rank]
    return sorted([*np.flatnonzero(folder.owner == rank).tolist(), *copies.tolist()])


def check_part(part: Part, folder: PartitionFolder, graph: Graph) -> None:
    """Edges, features, labels, degrees and splits of one part against the definition."""
    nodes = part.nodes.numpy()
    whole = counts_of(graph)
    mine = np.zeros((len(nodes), len(nodes)), np.int64)
    check_block(part.graph.own)
    np.add.at(mine, tuple(pairs(part.graph.own.indptr, part.graph.own.indices).T), 1)
    assert (mine == whole[np.ix_(nodes, nodes)]).all()
    assert part.graph.num_halo == part.graph.halo.nnz == len(part.halo_nodes) == 0
    assert part.graph.halo.num_rows == len(nodes)
    assert not part.plan.send_counts.any() and not part.plan.recv_counts.any() and part.plan.num_parts == part.num_parts
    full = folder.settings["degrees"] == "full"
    assert (part.graph.degree.numpy() == (graph.in_degree[nodes] if full else mine.sum(1))).all()
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_matrix) else graph.x
    assert part.x is not None and x is not None and (part.x.numpy() == x[nodes]).all()
    assert part.y is not None and graph.y is not None and (part.y.numpy() == graph.y[nodes]).all()
    own = folder.owner[nodes] == part.rank
    for name, rows in (("train", part.train), ("val", part.val), ("test", part.test)):
        ids = graph.splits[name]
        wanted = np.isin(nodes, [] if ids is None else ids)
        if name != "train" or folder.settings["loss"] == "own":
            wanted &= own
        assert rows.tolist() == np.flatnonzero(wanted).tolist()


@pytest.mark.parametrize("renumber", [0, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse", "multilabel", "directed"])
@pytest.mark.parametrize(("degrees", "loss"), [("local", "own"), ("full", "all")])
def test_parts_are_induced_subgraphs(cache: Path, renumber: int, kind: str, degrees: str, loss: str) -> None:
    graph = random_graph(60, 150, seed=3, symmetric=kind != "directed")
    if kind == "sparse":
        graph = dataclasses.replace(graph, x=sp.csr_matrix(graph.x))
    if kind == "multilabel":
        graph = dataclasses.replace(graph, y=np.arange(180).reshape(60, 3).astype(np.uint8) % 2)
    folder = overlapped(graph, "hash", 3, 0, renumber, overlap=0.3, degrees=degrees, loss=loss)  # type: ignore[arg-type]
    parts = [folder.part(rank) for rank in range(3)]
    for rank, part in enumerate(parts):
        assert part.rank == rank and part.num_parts == 3
        assert sorted(part.nodes.tolist()) == held_nodes(folder, graph, 0.3, rank)
        check_part(part, folder, graph)
    totals = parts[0].totals
    assert all(part.totals == totals for part in parts)
    assert totals.num_train == sum(len(part.train) for part in parts)
    assert (totals.num_nodes, totals.num_edges, totals.num_features) == (60, graph.num_edges, 5)
    assert totals.symmetric == (kind != "directed") and totals.multilabel == (kind == "multilabel")
    assert totals.num_val == sum(len(p.val) for p in parts) and totals.num_test == sum(len(p.test) for p in parts)
    assert (loss == "own") == (totals.num_train == 36)


def test_without_overlap_parts_are_isolated_subgraphs(cache: Path) -> None:
    graph = random_graph(60, 200, seed=4)
    folder = overlapped(graph, "metis-cut", 4, 0, 0, overlap=0.0)
    for rank in range(4):
        alone = graph.subgraph(np.flatnonzero(folder.owner == rank))
        part = folder.part(rank)
        assert (part.graph.own.indptr.numpy() == alone.indptr).all()
        assert (part.graph.own.indices.numpy() == alone.indices).all()
        assert part.train.tolist() == ([] if alone.train is None else alone.train.tolist())
    assert folder.quality.summary()["copies"] == 0 and folder.quality.replication == 1.0


def test_enough_overlap_gives_every_part_the_whole_graph(cache: Path) -> None:
    bare, nodes = random_graph(40, 100, seed=5), np.arange(40)
    ring = np.stack([np.tile(nodes, 2), np.concatenate([nodes + 1, nodes + 2]) % 40])  # all parts meet everywhere
    graph = from_edges("ring", ring, 40, undirected=True, x=bare.x, y=bare.y, num_classes=3, train=bare.train)
    folder = overlapped(graph, "hash", 4, 0, 0, overlap=30.0)
    for rank in range(4):
        part = folder.part(rank)
        assert part.nodes.tolist() == list(range(40))
        assert (part.graph.own.indices.numpy() == graph.indices).all()
        assert (folder.owner[part.nodes[part.train].numpy()] == rank).all()
    assert isinstance(folder.quality, OverlapQuality)
    assert folder.quality.cut_kept == 1.0 and folder.quality.replication == 4.0


@given(graph=graphs(), parts=st.integers(1, 4), overlap=st.sampled_from(OVERLAPS), loss=st.sampled_from(["own", "all"]))
def test_any_graph_can_be_cut_and_counted(graph: Graph, parts: int, overlap: float, loss: str) -> None:
    parts = min(parts, graph.num_nodes)
    folder = overlapped(graph, "contiguous", parts, 0, 0, overlap=overlap, loss=loss)  # type: ignore[arg-type]
    counts = folder.quality
    assert isinstance(counts, OverlapQuality)
    plain = partitioned(graph, "contiguous", parts, 0, 0).quality
    for rank in range(parts):
        part = folder.part(rank)
        check_part(part, folder, graph)
        nodes, own = part.nodes.numpy(), np.flatnonzero(folder.owner == rank)
        row = counts.rows()[rank]
        assert {name: row[name] for name in plain.rows()[rank]} == plain.rows()[rank]
        assert row["copies"] == len(nodes) - len(own) and row["held"] == part.graph.own.nnz
        into_own = graph.subgraph(nodes).in_degree[np.isin(nodes, own)].sum()
        assert row["lost"] == graph.in_degree[own].sum() - into_own
        assert counts.largest_rows >= max(len(nodes), plain.halo[rank], plain.sent[rank])
    assert counts.overhead == pytest.approx(sum(counts.copies) / parts / graph.num_nodes)
    assert 0.0 <= counts.cut_kept <= 1.0


def test_the_cache_serves_equal_parts_and_finishes_a_killed_build(cache: Path) -> None:
    graph = random_graph(80, 300, seed=6)
    folder = overlapped(graph, "metis-cut", 3, overlap=0.2)
    parts = [folder.part(rank) for rank in range(3)]
    shutil.rmtree(folder.path / "part-00001")
    assert open_partition(folder.path) is None
    again = overlapped(graph, "metis-cut", 3, overlap=0.2)
    assert again.path == folder.path and again.quality == folder.quality and again.settings == folder.settings
    assert all(same(again.part(rank), parts[rank]) for rank in range(3))
    opened = open_partition(folder.path)
    assert opened is not None and isinstance(opened.quality, OverlapQuality) and opened.quality == folder.quality
    assert opened.settings["overlap"] == 0.2 and opened.settings["partitioner"] == "metis-cut"
    cut = partitioned(graph, "metis-cut", 3)
    assert (cut.owner == folder.owner).all() and folder.seconds > cut.seconds  # the assignment was made once
    others = [
        overlapped(graph, "metis-cut", 3, overlap=0.3),
        overlapped(graph, "metis-cut", 3, overlap=0.2, degrees="full"),
        overlapped(graph, "metis-cut", 3, overlap=0.2, loss="all"),
        overlapped(graph, "metis-cut", 3, seed=1, overlap=0.2),
        overlapped(graph, "hash", 3, overlap=0.2),
        overlapped(graph, "hash", 3, seed=1, overlap=0.2),  # hash ignores the seed, the samples do not
        cut,
    ]
    assert len({folder.path, *(other.path for other in others)}) == 8


@pytest.mark.parametrize("overlap", [-0.1, float("nan"), float("inf")])
def test_a_bad_overlap_is_refused(cache: Path, overlap: float) -> None:
    with pytest.raises(InputError, match="overlap is a share"):
        overlapped(random_graph(10, 20), "hash", 2, overlap=overlap)


def test_overhead_is_overlap_over_parts_on_a_real_graph(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five parts: overlaps of 10, 25 and 50 % are overheads of 2, 5 and 10 % (Section 5.2), and restore more edges."""
    monkeypatch.setenv("HALOSCOPE_DATA", str(real_data()))
    graph = training_graph(load("amazon_computers", split="random:0.7/0.2/0.1"))[0]
    kept = []
    for overlap, overhead in ((0.0, 0.0), (0.1, 0.02), (0.25, 0.05), (0.5, 0.1)):
        folder = overlapped(graph, "metis-cut", 5, overlap=overlap)
        assert isinstance(folder.quality, OverlapQuality)
        assert folder.quality.overhead == pytest.approx(overhead, abs=0.0015)
        kept.append(folder.quality.cut_kept)
    assert kept[0] == 0.0 and kept == sorted(kept) and kept[3] > kept[1] + 0.1
