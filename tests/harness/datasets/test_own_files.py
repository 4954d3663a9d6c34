"""Graphs that users bring: edge lists with features and labels, PyG's files, and what is said of others."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from harness.datasets import load, source_state
from harness.errors import InputError
from tests.support.graphs import random_graph

SOURCE, TARGET = [0, 1, 2, 3, 3], [1, 2, 0, 0, 1]
X = np.arange(8, dtype=np.float32).reshape(4, 2)
Y = np.array([0, 1, 1, 0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    edges = pd.DataFrame({"source": SOURCE, "target": TARGET})
    edges.to_parquet("edges.parquet")
    edges.to_csv("edges.csv", index=False)
    np.save("x.npy", X)
    np.save("y.npy", Y)
    nodes = pd.DataFrame({"node": [3, 2, 1, 0], "label": Y[::-1], "split": ["test", "valid", "train", "train"]})
    nodes.to_csv("nodes.csv", index=False)
    return tmp_path


def edges_of(graph: Any) -> set[tuple[int, int]]:
    ends = np.repeat(np.arange(graph.num_nodes), graph.in_degree)
    return set(zip(graph.indices.tolist(), ends.tolist(), strict=True))


@pytest.mark.parametrize("table", ["edges.parquet", "edges.csv"])
def test_an_edge_list_is_read(folder: Path, table: str) -> None:
    graph = load(f"edges:{table},features=x.npy,labels=nodes.csv")
    assert edges_of(graph) == set(zip(SOURCE, TARGET, strict=True))
    assert isinstance(graph.x, np.ndarray) and np.array_equal(graph.x, X)
    assert graph.y is not None and np.array_equal(graph.y, Y), "rows of the table are in the order of its nodes"
    assert [list(ids) for ids in graph.splits.values() if ids is not None] == [[0, 1], [2], [3]]


def test_an_edge_list_can_be_turned_and_doubled(folder: Path) -> None:
    turned = load("edges:edges.csv,labels=y.npy,source=target,target=source")
    assert edges_of(turned) == set(zip(TARGET, SOURCE, strict=True))
    both = load("edges:edges.csv,labels=y.npy,undirected=true")
    assert edges_of(both) == edges_of(turned) | set(zip(SOURCE, TARGET, strict=True))


def test_sparse_features_and_changes_of_files(folder: Path) -> None:
    x = sp.csr_matrix(X)
    np.savez("x.npz", x_indptr=x.indptr, x_indices=x.indices, x_data=x.data, x_shape=np.array(x.shape))
    text = "edges:edges.csv,features=x.npz,labels=y.npy"
    graph = load(text)
    assert sp.issparse(graph.x) and np.array_equal(graph.x.toarray(), X)
    before = source_state(text)
    np.save("y.npy", np.array([0, 1, 1, 0, 0]))
    assert source_state(text) != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edges:", "names no file of edges"),
        ("edges:edges.csv,labls=y.npy", "did you mean 'labels'"),
        ("edges:my,edges.csv,labels=y.npy", "'edges.csv' is not OPTION=VALUE; commas separate options, so rename"),
        ("edges:edges.csv,labels=", "needs one value"),
        ("edges:nowhere.csv", "no such file"),
        ("edges:x.npy", "a .parquet or .csv file"),
        ("edges:broken.parquet", "cannot be read as parquet"),
        ("edges:edges.csv,source=from", "edges.csv: has no column 'from'; its columns are source, target"),
        ("edges:names.csv", r"names.csv: has a line of names \(source, target\) and no rows below it"),
        ("edges:edges.csv,labels=edges.csv", "edges.csv: has no column 'label'; its columns are source, target"),
        ("edges:words.csv", "not whole numbers"),
        ("edges:bare.csv", "first line, 28,30, holds numbers and no names"),
        ("edges:edges.csv,labels=bare.csv", r"node,label \(labels\)"),
        ("edges:edges.csv,undirected=yes", "must be true or false"),
        ("edges:edges.csv,features=broken.npy", "not a plain .npy file"),
        ("edges:edges.csv,features=y.npy", r"must be \[N, F\]"),
        ("edges:edges.csv,labels=gap.csv", "every number from 0 to 1 once"),
        ("edges:edges.csv,labels=unsplit.csv", "has no 'train'"),
        ("edges:edges.csv,labels=short.npy", "out of range for 2 nodes"),
        ("graph.bin", "no such file"),
        ("nowhere.pt", "no such file"),
    ],
)
def test_bad_files_are_refused_in_one_line(folder: Path, text: str, message: str) -> None:
    Path("broken.parquet").write_bytes(b"PAR1 no")
    Path("broken.npy").write_bytes(b"no")
    Path("words.csv").write_text("source,target\na,b\n")
    Path("bare.csv").write_text("28,30\n30,39\n")
    Path("names.csv").write_text("source,target\n")
    Path("gap.csv").write_text("node,label\n0,1\n2,1\n")
    Path("unsplit.csv").write_text("label,split\n0,one\n1,two\n0,one\n1,two\n")
    np.save("short.npy", Y[:2])
    with pytest.raises(InputError, match=message) as error:
        load(text)
    assert "\n" not in str(error.value)


def pyg() -> Any:
    """PyG's records, without the warnings of its import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("torch_geometric.data")


def data() -> Any:
    masks = {f"{name}_mask": torch.arange(4) == at for at, name in enumerate(("train", "val", "test"))}
    return pyg().Data(x=torch.tensor(X), edge_index=torch.tensor([SOURCE, TARGET]), y=torch.tensor(Y), **masks)


