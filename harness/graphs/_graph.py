"""The graph every part of haloscope works on: neighbour lists by destination, features, labels, a split.

It is plain NumPy, immutable and checked once when it is made; independent of partitions, tensors and devices.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp

from harness.errors import InputError
from harness.graphs._checks import UNLABELLED as UNLABELLED
from harness.graphs._checks import check_features, check_ids, check_labels, check_splits, check_topology
from harness.graphs._checks import index_dtype as index_dtype
from harness.kernels.edges import induced, mirror, sort_pairs, symmetric, unique_pairs

Features: TypeAlias = "np.ndarray | sp.csr_matrix | None"
BOTH_DIRECTIONS = "give every edge in both directions (edges:FILE,undirected=true adds them; store both in other files)"
"""How a graph becomes symmetric, for messages of what needs one."""


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph for node classification.

    `indptr` int64 [N+1] and `indices` int32 [E] (int64 from 2**31 nodes on) are CSR by destination:
    `indices[indptr[v]:indptr[v+1]]` are the sources of the edges into v, ascending. An undirected edge is in both
    rows. `x` is float32 [N, F], dense or CSR. `y` is int64 [N], -1 where a node outside every split has no label, or
    uint8 [N, C] with ones for the labels of a node. `train`, `val`, `test` are sorted int64 node ids.
    `notes` are shown with every result, for instance that the graph is a stand-in.
    """

    name: str
    indptr: np.ndarray
    indices: np.ndarray
    x: Features
    y: np.ndarray | None
    train: np.ndarray | None
    val: np.ndarray | None
    test: np.ndarray | None
    num_classes: int
    notes: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Directed edges: twice the undirected ones."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def multilabel(self) -> bool:
        return self.y is not None and self.y.ndim == 2

    @property
    def splits(self) -> dict[str, np.ndarray | None]:
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def in_degree(self) -> np.ndarray:
        """int64 [N], self loops counted where the graph has them."""
        return np.diff(self.indptr)

    def fingerprint(self) -> str:
        """SHA-256 (hex) over topology, features, labels and split, with their types and shapes; not the name."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"classes {self.num_classes}".encode())
        arrays: dict[str, np.ndarray | None] = {"indptr": self.indptr, "indices": self.indices, "y": self.y}
        if self.x is None or isinstance(self.x, np.ndarray):
            arrays["x"] = self.x
        else:
            digest.update(f"sparse {self.x.shape}".encode())
            arrays |= {"x_indptr": self.x.indptr, "x_indices": self.x.indices, "x_data": self.x.data}
        for name, array in (arrays | self.splits).items():
            if array is not None:
                digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return digest.hexdigest()

    def subgraph(self, nodes: np.ndarray) -> Graph:
        """The graph induced on `nodes` (strictly ascending ids): row i of the result is node `nodes[i]`.

        Split indices are renumbered, nodes outside `nodes` leave their split. Raises InputError for bad ids.
        """
        nodes = np.asarray(nodes)
        if nodes.dtype.kind not in "iu" and nodes.size:
            raise InputError(f"graph {self.name}: a subgraph needs integer node ids, not {nodes.dtype}")
        nodes = nodes.astype(np.int64)
        check_ids(f"graph {self.name}: subgraph", nodes, self.num_nodes)
        indptr, indices = induced(self.indptr, self.indices, nodes)
        x = None if self.x is None else self.x[nodes]
        y = None if self.y is None else self.y[nodes]
        train, val, test = (_renumber(ids, nodes) for ids in self.splits.values())
        return replace(self, indptr=indptr, indices=indices, x=x, y=y, train=train, val=val, test=test)

    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse, O(E), computed once."""
        return self._symmetric

    @cached_property
    def _symmetric(self) -> bool:
        return bool(symmetric(self.indptr, self.indices))


class NodeData(TypedDict, total=False):
    """Optional data of a graph besides its topology; see `Graph`. `num_classes` is counted where it is not given."""

    x: Features
    y: np.ndarray | None
    train: np.ndarray | None
    val: np.ndarray | None
    test: np.ndarray | None
    num_classes: int | None
    notes: tuple[str, ...]


