"""KaMinPar's cuts: as good as METIS's, the same every time, on the whole graph."""

from __future__ import annotations

from pathlib import Path

import kaminpar
import numpy as np
import pytest

from harness.errors import InputError
from harness.partition.edge import assign, partitioned, quality
from harness.partition.partitioners import _kaminpar, undirected
from tests.harness.partition.test_partition import communities


def test_its_boundary_is_that_of_metis_and_its_parts_are_balanced() -> None:
    graph = communities(3000, groups=8)
    ours, metis = (quality(graph, assign(graph, name, 8), 8) for name in ("kaminpar", "metis-cut"))
    assert ours.volume < 1.1 * metis.volume
    assert ours.node_balance <= 1.03 + 8 / 3000  # bounds are rounded up to whole nodes
    tight = assign(graph, "kaminpar:imbalance=0.001", 8)
    assert np.bincount(tight).max() <= np.ceil(1.001 * 3000 / 8)


def test_it_depends_on_seed_and_preset_alone() -> None:
    graph = communities(2000)
    first = assign(graph, "kaminpar", 4, seed=1)
    assert (assign(graph, "kaminpar", 4, seed=1) == first).all()
    assert (assign(graph, "kaminpar", 4, seed=2) != first).any()
    assert (assign(graph, "kaminpar:preset=eco", 4, seed=1) != first).any()


def test_it_reads_the_graph_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kaminpar, "_ENTRIES", 7)
    graph = communities(200)
    xadj, adjncy = undirected(graph.indptr, graph.indices, graph.is_symmetric())
    _kaminpar._write(tmp_path / "graph.parhip", xadj, adjncy)
    loaded = kaminpar.load_graph(str(tmp_path / "graph.parhip"), kaminpar.GraphFileFormat.PARHIP)
    assert (loaded.n(), loaded.m()) == (200, len(adjncy))
    assert not loaded.is_node_weighted() and not loaded.is_edge_weighted()
    for node in range(200):
        neighbours = adjncy[xadj[node] : xadj[node + 1]]
        assert sorted(loaded.neighbors(node)) == [(other, 1) for other in neighbours.tolist()]


def test_it_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assign(communities(100), "kaminpar", 2)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"cannot write the graph for KaMinPar \(No space left on device\)"):
        _kaminpar._write(Path("/dev/full"), np.asarray([0, 1, 2]), np.asarray([1, 0]))


def test_another_version_makes_another_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    graph = communities(100)
    before = {name: partitioned(graph, name, 2) for name in ("kaminpar", "metis-cut")}
    assert (
        before["kaminpar"].settings["library"].startswith("kaminpar 3.")
        and "library" not in before["metis-cut"].settings
    )
    monkeypatch.setattr(_kaminpar, "kaminpar_version", lambda: "99")
    assert partitioned(graph, "kaminpar", 2).path != before["kaminpar"].path
    assert partitioned(graph, "metis-cut", 2).path == before["metis-cut"].path
