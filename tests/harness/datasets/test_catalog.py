"""Names of graphs: splits, feature scaling, requirements of training, and messages for unknown names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import datasets
from harness.datasets import _catalog as catalog
from harness.datasets import _npz as npz
from harness.datasets import _splits as splits
from harness.errors import InputError
from harness.graphs import Graph
from tests.conftest import real_data
from tests.support.graphs import random_graph


def sizes(graph: Graph) -> list[int | None]:
    return [None if ids is None else len(ids) for ids in graph.splits.values()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one small graph, `small`."""
    npz.write_graph(tmp_path / "small.npz", random_graph(50, 200))
    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path))
    return tmp_path


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 200), st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)), st.integers(0, 5))
def test_a_random_split_is_disjoint_and_of_the_size_asked_for(nodes: int, parts: tuple[int, ...], seed: int) -> None:
    shares = [part / max(sum(parts), 1) for part in parts]
    graph = splits.apply(random_graph(nodes, nodes), "random:" + "/".join(map(str, shares)), seed)
    chosen = np.concatenate([ids for ids in graph.splits.values() if ids is not None])
    assert len(set(chosen.tolist())) == len(chosen) == (nodes if sum(parts) else 0)
    for ids, share in zip(graph.splits.values(), shares, strict=True):
        assert ids is not None and abs(len(ids) - share * nodes) <= 1 and (np.diff(ids) > 0).all()


def test_a_split_depends_on_the_seed_and_on_nothing_else() -> None:
    graph = random_graph(200, 300)
    one, same, other = (splits.apply(graph, "counts:50/60/70", seed) for seed in (1, 1, 2))
    assert sizes(one) == [50, 60, 70] and one.train is not None and same.train is not None and other.train is not None
    assert one.train.tolist() == same.train.tolist() != other.train.tolist()


def test_fewer_training_nodes_leave_validation_and_test_alone() -> None:
    """`:keep` removes training vertices, judged on the complete test set; a smaller share is part of a larger one."""
    graph = random_graph(1000, 500)
    whole, half, tenth = (
        splits.apply(graph, f"random:0.7/0.2/0.1{keep}", 3) for keep in ("", ":keep=0.5", ":keep=0.1")
    )
    assert [sizes(each)[0] for each in (whole, half, tenth)] == [700, 350, 70]
    for fewer, more in ((half, whole), (tenth, half)):
        assert fewer.train is not None and more.train is not None and np.isin(fewer.train, more.train).all()
        assert np.array_equal(fewer.test, more.test) and np.array_equal(fewer.val, more.val)
    public = splits.apply(whole, "public:keep=0.5", 0)
    assert sizes(public) == [350, 200, 100] and np.array_equal(public.test, whole.test)


def test_nodes_without_a_label_are_in_no_split() -> None:
    graph = random_graph(40, 60)
    assert graph.y is not None
    bare = dataclasses.replace(graph, y=np.where(np.arange(40) < 30, -1, graph.y), train=None, val=None, test=None)
    drawn = splits.apply(bare, "random:0.5/0.25/0.25", 0)
    assert sizes(drawn) == [5, 3, 2] and drawn.train is not None and drawn.train.min() >= 30
    with pytest.raises(InputError, match="needs 11 nodes.*10 labelled"):
        splits.apply(bare, "counts:11/0/0", 0)
    with pytest.raises(InputError, match="no public split"):
        splits.apply(bare, "public", 0)


