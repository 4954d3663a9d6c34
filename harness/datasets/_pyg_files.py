"""A `.pt` file with PyG `Data` or `HeteroData`, or the dict that `to_dict()` of one returns; turned homogeneous.

Read by `torch.load(weights_only=True)`: the file can hold tensors, plain containers and PyG's own records, and nothing
of it is executed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from harness.errors import InputError
from harness.graphs import UNLABELLED, Graph, from_edges

REMEDY = "save it by torch.save(data.to_dict(), FILE)"
SPLITS = ("train", "val", "test")


def read_pyg_file(path: Path) -> Graph:
    """The graph in a file, named after the file.

    Of several node types the nodes stand one type after the other, their features in columns of their own unless all
    types are equally wide; only one type may have labels, and the others have none. Types of edges are not told
    apart.

    Raises:
        InputError: no such file, one that holds other objects, or a graph that is not valid.
    """
    return graph_of(path, _loaded(path))


def graph_of(path: Path, content: Mapping[Any, Any]) -> Graph:
    """The graph that the dict of `to_dict()` describes, named after the file.

    Raises:
        InputError: a graph that is not valid.
    """
    try:
        if "edge_index" in content or not any(isinstance(key, tuple) for key in content):
            return _homogeneous(path, content)
        return _merged(path, content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _loaded(path: Path) -> dict[Any, Any]:
    """The content as plain dicts."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        content = _content(path)
    except Exception as error:  # a damaged or foreign file makes many kinds
        reason = "holds objects other than tensors and PyG's Data" if _refused(error) else "damaged file"
        raise InputError(f"{path}: {reason}; {REMEDY}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, not one graph; {REMEDY}")
    return content