def test_columns_of_a_parquet_file_may_be_numbered(folder: Path) -> None:
    """Its names are kept apart from its rows: pandas names columns 0 and 1 where it is given none."""
    pd.DataFrame({"0": SOURCE, "1": TARGET}).to_parquet("numbered.parquet")
    assert edges_of(load("edges:numbered.parquet,labels=y.npy")) == set(zip(SOURCE, TARGET, strict=True))


@pytest.mark.parametrize("as_dict", [False, True])
def test_pyg_data_is_read(tmp_path: Path, as_dict: bool) -> None:
    torch.save(data().to_dict() if as_dict else data(), tmp_path / "g.pt")
    graph = load(str(tmp_path / "g.pt"))
    assert graph.name == "g" and edges_of(graph) == set(zip(SOURCE, TARGET, strict=True))
    assert isinstance(graph.x, np.ndarray) and np.array_equal(graph.x, X)
    assert [list(ids) for ids in graph.splits.values() if ids is not None] == [[0], [1], [2]]


@pytest.mark.parametrize("wide", [2, 3])
def test_several_types_become_one_graph(tmp_path: Path, wide: int) -> None:
    """Nodes one type after the other; features of types that are not equally wide in columns of their own."""
    hetero = pyg().HeteroData()
    hetero["author"].x = torch.ones(2, wide)
    hetero["paper"].x, hetero["paper"].y = torch.tensor(X), torch.tensor(Y)
    hetero["paper"].train_mask = torch.tensor([True, False, True, False])
    hetero["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [3, 0]])
    hetero["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    torch.save(hetero, tmp_path / "h.pt")
    graph = load(str(tmp_path / "h.pt"))
    assert edges_of(graph) == {(0, 5), (1, 2), (2, 3)}
    assert graph.y is not None and list(graph.y) == [-1, -1, 0, 1, 1, 0]
    assert graph.train is not None and list(graph.train) == [2, 4]
    dense = graph.x.toarray() if sp.issparse(graph.x) else graph.x
    expected = np.vstack([np.ones((2, 2)), X]) if wide == 2 else np.zeros((6, 5))
    if wide == 3:
        expected[:2, :3], expected[2:, 3:] = 1, X
    assert np.array_equal(np.asarray(dense), expected)
    assert "2 types of nodes (2 author, 4 paper)" in graph.notes[0]


class Foreign:
    """An object that a file must not be able to bring to life."""

    made = 0

    def __setstate__(self, state: Any) -> None:
        Foreign.made += 1

    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}


def test_other_objects_are_not_brought_to_life(tmp_path: Path) -> None:
    torch.save({"x": Foreign()}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match="other than tensors"):
        load(str(tmp_path / "evil.pt"))
    assert Foreign.made == 0
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match="to_dict"):
        load(str(tmp_path / "cut.pt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": None}, "no edge_index"),
        ({"edge_index": torch.tensor([[0, 9], [1, 1]])}, "out of range"),
        ({"y": torch.tensor([0.5, 1.0, 2.0, 0.0])}, "no labels"),
        ({"train_mask": torch.tensor([True])}, "train_mask must hold"),
        ({"x": torch.ones(4)}, r"'x' must be \[N, F\]"),
    ],
)
def test_bad_pyg_data_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    content = {key: value for key, value in {**data().to_dict(), **changes}.items() if value is not None}
    torch.save(content, tmp_path / "g.pt")
    with pytest.raises(InputError, match=message) as error:
        load(str(tmp_path / "g.pt"))
    assert str(tmp_path / "g.pt") in str(error.value)


def test_a_folder_of_npy_files_is_mapped_and_checked(folder: Path) -> None:
    graph = random_graph(40, 200, features=3)
    mine = folder / "mine"
    mine.mkdir()
    with pytest.raises(InputError, match="mine: no indptr.npy"):
        load(str(mine))
    rows = {"x": graph.x, "y": graph.y, "num_classes": np.array(5)}
    rows |= {f"{split}_idx": ids for split, ids in graph.splits.items()}
    for name, array in {"indptr": graph.indptr, "indices": graph.indices, **rows}.items():
        np.save(mine / f"{name}.npy", np.asarray(array))
    found, state = load(f"{mine}/"), source_state(str(mine))
    assert (found.name, found.num_classes, found.indices.dtype) == ("mine", 5, np.int32)
    assert replace(graph, num_classes=5).fingerprint() == found.fingerprint()
    for array in (found.indptr, found.indices, found.x, found.y):
        assert isinstance(array, np.ndarray) and isinstance(array.base, np.memmap), "not copied"
    np.save(mine / "indices.npy", graph.indices[::-1].copy())
    assert source_state(str(mine)) != state
    with pytest.raises(InputError, match="rows must ascend"):
        load(str(mine))
    np.save(mine / "indices.npy", graph.indices.astype(np.int64))
    with pytest.raises(InputError, match="indices must be int32"):
        load(str(mine))
    for content, message in ((b"", "not a plain .npy file"), (b"no numbers", "not a plain .npy file")):
        (mine / "indices.npy").write_bytes(content)
        with pytest.raises(InputError, match=message):
            load(str(mine))
    np.save(mine / "indices.npy", np.array([None, 1]), allow_pickle=True)
    with pytest.raises(InputError, match="not a plain .npy file"):
        load(str(mine))
