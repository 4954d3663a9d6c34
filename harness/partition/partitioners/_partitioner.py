"""The base of partitioners: a frozen dataclass of options that assigns the nodes or the edges of a graph to parts.

Each partitioner has its own file; the folder's `__init__` lists them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from harness.errors import InputError
from harness.graphs import Graph
from harness.machine import used_code
from harness.registry import Optioned

PACKAGE = "harness.partition.partitioners"


@dataclass(frozen=True)
class Partitioner(Optioned, ABC):
    """Base of both kinds; fields of a subclass are its options.

    Attributes:
        cuts: edges are cut where nodes are assigned to parts, vertices where edges are.
    """

    cuts: ClassVar[Literal["edge", "vertex"]]

    @property
    def seeded(self) -> bool:
        """Whether the seed changes the result."""
        return False

    @property
    def library(self) -> str:
        """Name and version of the library that the result depends on; METIS's version is part of every cache key."""
        return ""

    def code(self) -> str:
        """A hash of the code that assigns: this class's file and what it imports of this folder or of its own package;
        part of every cache key. Other code of this project, as that of graphs, is not."""
        return used_code(self, within=PACKAGE)

    def _require(self, rule: str, holds: bool) -> None:
        """Raise InputError "`name`: `rule`" unless `holds`; comparisons must be false for NaN."""
        if not holds:
            raise InputError(f"partitioner {self.name}: {rule}")


@dataclass(frozen=True)
class NodePartitioner(Partitioner):
    """An edge cut: every node has one owner."""

    cuts = "edge"

    @abstractmethod
    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        """The owner of every node, int32 [N]; num_parts is 2 to the number of nodes."""

    def memory(self, num_nodes: int, num_edges: int, num_parts: int) -> int | None:
        """Bytes that `owners` has in memory at most, its result included and the graph not; None if not known before.

        What depends on the structure of the graph, not on its size alone, is not known before.
        """
        return None


@dataclass(frozen=True)
class EdgePartitioner(Partitioner):
    """A vertex cut: every undirected edge of a symmetric graph has one owner."""

    cuts = "vertex"

    @abstractmethod
    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        """The part of every pair of `undirected_pairs`, int32 [M]; num_parts >= 1 is a multiple of hosts >= 1."""