def from_edges(
    name: str,
    edge_index: np.ndarray,
    num_nodes: int,
    *,
    dedupe: bool = False,
    undirected: bool = False,
    **data: Unpack[NodeData],
) -> Graph:
    """A validated graph from integer `edge_index` [2, E] (row 0 sources, row 1 destinations) in any order, O(E).

    `dedupe` removes self loops and repeated edges; `undirected` does so too and adds the reverse of every edge.
    Otherwise nothing is removed. Raises InputError that names what is wrong and where.
    """
    source, destination = _endpoints(f"graph {name}", np.asarray(edge_index), num_nodes)
    if undirected:
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        indptr, indices = mirror(*unique_pairs(*sort_pairs(high, low, num_nodes)))
    else:
        indptr, indices = sort_pairs(source, destination, num_nodes)
        if dedupe:
            indptr, indices = unique_pairs(indptr, indices)
    return from_csr(name, indptr, indices, **data)


def from_csr(name: str, indptr: np.ndarray, indices: np.ndarray, **data: Unpack[NodeData]) -> Graph:
    """A validated graph from finished neighbour lists (see `Graph`).

    Features are cast to float32, labels to int64 or uint8 [N, C], splits to sorted int64. Raises InputError.
    """
    where = f"graph {name}"
    x, y = data.get("x"), data.get("y")
    y = None if y is None else _labels(where, np.asarray(y))
    train, val, test = (
        None if ids is None else np.sort(_ids(f"{where}: {split}", np.asarray(ids)))
        for split, ids in (("train", data.get("train")), ("val", data.get("val")), ("test", data.get("test")))
    )
    classes = data.get("num_classes")
    if classes is None:
        classes = 0 if y is None else y.shape[1] if y.ndim == 2 else int(y.max(initial=-1)) + 1
    x = None if x is None else _features(where, x)
    graph = Graph(name, indptr, indices, x, y, train, val, test, classes, data.get("notes", ()))
    validate(graph)
    return graph


def validate(graph: Graph) -> None:
    """Check every invariant of `Graph`; InputError says which array violates it, where, and with what value."""
    where = f"graph {graph.name}"
    check_topology(where, graph.indptr, graph.indices)
    if graph.x is not None:
        check_features(where, graph.x, graph.num_nodes)
    if graph.y is not None:
        check_labels(where, graph.y, graph.num_nodes, graph.num_classes)
    check_splits(where, graph.splits, graph.y, graph.num_nodes)


def _endpoints(where: str, edge_index: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{where}: edge_index must have shape [2, E], not {list(edge_index.shape)}")
    if edge_index.dtype.kind not in "iu" and edge_index.size:
        raise InputError(f"{where}: edge_index must hold integers, not {edge_index.dtype}")
    for row, end in zip(edge_index, ("source", "destination"), strict=True):
        if row.size and (row.min() < 0 or row.max() >= num_nodes):
            e = int(np.flatnonzero((row < 0) | (row >= num_nodes))[0])
            raise InputError(f"{where}: edge {e}: {end} {row[e]} is out of range for {num_nodes} nodes")
    kind = index_dtype(num_nodes)
    return np.ascontiguousarray(edge_index[0], kind), np.ascontiguousarray(edge_index[1], kind)


def _features(where: str, x: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    if x.dtype.kind not in "fiub":
        raise InputError(f"{where}: features must be numbers, not {x.dtype}")
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite, which validate reports
        if isinstance(x, np.ndarray):
            return x.astype(np.float32, copy=False)
        return sp.csr_matrix(x, dtype=np.float32).sorted_indices()


def _labels(where: str, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iub" or y.ndim not in (1, 2):
        raise InputError(f"{where}: labels must be integers [N] or 0/1 [N, C], not {y.dtype} {list(y.shape)}")
    if y.ndim == 1:
        return y.astype(np.int64, copy=False)
    if y.size and (y.min() < 0 or y.max() > 1):
        node, column = np.argwhere((y < 0) | (y > 1))[0]
        raise InputError(f"{where}: node {node}: label column {column} is {y[node, column]}, must be 0 or 1")
    return y.astype(np.uint8, copy=False)


def _ids(where: str, ids: np.ndarray) -> np.ndarray:
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise InputError(f"{where}: node ids must be integers [n], not {ids.dtype} {list(ids.shape)}")
    return ids.astype(np.int64)


def _renumber(ids: np.ndarray | None, nodes: np.ndarray) -> np.ndarray | None:
    return None if ids is None else np.flatnonzero(np.isin(nodes, ids, assume_unique=True))
