"""Described workloads: closed forms against real partitions, margins, descriptions, and runs on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import datasets
from harness.config import RunConfig, from_mapping
from harness.errors import InputError
from harness.partition.edge import partitioned, quality
from harness.running import prepare, run
from harness.workloads import Degrees, Workload, hash_boundary, load_workload, shipped
from harness.workloads._closed_form import random_replication, round_robin_counts
from harness.workloads._margins import fit_margins, spread_rows
from harness.workloads._workload import VertexWorkload
from tests.conftest import real_data
from tests.support.graphs import owners, random_graph

GRAPH = {"nodes": 1000, "edges": 8000, "features": 12, "classes": 4, "train": 600, "val": 200, "test": 200}


def described(folder: Path, parts: dict[str, Any], **graph: Any) -> str:
    """A description on disk."""
    path = folder / "described.json"
    path.write_text(json.dumps({"graph": {**GRAPH, **graph}, "parts": parts}))
    return str(path)


def edge_cut(dataset: str, parts: int) -> Workload:
    found = load_workload(dataset, parts)
    assert isinstance(found, Workload)
    return found


# -- closed forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 8, 32])
@pytest.mark.parametrize("name", ["amazon_computers", "github_social", "topo_actor_movie"])
def test_hash_boundary_of_real_graphs(name: str, parts: int) -> None:
    graph = datasets.load(str(real_data() / f"{name}.npz"))
    found = quality(graph, owners(graph, parts, "random"), parts)
    degrees = Degrees.of(np.bincount(graph.indices, minlength=graph.num_nodes))
    mean = sum(found.halo) / parts
    assert hash_boundary(graph.num_nodes, degrees, parts) == pytest.approx(mean, rel=0.02)
    regular = hash_boundary(graph.num_nodes, Degrees(mean=degrees.average()), parts)
    assert regular > 1.02 * mean, "skewed degrees have a smaller boundary than equal ones"
    assert sum(found.cut) == pytest.approx(graph.num_edges * (1 - 1 / parts), rel=0.02)


def test_hash_boundary_of_random_graphs_is_poisson() -> None:
    graph = random_graph(4000, 20_000)
    mean = graph.num_edges / graph.num_nodes
    found = quality(graph, owners(graph, 16, "hash"), 16)
    expected = hash_boundary(4000, Degrees(mean=mean, spread=mean**-0.5), 16)
    assert sum(found.halo) / 16 == pytest.approx(expected, rel=0.02)


def test_random_replication_of_dealt_edges() -> None:
    rng = np.random.default_rng(0)
    graph, parts = random_graph(3000, 12_000), 8
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    once = rows < graph.indices
    ends, part = np.stack([rows[once], graph.indices[once]]), rng.integers(0, parts, int(once.sum()))
    held = np.unique(np.concatenate([ends[0], ends[1]]) * parts + np.tile(part, 2)).size
    isolated = int((np.diff(graph.indptr) == 0).sum())
    expected = random_replication(Degrees.of(np.diff(graph.indptr)), parts)
    assert (held + isolated) / graph.num_nodes == pytest.approx(expected, rel=0.02)


@given(st.floats(0.5, 100), st.floats(1.0, 8.0), st.floats(0.0, 1.0))
def test_generating_functions(mean: float, excess: float, z: float) -> None:
    regular, poisson = Degrees(mean=mean), Degrees(mean=mean, spread=mean**-0.5)
    skewed = Degrees(mean=mean, spread=excess * mean**-0.5)
    assert regular.generating(1.0) == poisson.generating(1.0) == pytest.approx(skewed.generating(1.0)) == 1.0
    low, middle, high = (d.generating(z) for d in (regular, poisson, skewed))
    assert low <= middle + 1e-12 and middle <= high + 1e-9
    step = 1e-6
    slope = (skewed.generating(1.0) - skewed.generating(1 - step)) / step
    assert slope == pytest.approx(mean, rel=1e-2), "the slope at 1 is the mean"


def test_a_spread_below_poisson_is_refused() -> None:
    with pytest.raises(InputError, match="spread of 0.5 or more"):
        Degrees(mean=4.0, spread=0.3).generating(0.5)


# -- who sends to whom ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 500), min_size=2, max_size=12), st.integers(0, 100))
def test_spread_rows_meet_the_rows(received: list[int], seed: int) -> None:
    rows = np.asarray(received)
    weights = np.random.default_rng(seed).random(len(rows)) + 0.1
    matrix = spread_rows(rows, weights)
    assert (matrix.sum(1) == rows).all() and not matrix.trace() and (matrix >= 0).all()
    even = spread_rows(np.full(len(rows), received[0]), np.ones(len(rows)))
    assert np.ptp(even.sum(0)) <= 1, "equal rows leave equal columns"
    expected = rows[:, None] * (weights * (1 - np.eye(len(rows)))) / (weights.sum() - weights)[:, None]
    assert np.abs(matrix - expected).max() <= 1


@given(st.integers(2, 10), st.integers(0, 1000), st.integers(0, 300))
def test_fit_meets_both_margins(size: int, seed: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, scale + 1, (size, size)) * rng.integers(0, 2, (size, size))
    np.fill_diagonal(truth, 0)
    matrix = fit_margins(truth.sum(1), truth.sum(0))
    assert (matrix.sum(1) == truth.sum(1)).all() and (matrix.sum(0) == truth.sum(0)).all()
    assert not matrix.trace() and (matrix >= 0).all()


def test_fit_refuses_margins_that_cannot_be() -> None:
    with pytest.raises(InputError, match="receive 3 rows in all but send 4"):
        fit_margins(np.asarray([1, 2]), np.asarray([2, 2]))
    with pytest.raises(InputError, match="rank 0 receives 3 and sends 3 rows of 4"):
        fit_margins(np.asarray([3, 1, 0]), np.asarray([3, 0, 1]))


# -- descriptions --------------------------------------------------------------------------------------------------


def test_shipped_descriptions_keep_what_is_published() -> None:
    assert {"papers100m-192", "papers100m-hash", "reddit-10"} <= set(shipped())
    papers = edge_cut("workload:papers100m-192", 192)
    ratio = np.sort(papers.received.sum(1) / papers.inner)
    assert ratio[-1] == pytest.approx(8.0, rel=1e-3)
    memory = 3 + ratio  # BNS-GCN, Eq. 4, in units of inner nodes
    assert np.mean(memory < 0.6 * memory[-1]) >= 0.75 and memory[-1] == pytest.approx(1.2 * memory[-2], rel=0.01)
    assert papers.inner.sum() == 111_059_956 and papers.quality.summary()["num_parts"] == 192
    assert papers.own_edges.sum() + papers.halo_edges.sum() == pytest.approx(3_231_371_744, abs=192)
    record = papers.graph
    assert record["sources"]["graph.nodes"]["from"] == "published"
    assert "parts.ratio" in record["notes"][-1] and "assumed" in record["notes"][-1]
    reddit = edge_cut("workload:reddit-10", 10)
    assert reddit.received.sum(1)[2] == 86_000 and reddit.inner[2] == 15_000


def test_parts_agree_with_each_other_and_with_the_description(tmp_path: Path) -> None:
    parts = {"ratio": {"mean": 0.8, "spread": 0.3}, "pairs": "proportional", "edges_per_boundary_node": 1.5}
    workload = edge_cut(described(tmp_path, parts), 6)
    made = [workload.part(rank) for rank in range(6)]
    for i, part in enumerate(made):
        assert part.x is not None and part.x.is_meta and part.x.shape == (part.graph.num_own, 12)
        assert part.plan.recv_counts.tolist() == [other.plan.send_counts[i] for other in made]
        assert part.graph.num_halo == part.plan.recv_counts.sum() and part.plan.recv_counts[i] == 0
        assert part.graph.halo.nnz == round(1.5 * part.graph.num_halo)
    assert sum(part.graph.num_own for part in made) == 1000
    assert sum(part.graph.own.nnz + part.graph.halo.nnz for part in made) == pytest.approx(8000, abs=6)
    assert workload.quality.volume / 1000 == pytest.approx(0.8, rel=0.02)
    assert len(set(workload.quality.halo)) == 6


def test_declared_degrees_are_passed_on_as_their_spread(tmp_path: Path) -> None:
    plain = edge_cut(described(tmp_path, {"boundary": 100}), 4)
    spread = edge_cut(described(tmp_path, {"boundary": 100, "degrees": {"spread": 1.5}}), 4)
    listed = edge_cut(described(tmp_path, {"boundary": 100, "degrees": [[1, 30], [5, 10]]}), 4)
    assert [found.totals.skew for found in (plain, spread)] == [0.0, 1.5]
    assert listed.totals.skew == pytest.approx(3**0.5 / 2)
    assert plain.graph["fingerprint"] != spread.graph["fingerprint"]


def test_a_fingerprint_tells_descriptions_apart(tmp_path: Path) -> None:
    found = [edge_cut(described(tmp_path, {"boundary": b}), 4).graph["fingerprint"] for b in (100, 100, 101)]
    assert found[0] == found[1] != found[2]


PAIRS = [[0, 10, 20, 30], [1, 0, 2, 3], [0, 0, 0, 7], [40, 0, 5, 0]]  # row i: what part i has from every other


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "needs parts.boundary or parts.ratio"),
    ({"boundary": 10, "ratio": 1.0}, "one of them"),
    ({"boundary": [1, 2]}, "parts.boundary lists 2 numbers for 4 parts"),
    ({"boundary": -1}, "must not be negative"),
    ({"boundary": 2000}, "rank 0 would receive 667 rows from rank 1, which has 250 nodes"),
    ({"boundary": 10, "inner": [1, 2, 3, 4]}, "parts.inner sum to 10, but graph.nodes is 1000"),
    ({"boundary": 10, "pairs": [[0, 1], [1, 0]]}, "parts.pairs must be 4 rows"),
    ({"boundary": 10, "pairs": PAIRS}, "row 0 of parts.pairs sums to 60, but its total is 10"),
    ({"pairs": [[0, 0, 0, 300], *PAIRS[1:]]}, "more from another than that owns"),
    ({"count": 8, "boundary": 10}, "describes 8 parts: use --parts 8"),
    ({"bundary": 10}, "parts: 'bundary'; did you mean 'boundary'"),
    ({"boundary": "many"}, "parts.boundary"),
    ({"boundary": {"value": 10, "from": "hearsay"}}, "parts.boundary: wants value, from"),
    ({"replication": 2.0}, "this method cuts edges"),
    ({"partition": "gone.json"}, "cannot read"),
]


@pytest.mark.parametrize(("parts", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_descriptions(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_workload(described(tmp_path, parts), 4)
    assert "\n" not in str(caught.value)


def test_descriptions_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'papers100m-192'"):
        load_workload("workload:papers100m-129", 192)
    with pytest.raises(InputError, match="cannot read"):
        load_workload(str(tmp_path / "no.toml"), 2)
    (tmp_path / "bad.toml").write_text("[graph\n")
    with pytest.raises(InputError, match=r"bad\.toml"):
        load_workload(str(tmp_path / "bad.toml"), 2)
    with pytest.raises(InputError, match="no vertex cut"):
        load_workload(described(tmp_path, {"boundary": 10}), 4, cut="vertex")
    with pytest.raises(InputError, match="overlapping parts need a graph"):
        load_workload(described(tmp_path, {"boundary": 10}), 4, cut="overlap")


def test_vertex_cuts_from_a_replication_factor(tmp_path: Path) -> None:
    workload = load_workload(described(tmp_path, {"replication": 2.5}), 4, cut="vertex")
    assert isinstance(workload, VertexWorkload)
    parts = [workload.part(rank) for rank in range(4)]
    assert sum(part.num_local for part in parts) == 2500 == 1000 * workload.quality.replication
    assert all(
        part.plan.send_counts[j] == parts[j].plan.recv_counts[i] for i, part in enumerate(parts) for j in range(4)
    )
    assert sum(part.block.nnz for part in parts) == 8000
    closed = load_workload(described(tmp_path, {"cut": "random", "degrees": {"spread": 0.5}}), 4, cut="vertex")
    assert closed.quality.summary()["num_parts"] == 4
    with pytest.raises(InputError, match="between 1 and the number of parts"):
        load_workload(described(tmp_path, {"replication": 5}), 4, cut="vertex")


def test_edges_of_a_vertex_cut_may_differ_by_part(tmp_path: Path) -> None:
    def cut(**parts: Any) -> list[int]:
        workload = load_workload(described(tmp_path, {"replication": 2.5, **parts}), 4, cut="vertex")
        assert isinstance(workload, VertexWorkload)
        return list(workload.edges.tolist())

    equal = cut()
    total = sum(equal)
    assert equal == [total // 4] * 4 and cut(edges=[total - 30, 10, 10, 10]) == [total - 30, 10, 10, 10]
    with pytest.raises(InputError, match=r"parts\.edges sum to .* half of graph\.edges"):
        cut(edges=[total, 10, 10, total])


def test_a_pair_matrix_says_who_sends_to_whom(tmp_path: Path) -> None:
    both = [edge_cut(described(tmp_path, {"pairs": PAIRS, **more}), 4) for more in ({}, {"boundary": [60, 6, 7, 45]})]
    for workload in both:
        assert workload.received.tolist() == PAIRS
        assert [workload.part(rank).plan.recv_counts.tolist() for rank in range(4)] == PAIRS
    cut = load_workload(described(tmp_path, {"pairs": PAIRS, "replication": 1.118}), 4, cut="vertex")
    assert isinstance(cut, VertexWorkload) and cut.mirrors.tolist() == PAIRS
    assert cut.quality.replication == pytest.approx(1.118)
    with pytest.raises(InputError, match=r"replicate nodes 1\.118 times, parts\.replication says 2"):
        load_workload(described(tmp_path, {"pairs": PAIRS, "replication": 2.0}), 4, cut="vertex")
    with pytest.raises(InputError, match="the partition itself says who sends to whom"):
        edge_cut(described(tmp_path, {"pairs": PAIRS}, dataset="cora"), 4)


# -- runs ----------------------------------------------------------------------------------------------------------


def shapes_run(dataset: str, **values: Any) -> dict[str, Any]:
    base = {"model": "sage", "layers": 3, "hidden": 10, "dropout": 0.3, "epochs": 2, "parts": 4, "eval_every": -1}
    base |= {"mode": "sim", "cluster": "ethernet-1g", "shapes_only": True, "renumber": "0"}
    result = run(from_mapping({"dataset": dataset, **base, **values}))
    return {"epoch": result.epochs[-1], "facts": result.facts, "graph": result.graph, "state": result.state}


@pytest.mark.parametrize("method", ["vanilla", "bns-gcn:p=0.5", "sylvie-s"])
def test_a_real_topology_with_assumed_features_costs_what_the_graph_costs(tmp_path: Path, method: str) -> None:
    real = str(real_data() / "cora.npz")
    graph = datasets.load(real)
    assert graph.train is not None and graph.val is not None and graph.test is not None
    counts = {"features": graph.num_features, "classes": graph.num_classes, "train": len(graph.train)}
    text = {"graph": {**counts, "val": len(graph.val), "dataset": real}, "parts": {}}
    path = tmp_path / "cora.json"
    path.write_text(json.dumps(text))
    held, counted = shapes_run(real, method=method), shapes_run(str(path), method=method)
    assert counted["epoch"]["bytes"] == held["epoch"]["bytes"]
    assert counted["epoch"]["seconds"]["epoch"] == pytest.approx(held["epoch"]["seconds"]["epoch"], rel=1e-3)
    assert counted["graph"]["partition"]["volume"] == held["graph"]["partition"]["volume"]
    assert counted["graph"]["sources"]["parts"]["from"] == "measured"


def test_an_exported_partition_is_a_description(tmp_path: Path) -> None:
    real = str(real_data() / "cora.npz")
    graph = datasets.load(real)
    folder = partitioned(graph, "metis-cut", 4, 0, 0)
    folder.export(tmp_path)
    text = {"graph": {"features": graph.num_features, "classes": graph.num_classes, "train": 140}}
    path = tmp_path / "cora.json"
    path.write_text(json.dumps({**text, "parts": {"partition": "partition.json"}}))
    workload = edge_cut(str(path), 4)
    assert workload.quality == folder.quality
    assert "parts.pairs" in workload.graph["notes"][-1]
    held, counted = shapes_run(real), shapes_run(str(path))
    for direction in ("forward", "backward", "reduce"):
        assert counted["epoch"]["bytes"][direction] == held["epoch"]["bytes"][direction]
    with pytest.raises(InputError, match="4 parts: use --parts 4"):
        edge_cut(str(path), 5)
    again = edge_cut(str(path), 4)
    again.export(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "partition.json").read_text())["parts"] == folder.quality.rows()


def test_described_workloads_need_shapes_only(tmp_path: Path) -> None:
    config = RunConfig.of(dataset=described(tmp_path, {"boundary": 10}), parts=4)
    with pytest.raises(InputError, match="use --mode sim --shapes-only"):
        run(config)
    assert prepare(config).describe()["partition"]["volume"] == 40, "`haloscope partition` may show them"


def test_a_result_says_what_was_assumed(tmp_path: Path) -> None:
    found = shapes_run(described(tmp_path, {"ratio": {"value": 0.5, "from": "published", "note": "Table 9"}}))
    assert found["state"] == "done"
    assert found["graph"]["sources"]["parts.ratio"] == {"value": 0.5, "from": "published", "note": "Table 9"}
    assert "parts.inner, parts.partitioner" in found["graph"]["notes"][-1]
    assert found["epoch"]["loss"] is None and found["epoch"]["seconds"]["epoch"] > 0


def test_shares_are_those_of_a_hash_partition() -> None:
    graph = random_graph(103, 50)
    assert round_robin_counts(103, 8).tolist() == np.bincount(owners(graph, 8, "hash"), minlength=8).tolist()
    assert torch.tensor(round_robin_counts(5, 8)).tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
