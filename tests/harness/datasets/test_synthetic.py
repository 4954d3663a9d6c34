"""Synthetic graphs: requested statistics, equal graphs in every process, and a note in each."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import datasets
from harness.datasets import PRESETS
from harness.datasets import _sbm as sbm
from harness.datasets import _synthetic as synthetic
from harness.datasets._recipe import parse_recipe
from harness.errors import InputError
from harness.graphs import Graph
from harness.graphs._graph import validate
from harness.machine import load_arrays


def destinations(graph: Graph) -> np.ndarray:
    return np.repeat(np.arange(graph.num_nodes), graph.in_degree)


def same_label(graph: Graph) -> float:
    assert graph.y is not None
    return float((graph.y[destinations(graph)] == graph.y[graph.indices]).mean())


def assert_simple(graph: Graph) -> None:
    """Symmetric, without self loops and repeated edges, and a valid graph."""
    validate(graph)
    assert graph.is_symmetric()
    to = destinations(graph)
    assert (graph.indices != to).all()
    assert not ((np.diff(graph.indices) == 0) & (np.diff(to) == 0)).any()


@settings(deadline=None, max_examples=40)
@given(
    nodes=st.integers(20, 400),
    degree=st.floats(0.2, 9),
    classes=st.integers(1, 6),
    exponent=st.floats(2.05, 8),
    multilabel=st.booleans(),
    order=st.sampled_from(["random", "community"]),
    seed=st.integers(0, 99),
)
def test_any_recipe_gives_a_simple_graph_of_its_size(
    nodes: int, degree: float, classes: int, exponent: float, multilabel: bool, order: str, seed: int
) -> None:
    text = f"synthetic:nodes={nodes},degree={degree},classes={classes},features=3,exponent={exponent}"
    graph = synthetic.load_synthetic(f"{text},multilabel={int(multilabel)},order={order},seed={seed}")
    assert_simple(graph)
    assert abs(graph.num_edges - nodes * degree) <= 0.002 * nodes * degree + 2
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (nodes, 3, classes)
    assert graph.multilabel == multilabel and graph.notes[0].startswith("generated graph")


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("communities", [8, 40])
def test_homophily_is_the_share_of_edges_inside_communities(homophily: float, communities: int) -> None:
    text = f"synthetic:nodes=6000,degree=12,classes=8,communities={communities},homophily={homophily},order=community"
    graph = synthetic.load_synthetic(text)
    community = np.searchsorted(sbm.bounds(6000, communities), np.arange(6000), side="right") - 1
    inside = float((community[destinations(graph)] == community[graph.indices]).mean())
    assert inside == pytest.approx(homophily, abs=0.005)
    assert graph.y is not None and (graph.y == community % 8).all()
    if communities == 8:
        shuffled = synthetic.load_synthetic(text.replace("order=community", "order=random"))
        assert same_label(shuffled) == pytest.approx(homophily, abs=0.005)


@pytest.mark.parametrize(("homophily", "agreement"), [(0.3, 0.8), (0.0, 0.5), (0.6, 0.5)])
def test_agreement_is_the_share_of_edges_between_nodes_of_one_class(homophily: float, agreement: float) -> None:
    text = "synthetic:nodes=3000,degree=12,classes=5,communities=15,order=community"
    graph = datasets.load(f"{text},homophily={homophily},agreement={agreement}")
    assert_simple(graph)
    bound = sbm.bounds(3000, 15)
    community = np.searchsorted(bound, np.arange(3000), side="right") - 1
    to = destinations(graph)
    inside = float((community[to] == community[graph.indices]).mean())
    assert inside == pytest.approx(homophily, abs=0.005)
    by_chance = (1 - homophily) * 2 / 14  # of edges between any two communities: 2 of 14 others are of the same class
    assert same_label(graph) == pytest.approx(agreement if agreement > homophily else homophily + by_chance, abs=0.01)


def test_agreement_needs_several_communities_of_a_class_and_room_between_them() -> None:
    with pytest.raises(InputError, match="twice as many communities as classes"):
        datasets.load("synthetic:nodes=600,classes=5,homophily=0.3,agreement=0.8")
    with pytest.raises(InputError, match="do not fit between communities of one class"):
        datasets.load("synthetic:nodes=120,degree=30,classes=8,communities=16,homophily=0.0,agreement=0.9")
    with pytest.raises(InputError, match="agreement must be 0 to 1"):
        datasets.load("synthetic:agreement=1.5")


def test_graphs_without_agreement_are_what_they_were() -> None:
    """The generator's streams must not move: the sum is that of the same graph before there was agreement."""
    graph = datasets.load("synthetic:nodes=500,degree=8,classes=4,homophily=0.5,seed=3")
    assert int(graph.indices[:50].sum()) == 11464


