"""Assignments, parts and their quality against brute force on small graphs and on one real mesh."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Block, Graph, Part, Totals, from_edges
from harness.partition.edge import assign, build_parts, lay_out, quality
from harness.partition.edge._layout import CLUSTERED_EDGES, cluster_nodes
from harness.partition.partitioners import PARTITIONERS, Ranges, clustered_order, undirected
from tests.conftest import real_data
from tests.support.part_quality import quality_of

EDGE_CUTS = [name for name, kind in PARTITIONERS.own().items() if kind.cuts == "edge"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Directed or symmetric graphs, with isolated nodes, self loops and repeated edges."""
    n = draw(st.integers(1, 20))
    ends = st.integers(0, n - 1)
    edges = np.array(draw(st.lists(st.tuples(ends, ends), max_size=60)), np.int64).reshape(-1, 2).T
    multilabel = draw(st.booleans())
    y = np.arange(3 * n).reshape(n, 3) % 2 if multilabel else np.arange(n) % 3
    split = np.array_split(np.arange(n)[::-1], 3)
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    x = sp.csr_matrix(x) if draw(st.booleans()) else x
    train, val, test = split if draw(st.booleans()) else (None, None, None)
    return from_edges(
        "random",
        edges,
        n,
        x=x,
        y=y.astype(np.uint8 if multilabel else np.int64),
        train=train,
        val=val,
        test=test,
        undirected=draw(st.booleans()),
    )


@st.composite
def assignments(draw: st.DrawFn) -> tuple[Graph, np.ndarray, int]:
    """A graph, any owner of every node (parts may be empty), the number of parts."""
    graph, num_parts = draw(graphs()), draw(st.integers(1, 5))
    owner = draw(st.lists(st.integers(0, num_parts - 1), min_size=graph.num_nodes, max_size=graph.num_nodes))
    return graph, np.array(owner, np.int32), num_parts


def counts_of(graph: Graph) -> np.ndarray:
    """How often every edge occurs: int [N, N], destination by source."""
    dense = np.zeros((graph.num_nodes, graph.num_nodes), np.int64)
    np.add.at(dense, (np.repeat(np.arange(graph.num_nodes), graph.in_degree), graph.indices), 1)
    return dense


def pairs(indptr: torch.Tensor, indices: torch.Tensor) -> np.ndarray:
    """(row, column) of every entry of a CSR block, in its order."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.numpy()))
    return np.stack([rows, indices.numpy()], axis=1)


def check_block(block: Block) -> None:
    """Rows and columns ascend, and the transpose holds the same entries."""
    forward, backward = pairs(block.indptr, block.indices), pairs(block.t_indptr, block.t_indices)
    assert forward.tolist() == sorted(forward.tolist())
    assert backward.tolist() == sorted(backward.tolist())
    assert sorted(forward.tolist()) == sorted(backward[:, ::-1].tolist())


def rebuilt(parts: list[Part]) -> np.ndarray:
    """The adjacency of `counts_of` from the blocks of all parts."""
    n = parts[0].totals.num_nodes
    dense = np.zeros((n, n), np.int64)
    for part in parts:
        for block, sources in ((part.graph.own, part.nodes), (part.graph.halo, part.halo_nodes)):
            check_block(block)
            rows, columns = pairs(block.indptr, block.indices).T
            np.add.at(dense, (part.nodes.numpy()[rows], sources.numpy()[columns]), 1)
    return dense


def check_plans(parts: list[Part], owner: np.ndarray) -> None:
    """The rows that i sends to j are, in order, those that j's halo expects from i."""
    for part in parts:
        ends = np.cumsum(part.plan.send_counts)
        assert ends[-1] == len(part.plan.send_rows)
        for peer, (end, count) in enumerate(zip(ends, part.plan.send_counts, strict=True)):
            rows = part.plan.send_rows[end - count : end].numpy()
            other = parts[peer]
            before = other.plan.recv_counts[: part.rank].sum()
            assert other.plan.recv_counts[part.rank] == count
            assert (part.nodes[rows] == other.halo_nodes[before : before + count]).all()
            assert (np.diff(rows) > 0).all()
            assert (owner[part.nodes[rows]] == part.rank).all()


