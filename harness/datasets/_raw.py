"""Reads the raw files of public collections as they are published: Reddit, GraphSAINT's graphs, OGB's node datasets.

Neither `ogb` nor PyG's processed files are needed, so nothing is unpickled, except for Planetoid (see there).
`_external` finds the files. Every reader raises InputError that names the file.
"""

from __future__ import annotations

import dataclasses
import json
import pickletools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from harness.datasets import _npz as npz
from harness.errors import InputError
from harness.graphs import UNLABELLED, Graph, from_edges

Reader = Callable[[str, Path], Graph]


class Splits(TypedDict):
    """Node ids of a public split."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def raw_reddit(name: str, folder: Path) -> Graph:
    """GraphSAGE's Reddit as distributed by DGL and PyG: features, labels and roles in one npz, edges in another."""
    data_keys, graph_keys = frozenset(("feature", "label", "node_types")), frozenset(("row", "col"))
    data = npz.read_arrays(folder / "reddit_data.npz", data_keys, needed=data_keys)
    ends = npz.read_arrays(folder / "reddit_graph.npz", graph_keys, needed=graph_keys)
    if ends["row"].ndim != 1 or ends["row"].shape != ends["col"].shape:
        raise InputError(f"{folder / 'reddit_graph.npz'}: 'row' and 'col' must be of one length")
    train, val, test = (np.flatnonzero(data["node_types"] == kind) for kind in (1, 2, 3))
    edges = np.stack([ends["row"], ends["col"]])
    return _graph(name, folder, edges, data["feature"], data["label"], {"train": train, "val": val, "test": test})


def saint(name: str, folder: Path) -> Graph:
    """GraphSAINT's layout (Zeng et al., ICLR 2020), for Yelp, AmazonProducts and Flickr.

    `adj_full.npz` is CSR, `feats.npy` dense, `class_map.json` maps a node to a class or to 0/1 per class, `role.json`
    lists the nodes of tr, va and te.
    """
    keys = frozenset(("indptr", "indices"))
    adjacency = npz.read_arrays(folder / "adj_full.npz", keys, needed=keys)
    indptr, indices = adjacency["indptr"], adjacency["indices"]
    x = npz.read_plain(folder / "feats.npy")
    if x.ndim != 2 or indptr.shape != (len(x) + 1,) or (np.diff(indptr) < 0).any() or indptr[-1] != len(indices):
        raise InputError(f"{folder / 'adj_full.npz'}: its row pointers do not fit the rows of feats.npy")
    edges = np.stack([np.repeat(np.arange(len(x), dtype=indices.dtype), np.diff(indptr)), indices])
    ids = _file(folder / "role.json", lambda path: _roles(json.loads(path.read_text())))
    labels = _file(folder / "class_map.json", lambda path: _class_map(json.loads(path.read_text()), len(x)))
    return _graph(name, folder, edges, x, labels, ids)


def _roles(roles: dict[str, Any]) -> Splits:
    return {"train": np.array(roles["tr"]), "val": np.array(roles["va"]), "test": np.array(roles["te"])}


def _class_map(classes: dict[str, Any], num_nodes: int) -> np.ndarray:
    nodes = np.array([int(node) for node in classes], np.int64)
    values = np.array(list(classes.values()))
    if nodes.min(initial=0) < 0 or nodes.max(initial=-1) >= num_nodes:
        raise ValueError(f"node {nodes.max()} of {num_nodes}")
    y = np.full((num_nodes, *values.shape[1:]), 0 if values.ndim == 2 else UNLABELLED, values.dtype)
    y[nodes] = values
    return y


def ogb_csv(split: str, note: str = "") -> Reader:
    """A reader of OGB's csv layout (`raw/*.csv.gz`, `split/SPLIT/*.csv.gz`); the reverse of every edge is added."""

    def read(name: str, folder: Path) -> Graph:
        edges = _csv(folder / "raw/edge.csv.gz", np.int64).T
        x = _csv(folder / "raw/node-feat.csv.gz", np.float32)
        y = _csv(folder / "raw/node-label.csv.gz", np.float64)
        return _graph(name, folder, edges, x, _classes(y), _ogb_split(folder, split), note, undirected=True)

    return read


