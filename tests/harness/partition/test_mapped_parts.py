"""Parts whose arrays are mapped files, made block by block: equal to those made in memory, in little memory."""

from __future__ import annotations

import errno
import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Graph, Part, Totals, from_edges
from harness.kernels.csr import transpose
from harness.machine import ArrayMaker, ResidentPeak
from harness.partition.edge import (
    BuildMemory,
    Layout,
    build_memory,
    build_part,
    build_parts,
    lay_out,
    partitioned,
    quality,
)
from harness.partition.edge._transpose import transpose_into
from tests.harness.partition.test_partition import assignments, communities
from tests.harness.partition.test_partition_store import same
from tests.support.graphs import random_graph

BEYOND = 2**31 + 1024


def small_blocks(patch: pytest.MonkeyPatch, entries: int = 3, wide: bool = False) -> None:
    """Map every array, sort so many entries at once, copy one row at a time; `wide`: positions of 64 bits."""
    patch.setattr("harness.machine._arrays.IN_MEMORY", 0)
    patch.setattr("harness.partition.edge._transpose.AT_ONCE", entries)
    patch.setattr("harness.partition.edge._build._AT_ONCE", 1)
    if wide:
        patch.setattr("harness.partition.edge._build.position_dtype", lambda nnz: torch.int64)


def arrays_of(part: Part) -> dict[str, np.ndarray]:
    """All arrays of a part by name."""
    blocks = {f"{side}_{f.name}": getattr(getattr(part.graph, side), f.name) for side in ("own", "halo")
              for f in fields(getattr(part.graph, side))}  # fmt: skip
    rows = {name: getattr(part, name) for name in ("nodes", "halo_nodes", "x", "y", "train", "val", "test")}
    degrees = {"degree": part.graph.degree, "halo_degree": part.graph.halo_degree}
    tensors = {**blocks, **rows, **degrees, "send_rows": part.plan.send_rows}
    counts = {"send_counts": part.plan.send_counts, "recv_counts": part.plan.recv_counts}
    return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None} | counts


@settings(deadline=None, max_examples=60)
@given(
    given=assignments(),
    renumber=st.sampled_from([0, 2, "auto"]),
    entries=st.integers(1, 9),
    wide=st.booleans(),
)
def test_mapped_parts_equal_those_in_memory(
    given: tuple[Graph, np.ndarray, int], renumber: int, entries: int, wide: bool
) -> None:
    graph, owner, num_parts = given
    expected = build_parts(graph, owner, num_parts, renumber)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, entries, wide)
        scratch = ArrayMaker(Path(folder))
        layout = lay_out(graph, owner, num_parts, renumber, scratch)
        assert layout.cut.tolist() == [part.graph.halo.nnz for part in expected]
        for rank in range(num_parts):
            room = ArrayMaker(Path(folder, str(rank)))
            Path(folder, str(rank)).mkdir()
            part, other = build_part(graph, layout, rank, True, room, scratch), expected[rank]
            for side in ("own", "halo"):
                kind = torch.int64 if wide else torch.int32
                assert {t.dtype for t in vars(getattr(part.graph, side)).values() if t is not None} == {kind}
            found, wanted = arrays_of(part), arrays_of(other)
            assert found.keys() == wanted.keys() and part.totals == other.totals
            for name in wanted:
                assert found[name].tolist() == wanted[name].tolist(), name
                assert wide or found[name].dtype == wanted[name].dtype
            on_disk = {
                path.stem: np.load(path, allow_pickle=False).tolist() for path in Path(folder, str(rank)).iterdir()
            }
            dense = isinstance(graph.x, np.ndarray)
            assert len(on_disk) >= 4 and ("x" in on_disk) == (dense and part.x is not None and part.x.numel() > 0)
            assert all(found[name].tolist() == array for name, array in on_disk.items())
        assert not list(Path(folder).glob("columns*")), "what was needed on the way is gone"


