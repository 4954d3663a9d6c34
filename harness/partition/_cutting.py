"""Selects the kind of parts, the partitioner and the builder for a config.

Three kinds: an edge cut (every node has one owner), overlapping parts (an edge cut with copies of foreign nodes), and a
vertex cut (every edge has one owner).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.edge import Renumber, open_partition, partitioned
from harness.partition.overlap import overlapped
from harness.partition.partitioners import PARTITIONERS, parse_partitioner
from harness.partition.vertex import open_vertex_partition, vertex_partitioned

Kind = Literal["edge", "overlap", "vertex"]
DEFAULTS: dict[Kind, str] = {"edge": "metis-cut", "overlap": "metis-cut", "vertex": "ebv"}


class CutQuality(Protocol):
    """The quality of a cut of any kind."""

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
        num_parts = self.num_parts(ranks)
        if self.kind == "vertex":
            return vertex_partitioned(graph, self.partitioner, num_parts, seed, hosts)
        if self.kind == "overlap":
            return overlapped(graph, self.partitioner, num_parts, seed, renumber, **self.settings)
        return partitioned(graph, self.partitioner, num_parts, seed, renumber)

    def open(self, path: Path) -> Folder | None:
        """The parts cached in `path`, or None if anything is missing."""
        if self.kind == "vertex":
            return open_vertex_partition(path)
        return open_partition(path)

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
    if partitioner == "auto":
        return Cutting(kind, DEFAULTS[kind], settings)
    if parse_partitioner(partitioner).cuts == "vertex":
        return Cutting("vertex", partitioner)
    if kind == "vertex":
        fitting = ", ".join(name for name, known in PARTITIONERS.own().items() if known.cuts == "vertex")
        raise InputError(f"partitioner {partitioner} cuts edges, this method cuts vertices; use one of {fitting}")
    return Cutting(kind, partitioner, settings)