def ogb_binary(split: str, note: str = "") -> Reader:
    """A reader of OGB's binary layout (`raw/data.npz`, `raw/node-label.npz`); most nodes may have no label (NaN)."""

    def read(name: str, folder: Path) -> Graph:
        keys, label = frozenset(("edge_index", "node_feat")), frozenset(("node_label",))
        data = npz.read_arrays(folder / "raw/data.npz", keys, needed=keys)
        y = npz.read_arrays(folder / "raw/node-label.npz", label, needed=label)["node_label"]
        splits = _ogb_split(folder, split)
        return _graph(name, folder, data["edge_index"], data["node_feat"], _classes(y), splits, note, undirected=True)

    return read


def _classes(column: np.ndarray) -> np.ndarray:
    """int64 [N] of OGB's label column [N, 1]; NaN is no label."""
    flat = column.reshape(len(column), -1)[:, 0].astype(np.float64)
    return np.where(np.isnan(flat), UNLABELLED, flat).astype(np.int64)


def _ogb_split(folder: Path, split: str) -> Splits:
    train, val, test = (
        _csv(folder / f"split/{split}/{part}.csv.gz", np.int64).reshape(-1) for part in ("train", "valid", "test")
    )
    return {"train": train, "val": val, "test": test}


def planetoid(name: str, folder: Path) -> Graph:
    """Cora, CiteSeer and PubMed from Planetoid's `ind.*` files (Yang et al., ICML 2016), read by PyG.

    These files are pickles, so each is scanned first and refused if it names anything but plain arrays and lists. An
    npz file of the graph has precedence.
    """
    for path in sorted(folder.glob("ind.*")):
        if not path.name.endswith("test.index"):
            _refuse_code(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import and old pickles cause warnings that users cannot avoid
        try:
            from torch_geometric.io import read_planetoid_data
        except ImportError as error:
            raise InputError(f"pyg:{name} needs PyG: pip install torch_geometric") from error
        data = _file(folder, lambda path: read_planetoid_data(str(path), name.lower()))
    train, val, test = (np.flatnonzero(mask.numpy()) for mask in (data.train_mask, data.val_mask, data.test_mask))
    splits: Splits = {"train": train, "val": val, "test": test}
    return _graph(name, folder, data.edge_index.numpy(), data.x.numpy(), data.y.numpy(), splits)


_PLAIN = {
    "numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct",
    "numpy ndarray", "numpy dtype", "scipy.sparse.csr csr_matrix",
    "collections defaultdict", "__builtin__ list", "__builtin__ object", "copy_reg _reconstructor",
    "_codecs encode",
}  # fmt: skip


def _refuse_code(path: Path) -> None:
    """Raise InputError unless a pickle names only `_PLAIN` types; the pickle is not executed."""
    try:
        for opcode, argument, _ in pickletools.genops(path.read_bytes()):
            if opcode.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4") or (
                opcode.name == "GLOBAL" and argument not in _PLAIN
            ):
                raise InputError(f"{path}: this pickle names {argument or opcode.name!r}, not plain arrays; refused")
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: cannot be read as a Planetoid file: {error}") from None


def _graph(
    name: str,
    folder: Path,
    edges: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    splits: Splits,
    note: str = "",
    undirected: bool = False,
) -> Graph:
    """The validated graph, with notes on removed and added edges; errors name its folder."""
    try:
        graph = from_edges(
            name, edges, len(x), x=x, y=y, dedupe=True, undirected=undirected, notes=(note,) if note else (), **splits
        )
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    removed = 0 if undirected else edges.shape[1] - graph.num_edges
    if not removed:
        return graph
    return dataclasses.replace(graph, notes=(*graph.notes, f"{removed} self loops and repeated edges were removed"))


def _csv(path: Path, kind: type) -> np.ndarray:
    """A headless compressed table as an array [rows, columns]."""
    import pandas  # here, because it takes half a second and few graphs need it

    table = _file(path, lambda p: pandas.read_csv(p, header=None, dtype=kind, compression="gzip"))
    return np.asarray(table)


def _file(path: Path, read: Callable[[Path], Any]) -> Any:
    # For a damaged file parsers raise many exceptions (zlib.error, EOFError, KeyError, ...).
    try:
        return read(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from error