def check_rows(parts: list[Part], graph: Graph) -> None:
    """Features, labels, degrees and split of every part are those of its nodes."""
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_matrix) else graph.x
    assert x is not None
    for part in parts:
        nodes = part.nodes.numpy()
        assert part.x is not None and part.x.dtype == torch.float32 and (part.x.numpy() == x[nodes]).all()
        assert part.y is not None and graph.y is not None and (part.y.numpy() == graph.y[nodes]).all()
        assert part.y.dtype == (torch.float32 if graph.multilabel else torch.int64)
        assert (part.graph.degree.numpy() == graph.in_degree[nodes]).all()
        assert (part.graph.halo_degree.numpy() == graph.in_degree[part.halo_nodes.numpy()]).all()
        for split in ("train", "val", "test"):
            local, whole = getattr(part, split).numpy(), getattr(graph, split)
            expected = np.array([], int) if whole is None else np.intersect1d(nodes, whole)
            assert (np.diff(local) > 0).all() and np.sort(nodes[local]).tolist() == expected.tolist()


@settings(deadline=None, max_examples=50)
@given(given=assignments(), renumber=st.sampled_from([0, 1, 2, 3, "auto"]))
def test_parts_hold_the_whole_graph(given: tuple[Graph, np.ndarray, int], renumber: int) -> None:
    graph, owner, num_parts = given
    parts = build_parts(graph, owner, num_parts, renumber)
    assert sorted(np.concatenate([part.nodes for part in parts]).tolist()) == list(range(graph.num_nodes))
    assert (rebuilt(parts) == counts_of(graph)).all()
    check_plans(parts, owner)
    check_rows(parts, graph)
    for rank, part in enumerate(parts):
        assert (part.rank, part.num_parts) == (rank, num_parts)
        assert (owner[part.nodes] == rank).all() and (owner[part.halo_nodes] != rank).all()
        assert len(set(part.halo_nodes.tolist())) == part.graph.num_halo
        assert part.totals.symmetric == (counts_of(graph) == counts_of(graph).T).all()
        if renumber in (0, "auto"):
            assert (np.diff(part.nodes) > 0).all()


@settings(deadline=None, max_examples=50)
@given(given=assignments())
def test_quality_equals_brute_force(given: tuple[Graph, np.ndarray, int]) -> None:
    graph, owner, num_parts = given
    dense, found = counts_of(graph), quality(graph, owner, num_parts)
    for part in range(num_parts):
        mine = owner == part
        assert found.inner[part] == mine.sum()
        assert found.halo[part] == (dense[mine][:, ~mine].sum(axis=0) > 0).sum()
        assert found.sent[part] == sum(
            (dense[owner == peer][:, mine].sum(axis=0) > 0).sum() for peer in range(num_parts) if peer != part
        )
        assert found.edges[part] == dense[mine].sum()
        assert found.cut[part] == dense[mine][:, ~mine].sum()
    assert found == quality_of(build_parts(graph, owner, num_parts)[::-1])
    assert found.volume == sum(found.sent) and found.replication == (graph.num_nodes + found.volume) / graph.num_nodes
    assert found.node_balance == max(found.inner) * num_parts / graph.num_nodes
    assert found.edge_balance == (max(found.edges) * num_parts / graph.num_edges if graph.num_edges else 1)
    assert found.summary()["edge_cut"] == sum(found.cut)
    assert [row["halo"] for row in found.rows()] == list(found.halo)


@settings(deadline=None, max_examples=50)
@given(graph=graphs(), name=st.sampled_from(EDGE_CUTS), num_parts=st.integers(1, 20), seed=st.integers(0, 9))
def test_every_partitioner_owns_every_node(graph: Graph, name: str, num_parts: int, seed: int) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    owner = assign(graph, name, num_parts, seed)
    assert owner.dtype == np.int32 and owner.shape == (graph.num_nodes,)
    assert 0 <= owner.min() <= owner.max() < num_parts
    assert (owner == assign(graph, name, num_parts, seed)).all()


@settings(deadline=None, max_examples=50)
@given(graph=graphs())
def test_metis_sees_the_simple_undirected_graph(graph: Graph) -> None:
    xadj, adjncy = undirected(graph.indptr, graph.indices, graph.is_symmetric())
    dense = counts_of(graph) + counts_of(graph).T > 0
    np.fill_diagonal(dense, False)
    assert xadj.dtype == adjncy.dtype == np.int64
    assert adjncy.tolist() == np.nonzero(dense)[1].tolist()
    assert np.diff(xadj).tolist() == dense.sum(axis=1).tolist()