def test_degrees_follow_a_power_law_with_the_exponent_asked_for() -> None:
    """Hill's estimator on the largest expected degrees, and the scatter of actual degrees around them."""
    rng = np.random.default_rng(0)
    for exponent in (2.5, 3.5):
        weight = sbm.weights(200_000, 20.0, exponent, rng)
        cut = weight.max()
        tail = weight[(weight > 5) & (weight < cut)]
        # a Pareto tail that is cut off: each capped value counts as surviving up to the cut
        survivors = (weight >= cut).sum() * np.log(cut / 5)
        hill = 1 + len(tail) / (np.log(tail / 5).sum() + survivors)
        assert hill == pytest.approx(exponent, abs=0.1)
        assert cut / weight.mean() * 20 <= 1.3 * np.sqrt(200_000 * 20)
    number = np.arange(20_000, dtype=np.int32)
    weight = sbm.weights(20_000, 20.0, 2.5, rng)
    indptr, _ = sbm.sample(weight, sbm.bounds(20_000, 10), 200_000, 0.7, number, 0)
    expected = weight / weight.sum() * 400_000
    deviation = (np.diff(indptr) - expected) / np.sqrt(expected)
    assert abs(deviation.mean()) < 0.1 and 0.8 < deviation.std() < 1.3


def test_the_sampler_draws_in_proportion_to_the_weights() -> None:
    weight = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 0.5, 2.5, 4.0, 2.0])
    keep, other = sbm._alias(weight, np.array([0, 4, 10]))
    for start, end in ((0, 4), (4, 10)):
        chance = np.zeros(10)
        for i in range(start, end):
            stays = (int(keep[i]) + 1) / 2**32
            chance[i] += stays
            chance[other[i]] += 1 - stays
        wanted = weight[start:end] / weight[start:end].sum()
        np.testing.assert_allclose(chance[start:end] / (end - start), wanted, atol=1e-8)


def test_thinning_keeps_each_entry_equally_often() -> None:
    indptr, indices = np.array([0, 3, 3, 8]), np.arange(8, dtype=np.int32)
    counts = np.zeros(8)
    for seed in range(4000):
        rows, kept = sbm._thin(indptr, indices, 3, sbm._key(seed, 0))
        assert len(kept) == rows[-1] == 3 and (kept[: rows[1]] < 3).all() and (kept[rows[1] :] >= 3).all()
        counts[kept] += 1
    np.testing.assert_allclose(counts / 4000, 3 / 8, atol=0.03)


