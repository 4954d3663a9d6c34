"""`edges:FILE,features=FILE,labels=FILE`: a graph from a list of edges with features and labels beside it.

Tables are Parquet or CSV, features and labels also NumPy files. Nodes are numbers from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.datasets import _npz as npz
from harness.errors import InputError, unknown
from harness.graphs import Graph, from_edges

EDGES_PREFIX = "edges:"
OPTIONS = ("features", "labels", "source", "target", "undirected")
SYNTAX = "edges:EDGES.parquet,features=X.npy,labels=Y.csv"
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Words of the column `split`."""


def read_edge_list(dataset: str) -> Graph:
    """The graph that a text describes.

    Options: features=FILE (npy [N, F], or npz with `x` or the CSR keys of a graph file), labels=FILE (npy [N] or
    [N, C], or a table), source=COLUMN, target=COLUMN (by default the first two), undirected=true (adds the reverse of
    every edge). A table of labels has a row for every node in their order, or a column `node`; a column `label` (-1:
    none) and perhaps a column `split` of train, val and test.

    Raises:
        InputError: an unknown option, a missing or damaged file, or columns that are not there.
    """
    path, options = edge_list_options(dataset)
    source, target = _ends(path, options)
    data: dict[str, Any] = {}
    if "features" in options:
        data["x"] = _features(Path(options["features"]))
    if "labels" in options:
        data |= _labels(Path(options["labels"]))
    sizes = [len(data["y"])] if "y" in data else [data["x"].shape[0]] if "x" in data else []
    edges = np.stack([source, target])
    num_nodes = sizes[0] if sizes else int(edges.max(initial=-1)) + 1
    undirected = _flag(options.get("undirected", "false"))
    try:
        return from_edges(path.stem, edges, num_nodes, dedupe=True, undirected=undirected, **data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def edge_list_options(dataset: str) -> tuple[Path, dict[str, str]]:
    """The file of edges and the options of a text."""
    first, *words = dataset.removeprefix(EDGES_PREFIX).split(",")
    if not first or "=" in first:
        raise InputError(f"{dataset!r} names no file of edges; write {SYNTAX}")
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in OPTIONS and not equals:
            raise InputError(
                f"{dataset!r}: {word!r} is not OPTION=VALUE; commas separate options, so rename a file or folder whose "
                f"name has one; write {SYNTAX}"
            )
        if key not in OPTIONS:
            raise unknown(f"option of {EDGES_PREFIX}", key, OPTIONS)
        if not equals or not value or key in given:
            raise InputError(f"{dataset!r}: {key} needs one value; write {SYNTAX}")
        given[key] = value
    return Path(first), given


def files_of(dataset: str) -> list[Path]:
    """Every file that the text names."""
    path, options = edge_list_options(dataset)
    return [path, *(Path(options[key]) for key in ("features", "labels") if key in options)]


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise InputError(f"{EDGES_PREFIX} undirected={text} must be true or false")
    return text == "true"


def _table(path: Path) -> Mapping[str, np.ndarray]:
    """The columns of a Parquet or CSV file."""
    import pyarrow
    from pyarrow import csv, parquet

    reader = {".parquet": parquet.read_table, ".csv": csv.read_csv}.get(path.suffix)
    if reader is None:
        raise InputError(f"{path}: a table is a .parquet or .csv file")
    try:
        table = reader(str(path))
        if path.suffix == ".csv":
            _require_names(path, table.column_names)
        return {name: table.column(name).to_numpy() for name in table.column_names}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as {path.suffix[1:]}: {str(error).splitlines()[0]:.120}") from None


def _require_names(path: Path, first_line: Sequence[str]) -> None:
    """Refuse a CSV file that begins with a row of numbers, which would be taken for names and lost."""
    if all(map(_is_number, first_line)):
        raise InputError(
            f"{path}: its first line, {','.join(first_line):.60}, holds numbers and no names; a CSV file needs a line "
            "of names first, e.g. source,target (edges) or node,label (labels)"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ends(path: Path, options: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray]:
    columns = _table(path)
    names = list(columns)
    if len(names) < 2:
        raise InputError(f"{path}: an edge list has two columns, source and target")
    source, target = (options.get(key, names[at]) for at, key in enumerate(("source", "target")))
    return _integers(path, columns, source), _integers(path, columns, target)


def _integers(path: Path, columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    values = _column(path, columns, name)
    if not len(values) and values.dtype.kind not in "iu":  # a CSV file without rows has no types either
        raise InputError(f"{path}: has a line of names ({', '.join(columns):.200}) and no rows below it")
    if values.dtype.kind not in "iu":
        raise InputError(
            f"{path}: column {name!r} holds {values.dtype}, not whole numbers; a CSV file needs a line of names first, "
            "and nodes are numbered from 0"
        )
    return values


def _column(path: Path, columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in columns:
        raise InputError(f"{path}: has no column {name!r}; its columns are {', '.join(columns) or 'none':.200}")
    return columns[name]


def _features(path: Path) -> Any:
    if path.suffix == ".npz":
        found = npz.read_features(path)
    elif path.suffix == ".npy":
        found = npz.read_plain(path)
    else:
        raise InputError(f"{path}: features are a .npy file [N, F], or .npz with the keys of a graph file")
    if found is None or found.ndim != 2:
        raise InputError(f"{path}: features must be [N, F]")
    return found


def _labels(path: Path) -> dict[str, Any]:
    """`y`, and the split where the table has one."""
    if path.suffix == ".npy":
        return {"y": npz.read_plain(path)}
    columns = _table(path)
    labels, order = _integers(path, columns, "label"), None
    if "node" in columns:
        nodes = _integers(path, columns, "node")
        order = np.argsort(nodes, kind="stable")
        if not np.array_equal(nodes[order], np.arange(len(nodes))):
            raise InputError(f"{path}: column 'node' must hold every number from 0 to {len(nodes) - 1} once")
        labels = labels[order]
    found: dict[str, Any] = {"y": labels}
    if "split" in columns:
        words = columns["split"].astype(str)
        found |= _split(path, words if order is None else words[order])
    return found


def _split(path: Path, words: np.ndarray) -> dict[str, np.ndarray]:
    """Ids of every split; other words, such as none, belong to no split."""
    kinds = np.array([SPLITS.get(word, "") for word in np.unique(words)])
    if "train" not in kinds:
        raise InputError(f"{path}: column 'split' has no 'train'; its words are train, val and test")
    of = kinds[np.unique(words, return_inverse=True)[1]]
    return {name: np.flatnonzero(of == name) for name in ("train", "val", "test")}
