"""Parts of a vertex cut have every edge once and every node's replicas in the documented order, also on disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness import datasets
from harness.errors import InputError
from harness.graphs import Block, Graph, VertexPart
from harness.partition.partitioners import undirected_pairs
from harness.partition.vertex import open_vertex_partition, vertex_partitioned
from harness.partition.vertex._build import build_vertex_parts, lay_out_vertices
from tests.conftest import real_data
from tests.support.graphs import random_graph
from tests.support.vertex import DEALS, dealt, looped_graphs, vertex_parts

PARTS = st.sampled_from([1, 2, 3, 5, 8])


def dense(block: Block) -> Tensor:
    """A block as a matrix of counts."""
    out = torch.zeros(block.num_rows, block.num_cols)
    rows = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff().long())
    return out.index_put_((rows, block.indices.long()), torch.ones(block.nnz), accumulate=True)


def equal(a: VertexPart, b: VertexPart) -> bool:
    """Whether two parts hold the same values."""
    for field in fields(VertexPart):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if field.name == "block":
            left, right = left.indices, right.indices
        elif field.name == "plan":
            same = np.array_equal(left.send_counts, right.send_counts)
            if not same or not np.array_equal(left.recv_counts, right.recv_counts):
                return False
            left, right = left.send_rows, right.send_rows
        if not (torch.equal(left, right) if isinstance(left, Tensor) else left == right):
            return False
    return True


@given(graph=looped_graphs(), parts=PARTS, deal=st.sampled_from(DEALS))
def test_every_edge_lives_once_and_acts_both_ways(graph: Graph, parts: int, deal: str) -> None:
    whole = torch.zeros(graph.num_nodes, graph.num_nodes)
    for part in vertex_parts(graph, parts, deal):
        matrix = dense(part.block)
        assert torch.equal(matrix, matrix.T) and part.block.t_indices is part.block.indices
        starts = part.block.indptr.tolist()
        assert all(part.block.indices[a:b].diff().ge(0).all() for a, b in zip(starts[:-1], starts[1:], strict=True))
        whole[part.nodes[:, None], part.nodes[None, :]] += matrix
    wanted = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), shape=whole.shape).toarray()
    assert np.array_equal(whole.numpy(), wanted)


@given(graph=looped_graphs(), parts=PARTS, deal=st.sampled_from(DEALS))
def test_replicas_stand_in_the_promised_order_and_find_each_other(graph: Graph, parts: int, deal: str) -> None:
    pairs, part_of, owner = dealt(graph, parts, deal)
    built = vertex_parts(graph, parts, deal)
    held = [
        {int(n) for e in np.flatnonzero(part_of == rank) for n in (pairs[0][e], pairs[1][e])} for rank in range(parts)
    ]
    for rank, part in enumerate(built):
        nodes, masters = part.nodes.tolist(), np.flatnonzero(owner == rank).tolist()
        inner, shared, mirrors = np.split(nodes, [part.num_inner, part.num_masters])
        elsewhere = set().union(*(held[other] for other in range(parts) if other != rank))
        assert sorted([*inner, *shared]) == masters and not elsewhere & set(inner) and set(shared) <= elsewhere
        assert sorted(mirrors) == sorted(held[rank] - set(masters))
        assert owner[mirrors.astype(int)].tolist() == sorted(owner[mirrors.astype(int)])
        assert (part.num_local, part.num_shared, part.num_mirrors) == (len(nodes), len(shared), len(mirrors))
        assert part.plan.recv_counts.tolist() == np.bincount(owner[mirrors.astype(int)], minlength=parts).tolist()
    for rank, part in enumerate(built):
        sent = part.nodes[part.plan.send_rows].split(part.plan.send_counts.tolist())
        for other, nodes in enumerate(sent):
            mirrors = built[other].nodes[built[other].num_masters :]
            assert torch.equal(nodes, mirrors.split(built[other].plan.recv_counts.tolist())[rank])


@given(graph=looped_graphs(), parts=PARTS, deal=st.sampled_from(DEALS))
def test_replicas_carry_features_and_degrees_masters_labels_and_splits(graph: Graph, parts: int, deal: str) -> None:
    assert isinstance(graph.x, np.ndarray) and graph.y is not None
    built = build_vertex_parts(graph, *dealt(graph, parts, deal), parts)
    loops = {int(u) for u, v in zip(*undirected_pairs(graph), strict=True) if u == v}
    for part in built:
        nodes = part.nodes.numpy()
        assert part.x is not None and part.y is not None
        assert np.array_equal(part.x.numpy(), graph.x[nodes])
        assert np.array_equal(part.degree.numpy(), graph.in_degree[nodes])
        assert np.array_equal(part.y.numpy(), graph.y[nodes[: part.num_masters]])
        assert part.looped.tolist() == [int(n) in loops for n in nodes]
    for name in ("train", "val", "test"):
        rows = [getattr(part, name) for part in built]
        assert all(r.diff().gt(0).all() and r.lt(p.num_masters).all() for r, p in zip(rows, built, strict=True))
        found = torch.cat([part.nodes[r] for r, part in zip(rows, built, strict=True)])
        assert np.array_equal(np.sort(found.numpy()), getattr(graph, name))


@given(graph=looped_graphs(), parts=PARTS)
def test_counts_alone_describe_the_same_shapes(graph: Graph, parts: int) -> None:
    built = vertex_parts(graph, parts, dtype=torch.float32)
    for part in built:
        loops = int(dense(part.block).diagonal().sum())
        told = VertexPart.describe(
            part.rank,
            part.num_inner,
            part.num_shared,
            part.plan.recv_counts,
            part.plan.send_counts,
            (part.block.nnz - loops) // 2,
            part.totals,
        )
        shapes = part.shapes_only()
        assert (told.num_parts, told.num_masters, told.num_mirrors) == (parts, part.num_masters, part.num_mirrors)
        for name in ("nodes", "degree", "looped", "x", "y"):
            ours, theirs = getattr(told, name), getattr(shapes, name)
            assert ours.is_meta and theirs.is_meta and (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert told.block.nnz == part.block.nnz - loops and told.plan.send_rows.shape == part.plan.send_rows.shape


def test_a_master_need_not_have_an_edge_on_its_rank() -> None:
    graph = random_graph(12, 30, seed=3)
    pairs = undirected_pairs(graph)
    built = build_vertex_parts(graph, pairs, np.zeros(len(pairs[0]), np.int32), np.ones(12, np.int32), 2)
    assert [(p.num_masters, p.num_mirrors) for p in built] == [(0, int((graph.in_degree > 0).sum())), (12, 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part, owner: (part[:-1], owner), "parts of .* edges were given, it has"),
        (lambda part, owner: (part + 3, owner), "the part of edge 0 is [345]; parts are 0..2"),
        (lambda part, owner: (part, owner - 3), "the part of node 0 is -[123]; parts are 0..2"),
    ],
)
def test_parts_that_do_not_exist_are_named(change: object, message: str) -> None:
    graph = random_graph(12, 30, seed=3)
    pairs, part, owner = dealt(graph, 3, "random")
    with pytest.raises(InputError, match=message):
        lay_out_vertices(graph, pairs, *change(part, owner), 3)  # type: ignore[operator]


# -- on disk -----------------------------------------------------------------------------------------------------------


def test_parts_from_the_cache_are_those_that_were_built() -> None:
    graph = random_graph(60, 200, seed=4)
    folder = vertex_partitioned(graph, "ebv", 4, seed=0, hosts=2)
    built = build_vertex_parts(graph, undirected_pairs(graph), folder.part_of_edge, folder.owner, 4)
    assert all(equal(folder.part(rank), built[rank]) for rank in range(4))
    again = open_vertex_partition(folder.path)
    assert again is not None and again.quality == folder.quality and again.settings == folder.settings
    assert again.seconds == folder.seconds >= 0 and again.num_parts == 4
    assert folder.quality.replicas == tuple(part.num_local for part in built)
    assert folder.quality.masters == tuple(part.num_masters for part in built)
    assert vertex_partitioned(graph, "ebv", 4, seed=0, hosts=1).path != folder.path
    assert vertex_partitioned(graph, "ebv:gamma=0.1", 4, hosts=2).path == folder.path, "options are written out"
    with pytest.raises(ValueError, match="rank 4 is not in 0..3"):
        folder.part(4)


def test_a_rank_reads_no_assignment_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    made = vertex_partitioned(random_graph(40, 100, seed=8), "hdrf", 3)
    before = made.part_of_edge
    with monkeypatch.context() as patched:
        patched.setattr("harness.machine._cache.np.load", None)  # no array is read
        opened = open_vertex_partition(made.path, [1])
    assert opened is not None and (opened.part_of_edge == before).all() and (opened.owner == made.owner).all()
    for folder in (made, opened):
        assert not any(isinstance(value, np.ndarray) for value in vars(folder).values()), "nothing of all edges is held"
    shutil.rmtree(made.path / "part-00002")
    assert open_vertex_partition(made.path, [0, 1]) is not None and open_vertex_partition(made.path, [2]) is None


def test_missing_and_damaged_entries_are_rebuilt() -> None:
    graph = random_graph(40, 100, seed=5)
    folder = vertex_partitioned(graph, "hdrf", 3)
    before = folder.part(1)
    shutil.rmtree(folder.path / "part-00001")
    assert open_vertex_partition(folder.path) is None
    with pytest.raises(InputError, match="missing or damaged"):
        folder.part(1)
    assert equal(vertex_partitioned(graph, "hdrf", 3).part(1), before)
    (folder.path / "whole" / "owner.npy").unlink()
    assert open_vertex_partition(folder.path) is None
    assert equal(vertex_partitioned(graph, "hdrf", 3).part(1), before)
    assert open_vertex_partition(folder.path / "nothing") is None


def test_sparse_features_and_many_labels_come_back() -> None:
    graph = random_graph(30, 90, seed=6)
    assert isinstance(graph.x, np.ndarray) and graph.y is not None
    labels = np.eye(3, dtype=np.uint8)[graph.y]
    for x in (sp.csr_matrix(np.maximum(graph.x, 0)), None):
        other = replace(graph, x=x, y=labels)
        part = vertex_partitioned(other, "libra", 2).part(0)
        wanted = None if x is None else x.toarray()[part.nodes]
        assert (part.x is None and wanted is None) or np.array_equal(part.x.numpy(), wanted)
        assert part.y is not None and part.y.dtype == torch.float32 and part.totals.multilabel


def test_an_export_says_where_every_edge_went(tmp_path: Path) -> None:
    graph = random_graph(40, 100, seed=7)
    folder = vertex_partitioned(graph, "ebv", 2)
    folder.export(tmp_path / "out")
    assert np.array_equal(np.load(tmp_path / "out" / "part_of_edge.npy", allow_pickle=False), folder.part_of_edge)
    assert np.array_equal(np.load(tmp_path / "out" / "owner.npy", allow_pickle=False), folder.owner)
    told = json.loads((tmp_path / "out" / "partition.json").read_text())
    assert told["settings"] == folder.settings and len(told["parts"]) == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot export"):
        folder.export(tmp_path / "file")


def test_parts_of_a_real_graph_hold_all_of_it() -> None:
    graph = datasets.load(str(real_data() / "facebook_pages.npz"))
    folder = vertex_partitioned(graph, "ebv", 4)
    parts = [folder.part(rank) for rank in range(4)]
    assert sum(part.num_masters for part in parts) == graph.num_nodes
    assert sum(part.num_local for part in parts) / graph.num_nodes == pytest.approx(folder.quality.replication)
    assert sum(part.block.nnz for part in parts) == graph.num_edges
    assert sum(int(part.plan.send_counts.sum()) for part in parts) == sum(part.num_mirrors for part in parts)