@given(st.integers(6, 60), st.integers(1, 6), st.integers(0, 100))
def test_a_split_by_position_is_that_of_workers_who_cut_their_own_nodes(nodes: int, parts: int, seed: int) -> None:
    graph = dataclasses.replace(random_graph(nodes, nodes), train=None, val=None, test=None)
    counts = (nodes // 2, nodes // 4, nodes // 4)
    cut = splits.apply(graph, "position:" + "/".join(map(str, counts)), seed)
    assert cut.train is not None and cut.val is not None and cut.test is not None
    assert np.array_equal(np.concatenate([cut.train, cut.val, cut.test]), np.arange(sum(counts)))
    for part in range(parts):
        own = np.flatnonzero(np.arange(nodes) % parts == part)  # a worker's nodes under a hash partition, in order
        first = round(len(own) * counts[0] / nodes)
        assert len(np.setxor1d(own[:first], np.intersect1d(own, cut.train))) <= 1


def test_a_split_by_position_takes_shares_and_only_labelled_nodes() -> None:
    graph = random_graph(40, 60)
    assert graph.y is not None
    bare = dataclasses.replace(graph, y=np.where(np.arange(40) < 30, -1, graph.y), train=None, val=None, test=None)
    cut = splits.apply(bare, "position:0.5/0.3/0.2", 0)
    assert [part.tolist() for part in (cut.train, cut.val, cut.test) if part is not None] == [
        [30, 31, 32, 33, 34], [35, 36, 37], [38, 39],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("random:0.7/0.2/0.1:keep=0", "the share of training nodes to keep"),
        ("random:0.7/0.2/0.1:keep=most", "the share of training nodes to keep"),
        ("randm:0.5/0.2/0.3", "did you mean 'random:"),
        ("random", "did you mean 'random:"),
        ("public:1", "public"),
        ("random:0.5/0.5", "three shares"),
        ("random:0.5/0.4/0.2", "three shares"),
        ("random:-0.1/0.4/0.2", "three shares"),
        ("random:nan/0.4/0.2", "three shares"),
        ("random:a/b/c", "three shares"),
        ("counts:5/5", "three numbers"),
        ("counts:5/-5/5", "three numbers"),
        ("counts:5.5/5/5", "three numbers"),
        ("counts:1000/0/0", "needs 1000 nodes"),
        ("position:5/5", "three numbers"),
        ("position:0.5/0.5", "three shares"),
        ("position:1000/0/0", "needs 1000 nodes"),
    ],
)
def test_a_bad_split_is_refused(split: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        splits.apply(random_graph(20, 30), split, 0)


def test_auto_is_public_where_there_is_one(folder: Path) -> None:
    public = datasets.load("small")
    assert sizes(public) == [30, 10, 10] and public.fingerprint() == npz.read_graph(folder / "small.npz").fingerprint()
    assert sizes(datasets.load(str(folder / "small.npz"), split="counts:7/8/9")) == [7, 8, 9]
    npz.write_graph(folder / "plain.npz", dataclasses.replace(public, train=None, val=None, test=None))
    drawn, other = datasets.load("plain"), datasets.load("plain", seed=1)
    assert sizes(drawn) == [30, 10, 10] and drawn.fingerprint() != other.fingerprint()
    npz.write_graph(folder / "topo.npz", dataclasses.replace(public, x=None, y=None, train=None, val=None, test=None))
    assert sizes(datasets.load("topo")) == [None] * 3
    assert sizes(datasets.load("topo", split="counts:1/2/3")) == [1, 2, 3]


def test_an_unknown_name_meets_the_nearest_one(folder: Path) -> None:
    for name, near in (("smal", "'small'"), ("reddit", "'pyg:Reddit'"), ("sinthetic:", "'synthetic:'")):
        with pytest.raises(InputError, match=f"unknown dataset '{name}'; did you mean {near}"):
            datasets.load(name)
    with pytest.raises(InputError, match="absent.npz: no such file"):
        datasets.load(str(folder / "absent.npz"))
    with pytest.raises(InputError, match="feature scaling 'rows'; did you mean 'row'"):
        datasets.load("small", features="rows")


def test_known_lists_files_with_their_sizes_and_damage(folder: Path) -> None:
    (folder / "broken.npz").write_text("no graph")
    rows = {name: (text, here) for name, text, here in datasets.known_datasets()}
    assert rows["small"][1] and rows["small"][0].startswith("50 nodes, ") and "public split" in rows["small"][0]
    assert not rows["broken"][1] and "broken.npz" in rows["broken"][0]
    assert rows["synthetic:reddit-like"][0].startswith("stand-in for Reddit: 232,965 nodes, 114,615,892 edges")
    assert not rows["pyg:Reddit"][1] and "Reddit/raw" in rows["pyg:Reddit"][0]


def test_the_source_state_changes_with_the_file(folder: Path) -> None:
    before = datasets.source_state("small")
    assert before == datasets.source_state("small")
    npz.write_graph(folder / "small.npz", random_graph(51, 200))
    assert datasets.source_state("small") != before
    assert datasets.source_state("synthetic:") == datasets.source_state("synthetic:nodes=4000, degree=15")
    assert datasets.source_state("synthetic:") != datasets.source_state("synthetic:nodes=4001")
    assert "ogbn-arxiv" in datasets.source_state("ogb:ogbn-arxiv")
    with pytest.raises(InputError, match="absent.npz"):
        datasets.source_state("./absent.npz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("redit-like", "unknown synthetic preset 'redit-like'; did you mean 'reddit-like'"),
        ("node=5", "unknown synthetic parameter 'node'; did you mean 'nodes'"),
        ("scale=2", "unknown synthetic parameter 'scale'"),
        ("standin=Reddit", "unknown synthetic parameter"),
        ("nodes", "unknown synthetic preset 'nodes'"),
        ("seed=1,nodes", "'nodes' is not option=value"),
        ("nodes=5,nodes=6", "option nodes is given twice"),
        ("nodes=ten", "nodes must be a whole number, not 'ten'"),
        ("nodes=10.5", "nodes must be a whole number"),
        ("nodes=inf", "nodes must be a whole number"),
        ("nodes=1", "nodes must be 2"),
        ("degree=nan", "degree must be above 0"),
        ("degree=2000", "degree must be above 0 and at most half"),
        ("signal=-1", "signal"),
        ("exponent=2", "exponent must be above 2"),
        ("homophily=1.1", "homophily must be 0 to 1"),
        ("label_noise=nan", "label_noise must be 0 to 1"),
        ("communities=3", "fewer than classes"),
        ("communities=2000", "a third of the nodes"),
        ("classes=1,homophily=0.5", "homophily must be 1"),
        ("multilabel=2", "multilabel must be 0 or 1"),
        ("order=degree", "order must be random or community"),
        ("seed=-1", "seed must be 0 or more"),
        ("reddit-like,scale=0", "scale must be above 0"),
        ("reddit-like,scale=inf", "scale must be above 0"),
        ("reddit-like,scale=0.000001", "nodes must be 2"),
    ],
)
def test_a_bad_synthetic_string_is_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        datasets.load(f"synthetic:{text}")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_scaled_as_named(sparse: bool, folder: Path) -> None:
    graph = random_graph(50, 200)
    assert isinstance(graph.x, np.ndarray) and graph.train is not None
    x = np.where(np.abs(graph.x) > 0.5, graph.x, 0).astype(np.float32)
    x[4] = 0
    x[:, 2] = 3
    npz.write_graph(folder / "f.npz", dataclasses.replace(graph, x=sp.csr_matrix(x) if sparse else x))
    raw, row, standard = (datasets.load("f", features=name).x for name in ("raw", "row", "standard"))
    assert raw is not None and row is not None and isinstance(standard, np.ndarray) and sp.issparse(row) == sparse
    rows = row if isinstance(row, np.ndarray) else row.toarray()
    np.testing.assert_allclose(rows, x / np.abs(x).sum(axis=1, keepdims=True), rtol=1e-6)
    assert row.dtype == standard.dtype == np.float32
    varied = [0, 1, 3, 4]
    np.testing.assert_allclose(standard[graph.train][:, varied].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(standard[graph.train][:, varied].std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(standard[:, 2], 0)


@pytest.mark.parametrize("sparse", [False, True])
def test_projected_features_keep_distances(sparse: bool, folder: Path) -> None:
    rng, width = np.random.default_rng(1), 2000
    x = rng.random((50, width), np.float32) * (rng.random((50, width)) < 0.1)
    graph = random_graph(50, 200)
    npz.write_graph(folder / "f.npz", dataclasses.replace(graph, x=sp.csr_matrix(x) if sparse else x))
    found = datasets.load("f", features="projected").x
    assert isinstance(found, np.ndarray) and found.shape == (50, catalog.PROJECTED_WIDTH)
    apart = np.linalg.norm(x[:25] - x[25:], axis=1)
    short = np.linalg.norm(catalog._projected(x)[:25] - catalog._projected(x)[25:], axis=1)
    np.testing.assert_allclose(short, apart, rtol=0.2)
    np.testing.assert_array_equal(found, datasets.load("f", features="projected", seed=7, split="public").x)
    np.testing.assert_allclose(found[graph.train].std(axis=0), 1, atol=1e-5)


def test_narrow_features_are_not_projected(folder: Path) -> None:
    npz.write_graph(folder / "f.npz", random_graph(50, 200))
    projected, standard = (datasets.load("f", features=name).x for name in ("projected", "standard"))
    assert isinstance(projected, np.ndarray) and isinstance(standard, np.ndarray)
    np.testing.assert_array_equal(projected, standard)


def test_an_empty_row_stays_empty(folder: Path) -> None:
    graph = random_graph(50, 200)
    assert isinstance(graph.x, np.ndarray)
    graph.x[4] = 0
    npz.write_graph(folder / "f.npz", graph)
    scaled = datasets.load("f", features="row").x
    assert scaled is not None and not scaled[4].any() and np.isfinite(scaled).all()
    with pytest.raises(InputError, match="no training nodes"):
        datasets.load("f", features="standard", split="counts:0/1/1")
    npz.write_graph(folder / "bare.npz", dataclasses.replace(graph, x=None))
    with pytest.raises(InputError, match="no features"):
        datasets.load("bare", features="row")


def test_what_training_needs_is_asked_for_only_there(folder: Path) -> None:
    graph = random_graph(50, 200)
    for change, word in (({"x": None}, "features"), ({"y": None}, "labels"), ({"train": None}, "training nodes")):
        lacking = dataclasses.replace(graph, **change)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=f"no {word}"):
            datasets.require_trainable(lacking)
    datasets.require_trainable(graph)


def test_the_training_graph_is_the_induced_subgraph_with_its_ids() -> None:
    graph = random_graph(50, 200)
    inner, ids = datasets.training_graph(graph)
    assert graph.train is not None and graph.y is not None and inner.y is not None
    assert inner.num_nodes == len(ids) == 30 and ids.tolist() == graph.train.tolist()
    assert sizes(inner) == [30, 0, 0] and inner.y.tolist() == graph.y[ids].tolist()
    chosen = set(ids.tolist())
    wanted = sum(int(u) in chosen for v in ids for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]])
    assert inner.num_edges == wanted and inner.is_symmetric()


