"""The graph: edges in any order give the same neighbour lists; messages name every violated invariant and its place."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Graph, from_csr, from_edges
from harness.graphs._graph import validate
from harness.kernels.edges import mirror, union, unique_pairs
from tests.conftest import real_data
from tests.support.graphs import random_graph

Edges = list[tuple[int, int]]


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[int, Edges]:
    """Nodes and directed edges: self loops, repeats and isolated nodes included."""
    nodes = draw(st.integers(1, 12))
    return nodes, draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=40))


def as_array(edges: Edges) -> np.ndarray:
    return np.array(edges, np.int64).reshape(-1, 2).T


def listed(graph: Graph) -> Edges:
    """(source, destination) in the graph's own order."""
    return [(int(u), v) for v in range(graph.num_nodes) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]


def by_destination(edges: Edges) -> Edges:
    return sorted(edges, key=lambda edge: (edge[1], edge[0]))


@settings(deadline=None, max_examples=50)
@given(edge_lists())
def test_edges_in_any_order_give_sorted_rows_and_nothing_is_dropped(drawn: tuple[int, Edges]) -> None:
    nodes, edges = drawn
    graph = from_edges("g", as_array(edges), nodes)
    assert listed(graph) == by_destination(edges)
    assert listed(from_edges("g", as_array(by_destination(edges)), nodes)) == by_destination(edges)
    assert graph.in_degree.tolist() == [sum(v == n for _, v in edges) for n in range(nodes)]
    assert graph.indptr.dtype == np.int64 and graph.indices.dtype == np.int32


@settings(deadline=None, max_examples=50)
@given(edge_lists())
def test_dedupe_and_undirected_equal_sets_of_edges(drawn: tuple[int, Edges]) -> None:
    nodes, edges = drawn
    plain = {(u, v) for u, v in edges if u != v}
    assert listed(from_edges("g", as_array(edges), nodes, dedupe=True)) == by_destination(list(plain))
    both = from_edges("g", as_array(edges), nodes, undirected=True)
    assert listed(both) == by_destination(list(plain | {(v, u) for u, v in plain}))
    assert both.is_symmetric()


@settings(deadline=None, max_examples=50)
@given(edge_lists())
def test_symmetry_is_that_of_the_dense_matrix(drawn: tuple[int, Edges]) -> None:
    nodes, edges = drawn
    count = np.zeros((nodes, nodes), int)
    np.add.at(count, tuple(as_array(edges)), 1)
    assert from_edges("g", as_array(edges), nodes).is_symmetric() == bool((count == count.T).all())


@settings(deadline=None, max_examples=50)
@given(edge_lists(), st.data())
def test_an_induced_subgraph_is_the_dense_submatrix(drawn: tuple[int, Edges], data: st.DataObject) -> None:
    nodes, edges = drawn
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, nodes - 1)))), np.int64)
    split = data.draw(st.integers(0, nodes))
    ids = np.arange(nodes)
    x = np.random.default_rng(0).standard_normal((nodes, 3)).astype(np.float32)
    graph = from_edges("g", as_array(edges), nodes, x=x, y=ids % 4, train=ids[:split], test=ids[split:])
    part = graph.subgraph(kept)
    wanted = [(u, v) for u, v in by_destination(edges) if u in kept and v in kept]
    assert [(int(kept[u]), int(kept[v])) for u, v in listed(part)] == wanted
    assert part.x is not None and part.y is not None and part.train is not None and part.test is not None
    np.testing.assert_array_equal(part.x, x[kept])
    np.testing.assert_array_equal(part.y, (ids % 4)[kept])
    assert kept[part.train].tolist() == [v for v in kept if v < split]
    assert kept[part.test].tolist() == [v for v in kept if v >= split]
    assert part.val is None and part.num_classes == graph.num_classes
    validate(part)


