"""Sources of graphs by prefix: `synthetic:`, `standin:`, `pyg:`, `ogb:` before a name, and prefixes of other packages.

Another package offers a `GraphSource` under its prefix in the entry-point group `haloscope.datasets`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from harness.datasets import _edge_lists as edge_lists
from harness.datasets import _external as external
from harness.datasets import _synthetic as synthetic
from harness.datasets._recipe import FITTED_PREFIX, PARAMETERS, PREFIX, PRESETS, Recipe
from harness.datasets._standins import read_standins
from harness.errors import InputError
from harness.graphs import Graph
from harness.registry import Registry

Listing = tuple[str, str, bool]
"""Name, description, whether it can be had here and now."""


class GraphSource(ABC):
    """Graphs under one prefix; `dataset` is always the whole text, prefix included."""

    @abstractmethod
    def load(self, dataset: str) -> Graph:
        """The graph, with its public split where there is one. InputError says what the user can do."""

    @abstractmethod
    def state(self, dataset: str) -> str:
        """Changes whenever the graph may have; parts are cached under it. `download` has been called before."""

    def download(self, dataset: str) -> None:
        """Get what the graph is read from, if it is missing; by default nothing is. InputError as of `load`."""
        return

    @abstractmethod
    def listed(self) -> list[Listing]:
        """What `haloscope datasets` shows of this source."""


class Synthetic(GraphSource):
    """Generated graphs, and stand-ins for public ones."""

    def load(self, dataset: str) -> Graph:
        return synthetic.load_synthetic(dataset)

    def state(self, dataset: str) -> str:
        return synthetic.identity(dataset)

    def listed(self) -> list[Listing]:
        plain = "generated graph: " + ", ".join(f"{name}=" for name in PARAMETERS) + " (docs/graphs.md)"
        return [(PREFIX, plain, True), *((f"{PREFIX}{name}", _described(it), True) for name, it in PRESETS.items())]


class FittedGraphs(Synthetic):
    """Generated graphs whose parameters were fitted, so that printed scores come out."""

    def listed(self) -> list[Listing]:
        return [(f"{FITTED_PREFIX}{name}", found.described(), True) for name, found in read_standins().items()]


class Public(GraphSource):
    """Graphs of a public collection, from the data folder or downloaded."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def load(self, dataset: str) -> Graph:
        return external.load_external(dataset, data_folder())

    def download(self, dataset: str) -> None:
        external.download_missing(dataset, data_folder())

    def state(self, dataset: str) -> str:
        return files_state(dataset, external.files(dataset, data_folder()))

    def listed(self) -> list[Listing]:
        return [row for row in external.known_external(data_folder()) if row[0].startswith(self._prefix)]


class EdgeLists(GraphSource):
    """Edges in a table, features and labels beside it."""

    def load(self, dataset: str) -> Graph:
        return edge_lists.read_edge_list(dataset)

    def state(self, dataset: str) -> str:
        return files_state(dataset, edge_lists.files_of(dataset))

    def listed(self) -> list[Listing]:
        return [
            (edge_lists.SYNTAX, "a table of edges, Parquet or CSV, with features and labels (docs/graphs.md)", True)
        ]


_BUILTIN: dict[str, GraphSource] = {
    "synthetic": Synthetic(),
    "standin": FittedGraphs(),
    "pyg": Public("pyg:"),
    "ogb": Public("ogb:"),
    "edges": EdgeLists(),
}

GRAPH_SOURCES: Registry[GraphSource] = Registry("source of data sets", "haloscope.datasets", _BUILTIN)


def data_folder() -> Path:
    """Where npz graphs are looked for: `$HALOSCOPE_DATA`, or `data` in the current folder."""
    return Path(os.environ.get("HALOSCOPE_DATA") or "data")


def source_of(dataset: str) -> GraphSource | None:
    """The source that the text's prefix names; None where it has none, and so is the name or path of an npz file."""
    prefix, colon, _ = dataset.partition(":")
    return GRAPH_SOURCES.find(prefix) if colon and prefix in GRAPH_SOURCES else None


def size_of(dataset: str) -> tuple[int, int, int] | None:
    """Nodes, directed edges and features, where they are known before the graph is loaded: of generated graphs."""
    generated = isinstance(source_of(dataset), Synthetic)
    return synthetic.expected_size(dataset) if generated else None


def files_state(dataset: str, files: Iterable[Path]) -> str:
    """The state of a graph that is read from files: their paths, sizes and times."""
    try:
        states = [(path.resolve(), path.stat()) for path in files]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    return " ".join([dataset, *(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)])


def _described(recipe: Recipe) -> str:
    size = f"{recipe.nodes:,} nodes, {round(recipe.nodes * recipe.degree):,} edges"
    return f"stand-in for {recipe.standin}: {size}{', multi-label' * recipe.multilabel}; scale=0.01 shrinks it"
