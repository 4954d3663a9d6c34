"""Graph files, splits, the catalog and the cache: round trips, and one-line messages for damaged files."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.datasets import _npz as npz
from harness.errors import InputError
from harness.graphs import Graph, from_edges
from harness.machine import cache_root, load_arrays, store_arrays
from tests.support.graphs import graphs, random_graph

TINY: dict[str, Any] = {
    "edge_index": np.array([[1, 0], [0, 1]]),
    "x": np.ones((2, 3), np.float32),
    "y": np.array([0, 1]),
}


def refusal(path: Path) -> str:
    """The one-line message of `read_graph` for a bad file, which begins with the file."""
    with pytest.raises(InputError) as caught:
        npz.read_graph(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


def of_kind(kind: str) -> Graph:
    graph = random_graph(20, 40)
    assert graph.y is not None and isinstance(graph.x, np.ndarray)
    if kind == "multi-label":
        return dataclasses.replace(graph, y=np.eye(4, dtype=np.uint8)[graph.y], num_classes=4, test=None)
    if kind == "topology":
        return from_edges("t", np.array([[0, 1], [1, 0]]), 5)
    if kind == "sparse":
        return dataclasses.replace(graph, x=sp.csr_matrix(np.where(graph.x > 1, graph.x, 0)), notes=("a", "b, c"))
    return dataclasses.replace(graph, num_classes=9) if kind == "empty classes" else graph


@pytest.mark.parametrize("kind", ["dense", "sparse", "multi-label", "topology", "empty classes"])
def test_a_written_graph_comes_back(kind: str, tmp_path: Path) -> None:
    graph = of_kind(kind)
    npz.write_graph(tmp_path / "g.npz", graph)
    back = npz.read_graph(tmp_path / "g.npz")
    assert back.fingerprint() == graph.fingerprint()
    assert back.notes == graph.notes and back.name == "g"
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]
    assert f"{graph.num_nodes} nodes, {graph.num_edges} edges" in npz.describe(tmp_path / "g.npz")


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs(symmetric=False))
def test_any_graph_survives_the_file(tmp_path: Path, graph: Graph) -> None:
    npz.write_graph(tmp_path / "g.npz", graph)
    assert npz.read_graph(tmp_path / "g.npz").fingerprint() == graph.fingerprint()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.npz"
    npz.write_graph(path, random_graph(5, 8))
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match="No space left"):
        npz.write_graph(path, random_graph(6, 8))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["g.npz"]
    with pytest.raises(InputError, match="nowhere"):
        npz.write_graph(tmp_path / "nowhere" / "g.npz", random_graph(5, 8))


def test_repeats_and_self_loops_of_a_file_are_removed_and_counted(tmp_path: Path) -> None:
    edges = np.array([[1, 1, 0, 0], [0, 0, 0, 1]])
    np.savez(tmp_path / "g.npz", **{**TINY, "edge_index": edges})
    graph = npz.read_graph(tmp_path / "g.npz")
    assert graph.indices.tolist() == [1, 0]
    assert graph.notes == ("2 self loops and repeated edges of the file were removed",)


SPARSE = {
    "x_indptr": np.array([0, 1, 2]),
    "x_indices": np.array([0, 2]),
    "x_data": np.ones(2),
    "x_shape": np.array([2, 3]),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_index": None}, ["edge_index"]),
        ({"edge_index": np.array([[0, 1], [1, 7]])}, ["edge 1", "destination 7", "2 nodes"]),
        ({"edge_index": np.array(3)}, ["edge_index", "[2, E]"]),
        ({"y": None, "x": None}, ["num_nodes"]),
        ({"y": None, "x": None, "num_nodes": np.array([2, 2])}, ["num_nodes", "one integer"]),
        ({"y": None, "x": None, "num_nodes": np.array(-1)}, ["num_nodes"]),
        ({"y": np.array(["a", "b"])}, ["labels", "<U1"]),
        ({"y": np.array(0)}, ["'y'"]),
        ({"x": np.ones((3, 3))}, ["[2, F]", "[3, 3]"]),
        ({"x": np.array([[1, 2, 3], [4, np.nan, 6]])}, ["node 1", "feature 1", "nan"]),
        ({"x_shape": np.array([2, 4])}, ["x_shape", "[2, 4]"]),
        ({"x_shape": np.array([2])}, ["x_shape"]),
        ({"train_idx": np.array([2])}, ["train", "node 2"]),
        ({"train_idx": np.array([0]), "val_idx": np.array([0])}, ["node 0", "train", "val"]),
        ({"x": None, **SPARSE, "x_shape": None}, ["x_shape"]),
        ({"x": None, **SPARSE, "x_indices": None}, ["x_indices"]),
        ({"x": None, **SPARSE, "x_indptr": np.array([0, 2, 1])}, ["x_indptr", "0 to 2"]),
        ({"x": None, **SPARSE, "x_indices": np.array([0, 3])}, ["x_indices", "0 to 2"]),
        ({"x": None, **SPARSE, "x_data": np.ones(3)}, ["x_data"]),
        ({"x": None, **SPARSE, "x_data": np.array([1, np.inf])}, ["node 1", "feature 2", "inf"]),
        ({"num_classes": np.array(1)}, ["node 1", "label 1", "1 classes"]),
    ],
)
def test_bad_content_is_named(change: dict[str, np.ndarray | None], words: list[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **{key: value for key, value in {**TINY, **change}.items() if value is not None})
    message = refusal(tmp_path / "bad.npz")
    assert not [word for word in words if word not in message], message


class Trap:
    """An object whose unpickling is detected."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def test_pickled_arrays_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "bad.npz", **{**TINY, "y": np.array([Trap(), Trap()])})
    assert "'y' holds pickled objects" in refusal(tmp_path / "bad.npz")
    assert os.listdir(tmp_path) == ["bad.npz"]


