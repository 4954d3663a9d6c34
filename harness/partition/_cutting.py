"""Selects the kind of parts, the partitioner and the builder for a config.

Three kinds: an edge cut (every node has one owner), overlapping parts (an edge cut with copies of foreign nodes), and a
vertex cut (every edge has one owner).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from harness.errors import InputError
from harness.graphs import Graph, from_edges
from harness.partition.edge import Renumber, assign, assigned, open_partition, partitioned
from harness.partition.overlap import overlapped
from harness.partition.partitioners import PARTITIONERS, parse_partitioner
from harness.partition.vertex import assign_edges, open_vertex_partition, vertex_assigned, vertex_partitioned

Kind = Literal["edge", "overlap", "vertex"]

AUTO = "auto"
"""The partitioner that is chosen by `default_partitioner`."""

LARGE_EDGES = 20_000_000
"""Directed edges from which on METIS takes too long to be the default (`python -m benchmarks.partition`)."""


def default_partitioner(kind: Kind, num_edges: int) -> str:
    """What `auto` means: ebv for a vertex cut; for the others metis-cut, which papers use, and label-propagation, whose
    boundary is as small, for a graph of LARGE_EDGES directed edges and more."""
    if kind == "vertex":
        return "ebv"
    return "label-propagation" if num_edges >= LARGE_EDGES else "metis-cut"


class CutQuality(Protocol):
    """The quality of a cut of any kind."""

    @property
    def largest_rows(self) -> int:
        """Rows of the largest tensor that a part needs in one exchange: its own, received or sent ones."""
        ...

    def summary(self) -> dict[str, int | float]:
        """The totals by name."""
        ...

    def rows(self) -> list[dict[str, int]]:
        """One row of counts per part."""
        ...


class Folder(Protocol):
    """Parts in the cache, of any kind."""

    @property
    def path(self) -> Path: ...

    @property
    def num_parts(self) -> int: ...

    @property
    def quality(self) -> CutQuality: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def seconds(self) -> float:
        """Seconds that the partitioner took."""
        ...

    def part(self, rank: int) -> Any:
        """The part of `rank`."""
        ...

    def export(self, folder: Path) -> None:
        """Write the assignment and its counts."""
        ...


@dataclass(frozen=True)
class Cutting:
    """A kind of parts, the partitioner's text, and the method's settings that affect parts.

    Attributes:
        partitioner: AUTO leaves the choice to the size of the graph.
        replicas: ranks that hold the same part.
    """

    kind: Kind
    partitioner: str
    settings: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1

    def num_parts(self, ranks: int) -> int:
        """The parts of so many ranks. Raises InputError if not each is held by `replicas` of them."""
        if ranks % self.replicas:
            fitting = ", ".join(str(c) for c in range(1, ranks + 1) if ranks % c == 0)
            raise InputError(f"replication={self.replicas} does not divide {ranks} ranks: use one of {fitting}")
        return ranks // self.replicas

    def parts(self, graph: Graph, ranks: int, seed: int, renumber: Renumber, hosts: int) -> Folder:
        """The parts of `graph`, from the cache or made now. Raises InputError as the builders do."""
        num_parts, name = self.num_parts(ranks), self.partitioner
        if name == AUTO:
            name = default_partitioner(self.kind, graph.num_edges)
        if self.kind == "vertex":
            return vertex_partitioned(graph, name, num_parts, seed, hosts)
        if self.kind == "overlap":
            return overlapped(graph, name, num_parts, seed, renumber, **self.settings)
        return partitioned(graph, name, num_parts, seed, renumber)

    def assigned(self, graph: Graph, name: str, ranks: int, seed: int, renumber: Renumber, hosts: int) -> Folder:
        """The assignment by partitioner `name` and its quality, from the cache or made now, possibly without parts.

        Of overlapping parts, the edge cut below them. Raises InputError as the builders do.
        """
        if self.kind == "vertex":
            return vertex_assigned(graph, name, self.num_parts(ranks), seed, hosts)
        return assigned(graph, name, self.num_parts(ranks), seed, renumber)

    def compile(self, name: str) -> None:
        """Compile the kernels of partitioner `name`, so that the time of an assignment after it is its own."""
        ring = from_edges("ring", np.stack([np.arange(8), (np.arange(8) + 1) % 8]), 8, undirected=True)
        if self.kind == "vertex":
            assign_edges(ring, name, 2)
        else:
            assign(ring, name, 2)

    def open(self, path: Path, parts: Iterable[int] | None = None) -> Folder | None:
        """The parts cached in `path`, or None if one of `parts`, by default of all, is missing."""
        if self.kind == "vertex":
            return open_vertex_partition(path, parts)
        return open_partition(path, parts)

    def exact(self) -> Cutting:
        """The cut for evaluation on the whole graph: with overlapping parts, copies would count twice."""
        return Cutting("edge", self.partitioner) if self.kind == "overlap" else self


def cutting(partitioner: str, cut: str, settings: dict[str, Any]) -> Cutting:
    """The `Cutting` for a method with this `facts.cut`; with the name of a vertex partitioner, a vertex cut.

    Raises:
        InputError: an unknown partitioner or option, or an edge-cut partitioner for a method that cuts vertices.
    """
    kinds: dict[str, Kind] = {"none": "edge", "edge": "edge", "overlap": "overlap", "vertex": "vertex"}
    kind = kinds[cut]
    if partitioner == AUTO:
        return Cutting(kind, AUTO, settings)
    if parse_partitioner(partitioner).cuts == "vertex":
        return Cutting("vertex", partitioner)
    if kind == "vertex":
        fitting = ", ".join(name for name, known in PARTITIONERS.own().items() if known.cuts == "vertex")
        raise InputError(f"partitioner {partitioner} cuts edges, this method cuts vertices; use one of {fitting}")
    return Cutting(kind, partitioner, settings)