def test_union_and_mirror_of_pairs() -> None:
    def rows(*lists: list[int]) -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum([0, *map(len, lists)]).astype(np.int64)
        return ends, np.array(sum(lists, []), np.int32)

    indptr, indices = union(*rows([1, 3], [], [3], []), *rows([2, 3], [2], [], []))
    assert (indptr.tolist(), indices.tolist()) == ([0, 3, 4, 5, 5], [1, 2, 3, 2, 3])
    indptr, indices = mirror(indptr, indices)
    assert (indptr.tolist(), indices.tolist()) == ([0, 3, 5, 8, 10], [1, 2, 3, 0, 2, 0, 1, 3, 0, 2])
    indptr, indices = unique_pairs(*rows([0, 1, 1, 1], [0, 0, 1]))
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 2], [1, 0])


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"edge_index": [[0, 4], [1, 2]]}, ["edge 1", "source 4", "4 nodes"]),
        ({"edge_index": [[0, 1], [1, -2]]}, ["edge 1", "destination -2"]),
        ({"edge_index": [[0, 1, 2]]}, ["edge_index", "[2, E]", "[1, 3]"]),
        ({"edge_index": [[0.5], [1.0]]}, ["edge_index", "integers", "float64"]),
        ({"x": np.ones((3, 2))}, ["features", "[4, F]", "[3, 2]"]),
        ({"x": np.ones(4)}, ["features", "[4]"]),
        ({"x": np.array([[1, 2], [3, 4], [5, np.nan], [7, 8]])}, ["node 2", "feature 1", "nan"]),
        ({"x": np.array([[1, 2], [3, 4], [5, 6], [1e300, 8]])}, ["node 3", "feature 0", "inf"]),
        ({"x": np.array([["a"]] * 4)}, ["features", "numbers"]),
        ({"x": sp.csr_matrix(np.array([[0, 1], [0, 0], [np.inf, 0], [0, 0]]))}, ["node 2", "feature 0", "inf"]),
        ({"y": [0, 1, 2]}, ["3 labels", "4 nodes"]),
        ({"y": [0, 1, 5, 1], "num_classes": 3}, ["node 2", "label 5", "3 classes"]),
        ({"y": [0, -2, 1, 1]}, ["node 1", "label -2"]),
        ({"y": [0.0, 1.0, 0.0, 1.0]}, ["labels", "float64"]),
        ({"y": [[0, 1], [2, 0], [0, 0], [1, 1]]}, ["node 1", "column 0", "is 2"]),
        ({"y": [[0, 1], [1, 0], [0, 0], [1, 1]], "num_classes": 3}, ["2 label columns", "3 classes"]),
        ({"train": [0, 4]}, ["train", "node 4", "4 nodes"]),
        ({"val": [-1, 2]}, ["val", "node -1"]),
        ({"test": [1, 1]}, ["test", "node 1", "twice"]),
        ({"train": [0, 1], "test": [3, 1]}, ["node 1", "train", "test"]),
        ({"train": [0.5]}, ["train", "integers", "float64"]),
        ({"y": [0, 1, -1, 1], "train": [1, 2]}, ["train", "node 2", "no label"]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(broken: dict[str, Any], words: list[str]) -> None:
    arrays = {"edge_index": [[0, 1], [1, 0]], **broken}
    edges = np.array(arrays.pop("edge_index"))
    arrays = {
        key: value if sp.issparse(value) or key == "num_classes" else np.array(value) for key, value in arrays.items()
    }
    with pytest.raises(InputError) as caught:
        from_edges("tiny", edges, 4, **arrays)
    message = str(caught.value)
    assert message.startswith("graph tiny: ") and "\n" not in message
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    ("indptr", "indices", "words"),
    [
        ([0, 2, 1, 3], [1, 2, 0], ["row pointer 2", "smaller"]),
        ([0, 1, 2, 2], [1, 2, 0], ["0 to 2", "0 to 3"]),
        ([1, 1, 2, 3], [1, 2, 0], ["1 to 3"]),
        ([0, 2, 3, 3], [2, 1, 0], ["row 0", "edge 1", "1 after 2"]),
        ([0, 2, 3, 3], [1, 3, 0], ["row 0", "edge 1", "holds 3", "0 to 2"]),
        ([0, 2, 3, 3], [-1, 2, 0], ["row 0", "edge 0", "holds -1"]),
    ],
)
def test_broken_neighbour_lists_are_refused(indptr: list[int], indices: list[int], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        from_csr("tiny", np.array(indptr, np.int64), np.array(indices, np.int32))
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)
    with pytest.raises(InputError, match="int64"):
        from_csr("tiny", np.array([0, 0], np.int32), np.zeros(0, np.int32))
    with pytest.raises(InputError, match="int32"):
        from_csr("tiny", np.array([0, 0], np.int64), np.zeros(0, np.int64))


