"""The base of vertex-cut partitioners: a frozen dataclass of options that maps a graph to a part per pair.

Each partitioner has its own file; `_assign` lists them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.errors import InputError
from harness.graphs import Graph


@dataclass(frozen=True)
class EdgePartitioner(ABC):
    """Fields are options; one whose name is a Python keyword ends in an underscore that the text omits (`lambda`)."""

    name: ClassVar[str]

    def validate(self) -> None:  # noqa: B027  (a hook that not every partitioner needs)
        """Raise InputError if an option is out of range."""

    @property
    def seeded(self) -> bool:
        """Whether the seed changes the result."""
        return False

    @abstractmethod
    def parts(self, graph: Graph, num_parts: int, seed: int, hosts: int) -> np.ndarray:
        """The part of every pair of `undirected_pairs`, int32 [M]; num_parts >= 1 is a multiple of hosts >= 1."""

    def _require(self, rule: str, holds: bool) -> None:
        """Raise InputError "`name`: `rule`" unless `holds`; comparisons must be false for NaN."""
        if not holds:
            raise InputError(f"partitioner {self.name}: {rule}")