@settings(deadline=None, max_examples=100)
@given(
    shape=st.tuples(st.integers(0, 12), st.integers(1, 12)),
    density=st.floats(0, 1),
    entries=st.integers(1, 40),
    wide=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_transpose_by_ranges_is_that_of_one_sort(
    shape: tuple[int, int], density: float, entries: int, wide: bool, seed: int
) -> None:
    dense = np.random.default_rng(seed).random(shape) < density
    dense[:, seed % shape[1]] = True  # a column that may exceed a range
    kind = np.int64 if wide else np.int32
    matrix = sp.csr_matrix(dense)
    indptr, indices = matrix.indptr.astype(kind), matrix.indices.astype(kind)
    wanted = transpose(indptr, indices, shape[1])
    found = np.empty_like(wanted[0]), np.empty_like(wanted[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.partition.edge._transpose.AT_ONCE", entries)
        transpose_into(indptr, indices, *found, ArrayMaker())
    assert all((a == b).all() for a, b in zip(found, wanted, strict=True))


def test_stored_files_are_the_same_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(300, 4000, features=6)
    contents = []
    for mapped in (False, True):
        monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / str(mapped)))
        if mapped:
            small_blocks(monkeypatch, 100)
        path = partitioned(graph, "hash", 3).path
        files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
        contents.append({file: (path / file).read_bytes() for file in files if file.parts[0] != "whole"})
        assert {file.parts[0] for file in files} == {"whole", "part-00000", "part-00001", "part-00002"}
    assert contents[0] == contents[1] and len(contents[0]) > 60


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    small_blocks(monkeypatch)

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(InputError, match=r"no room for .* GiB \(No space left"):
        disk.setattr("os.posix_fallocate", full)
        partitioned(communities(60), "hash", 2)
    assert not list(tmp_path.rglob(".*")) and not list(tmp_path.rglob("part-*"))
    assert partitioned(communities(60), "hash", 2).num_parts == 2


def test_too_little_memory_is_an_error_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr("harness.partition.edge._memory.memory_left", lambda: 1 << 20)
    with pytest.raises(InputError, match=r"its parts takes up to 0\.\d+ GiB of memory \(\w+\), 0\.00 GiB are left"):
        partitioned(communities(60), "hash", 2)
    assert not list(tmp_path.rglob("*.npy"))
    monkeypatch.setattr("harness.partition.edge._memory.memory_left", lambda: None)
    made = partitioned(communities(60), "hash", 2)
    assert made.memory is not None and made.memory.measured <= made.memory.stated.peak
    assert partitioned(communities(60), "hash", 2).memory is None, "what is in the cache takes nothing"


def test_what_clustering_might_take_refuses_nothing_before_the_cut_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = BuildMemory(0, {"part": 1 << 20, "renumbering": 1 << 30})
    monkeypatch.setattr("harness.partition.edge._memory.memory_left", lambda: 2 << 20)
    needs.require("g", without="renumbering")
    with pytest.raises(InputError, match=r"1\.00 GiB of memory \(renumbering\)"):
        needs.require("g")


def test_a_long_build_says_before_it_begins_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    partitioned(communities(60), "hash", 2)
    assert not caplog.text, "a short one does not"
    monkeypatch.setattr("harness.partition.edge._store.TOLD_EDGES", 1)
    monkeypatch.setattr("harness.partition.edge._store._build", None)
    with pytest.raises(TypeError):
        partitioned(communities(60), "metis-cut", 2)
    assert "making 2 parts of 60 nodes" in caplog.text and " GiB of memory, beside what metis-cut takes" in caplog.text


def test_what_is_stated_grows_with_nodes_and_not_with_edges() -> None:
    """Of a graph of shapes: its arrays are views of one number."""

    def stated(nodes: int, edges: int, name: str = "hash") -> int:
        indices = np.broadcast_to(np.zeros(1, np.int32), edges)
        graph = Graph("shapes", np.broadcast_to(np.zeros(1, np.int64), nodes + 1), indices, *[None] * 5, 0)
        return max(build_memory(graph, name, 8, 0).steps.values())

    assert stated(40_000_000, 4 * 10**9) == stated(40_000_000, 3 * 10**9)
    assert stated(80_000_000, 3 * 10**9) > 1.3 * stated(40_000_000, 3 * 10**9)
    assert stated(40_000_000, 3 * 10**9) < 40_000_000 * 32 + (5 << 28)
    assert stated(40_000_000, 3 * 10**9, "fennel") >= stated(40_000_000, 3 * 10**9)
    graph = communities(60)
    assert build_memory(graph, "metis-cut", 2, 0).unknown == "metis-cut"
    cut = quality(graph, np.arange(60) % 2, 2)
    assert build_memory(graph, "metis-cut", 2, 0, cut).unknown == ""
    any_cut, this_cut = (build_memory(graph, "hash", 2, "auto", known).steps["renumbering"] for known in (None, cut))
    assert any_cut > this_cut, "parts of 30 nodes are not clustered"


def test_memory_does_not_hold_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 million edges, 64 MB of indices and 256 MB of parts, in a fraction of it."""
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr("harness.partition.edge._memory.IN_MEMORY", 1 << 20)
    small_blocks(monkeypatch, 1 << 16)
    partitioned(communities(60), "hash", 2)  # compiles
    nodes, degree = 16_000, 1000
    ring = (np.arange(nodes)[:, None] + np.arange(1, degree + 1) * 7) % nodes
    ring.sort(axis=1)
    graph = Graph("ring", np.arange(nodes + 1) * degree, ring.astype(np.int32).reshape(-1), *[None] * 5, 0)
    del ring
    graph.fingerprint()
    with ResidentPeak() as memory:
        partitioned(graph, "hash", 2)
    assert memory.most - memory.before < 8_000_000


def test_rows_beyond_two_to_the_31_of_a_mapped_file(tmp_path: Path) -> None:
    """The last two of three nodes are a part; the first one's list is a hole of 8.6 GB, which is never read."""
    file, mine = tmp_path / "indices", np.array([0, 2, 0, 1], np.int32)
    with file.open("wb") as stream:
        stream.seek(4 * BEYOND)
        stream.write(mine.tobytes())
    indptr = np.array([0, BEYOND, BEYOND + 2, BEYOND + 4])
    graph = Graph("hole", indptr, np.memmap(file, np.int32, "r"), *[None] * 5, 0)
    ids, none = np.arange(3, dtype=np.int32), np.empty(0, np.int32)
    layout = Layout(
        order=ids,
        offsets=np.array([0, 1, 3]),
        halos=(ids[1:], ids[:1]),
        cut=np.array([0, 2]),
        bounds=np.array([[0, 0, 2], [0, 1, 1]]),
        splits=(none, none, none),
        totals=Totals(3, graph.num_edges, 0, 0, 0, 0, 0, False, False),
    )
    part = build_part(graph, layout, 1)
    assert part.graph.own.indptr.tolist() == [0, 1, 2] and part.graph.own.indices.tolist() == [1, 0]
    assert part.graph.halo.indptr.tolist() == [0, 1, 2] and part.graph.halo.indices.tolist() == [0, 0]
    assert part.graph.degree.tolist() == [2, 2] and part.graph.halo_degree.tolist() == [BEYOND]


def test_memory_counts_what_cannot_be_reclaimed(tmp_path: Path) -> None:
    room = ArrayMaker(tmp_path, within=0)
    with ResidentPeak() as files:
        room.new("a", (1 << 23,), np.float64)[:] = 1.0
    with ResidentPeak() as memory:
        array = np.full(1 << 23, 1.0)
    assert files.most - files.before < 16 << 20 < 48 << 20 < memory.most - memory.before
    assert (np.load(tmp_path / "a.npy", mmap_mode="r", allow_pickle=False) == array).all()
    room.drop("a")
    assert not room.mapped and not list(tmp_path.iterdir())


def test_an_entry_refuses_another_array_under_the_name_of_a_mapped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.machine import load_arrays, writing

    monkeypatch.setattr("harness.machine._arrays.IN_MEMORY", 8)
    with writing(tmp_path / "entry") as entry:
        small, large = entry.new("small", (1,), np.int64), entry.new("large", (4,), np.int64)
        small[:], large[:] = 1, np.arange(4)
        with pytest.raises(ValueError, match="large is not the array"):
            entry.keep({"large": large.copy()}, {})
        entry.keep({"small": small, "large": large}, {"of": 1})
    loaded = load_arrays(tmp_path / "entry")
    assert loaded is not None and loaded[1] == {"of": 1} and loaded[0]["large"].tolist() == [0, 1, 2, 3]
    assert json.loads((tmp_path / "entry" / "meta.json").read_text())["arrays"].keys() == {"small", "large"}


def test_repeated_edges_and_loops_are_in_parts_as_in_memory(tmp_path: Path) -> None:
    graph = from_edges("twice", np.array([[0, 0, 1, 3, 3, 3], [1, 1, 1, 0, 0, 2]]), 4)
    owner = np.array([0, 1, 0, 1], np.int32)
    expected = build_parts(graph, owner, 2)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, 1)
        layout = lay_out(graph, owner, 2)
        for rank in range(2):
            (tmp_path / str(rank)).mkdir()
            room, scratch = ArrayMaker(tmp_path / str(rank)), ArrayMaker(tmp_path)
            assert same(build_part(graph, layout, rank, True, room, scratch), expected[rank])