def communities(num_nodes: int = 600, groups: int = 4, seed: int = 0) -> Graph:
    """Nodes in shuffled order, nine edges in ten inside a group."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(num_nodes) % groups
    source = rng.integers(0, num_nodes, 8 * num_nodes)
    members = [np.flatnonzero(group == g) for g in range(groups)]
    near = np.array([rng.choice(members[group[u]]) for u in source])
    far = rng.integers(0, num_nodes, len(source))
    edges = np.stack([source, np.where(rng.random(len(source)) < 0.9, near, far)])
    return from_edges("communities", edges, num_nodes, undirected=True, num_classes=0)


def test_metis_beats_hash_on_communities_and_each_objective_wins_its_own() -> None:
    graph = communities()
    found = {name: quality(graph, assign(graph, name, 4, 0), 4) for name in EDGE_CUTS}
    for name in ("metis", "metis-cut", "label-propagation", "kaminpar"):
        assert found[name].volume < 0.8 * found["hash"].volume
        assert found[name].edge_cut < 0.5 * found["hash"].edge_cut
        assert found[name].node_balance < 1.1
    assert found["metis"].volume <= 1.05 * found["metis-cut"].volume


def test_hash_and_contiguous_are_what_they_say() -> None:
    graph = from_edges("none", np.zeros((2, 0), np.int64), 7)
    assert assign(graph, "hash", 3).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert assign(graph, "contiguous", 3).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert assign(graph, "contiguous", 5).tolist() == [0, 0, 1, 1, 2, 2, 3]  # the fifth part is empty


@pytest.mark.parametrize("weights", [(0.0, 1.0, 0.0), (2.0, 0.5, 0.0), (1.0, 0.1, 3.0)])
def test_ranges_are_consecutive_and_of_equal_cost(weights: tuple[float, float, float]) -> None:
    graph = communities(400)
    kind = Ranges(*weights)
    owner, costs = kind.owners(graph, 5, 0), kind.costs(graph)
    assert (np.diff(owner) >= 0).all() and set(owner.tolist()) == set(range(5))
    by_range = np.bincount(owner, costs)
    assert by_range.max() <= costs.sum() / 5 + costs.max()
    lists = np.split(graph.indices, graph.indptr[1:-1])
    blocks = [len({int(v) // 32 for v in each}) for each in lists]
    nodes, edges, touched = weights
    assert np.allclose(costs, nodes + edges * graph.in_degree + touched * np.asarray(blocks))


def test_ranges_of_a_graph_without_edges_and_bad_weights() -> None:
    graph = from_edges("none", np.zeros((2, 0), np.int64), 7)
    assert set(assign(graph, "ranges", 3).tolist()) == {0}  # edges alone cost: ranges cannot tell nodes apart
    assert assign(graph, "ranges:nodes=1", 3).tolist() == [0, 0, 1, 1, 1, 2, 2]
    for text in ("ranges:edges=0", "ranges:blocks=-1"):
        with pytest.raises(InputError, match="one of them above 0"):
            assign(graph, text, 3)


def test_bad_requests_are_input_errors() -> None:
    graph = communities(40)
    with pytest.raises(InputError, match="unknown partitioner 'metiss'; did you mean 'metis'"):
        assign(graph, "metiss", 2)
    with pytest.raises(InputError, match="into 41 parts: it has 40 nodes"):
        assign(graph, "hash", 41)
    with pytest.raises(InputError, match="into 0 parts; ask for at least 1"):
        assign(graph, "metis", 0)
    with pytest.raises(InputError, match="owner has 3 entries for 40 nodes"):
        lay_out(graph, np.zeros(3, np.int32), 1)
    with pytest.raises(InputError, match=r"owner of node 5 is 2; parts are 0\.\.1"):
        quality(graph, np.where(np.arange(40) == 5, 2, 0), 2)
    for renumber in (-1, "autp"):
        with pytest.raises(InputError, match="give the nodes of a cluster"):
            lay_out(graph, np.zeros(40, np.int32), 1, renumber)  # type: ignore[arg-type]


def test_renumbering_brings_neighbours_together() -> None:
    graph = communities()
    owner = np.zeros(600, np.int32)
    plain, sorted_by_clusters = (build_parts(graph, owner, 1, most)[0] for most in (0, 150))
    assert sorted_by_clusters.nodes.tolist() == clustered_order(graph.indptr, graph.indices, 150).tolist()
    apart = [
        np.abs(np.diff(pairs(part.graph.own.indptr, part.graph.own.indices))).mean()
        for part in (plain, sorted_by_clusters)
    ]
    assert apart[1] < 0.5 * apart[0]


@settings(deadline=None, max_examples=50)
@given(given=assignments(), most=st.integers(1, 9))
def test_an_order_by_clusters_is_a_permutation_that_repeats(given: tuple[Graph, np.ndarray, int], most: int) -> None:
    graph = given[0]
    order = clustered_order(graph.indptr, graph.indices, most)
    assert sorted(order.tolist()) == list(range(graph.num_nodes))
    assert (order == clustered_order(graph.indptr, graph.indices, most)).all()


def test_clusters_of_clusters_lie_side_by_side() -> None:
    """Eight communities of 16 triangles: three nodes of a triangle in sequence, ascending, 48 of a community."""
    names = np.random.default_rng(3).permutation(384)
    triangle = np.array([[0, 1], [1, 2], [2, 0]])
    edges = np.concatenate([3 * t + triangle for t in range(128)])
    pairs_of = [(16 * c + i, 16 * c + j) for c in range(8) for i in range(16) for j in range(i)]
    joined = [(3 * a + a % 3, 3 * b + b % 3) for a, b in pairs_of]
    graph = from_edges("cliques", names[np.concatenate([edges, joined])].T, 384, undirected=True, num_classes=0)
    member = np.empty(384, int)
    member[names] = np.arange(384)
    order = clustered_order(graph.indptr, graph.indices, 3)
    found = member[order] // 48
    assert (found[:-1] != found[1:]).sum() == 7, "every community is one run"


def test_automatic_renumbering_clusters_only_where_it_pays() -> None:
    assert cluster_nodes("auto", 9_999, 10) == 0
    assert cluster_nodes("auto", 10_000, 10) == 2048
    assert cluster_nodes("auto", 10_000, CLUSTERED_EDGES) == 2048
    assert cluster_nodes("auto", 10_000, CLUSTERED_EDGES + 1) == 0
    assert [cluster_nodes(k, 3, 10) for k in (0, 1, 64)] == [0, 1, 64]


def test_shapes_only_parts_keep_every_shape() -> None:
    part = build_parts(communities(60), np.arange(60) % 2, 2)[0]
    bare = part.shapes_only()
    assert bare.graph.own.indices.is_meta and bare.graph.halo.nnz == part.graph.halo.nnz
    assert bare.plan.send_rows.shape == part.plan.send_rows.shape
    assert bare.plan.send_counts.tolist() == part.plan.send_counts.tolist()
    assert quality_of([bare]) == quality_of([part]) and bare.totals == part.totals
    nodes, halo = part.graph.num_own, part.graph.num_halo
    described = Part.describe(
        0, 2, nodes, part.plan.recv_counts, part.plan.send_counts, part.graph.own.nnz, part.graph.halo.nnz, part.totals
    )
    assert quality_of([described]) == quality_of([part])
    assert described.halo_nodes.shape == (halo,) and described.graph.degree.shape == (nodes,)


def test_a_real_mesh_is_cut_as_well_as_meshes_can_be() -> None:
    with np.load(real_data() / "topo_4elt.npz", allow_pickle=False) as arrays:
        graph = from_edges("4elt", arrays["edge_index"], int(arrays["num_nodes"]))
    owner = assign(graph, "metis", 4)
    parts = build_parts(graph, owner, 4, "auto")
    found = quality_of(parts)
    assert found == quality(graph, owner, 4)
    assert found.edge_cut < 0.015 * graph.num_edges and found.node_balance < 1.04
    assert found.volume < quality(graph, assign(graph, "contiguous", 4), 4).volume
    check_plans(parts, owner)
    ends = np.concatenate([p.nodes[pairs(p.graph.own.indptr, p.graph.own.indices)[:, 0]].numpy() for p in parts])
    assert len(ends) + found.edge_cut == graph.num_edges == 91_756
    whole = build_parts(graph, np.zeros(graph.num_nodes, np.int32), 1, 16)[0]
    assert whole.graph.num_halo == 0 and whole.plan.send_rows.numel() == 0
    assert whole.totals == Totals(graph.num_nodes, graph.num_edges, 0, 0, 0, 0, 0, False, True)
    check_block(whole.graph.own)
