"""Names -> graphs: what `--dataset` accepts, where it is looked for, and what training needs of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from harness.datasets import npz, splits, synthetic
from harness.datasets.recipe import PRESETS
from harness.errors import InputError, unknown
from harness.graph import Graph

FEATURES = ("raw", "row", "standard")


def data_folder() -> Path:
    """Where npz graphs are looked for: `$HALOSCOPE_DATA`, or `data` in the current folder."""
    return Path(os.environ.get("HALOSCOPE_DATA") or "data")


def load(dataset: str, *, split: str = "auto", seed: int = 0, features: str = "raw") -> Graph:
    """The named graph with its split and scaled features.

    Args:
        dataset: the name of an npz file in the data folder, a path to one, `synthetic:...`, `pyg:...` or `ogb:...`.
        split: auto (public where there is one, else random:0.6/0.2/0.2) | public | random:... | counts:...
        seed: of a random split.
        features: raw | row (each row divided by the sum of its absolute values) | standard (zero mean and unit
            variance over the training rows).

    Raises:
        InputError: unknown name, damaged file, impossible split; one line that says what to do.
    """
    if features not in FEATURES:
        raise unknown("feature scaling", features, FEATURES)
    graph = _raw(dataset)
    if graph.y is not None:
        public = graph.train is not None
        graph = splits.apply(graph, ("public" if public else "random:0.6/0.2/0.2") if split == "auto" else split, seed)
    return _scaled(graph, features)


def _raw(dataset: str) -> Graph:
    if dataset.startswith("synthetic:"):
        return synthetic.load(dataset)
    if dataset.startswith(("pyg:", "ogb:")):
        from harness.datasets import external

        return external.load(dataset)
    return npz.read(_file(dataset))


def _file(dataset: str) -> Path:
    """The npz file a name or path means."""
    if dataset.endswith(".npz") or "/" in dataset:
        return Path(dataset)
    path = data_folder() / f"{dataset}.npz"
    if not path.is_file():
        raise unknown("dataset", dataset, [*_files(), "synthetic:"])
    return path


def _files() -> list[str]:
    return sorted(path.stem for path in data_folder().glob("*.npz"))


def source_state(dataset: str) -> str:
    """What changes when the file behind a name does: path, size, time of change; the name where there is no file."""
    if dataset.startswith(("synthetic:", "pyg:", "ogb:")):
        return dataset
    path = _file(dataset)
    try:
        state = path.stat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def known() -> list[tuple[str, str, bool]]:
    """(name, description, available) of everything that `load` knows."""
    return [*(_listed(name) for name in _files()), *_presets()]


def _listed(name: str) -> tuple[str, str, bool]:
    try:
        return name, npz.describe(data_folder() / f"{name}.npz"), True
    except InputError as error:
        return name, str(error), False


def _presets() -> list[tuple[str, str, bool]]:
    plain = (
        "synthetic:",
        "stand-in with free nodes=, degree=, classes=, features=, homophily=, signal=, seed=",
        True,
    )
    named = [
        (f"synthetic:{name}", f"stand-in for {preset.standin}; scale=0.01 shrinks it", True)
        for name, preset in PRESETS.items()
    ]
    return [plain, *named]


def require_trainable(graph: Graph) -> None:
    """Raise InputError where a graph lacks what training needs: features, labels, training nodes."""
    for what, there in (("features", graph.x is not None), ("labels", graph.y is not None)):
        if not there:
            raise InputError(f"{graph.name} has no {what}, so nothing can be trained on it")
    if graph.train is None or not len(graph.train):
        raise InputError(f"{graph.name} has no training nodes; give a split, e.g. --split random:0.6/0.2/0.2")


def training_graph(graph: Graph) -> tuple[Graph, np.ndarray]:
    """The inductive protocol: the subgraph of the training nodes, and their ids in the whole graph."""
    require_trainable(graph)
    assert graph.train is not None
    return graph.subgraph(graph.train), graph.train


def _scaled(graph: Graph, features: str) -> Graph:
    if graph.x is None or features == "raw":
        return graph
    x = graph.x
    if features == "row":
        total = np.asarray(abs(x).sum(axis=1), np.float32).reshape(-1, 1)
        factor = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        scaled = sp.csr_matrix(x.multiply(factor)) if sp.issparse(x) else x * factor
        return replace(graph, x=scaled.astype(np.float32))
    dense = x.toarray() if sp.issparse(x) else np.asarray(x)
    rows = dense if graph.train is None else dense[graph.train]
    deviation = rows.std(axis=0)
    deviation[deviation == 0] = 1
    return replace(graph, x=((dense - rows.mean(axis=0)) / deviation).astype(np.float32))
