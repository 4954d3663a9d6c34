"""Prepared data: what a rank opens of it, and the index by which it is found."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path

import pytest

from harness import datasets
from harness.config import RunConfig
from harness.machine import load_meta
from harness.running import prepare
from tests.harness.datasets.test_external import packed_arxiv, serve

TINY = "synthetic:nodes=200,degree=6,features=5,classes=3"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("method", "protocol", "same"),
    [
        ("vanilla", "transductive", True),
        ("vanilla", "inductive", False),
        ("subgraph-approximation", "transductive", False),
    ],
)
def test_equal_parts_are_opened_once(method: str, protocol: str, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.of(dataset=TINY, parts=2, method=method, protocol=protocol)
    made = prepare(config)
    monkeypatch.setattr(datasets, "load", None)
    opened: list[Path] = []
    monkeypatch.setattr(
        "harness.partition.edge._store.load_meta", lambda folder: opened.append(folder) or load_meta(folder)
    )
    known = prepare(config)
    assert (known.train is known.evaluate) is same and len(opened) == (1 if same else 2)
    assert known.train.path == made.train.path and known.evaluate.path == made.evaluate.path
    assert known.describe() == made.describe()


def test_a_rank_prepares_with_its_own_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.of(dataset=TINY, parts=4, method="cagnet:algorithm=1.5d:replication=2")
    made = prepare(config)
    assert made.train.num_parts == 2
    shutil.rmtree(made.train.path / "part-00001")
    with monkeypatch.context() as patched:
        patched.setattr(datasets, "load", None)
        assert prepare(config, ranks=[0, 1]).training(1).x is not None, "both hold part 0"
        with pytest.raises(TypeError):  # it would load the graph
            prepare(config, ranks=[2])
    assert prepare(config, ranks=range(2, 3)).training(2).x is not None, "the missing part was made again"


def test_a_graph_that_the_first_process_downloads_is_loaded_by_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is kept under the state of the files that are there afterwards."""
    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path / "data"))
    content = packed_arxiv(tmp_path / "origin")
    monkeypatch.setattr(urllib.request, "urlopen", serve(lambda _: (content, "application/zip")))
    config = RunConfig.of(dataset="ogb:ogbn-arxiv", parts=2, partitioner="hash", renumber="0")
    made = prepare(config)
    monkeypatch.setattr(datasets, "load", None)
    assert prepare(config, ranks=[1]).train.path == made.train.path
    assert len(list((tmp_path / "cache" / "prepared").iterdir())) == 1