def test_features_carry_the_class_and_unit_noise() -> None:
    graph = synthetic.load_synthetic("synthetic:nodes=20000,classes=4,features=16,signal=3,degree=4")
    assert isinstance(graph.x, np.ndarray) and graph.y is not None
    centroids = np.stack([graph.x[graph.y == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 3, atol=0.1)
    np.testing.assert_allclose((graph.x - centroids[graph.y]).std(axis=0), 1, atol=0.05)
    blind = synthetic.load_synthetic("synthetic:nodes=20000,classes=4,features=16,signal=0,degree=4").x
    assert blind is not None and abs(blind[graph.y == 0].mean(axis=0)).max() < 0.1


def test_label_noise_moves_its_share_of_nodes_to_another_class() -> None:
    clean = synthetic.load_synthetic("synthetic:nodes=20000,degree=4,order=community").y
    noisy = synthetic.load_synthetic("synthetic:nodes=20000,degree=4,order=community,label_noise=0.2").y
    assert clean is not None and noisy is not None
    assert (clean != noisy).mean() == pytest.approx(0.2, abs=0.02)
    assert np.bincount(noisy).min() > 0.8 * 20000 / 7


def test_extra_labels_are_correlated_with_the_main_one() -> None:
    graph = synthetic.load_synthetic("synthetic:nodes=20000,degree=4,classes=10,multilabel=1,order=community")
    assert graph.y is not None
    main = np.arange(20000) * 10 // 20000
    assert (graph.y[np.arange(20000), main] == 1).all()
    together = np.stack([graph.y[main == c].mean(axis=0) for c in range(10)])
    for c in range(10):
        others = np.sort(np.delete(together[c], c))[::-1]
        np.testing.assert_allclose(others, [0.5, 0.3, 0.2, 0, 0, 0, 0, 0, 0], atol=0.05)


def test_the_same_string_gives_the_same_graph_in_another_process_with_more_threads() -> None:
    text = "synthetic:nodes=3000,degree=8,multilabel=1,label_noise=0.1,seed=5"
    program = f"from harness.datasets._synthetic import load_synthetic; print(load_synthetic({text!r}).fingerprint())"
    environment = {"NUMBA_NUM_THREADS": "4", "OMP_NUM_THREADS": "4", "PATH": ""}
    root = Path(__file__).resolve().parents[3]
    answer = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True)
    assert answer.stdout.strip() == synthetic.load_synthetic(text).fingerprint(), answer.stderr
    other = {synthetic.load_synthetic(text.replace("seed=5", f"seed={seed}")).fingerprint() for seed in (5, 6)}
    assert len(other) == 2


def test_order_hides_or_shows_the_communities() -> None:
    shown, hidden = (synthetic.load_synthetic(f"synthetic:order={order}") for order in ("community", "random"))
    assert shown.y is not None and hidden.y is not None
    assert (np.diff(shown.y) >= 0).all()
    assert (np.diff(hidden.y) != 0).mean() > 0.8
    assert np.abs(np.sort(shown.in_degree) - np.sort(hidden.in_degree)).mean() < 0.1


PUBLISHED = {
    "reddit-like": ("Reddit", 232_965, 491.99, 602, 41, (0.66, 0.10, 0.24)),
    "products-like": ("ogbn-products", 2_449_029, 50.52, 100, 47, (0.08, 0.02, 0.90)),
    "yelp-like": ("Yelp", 716_847, 19.47, 300, 100, (0.75, 0.10, 0.15)),
    "amazon-like": ("AmazonProducts", 1_569_960, 168.37, 200, 107, (0.85, 0.05, 0.10)),
    "papers-like": ("ogbn-papers100M", 111_059_956, 29.10, 128, 172, (0.01087, 0.00113, 0.00193)),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_carry_the_published_statistics(preset: str) -> None:
    name, nodes, degree, features, classes, shares = PUBLISHED[preset]
    scale = 2500 / nodes
    recipe, _ = parse_recipe(f"synthetic:{preset},scale={scale}")
    assert parse_recipe(f"synthetic:{preset}")[0].nodes == nodes and recipe.degree == pytest.approx(degree, abs=0.005)
    graph = datasets.load(f"synthetic:{preset},scale={scale}")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2500, features, classes)
    assert graph.num_edges == pytest.approx(2500 * degree, rel=0.01)
    assert graph.multilabel == (preset in ("yelp-like", "amazon-like"))
    for ids, share in zip(graph.splits.values(), shares, strict=True):
        assert ids is not None and abs(len(ids) - 2500 * share) <= 1
    assert graph.notes[0].startswith(f"stand-in for {name}: synthetic graph with its published statistics, scale=")


def test_a_default_homophily_that_does_not_fit_is_lowered_and_said() -> None:
    graph = synthetic.load_synthetic("synthetic:reddit-like,scale=0.01")
    assert_simple(graph)
    assert graph.num_edges == pytest.approx(2330 * 491.99, rel=0.01)
    assert "homophily lowered from 0.8 to 0.0" in graph.notes[1]
    with pytest.raises(InputError, match="homophily=0.0 to 0.29") as caught:
        synthetic.load_synthetic("synthetic:nodes=3000,degree=700,homophily=0.5")
    offered = str(caught.value).rpartition(" ")[2]
    assert_simple(synthetic.load_synthetic(f"synthetic:nodes=3000,degree=700,homophily={offered}"))


def test_the_densest_graphs_end() -> None:
    for text in ("nodes=600,degree=290,exponent=2.05", "nodes=600,degree=299,classes=1", "nodes=9,degree=2,classes=3"):
        assert_simple(synthetic.load_synthetic(f"synthetic:{text}"))


def test_more_than_the_machine_holds_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="takes about .* GiB, this machine has"):
        datasets.load("synthetic:papers-like,scale=15")