def test_types_are_cast_and_classes_counted() -> None:
    edges = np.zeros((2, 0), np.int64)
    graph = from_edges(
        "g", edges, 3, x=np.ones((3, 2), np.float16), y=np.array([0, 4, 1], np.int32), val=np.array([2, 0])
    )
    assert graph.x is not None and graph.y is not None and graph.val is not None
    assert [str(array.dtype) for array in (graph.x, graph.y, graph.val)] == ["float32", "int64", "int64"]
    assert graph.num_classes == 5 and graph.val.tolist() == [0, 2] and not graph.multilabel
    multi = from_edges("g", edges, 3, y=np.array([[0, 1], [1, 1], [0, 0]], bool))
    assert multi.y is not None and multi.y.dtype == np.uint8 and multi.multilabel and multi.num_classes == 2
    bare = from_edges("g", edges, 0)
    assert (bare.num_nodes, bare.num_edges, bare.num_features, bare.num_classes) == (0, 0, 0, 0)
    unsorted = sp.csr_matrix((np.ones(2), np.array([1, 0]), np.array([0, 2, 2, 2])), shape=(3, 2))
    sparse = from_edges("g", edges, 3, x=unsorted)
    assert sparse.num_features == 2 and isinstance(sparse.x, sp.csr_matrix) and sparse.x.indices.tolist() == [0, 1]
    assert unsorted.indices.tolist() == [1, 0]  # the caller's matrix stays as it was


def test_the_fingerprint_follows_the_content_and_nothing_else() -> None:
    graph = random_graph(30, 60)
    assert graph.x is not None and graph.y is not None and graph.train is not None
    same = dataclasses.replace(graph, name="other", notes=("a note",), x=graph.x.copy())
    assert same.fingerprint() == graph.fingerprint() and len(graph.fingerprint()) == 64
    x, y = graph.x.copy(), graph.y.copy()
    x[3, 1] += 1
    y[7] = (y[7] + 1) % 3
    others = [
        dataclasses.replace(graph, x=x),
        dataclasses.replace(graph, x=sp.csr_matrix(graph.x)),
        dataclasses.replace(graph, x=None),
        dataclasses.replace(graph, y=y),
        dataclasses.replace(graph, train=graph.train[1:]),
        dataclasses.replace(graph, train=graph.val, val=graph.train),
        dataclasses.replace(graph, num_classes=4),
        graph.subgraph(np.arange(29)),
    ]
    prints = {graph.fingerprint(), *(other.fingerprint() for other in others)}
    assert len(prints) == len(others) + 1


@pytest.mark.parametrize(
    ("nodes", "words"),
    [([3, 1], "before 1"), ([1, 1], "twice"), ([0, 30], "node 30"), ([-1], "node -1"), ([0.5], "float64")],
)
def test_a_subgraph_of_bad_nodes_is_refused(nodes: list[float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        random_graph(30, 60).subgraph(np.array(nodes))


@pytest.mark.parametrize("name", ["cora", "mnist_knn15"])
def test_real_edges_survive_shuffling(name: str) -> None:
    """The counting sorts against the order in the file, on more rows than a small example has."""
    with np.load(real_data() / f"{name}.npz", allow_pickle=False) as arrays:
        edges, nodes = arrays["edge_index"], len(arrays["y"])
    shuffled = edges[:, np.random.default_rng(0).permutation(edges.shape[1])]
    graph = from_edges(name, shuffled, nodes)
    np.testing.assert_array_equal(graph.indices, edges[0])
    np.testing.assert_array_equal(np.repeat(np.arange(nodes), graph.in_degree), edges[1])
    assert graph.is_symmetric()
    assert not from_edges(name, edges[:, edges[0] < edges[1]], nodes).is_symmetric()
    half = from_edges(name, edges[:, edges[0] < edges[1]], nodes, undirected=True)
    np.testing.assert_array_equal(half.indices, graph.indices)
