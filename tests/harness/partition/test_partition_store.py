"""The cache of partitions: hits equal new builds, keys cover the content, damaged entries are rebuilt, exports."""

from __future__ import annotations

import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from harness.errors import InputError
from harness.graphs import Block, HaloPlan, LocalGraph, Part
from harness.partition.edge import assign, build_parts, open_partition, partitioned
from tests.harness.partition.test_partition import communities
from tests.support.part_quality import quality_of


def same(a: object, b: object) -> bool:
    """Deep equality of parts and everything in them, types included."""
    if isinstance(a, (Part, LocalGraph, Block, HaloPlan)):
        fields = dataclasses.fields(a)
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields)
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return a == b


@pytest.fixture()
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_cached_parts_equal_built_ones(
    cache: Path, monkeypatch: pytest.MonkeyPatch, sparse: bool, mapped: bool
) -> None:
    monkeypatch.setattr("harness.partition.edge._store.MAPPED_FROM", 0 if mapped else 1 << 40)
    bare, rng = communities(), np.random.default_rng(1)
    x = rng.integers(0, 2, (600, 5)).astype(np.float32)
    graph = dataclasses.replace(
        bare,
        x=sp.csr_matrix(x) if sparse else x,
        y=rng.integers(0, 2, (600, 3)).astype(np.uint8),
        num_classes=3,
        train=np.arange(10),
        val=np.array([], np.int64),
    )
    folder = partitioned(graph, "metis", 3, seed=5, renumber=4)
    parts = build_parts(graph, assign(graph, "metis", 3, 5), 3, 4)
    assert all(same(folder.part(rank), parts[rank]) for rank in range(3))
    assert folder.quality == quality_of(parts) and folder.num_parts == 3
    opened = open_partition(folder.path)  # without the graph
    assert opened is not None and opened.settings == folder.settings and same(opened.part(2), parts[2])
    monkeypatch.setattr("harness.partition.edge._store.assign", None)  # a hit assigns nothing
    again = partitioned(graph, "metis", 3, seed=5, renumber=4)
    assert again.path == folder.path and (again.owner == folder.owner).all() and again.quality == folder.quality
    assert again.seconds == folder.seconds
    assert all(same(again.part(rank), parts[rank]) for rank in range(3))
    assert not list(cache.rglob(".*"))


def test_the_key_covers_graph_and_settings_but_no_seed_that_does_nothing(cache: Path) -> None:
    graph = communities(60)
    base = partitioned(graph, "metis", 2, seed=0).path
    others = [
        partitioned(communities(60, seed=1), "metis", 2).path,
        partitioned(graph, "metis-cut", 2).path,
        partitioned(graph, "metis", 3).path,
        partitioned(graph, "metis", 2, seed=1).path,
        partitioned(graph, "metis", 2, renumber=2).path,
    ]
    assert len({base, *others}) == 6
    assert partitioned(graph, "hash", 2, seed=0).path == partitioned(graph, "hash", 2, seed=1).path


def test_a_build_that_was_killed_goes_on_and_damage_is_named(cache: Path) -> None:
    graph = communities(60)
    folder = partitioned(graph, "metis", 3)
    part, untouched = folder.part(1), (folder.path / "part-00000" / "own_indices.npy").stat().st_mtime_ns
    shutil.rmtree(folder.path / "part-00001")
    assert open_partition(folder.path) is None and open_partition(cache) is None
    with pytest.raises(InputError, match="part-00001: .* missing or damaged; run again"):
        folder.part(1)
    assert same(partitioned(graph, "metis", 3).part(1), part)
    (folder.path / "part-00001" / "own_indices.npy").write_bytes(b"")
    with pytest.raises(InputError, match="missing or damaged"):
        folder.part(1)
    assert same(partitioned(graph, "metis", 3).part(1), part)
    (folder.path / "part-00001" / "meta.json").write_text('{"arrays": {"nodes": ["int64", [20]]}, "meta": {}}')
    assert same(partitioned(graph, "metis", 3).part(1), part)  # an entry without checksums is replaced unseen
    assert (folder.path / "part-00000" / "own_indices.npy").stat().st_mtime_ns == untouched
    with pytest.raises(ValueError, match=r"rank 3 is not in 0\.\.2"):
        folder.part(3)


def test_a_rank_reads_no_assignment_and_looks_for_its_own_part_only(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = partitioned(communities(60), "metis", 3)
    asked: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr("harness.machine._cache.np.load", None)  # no array is read
        patched.setattr("harness.partition.edge._store.has_entry", lambda folder: asked.append(folder.name) or True)
        opened = open_partition(made.path, [1])
    assert opened is not None and asked == ["part-00001"] and opened.quality == made.quality
    for folder in (made, opened):
        assert not any(isinstance(value, np.ndarray) for value in vars(folder).values()), "nothing of all nodes is held"
    assert (opened.owner == made.owner).all() and len(opened.owner) == 60
    shutil.rmtree(made.path / "part-00000")
    assert open_partition(made.path, [1, 2]) is not None and open_partition(made.path, [0]) is None
    (made.path / "whole" / "owner.npy").write_bytes((made.path / "whole" / "owner.npy").read_bytes()[:-1] + b"\x7f")
    with pytest.raises(InputError, match="assignment of the cached partition is missing or damaged; run again"):
        _ = opened.owner
    assert (partitioned(communities(60), "metis", 3).owner == assign(communities(60), "metis", 3)).all()


def test_export_writes_owners_and_quality(cache: Path, tmp_path: Path) -> None:
    folder = partitioned(communities(60), "hash", 2)
    folder.export(tmp_path / "out")
    assert (np.load(tmp_path / "out" / "owner.npy", allow_pickle=False) == np.arange(60) % 2).all()
    listing = json.loads((tmp_path / "out" / "partition.json").read_text())
    assert listing["quality"]["volume"] == folder.quality.volume and len(listing["parts"]) == 2
    assert listing["settings"]["partitioner"] == "hash" and listing["settings"]["seed"] is None
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot export the partition"):
        folder.export(tmp_path / "file")


def test_several_callers_at_once_get_the_same_partition(cache: Path) -> None:
    graph = communities(60)
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: partitioned(graph, "metis", 3), range(4)))
    assert {folder.path for folder in folders} == {folders[0].path}
    assert all(same(folders[0].part(rank), folders[3].part(rank)) for rank in range(3))
    assert sorted(entry.name for entry in folders[0].path.iterdir()) == [
        *(f"part-0000{rank}" for rank in range(3)),
        "whole",
    ]