def test_a_large_graph_is_made_once_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    text = "synthetic:products-like,nodes=25000,degree=41,features=8,seed=2"
    made = synthetic.load_synthetic(text)
    entries = [path for path in (tmp_path / "graphs").iterdir() if path.is_dir()]
    assert len(entries) == 1 and load_arrays(entries[0]) is not None
    monkeypatch.setattr(synthetic, "_generate", None)
    again = synthetic.load_synthetic(text)
    assert again.fingerprint() == made.fingerprint() and again.notes == made.notes and again.name == text
    assert isinstance(again.x, np.ndarray) and again.x.base is not None and again.x.flags.writeable
    validate(again)


def test_without_a_cache_a_large_graph_is_still_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "synthetic:nodes=30000,degree=35,features=4"
    wanted = synthetic.load_synthetic(text).fingerprint()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "file"))
    assert synthetic.load_synthetic(text).fingerprint() == wanted


def softmax_regression(z: np.ndarray, graph: Graph, epochs: int) -> float:
    """Test accuracy of a linear classifier on fixed features, after full-batch Adam (learning rate 0.05)."""
    assert graph.y is not None and graph.train is not None and graph.test is not None
    z = z / z[graph.train].std()
    hot = np.eye(graph.num_classes)[graph.y]
    weight, mean, square = np.zeros((z.shape[1], graph.num_classes)), 0.0, 0.0
    for step in range(1, epochs + 1):
        score = z[graph.train] @ weight
        share = np.exp(score - score.max(axis=1, keepdims=True))
        slope = z[graph.train].T @ (share / share.sum(axis=1, keepdims=True) - hot[graph.train]) / len(graph.train)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weight -= 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return float(((z[graph.test] @ weight).argmax(axis=1) == graph.y[graph.test]).mean())


def test_on_the_default_graph_neighbours_help_and_do_not_settle_it() -> None:
    """Two rounds of averaging, then a linear classifier (SGC, Wu et al., ICML 2019), against the features alone."""
    graph = datasets.load("synthetic:")
    assert isinstance(graph.x, np.ndarray)
    adjacency = sp.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr)) + sp.eye(graph.num_nodes)
    scale = 1 / np.sqrt(np.asarray(adjacency.sum(axis=1)))
    hops = graph.x.astype(np.float64)
    for _ in range(2):
        hops = scale * (adjacency @ (scale * hops))
    assert 0.75 < softmax_regression(hops, graph, 60) < 0.9
    assert softmax_regression(graph.x.astype(np.float64), graph, 60) < 0.4


def test_every_parameter_reaches_the_graph() -> None:
    """A parameter that is parsed but not used would give the same graph."""
    changes = "nodes=900 degree=9 classes=5 features=9 homophily=0.5 signal=2 label_noise=0.1 communities=9 exponent=3"
    texts = ["", *changes.split(), "multilabel=1", "order=community", "seed=1", "agreement=0.9,communities=14"]
    prints = {synthetic.load_synthetic(f"synthetic:{text}").fingerprint() for text in texts}
    assert len(prints) == len(texts)
    recipe, _ = parse_recipe("synthetic:")
    named = {text.partition("=")[0] for text in texts if text}
    assert {field.name for field in dataclasses.fields(recipe)} - named == {
        "fixed_homophily",
        "split",
        "standin",
        "fitted",
    }
