"""METIS, called on the simple undirected graph that it requires, for any input graph.

Two objectives: communication volume and edge cut.
Default METIS settings for parts; node counts are balanced, edges and training nodes are not, as in BNS-GCN and PipeGCN
(GATECH-EIC/BNS-GCN: helper/utils.py). METIS itself is the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import pymetis

from harness.errors import InputError
from harness.graphs import Graph
from harness.kernels.csr import transpose
from harness.kernels.edges import union, unique_pairs
from harness.partition.partitioners._partitioner import NodePartitioner

Objective = Literal["volume", "cut"]
_OBJECTIVES = {"volume": pymetis.ObjType.VOL, "cut": pymetis.ObjType.CUT}


def metis_version() -> str:
    """The installed version of pymetis: assignments are reproducible only within one version."""
    return version("pymetis")


def undirected(
    indptr: np.ndarray, indices: np.ndarray, symmetric: bool, dtype: type[np.integer[Any]] = np.int64
) -> tuple[np.ndarray, np.ndarray]:
    """The simple undirected version of a CSR adjacency: int64 offsets and neighbours, ascending in each row.

    Every edge in both directions, no self loops, no duplicates: METIS gives undefined results on anything else.
    `symmetric`: both directions are present already. `dtype` of the neighbours; METIS reads int64. O(E).
    """
    xadj, adjncy = unique_pairs(indptr, indices.astype(dtype))
    if not symmetric:
        xadj, adjncy = union(xadj, adjncy, *transpose(xadj, adjncy, len(xadj) - 1))
    return xadj, adjncy


def metis(
    xadj: np.ndarray,
    adjncy: np.ndarray,
    num_parts: int,
    seed: int,
    objective: Objective,
    cuts: int = 1,
    node_weight: np.ndarray | None = None,
    edge_weight: np.ndarray | None = None,
) -> np.ndarray:
    """The part of every node, int32 [N], by k-way METIS on an `undirected` adjacency.

    Volume is the number of (node, other part) pairs, the rows that full-graph training sends per layer. Parts can be
    empty on tiny graphs. `cuts`: how many are made, of which the best is taken (NCUTS). Weights are 1 where none are
    given. Raises InputError if METIS fails (memory).
    """
    if num_parts == 1 or len(xadj) == 1:
        return np.zeros(len(xadj) - 1, np.int32)
    options = pymetis.Options(objtype=int(_OBJECTIVES[objective]), seed=seed, ncuts=cuts)
    adjacency = pymetis.CSRAdjacency(xadj, adjncy)
    try:  # recursive bisection supports the edge cut only
        assignment = pymetis.part_graph(
            num_parts, adjacency, vweights=node_weight, eweights=edge_weight, options=options, recursive=False
        )
    except RuntimeError as error:
        raise InputError(
            f"METIS failed on {len(xadj) - 1:,} nodes and {len(adjncy):,} edges ({error}); try the hash partitioner"
        ) from error
    return np.asarray(assignment.vertex_part).astype(np.int32)


@dataclass(frozen=True)
class Metis(NodePartitioner):
    """METIS with the communication-volume objective, the default of BNS-GCN (of DGL it is metis-cut)."""

    name = "metis"

    @property
    def seeded(self) -> bool:
        return True

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        return metis(*undirected(graph.indptr, graph.indices, graph.is_symmetric()), num_parts, seed, "volume")


@dataclass(frozen=True)
class MetisCut(NodePartitioner):
    """METIS with the edge-cut objective: a boundary larger by a few percent in a fraction of the time."""

    name = "metis-cut"

    @property
    def seeded(self) -> bool:
        return True

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        return metis(*undirected(graph.indptr, graph.indices, graph.is_symmetric()), num_parts, seed, "cut")
