"""Names -> graphs: what `--dataset` accepts, where it is looked for, and what training needs of it.

Reading and generating is done by the other modules of this package; here a name is resolved, split and scaled.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from harness.datasets import _npz as npz
from harness.datasets import _splits as splits
from harness.datasets._sources import GRAPH_SOURCES, Listing, data_folder, files_state, source_of
from harness.errors import InputError, unknown
from harness.graphs import Graph

FEATURES = ("raw", "row", "standard", "projected")
PROJECTED_WIDTH = 256
"""Columns that `projected` leaves; distances between rows are kept to some 10 % (Johnson and Lindenstrauss, 1984)."""


def load(dataset: str, *, split: str = "auto", seed: int = 0, features: str = "raw") -> Graph:
    """The named graph with its split and scaled features.

    Args:
        dataset: the name of an npz file in the data folder, a path to one, `synthetic:...`, `pyg:...`, `ogb:...`,
            or a prefix that another package offers.
        split: auto (public where there is one, else random:0.6/0.2/0.2) | public | random:... | counts:...
        seed: of a random split.
        features: raw | row (each row divided by the sum of its absolute values) | standard (zero mean and unit
            variance over the training rows) | projected (rows times one fixed matrix of random signs with 256 columns,
            unless they are as narrow already; then as standard).

    Raises:
        InputError: unknown name, damaged file, impossible split; one line that says what to do.
    """
    if features not in FEATURES:
        raise unknown("feature scaling", features, FEATURES)
    graph = _raw(dataset)
    if graph.y is not None or split != "auto":  # a graph without labels gets a split only where one is asked for
        graph = splits.apply(graph, split, seed)
    return _scaled(graph, features)


def _raw(dataset: str) -> Graph:
    source = source_of(dataset)
    return npz.read_graph(_file(dataset)) if source is None else source.load(dataset)


def _file(dataset: str) -> Path:
    """The npz file a name or path means."""
    if dataset.endswith(".npz") or os.sep in dataset:
        return Path(dataset)
    path = data_folder() / f"{dataset}.npz"
    if not path.is_file():
        raise unknown("dataset", dataset, [name for name, _, _ in known_datasets()])
    return path


def source_state(dataset: str) -> str:
    """Changes whenever the graph behind a name may have: paths, sizes and times of its files, or the recipe's hash."""
    source = source_of(dataset)
    return files_state(dataset, [_file(dataset)]) if source is None else source.state(dataset)


def known_datasets() -> list[Listing]:
    """(name, description, whether it can be had here and now) of everything that `load` knows by name."""
    return [*_listed(), *(row for source in GRAPH_SOURCES.known().values() for row in source.listed())]


def _listed() -> list[Listing]:
    """The npz files of the data folder; a damaged one is listed with what is wrong."""
    rows = []
    for path in sorted(data_folder().glob("*.npz")):
        try:
            rows.append((path.stem, npz.describe(path), True))
        except InputError as error:
            rows.append((path.stem, str(error), False))
    return rows


def require_trainable(graph: Graph) -> None:
    """Raise InputError where a graph lacks what training needs: features, labels, training nodes."""
    for what, there in (("features", graph.x is not None), ("labels", graph.y is not None)):
        if not there:
            raise InputError(f"{graph.name} has no {what}, so nothing can be trained on it")
    if graph.train is None or not len(graph.train):
        raise InputError(f"{graph.name} has no training nodes; give a split, e.g. --split random:0.6/0.2/0.2")


def training_graph(graph: Graph) -> tuple[Graph, np.ndarray]:
    """The inductive protocol: the subgraph induced by the training nodes, and their ids int64 in the whole graph.

    Row i of the subgraph is node `ids[i]`; all of its nodes train, none validates or tests.
    """
    require_trainable(graph)
    assert graph.train is not None
    return graph.subgraph(graph.train), graph.train


def _scaled(graph: Graph, features: str) -> Graph:
    x = graph.x
    if x is None and features != "raw":
        raise InputError(f"{graph.name} has no features to scale; use --features raw")
    if x is None or features == "raw":
        return graph
    if features == "row":
        total = np.asarray(abs(x).sum(axis=1), np.float32).reshape(-1, 1)
        factor = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        scaled = x * factor if isinstance(x, np.ndarray) else sp.csr_matrix(x.multiply(factor))
        return replace(graph, x=scaled.astype(np.float32, copy=False))
    if features == "projected" and x.shape[1] > PROJECTED_WIDTH:
        x = _projected(x)
    return replace(graph, x=_standardised(x if isinstance(x, np.ndarray) else x.toarray(), graph.train))


def _projected(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Dense float32 [N, 256] of rows [N, F]; the signs depend on F alone."""
    signs = np.random.default_rng(0).integers(0, 2, (x.shape[1], PROJECTED_WIDTH), np.int8)
    return np.asarray(x @ ((2.0 * signs - 1.0) / np.sqrt(PROJECTED_WIDTH)).astype(np.float32), np.float32)


def _standardised(x: np.ndarray, train: np.ndarray | None) -> np.ndarray:
    """Dense float32 [N, F]; a column that is constant over the training rows is only centred."""
    rows = x if train is None else x[train]
    if not len(rows):
        raise InputError("features cannot be standardised: the split has no training nodes")
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    deviation[deviation <= 1e-7 * np.abs(mean)] = 1
    scaled: np.ndarray = x - mean.astype(np.float32)
    scaled /= deviation.astype(np.float32)
    return scaled
