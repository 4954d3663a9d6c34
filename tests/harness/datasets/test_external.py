"""Public collections: raw files in their published layouts are read; messages name missing files and folders.

No test uses the network: `urlopen` is replaced.
"""

from __future__ import annotations

import contextlib
import email.message
import gzip
import io
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness import datasets
from harness.datasets import _external as external
from harness.datasets import _npz as npz
from harness.errors import InputError
from harness.graphs import Graph
from harness.machine import hidden_name
from tests.support.raw_files import PATH, X, write_ogb, write_papers, write_reddit, write_saint


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; any use of the network fails the test."""

    def refuse(url: str, timeout: float) -> None:
        pytest.fail(f"touched the network: {url}")

    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return tmp_path


def check_path(graph: Graph) -> None:
    assert isinstance(graph.x, np.ndarray)
    to = np.repeat(np.arange(graph.num_nodes), graph.in_degree)
    np.testing.assert_array_equal(np.stack([graph.indices, to])[:, :6], PATH[:, np.lexsort(PATH)])
    np.testing.assert_array_equal(graph.x[:4], X)
    assert graph.x.dtype == np.float32 and graph.is_symmetric()


def split_of(graph: Graph) -> list[list[int]]:
    return [[] if ids is None else ids.tolist() for ids in graph.splits.values()]


def test_reddit(data: Path) -> None:
    write_reddit(data)
    graph = datasets.load("pyg:Reddit")
    check_path(graph)
    assert graph.y is not None and graph.y.tolist() == [0, 1, 2, 1] and split_of(graph) == [[0, 3], [2], [1]]
    assert graph.notes == ("2 self loops and repeated edges were removed",) and graph.name == "Reddit"


def test_saint_with_one_label_and_with_many(data: Path) -> None:
    write_saint(data, "Flickr", {"0": 0, "1": 1, "2": 2, "3": 1})
    write_saint(data, "Yelp", {"3": [0, 1], "1": [1, 1], "2": [0, 0], "0": [1, 0]})
    write_saint(data, "Reddit2", {"0": 0, "1": 1, "2": 2, "3": 1})
    flickr, yelp = datasets.load("pyg:Flickr"), datasets.load("pyg:yelp")
    assert datasets.load("pyg:reddit2").name == "Reddit2" and "23,213,838" in external.GRAPHS["pyg:Reddit2"].what
    for graph in (flickr, yelp):
        check_path(graph)
        assert split_of(graph) == [[0, 3], [2], [1]] and not graph.notes
    assert flickr.y is not None and flickr.y.tolist() == [0, 1, 2, 1] and flickr.num_classes == 3
    assert yelp.y is not None and yelp.multilabel and yelp.y.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("name", "folder", "split", "notes"),
    [
        ("ogbn-products", "ogbn_products", "sales_ranking", ()),
        ("ogbn-arxiv", "ogbn_arxiv", "time", ("directed citations were made undirected",)),
    ],
)
def test_ogb_tables(name: str, folder: str, split: str, notes: tuple[str, ...], data: Path) -> None:
    write_ogb(data, folder, split)
    graph = datasets.load(f"ogb:{name}")
    check_path(graph)
    assert graph.y is not None and graph.y.tolist() == [0, 1, 2, 1] and split_of(graph) == [[0, 3], [2], [1]]
    assert graph.notes == notes and graph.name == name


def test_papers_keeps_unlabelled_nodes_outside_the_split(data: Path) -> None:
    write_papers(data)
    graph = datasets.load("ogb:ogbn-papers100M")
    check_path(graph)
    assert graph.num_nodes == 5 and graph.num_edges == 8 and graph.num_classes == 3
    assert graph.y is not None and graph.y.tolist() == [0, 1, 2, 1, -1] and split_of(graph) == [[0, 3], [2], [1]]


def test_planetoid_prefers_our_file_and_else_asks_pyg(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG's reader of the raw pickles is replaced: the test is about the conversion of its result."""
    raw = data / "Cora" / "raw"
    raw.mkdir(parents=True)
    for file in external.GRAPHS["pyg:Cora"].files:
        (raw.parent / file).write_text("")

    def answer(folder: str, name: str) -> SimpleNamespace:
        assert (folder, name) == (str(raw), "cora")
        masks = {f"{part}_mask": torch.arange(4) == node for node, part in enumerate(("train", "val", "test"))}
        return SimpleNamespace(
            x=torch.from_numpy(X), edge_index=torch.from_numpy(PATH), y=torch.tensor([0, 1, 1, 0]), **masks
        )

    with pytest.raises(InputError, match="cannot be read as a Planetoid file"):
        datasets.load("pyg:Cora")
    pickles = [raw.parent / file for file in external.GRAPHS["pyg:Cora"].files if not file.endswith("test.index")]
    for path in pickles:
        path.write_bytes(b"cposix\nsystem\n(S'true'\ntR.")  # would run a program when unpickled
    with pytest.raises(InputError, match="names 'posix system', not plain arrays; refused"):
        datasets.load("pyg:Cora")
    for path in pickles:
        path.write_bytes(b"\x80\x02].")  # an empty list
    with pytest.raises(InputError, match="Cora/raw: cannot be read"):
        datasets.load("pyg:Cora")
    monkeypatch.setattr(sys.modules["torch_geometric.io"], "read_planetoid_data", answer)
    graph = datasets.load("pyg:Cora")
    check_path(graph)
    assert split_of(graph) == [[0], [1], [2]] and graph.y is not None and graph.y.tolist() == [0, 1, 1, 0]
    npz.write_graph(data / "cora.npz", graph.subgraph(np.arange(3)))
    assert datasets.load("pyg:Cora").num_nodes == 3