def _content(path: Path) -> Any:
    """Plain containers of tensors; PyG's own records become dicts."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if not _refused(error):
            raise
    with torch.serialization.safe_globals(_records()):
        found = torch.load(path, map_location="cpu", weights_only=True)
    return found.to_dict() if hasattr(found, "to_dict") else found


def _refused(error: Exception) -> bool:
    """Whether a file has objects that may not be loaded."""
    return "Weights only" in str(error)


def _records() -> list[Any]:
    """The classes of PyG that its saved graphs consist of."""
    with warnings.catch_warnings():  # PyG uses functions of torch that are deprecated
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data, HeteroData
        from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    return [Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage]


def _homogeneous(path: Path, content: Mapping[Any, Any]) -> Graph:
    """A graph of one type of nodes."""
    x, y = _numbers(content, "x"), _numbers(content, "y")
    edges = _edges(content, "the file")
    known = content.get("num_nodes")
    count = len(x) if x is not None else len(y) if y is not None else int(known or edges.max(initial=-1) + 1)
    data: dict[str, Any] = {"x": x, "y": _label_kind(y)}
    data |= {split: _masked(content.get(f"{split}_mask"), count, split) for split in SPLITS}
    return from_edges(path.stem, edges, count, dedupe=True, **data)


def _merged(path: Path, content: Mapping[Any, Any]) -> Graph:
    """A graph of several types, as one."""
    types = [key for key, value in content.items() if isinstance(key, str) and key != "_global_store" and value]
    rows = {name: _numbers(content[name], "x") for name in types}
    counts = {name: _count(content, name, rows[name]) for name in types}
    begins = dict(zip(types, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    total = sum(counts.values())
    labelled = [name for name in types if content[name].get("y") is not None]
    if len(labelled) > 1:
        raise InputError(f"nodes of types {' and '.join(map(repr, labelled))} have labels; keep those of one type")
    pieces = []
    for key, value in content.items():
        if isinstance(key, tuple):
            if key[0] not in begins or key[2] not in begins:
                raise InputError(f"edges {key}: nodes of such a type are not in the file")
            ends = _edges(value, f"edges {key}")
            pieces.append(ends + np.array([[begins[key[0]]], [begins[key[2]]]]))
    data: dict[str, Any] = {"x": _stacked(rows, counts)}
    if labelled:
        name = labelled[0]
        data |= _labels_of(content[name], begins[name], counts[name], total)
    said = ", ".join(f"{counts[name]:,} {name}" for name in types)
    data["notes"] = (f"{len(types)} types of nodes ({said}) and {len(pieces)} of edges are not told apart",)
    edges = np.concatenate(pieces, axis=1) if pieces else np.zeros((2, 0), np.int64)
    return from_edges(path.stem, edges, total, dedupe=True, **data)


def _count(content: Mapping[Any, Any], name: str, rows: np.ndarray | None) -> int:
    """Nodes of one type: by features, labels, a number, or the edges."""
    own = content[name]
    for known in (rows, own.get("y")):
        if known is not None:
            return len(known)
    if own.get("num_nodes") is not None:
        return int(own["num_nodes"])
    raise InputError(f"nodes of type {name!r} have neither x nor y nor num_nodes")


def _stacked(rows: Mapping[str, np.ndarray | None], counts: Mapping[str, int]) -> sp.csr_matrix | np.ndarray | None:
    """Features of all types: below each other where all are equally wide, else also beside each other."""
    widths = {name: 0 if x is None else x.shape[1] for name, x in rows.items()}
    there = [x for x in rows.values() if x is not None]
    if not there:
        return None
    if len(set(widths.values())) == 1:
        return np.concatenate(there)
    blocks = [sp.csr_matrix((counts[name], 0) if x is None else x, dtype=np.float32) for name, x in rows.items()]
    return sp.csr_matrix(sp.block_diag(blocks, format="csr"))


def _labels_of(own: Mapping[str, Any], begin: int, count: int, total: int) -> dict[str, Any]:
    """Labels and splits of the one type that has them, by the numbers of all nodes."""
    y = _label_kind(_numbers(own, "y"))
    assert y is not None
    if y.ndim == 2:
        if count < total:
            raise InputError("labels of several classes a node need labels at all nodes: leave other types out")
        labels = y
    else:
        labels = np.full(total, UNLABELLED, np.int64)
        labels[begin : begin + count] = y
    splits = {split: _masked(own.get(f"{split}_mask"), count, split) for split in SPLITS}
    return {"y": labels, **{name: None if ids is None else ids + begin for name, ids in splits.items()}}


def _numbers(content: Mapping[Any, Any], key: str) -> np.ndarray | None:
    value = content.get(key)
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{key!r} is a {type(value).__name__}, not a tensor")
    dense = value.detach() if value.layout == torch.strided else value.detach().to_dense()
    found: np.ndarray = dense.float().numpy() if key == "x" else dense.numpy()
    if key == "x" and found.ndim != 2:
        raise InputError(f"'x' must be [N, F], not {list(found.shape)}")
    return found


def _label_kind(y: np.ndarray | None) -> np.ndarray | None:
    """Labels as integers [N], or 0/1 [N, C]: PyG also has [N, 1], and floats for several classes a node."""
    if y is None:
        return None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind == "f":
        if not np.isin(y, (0, 1)).all() or y.ndim != 2:
            raise InputError("'y' must be classes as integers [N], or 0 and 1 [N, C]; numbers to predict are no labels")
        y = y.astype(np.uint8)
    return y


def _edges(content: Mapping[Any, Any], where: str) -> np.ndarray:
    edges = content.get("edge_index")
    if edges is None:
        raise InputError(f"{where}: no edge_index; a sparse adj_t is made one by torch.stack(adj_t.t().coo()[:2])")
    found: np.ndarray = edges.numpy()
    if found.ndim != 2 or len(found) != 2:
        raise InputError(f"{where}: edge_index must be [2, E], not {list(found.shape)}")
    return found


def _masked(mask: Any, count: int, split: str) -> np.ndarray | None:
    """Ids that a mask [N] marks; of several splits, [N, S], the first."""
    if mask is None:
        return None
    values: np.ndarray = mask.numpy()
    values = values[:, 0] if values.ndim == 2 else values
    if values.dtype.kind != "b" or values.shape != (count,):
        raise InputError(f"{split}_mask must hold true or false for each of {count} nodes")
    return np.flatnonzero(values)
