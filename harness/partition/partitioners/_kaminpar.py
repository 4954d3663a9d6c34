"""KaMinPar, a multilevel edge cut.

KaMinPar itself is the library (Gottesbueren et al., "Deep multilevel graph partitioning", ESA 2021). Its Python package
takes graphs from files only, so the adjacency is written in ParHIP's binary format to a folder that is removed
afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import kaminpar
import numpy as np

from harness.errors import InputError
from harness.graphs import Graph
from harness.machine import run_folder
from harness.partition.partitioners._metis import undirected
from harness.partition.partitioners._partitioner import NodePartitioner

_PLAIN = 1 | 2 | 8
"""ParHIP's version word: no weights of edges (1) and of nodes (2), neighbours of 32 bits (8), offsets of 64."""

_HEADER = 3 * 8  # bytes: version, nodes, entries
_ENTRIES = 1 << 26  # neighbours converted at a time


def kaminpar_version() -> str:
    """The installed version of KaMinPar: assignments are reproducible only within one version."""
    return version("kaminpar")


@dataclass(frozen=True)
class KaMinPar(NodePartitioner):
    """KaMinPar with the edge-cut objective: the boundary of metis-cut, or on networks one up to an eighth smaller.

    It runs on one thread, because on several its result depends on which is faster: ranks on hosts without a shared
    cache would cut the same graph differently.

    Options:
        preset: the library's settings, from quick to thorough; default is its own.
        imbalance: how much the largest part may exceed the mean number of nodes; METIS's default.
    """

    name = "kaminpar"
    preset: Literal["fast", "default", "eco", "strong"] = "default"
    imbalance: float = 0.03

    def validate(self) -> None:
        self._require("imbalance must be above 0 and at most 1", 0 < self.imbalance <= 1)

    @property
    def seeded(self) -> bool:
        return True

    @property
    def library(self) -> str:
        return f"kaminpar {kaminpar_version()}"

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        adjacency = undirected(graph.indptr, graph.indices, graph.is_symmetric(), np.uint32)
        with run_folder() as folder:
            path = folder / "graph.parhip"
            _write(path, *adjacency)
            del adjacency  # the library has its own copy
            loaded = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
        kaminpar.reseed(seed)
        threads = 1
        library = kaminpar.KaMinPar(threads, kaminpar.context_by_name(self.preset))
        return np.asarray(library.compute_partition(loaded, k=num_parts, eps=self.imbalance), np.int32)


def _write(path: Path, xadj: np.ndarray, adjncy: np.ndarray) -> None:
    """Write an `undirected` adjacency in ParHIP's format: header, byte offset of every row, neighbours.

    Raises InputError if there is no room for the file.
    """
    begin = _HEADER + 8 * len(xadj)
    try:
        with path.open("wb") as stream:  # `tofile` would not notice a disk that is full at the end
            stream.write(np.asarray([_PLAIN, len(xadj) - 1, len(adjncy)], np.uint64).data)
            stream.write((begin + 4 * xadj).astype(np.uint64).data)
            for at in range(0, len(adjncy), _ENTRIES):
                stream.write(adjncy[at : at + _ENTRIES].astype(np.uint32, copy=False).data)
    except OSError as error:
        raise InputError(
            f"{path.parent}: cannot write the graph for KaMinPar ({error.strerror}); TMPDIR names another folder"
        ) from error
