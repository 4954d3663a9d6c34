"""Reads and writes one graph per `.npz` file; errors in a file are reported in one line with its name.

Keys: `edge_index` [2, E]; features as `x` [N, F] or as CSR in `x_indptr`, `x_indices`, `x_data`, with `x_shape`;
labels `y` [N] or [N, C]; `train_idx`, `val_idx`, `test_idx`; `num_nodes` without `x` and `y`. Also `notes` and
`num_classes` (a class may have no node). Arrays are plain: nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from harness.errors import InputError
from harness.graphs import Graph, NodeData, from_edges

_SPLITS = ("train_idx", "val_idx", "test_idx")
_SPARSE = ("x_indptr", "x_indices", "x_data")
KEYS = frozenset(("edge_index", "x", *_SPARSE, "x_shape", "y", *_SPLITS, "num_nodes", "num_classes", "notes"))


def read_graph(path: Path) -> Graph:
    """The validated graph in `path`, named after the file.

    Self loops and repeated edges are removed, and a note counts them. Raises InputError, with the file's name, for a
    damaged or pickled file, a missing key, a wrong type or shape, an id out of range, or a feature that is not finite.
    """
    arrays = read_arrays(path, wanted=KEYS)
    try:
        return _graph(path.stem, arrays)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_arrays(path: Path, wanted: frozenset[str], needed: frozenset[str] = frozenset()) -> dict[str, np.ndarray]:
    """The `wanted` arrays that the npz file contains. Raises InputError if it is damaged or lacks a `needed` one."""
    arrays: dict[str, np.ndarray] = {}
    with _open(path) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
        missing = sorted(needed - set(names))
        if missing:
            raise InputError(f"{path}: no array {missing[0]!r}; it has {', '.join(sorted(names)) or 'none'}")
        for key in sorted(wanted & set(names)):
            arrays[key] = _read_array(path, key, archive, names[key])
    return arrays


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except Exception as error:  # as in _read_array
        reason = error.strerror if isinstance(error, OSError) else "not an npz file, or a truncated one"
        raise InputError(f"{path}: {reason}") from error


def _read_array(path: Path, key: str, archive: zipfile.ZipFile, member: str) -> np.ndarray:
    # For a damaged archive the zip and array parsers raise many exceptions (struct.error, zlib.error, RuntimeError
    # for a flipped encryption bit, MemoryError for an absurd shape): all of them mean a damaged file.
    try:
        with archive.open(member) as file:
            shape, dtype = _header(file)
        if dtype.hasobject:
            raise InputError(f"{path}: array {key!r} holds pickled objects; save plain numbers")
        if math.prod(shape) * dtype.itemsize > archive.getinfo(member).file_size:
            raise InputError(f"{path}: array {key!r} is shorter than its shape {list(shape)}")
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: array {key!r} cannot be read ({type(error).__name__}): damaged file") from error


def read_plain(path: Path) -> np.ndarray:
    """The array in a `.npy` file. Raises InputError if it cannot be read, is damaged or pickled."""
    try:
        with path.open("rb") as file:
            content = _plain(file, path.stat().st_size)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise InputError(f"{path}: not a plain .npy file: {str(error).splitlines()[0]:.120}") from None
    return content


def _plain(file: IO[bytes], size: int) -> np.ndarray:
    try:
        shape, dtype = _header(file)
    except Exception as error:  # as in _read_array
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from error
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"it is shorter than its shape {list(shape)}")
    file.seek(0)
    found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    return shape, dtype


def _shape(path: Path, archive: zipfile.ZipFile, member: str) -> tuple[int, ...]:
    try:
        with archive.open(member) as file:
            return _header(file)[0]
    except Exception as error:  # as in _read_array
        raise InputError(f"{path}: array {member!r} cannot be read ({type(error).__name__}): damaged file") from error


def _graph(name: str, arrays: dict[str, np.ndarray]) -> Graph:
    if "edge_index" not in arrays:
        raise InputError("no array 'edge_index'")
    edge_index, x, y = arrays["edge_index"], _features(arrays), arrays.get("y")
    if y is not None and y.ndim == 0 or x is not None and x.ndim != 2:
        raise InputError("'y' must be [N] or [N, C] and 'x' [N, F]")
    data: NodeData = {"x": x, "y": y, "notes": tuple(str(note) for note in arrays.get("notes", ()))}
    data |= {"train": arrays.get("train_idx"), "val": arrays.get("val_idx"), "test": arrays.get("test_idx")}
    if "num_classes" in arrays:
        data["num_classes"] = scalar(arrays, "num_classes")
    num_nodes = len(y) if y is not None else x.shape[0] if x is not None else scalar(arrays, "num_nodes")
    graph = from_edges(name, edge_index, num_nodes, dedupe=True, **data)
    removed = edge_index.shape[1] - graph.num_edges
    if not removed:
        return graph
    note = f"{removed} self loops and repeated edges of the file were removed"
    return dataclasses.replace(graph, notes=(*graph.notes, note))


def scalar(arrays: dict[str, np.ndarray], key: str) -> int:
    """The one integer of an array, 0 or more. Raises InputError for anything else, or if it is missing."""
    value = arrays.get(key)
    if value is None:
        raise InputError(f"neither labels nor features nor {key!r}: the number of nodes is unknown")
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 0:
        raise InputError(f"{key!r} must be one integer, 0 or more")
    return int(value.item())


def _features(arrays: dict[str, np.ndarray]) -> np.ndarray | sp.csr_matrix | None:
    shape = arrays.get("x_shape")
    if shape is not None and (shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0):
        raise InputError("'x_shape' must be two integers")
    if "x" in arrays:
        if shape is not None and arrays["x"].shape != tuple(shape):
            raise InputError(f"'x' is {list(arrays['x'].shape)}, 'x_shape' says {shape.tolist()}")
        return arrays["x"]
    if "x_data" not in arrays:
        return None
    for key in ("x_indptr", "x_indices", "x_shape"):
        if key not in arrays:
            raise InputError(f"'x_data' without {key!r}")
        if arrays[key].dtype.kind not in "iu" or arrays[key].ndim != 1:
            raise InputError(f"{key!r} must hold integers in one dimension")
    rows, columns = (int(n) for n in arrays["x_shape"])
    data, indices, indptr = arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise InputError(f"'x_indptr' must ascend from 0 to {len(indices)} in {rows + 1} steps")
    if data.shape != indices.shape or data.dtype.kind not in "fiub":
        raise InputError("'x_data' and 'x_indices' must have one number per entry each")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise InputError(f"'x_indices' holds a column out of range 0 to {columns - 1}")
    return sp.csr_matrix((data.astype(np.float32), indices, indptr), shape=(rows, columns))


def read_features(path: Path) -> np.ndarray | sp.csr_matrix | None:
    """The features in an npz file, by the keys of a graph file; None without any. Raises InputError as `read_graph`."""
    arrays = read_arrays(path, wanted=frozenset(("x", *_SPARSE, "x_shape")))
    try:
        return _features(arrays)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def describe(path: Path) -> str:
    """Size and content in short, without reading edges, features or labels. Raises InputError for a damaged file."""
    small = read_arrays(path, frozenset(("num_nodes", "x_shape")))
    shapes = {}
    with _open(path) as archive:
        for member in archive.namelist():
            shapes[member.removesuffix(".npy")] = _shape(path, archive, member)
    sizes = {
        "nodes": shapes["y"][0] if shapes.get("y") else next((int(a.flat[0]) for a in small.values() if a.size), 0),
        "edges": shapes["edge_index"][1] if len(shapes.get("edge_index", ())) == 2 else 0,
        "features": int(small["x_shape"].flat[-1]) if "x_shape" in small and small["x_shape"].size else 0,
    }
    parts = [f"{size:,} {word}" for word, size in sizes.items() if size]
    return ", ".join(parts + [word for key, word in (("y", "labels"), ("train_idx", "public split")) if key in shapes])


def write_graph(path: Path, graph: Graph) -> None:
    """Write `graph` so that `read_graph` returns it with the same fingerprint.

    The file is written atomically.
    """
    destination = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.in_degree)
    arrays: dict[str, np.ndarray] = {"edge_index": np.stack([graph.indices, destination])}
    if isinstance(graph.x, np.ndarray):
        arrays |= {"x": graph.x}
    elif graph.x is not None:
        arrays |= {"x_indptr": graph.x.indptr, "x_indices": graph.x.indices, "x_data": graph.x.data}
    if graph.x is not None:
        arrays["x_shape"] = np.array(graph.x.shape, np.int64)
    if graph.y is not None:
        arrays["y"] = graph.y
    if graph.x is None and graph.y is None:
        arrays["num_nodes"] = np.array(graph.num_nodes)
    arrays |= {f"{split}_idx": ids for split, ids in graph.splits.items() if ids is not None}
    arrays["num_classes"] = np.array(graph.num_classes)
    if graph.notes:
        arrays["notes"] = np.array(graph.notes)
    _write_arrays(path, arrays)


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)
        os.chmod(temporary, 0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