def test_a_root_is_the_parent_or_the_folder_itself(data: Path) -> None:
    write_reddit(data / "elsewhere")
    for root in (data / "elsewhere", data / "elsewhere" / "Reddit"):
        check_path(datasets.load(f"pyg:Reddit,root={root}"))
    assert "reddit_graph.npz" in datasets.source_state(f"pyg:Reddit,root={data / 'elsewhere'}")
    with pytest.raises(InputError, match="only root=FOLDER"):
        datasets.load("pyg:Reddit,rot=x")


def test_what_is_here_is_known_to_be_here(data: Path) -> None:
    write_ogb(data, "ogbn_arxiv", "time")
    made = ("synthetic:", "standin:", "edges:")
    here = {name for name, _, available in datasets.known_datasets() if available and not name.startswith(made)}
    assert here == {"ogb:ogbn-arxiv"}
    assert {name for name, _, _ in datasets.known_datasets()} >= set(external.GRAPHS)


def damage_saint(data: Path, file: str, content: str | bytes) -> None:
    write_saint(data, "Yelp", {"0": [1, 0], "1": [1, 1], "2": [0, 0], "3": [0, 1]})
    (data / "Yelp" / "raw" / file).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("adj_full.npz", "x", "not an npz file"),
        ("feats.npy", "x", "not a plain .npy file"),
        ("feats.npy", b"\x93NUMPY\x01\x00", "not a plain .npy file"),
        ("class_map.json", "{", "cannot be read"),
        ("class_map.json", '{"7": [0, 1]}', "node 7 of 4"),
        ("class_map.json", '{"0": [0, 1], "1": [1]}', "cannot be read"),
        ("role.json", '{"tr": [0]}', "'va'"),
        ("role.json", '{"tr": [9], "va": [1], "te": [2]}', "node 9"),
    ],
)
def test_damaged_saint_files_are_named(file: str, content: str | bytes, words: str, data: Path) -> None:
    damage_saint(data, file, content)
    with pytest.raises(InputError, match=words) as caught:
        datasets.load("pyg:Yelp")
    assert str(data / "Yelp" / "raw") in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("raw/edge.csv.gz", b"no gzip", "cannot be read|Not a gzipped file"),
        ("raw/edge.csv.gz", gzip.compress(b"0,1\n2,x\n", mtime=0), "cannot be read"),
        ("raw/edge.csv.gz", gzip.compress(b"0,1\n2,9\n", mtime=0), "edge 1: destination 9"),
        ("raw/edge.csv.gz", gzip.compress(b"", mtime=0), "cannot be read"),
        ("raw/node-feat.csv.gz", gzip.compress(b"1,2\n3,4\n", mtime=0)[:-6], "cannot be read"),
        ("raw/node-label.csv.gz", gzip.compress(b"1\n2\n", mtime=0), "2 labels for 4 nodes"),
        ("split/time/valid.csv.gz", gzip.compress(b"2\n77\n", mtime=0), "val: node 77"),
    ],
)
def test_damaged_tables_are_named(file: str, content: bytes, words: str, data: Path) -> None:
    write_ogb(data, "ogbn_arxiv", "time")
    (data / "ogbn_arxiv" / file).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        datasets.load("ogb:ogbn-arxiv")
    assert str(data / "ogbn_arxiv") in str(caught.value) and "\n" not in str(caught.value)