def test_every_real_graph_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    data = real_data()
    monkeypatch.setenv("HALOSCOPE_DATA", str(data))
    published = {"cora": (2708, 10556, 1433, 7), "citeseer": (3327, 9104, 3703, 6), "tolokers": (11758, 1038000, 10, 2)}
    for path in data.glob("*.npz"):
        graph = datasets.load(path.stem)
        assert graph.is_symmetric() and not graph.notes
        if path.stem in published:
            counts = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
            assert counts == published[path.stem]
    assert sizes(datasets.load("cora", split="counts:1408/300/1000")) == [1408, 300, 1000]
    assert datasets.load("pyg:Cora").fingerprint() == datasets.load("cora").fingerprint()


@pytest.mark.parametrize("split", ["auto", "random:0.6/0.2/0.2"])
def test_a_graph_of_unlabelled_nodes_is_told_from_one_without_a_split(folder: Path, split: str) -> None:
    """No split helps it, and none is suggested."""
    graph = random_graph(50, 200)
    assert graph.y is not None
    bare = dataclasses.replace(graph, y=np.full_like(graph.y, -1), train=None, val=None, test=None)
    npz.write_graph(folder / "f.npz", bare)
    with pytest.raises(InputError, match="f: no node has a label") as error:
        datasets.require_trainable(datasets.load("f", split=split))
    assert "--split" not in str(error.value)
