"""Cut edges of described parts: the closed form of random parts and the law of METIS parts, against real partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.boundary_edges import HELD_OUT, fitted, measured
from harness import datasets
from harness.errors import InputError
from harness.partition.edge import assign, quality
from harness.workloads import RESIDUAL, MetisLaw, Workload, halo_spread, load_workload, metis_cut_share, metis_edges
from tests.conftest import real_data
from tests.harness.workloads.test_workload import described, edge_cut, shapes_run
from tests.support.graphs import owners

DENSE = {"nodes": 1000, "edges": 400_000}


def of_graph(folder: Path, name: str, parts: dict[str, Any]) -> tuple[str, datasets.Graph]:
    """A real graph, and a description with its counts."""
    graph = datasets.load(str(real_data() / f"{name}.npz"))
    return described(folder, parts, nodes=graph.num_nodes, edges=graph.num_edges), graph


@pytest.mark.parametrize("name", ["amazon_computers", "github_social"])
def test_random_parts_are_those_of_a_real_random_partition(name: str, tmp_path: Path) -> None:
    graph = datasets.load(str(real_data() / f"{name}.npz"))
    degrees = np.unique(np.diff(graph.indptr), return_counts=True)
    histogram = [[int(degree), int(count)] for degree, count in zip(*degrees, strict=True)]
    real = quality(graph, owners(graph, 8, "random"), 8)
    for given in ({}, {"boundary": round(real.volume / 8)}):
        text, _ = of_graph(tmp_path, name, {"partitioner": "random", "degrees": histogram, **given})
        made = edge_cut(text, 8)
        assert made.quality.volume == pytest.approx(real.volume, rel=0.02)
        assert made.halo_edges.sum() == pytest.approx(real.edge_cut, rel=0.02)
        assert made.graph["sources"]["cut edges"]["value"] == "random"


@pytest.mark.parametrize("name", HELD_OUT)
@pytest.mark.parametrize("parts", [4, 8])
def test_the_law_holds_on_graphs_that_it_was_not_fitted_on(name: str, parts: int, tmp_path: Path) -> None:
    graph = datasets.load(str(real_data() / f"{name}.npz"))
    real = quality(graph, assign(graph, "metis", parts), parts)
    text, _ = of_graph(tmp_path, name, {"partitioner": "metis", "boundary": list(real.halo), "inner": list(real.inner)})
    made = edge_cut(text, parts)
    assert abs(np.log(made.halo_edges.sum() / real.edge_cut)) < RESIDUAL
    assert "benchmarks.boundary_edges" in made.graph["sources"]["cut edges"]["note"]
    twice = 2 * real.volume  # what two edges per boundary node would be
    assert abs(np.log(twice / real.edge_cut)) > 2 * RESIDUAL


def test_a_fit_is_better_than_others_and_finds_a_law_again() -> None:
    cuts = measured([str(real_data() / f"{name}.npz") for name in ("cora", "pubmed_nofeat")], (2, 4, 8))
    law = fitted(cuts)
    squares = [
        sum(cut.residual(MetisLaw(rate, law.power, law.spread)) ** 2 for cut in cuts)
        for rate in (law.rate, law.rate / 1.3, law.rate * 1.3)
    ]
    assert squares[0] == min(squares) and 0.2 < law.rate < 0.7
    assert measured(["no-such-graph"]) == []


def test_the_law_stays_within_its_limits() -> None:
    per_node = np.asarray([0.0, 0.01, 1.0, 100.0])
    share = metis_cut_share(per_node, 4)
    assert share[0] == 0.0 and share[1] == pytest.approx(MetisLaw().rate * 0.01, rel=0.01)
    assert share[3] == pytest.approx(0.75) and (np.diff(share) > 0).all()
    assert not metis_cut_share(np.zeros(1), 1).any()
    inner, boundary = np.full(4, 100), np.asarray([0, 10, 50, 200])
    edges, cut = metis_edges(inner, boundary, 1000)
    assert (cut >= np.minimum(boundary, edges)).all() and (cut <= edges).all()
    assert edges.sum() == pytest.approx(1000, abs=4) and (np.diff(edges) > 0).all(), "edges go with the boundary"
    assert 0 < halo_spread(2) < halo_spread(8) < halo_spread(192) < 1


def test_cut_edges_that_are_given_are_taken(tmp_path: Path) -> None:
    made = edge_cut(described(tmp_path, {"boundary": 10, "edges_per_boundary_node": 3}), 4)
    assert made.halo_edges.tolist() == [30] * 4 and "cut edges" not in made.graph["sources"]


def test_what_made_the_parts_is_metis_unless_it_is_said(tmp_path: Path) -> None:
    silent, said = (
        edge_cut(described(tmp_path, {"boundary": 10, **more}), 4) for more in ({}, {"partitioner": "metis"})
    )
    assert silent.halo_edges.tolist() == said.halo_edges.tolist()
    assert silent.graph["sources"]["parts.partitioner"]["from"] == "assumed"
    with pytest.raises(InputError, match="parts.partitioner of counts is metis or random, not 'hash'"):
        load_workload(described(tmp_path, {"boundary": 10, "partitioner": "hash"}), 4)


@pytest.mark.parametrize("how", ["metis", "random"])
def test_fewer_edges_are_aggregated_as_p_falls(how: str, tmp_path: Path) -> None:
    parts = {"boundary": 700, "partitioner": how}
    workload = load_workload(described(tmp_path, parts, **DENSE), 4)
    assert isinstance(workload, Workload)
    cut = workload.halo_edges.sum() / DENSE["edges"]
    assert cut > 0.4
    dataset = described(tmp_path, parts, **DENSE)
    seconds = [
        shapes_run(dataset, method=f"bns-gcn:p={p}", hidden=64)["epoch"]["seconds"]["compute"] for p in (1.0, 0.5, 0.1)
    ]
    assert seconds[0] > seconds[1] > seconds[2]
    fallen = 1 - seconds[2] / seconds[0]
    assert fallen > 0.5 * 0.9 * cut, "nine tenths of the cut edges are gone, and most of the work is theirs"