class Answer(io.BytesIO):
    """A response of `urlopen`: content with headers."""

    def __init__(self, content: bytes, kind: str) -> None:
        super().__init__(content)
        self.headers = email.message.Message()
        self.headers["Content-Type"] = kind


def serve(answer: Callable[[str], tuple[bytes, str]]) -> Callable[..., Answer]:
    return lambda url, timeout: Answer(*answer(url))


def packed_arxiv(folder: Path) -> bytes:
    """The archive of ogbn-arxiv; its files are written to a folder before."""
    write_ogb(folder, "ogbn_arxiv", "time")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../escaped", "never extracted")
        for path in (folder / "ogbn_arxiv").rglob("*.gz"):
            archive.write(path, Path("arxiv") / path.relative_to(folder / "ogbn_arxiv"))
    return packed.getvalue()


@pytest.mark.parametrize("locks", [True, False])
def test_several_processes_may_miss_the_same_graph(
    locks: bool, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With locks one downloads and the others wait; where locks do not reach other hosts, all do, apart."""
    content, asked, meet = packed_arxiv(tmp_path / "origin"), list[str](), threading.Barrier(3, timeout=20)
    killed = data / "ogbn_arxiv" / hidden_name(data / "download.zip").name
    killed.parent.mkdir()
    killed.touch()

    def answer(url: str) -> tuple[bytes, str]:
        asked.append(url)
        if not locks:
            meet.wait()
        return content, "application/zip"

    monkeypatch.setattr(urllib.request, "urlopen", serve(answer))
    fetched, fetch = list[Path](), external._fetch
    monkeypatch.setattr(external, "_fetch", lambda url, path: (fetched.append(path), fetch(url, path)))
    if not locks:
        monkeypatch.setattr(external, "building", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(external, "machine_in_name", lambda _: "of another host")
    with ThreadPoolExecutor(3) as pool:
        for graph in pool.map(lambda _: datasets.load("ogb:ogbn-arxiv"), range(3)):
            check_path(graph)
    assert len(asked) == len(set(fetched)) == (1 if locks else 3) and killed.exists() is not locks
    assert not [path for path in data.rglob("*.zip*") if path != killed]


def test_a_missing_graph_is_downloaded_once(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed_arxiv(tmp_path / "origin")
    write_saint(tmp_path / "origin", "Flickr", {"0": 0, "1": 1, "2": 2, "3": 1})
    asked: list[str] = []

    def answer(url: str) -> tuple[bytes, str]:
        asked.append(url)
        if url.endswith("arxiv.zip"):
            return content, "application/zip"
        files = {address: file for file, address in external.GRAPHS["pyg:Flickr"].urls.items()}
        return (tmp_path / "origin" / "Flickr" / files[url]).read_bytes(), "application/octet-stream"

    monkeypatch.setattr(urllib.request, "urlopen", serve(answer))
    for name, requests in (("ogb:ogbn-arxiv", 1), ("pyg:Flickr", 4)):
        for _ in range(2):
            check_path(datasets.load(f"{name},root={tmp_path / 'to'}"))
        assert len(asked) == requests
        asked.clear()
    assert not list(tmp_path.rglob("escaped")) and not list(tmp_path.rglob("*.zip"))


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (urllib.error.URLError("no route"), "no route"),
        (TimeoutError("timed out"), "timed out"),
        ((b"<html>quota</html>", "text/html"), "web page"),
        ((b"no zip", "application/zip"), "not a zip file"),
    ],
)
def test_a_failed_download_says_what_to_put_where(
    failure: Exception | tuple[bytes, str], words: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_: str) -> tuple[bytes, str]:
        if isinstance(failure, Exception):
            raise failure
        return failure

    monkeypatch.setattr(urllib.request, "urlopen", serve(answer))
    with pytest.raises(InputError, match=words) as caught:
        datasets.load("pyg:Reddit")
    message = str(caught.value)
    assert f"put raw/reddit_data.npz, raw/reddit_graph.npz into {data / 'Reddit'}" in message and "\n" not in message
    assert not [path for path in data.rglob("*") if path.is_file()]


def test_the_largest_graph_is_never_fetched_unasked(data: Path) -> None:
    with pytest.raises(InputError, match="put raw/data.npz, raw/node-label.npz, split/time/train.csv.gz"):
        datasets.load("ogb:ogbn-papers100M")
    with pytest.raises(InputError, match="did you mean 'ogb:ogbn-products'"):
        datasets.load("ogb:products")