@pytest.mark.parametrize(
    ("kept", "words"), [(0, "truncated"), (30, "truncated"), (0.5, "truncated"), (-5, "truncated")]
)
def test_truncated_files_are_refused(kept: float, words: str, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bad.npz", **TINY)
    content = (tmp_path / "bad.npz").read_bytes()
    (tmp_path / "bad.npz").write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
    assert words in refusal(tmp_path / "bad.npz")
    with pytest.raises(InputError, match=words):
        npz.describe(tmp_path / "bad.npz")


def test_what_is_no_graph_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.npz")
    assert "directory" in refusal(tmp_path)
    np.save(tmp_path / "plain.npy", np.ones(3))
    assert "not an npz file" in refusal(tmp_path / "plain.npy")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("edge_index.npy", b"hello")
    assert "'edge_index' cannot be read" in refusal(tmp_path / "text.npz")
    huge = (
        b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 4611686018427387), }".ljust(118)
    )
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("edge_index.npy", huge)
    assert "shorter than its shape" in refusal(tmp_path / "huge.npz")


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_damaged_bytes_never_escape_as_anything_else(tmp_path: Path, flips: list[tuple[float, int]]) -> None:
    np.savez_compressed(tmp_path / "bad.npz", **TINY)
    content = bytearray((tmp_path / "bad.npz").read_bytes())
    for place, mask in flips:
        content[int(place * len(content))] ^= mask
    (tmp_path / "bad.npz").write_bytes(content)
    try:
        npz.read_graph(tmp_path / "bad.npz")
    except InputError as error:
        assert str(error).startswith(f"{tmp_path / 'bad.npz'}: ") and "\n" not in str(error)


def test_the_cache_gives_back_what_was_stored(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"a": np.arange(6).reshape(2, 3), "none": np.zeros((0, 4)), "one": np.array(2.5)}
    folder = tmp_path / "deep" / "key"
    assert load_arrays(folder) is None
    store_arrays(folder, arrays, {"notes": ["x"], "n": 3})
    store_arrays(folder, {"a": np.zeros(1)}, {})  # a slower process with the same key: the first entry stays
    for mmap in (True, False):
        found = load_arrays(folder, mmap=mmap)
        assert found is not None and found[1] == {"notes": ["x"], "n": 3} and found[0].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[0][name], array)
            assert found[0][name].dtype == array.dtype and found[0][name].shape == array.shape
        found[0]["a"][0, 0] = 99  # copy on write: the entry is not changed
    again = load_arrays(folder)
    assert again is not None and again[0]["a"][0, 0] == 0
    assert [path.name for path in folder.parent.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", ["truncate", "remove", "meta", "shape"])
def test_a_damaged_cache_entry_counts_as_absent_and_can_be_made_again(damage: str, tmp_path: Path) -> None:
    folder, arrays = tmp_path / "key", {"a": np.arange(100)}
    store_arrays(folder, arrays, {})
    if damage == "truncate":
        (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:200])
    elif damage == "remove":
        (folder / "a.npy").unlink()
    elif damage == "meta":
        (folder / "meta.json").write_text("{")
    else:
        np.save(folder / "a.npy", np.arange(99))
    assert load_arrays(folder) is None
    assert not list(tmp_path.iterdir())
    store_arrays(folder, arrays, {})
    found = load_arrays(folder)
    assert found is not None and found[0]["a"].tolist() == list(range(100))


def test_an_unwritable_cache_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="HALOSCOPE_CACHE"):
        store_arrays(tmp_path / "file" / "key", {"a": np.zeros(1)}, {})
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("HALOSCOPE_CACHE")
    assert cache_root() == Path.home() / ".cache" / "haloscope"
