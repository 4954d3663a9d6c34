"""A whole graph as a list of edges, for layers that make a message of every edge."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from harness.graphs._part import LocalGraph


@dataclass(frozen=True, eq=False)
class EdgeGraph(LocalGraph):
    """A graph without halo, with both ends of every edge beside its blocks; messages travel on the listed edges."""

    source: Tensor  # int64 [E]
    destination: Tensor  # int64 [E]
    weight: Tensor | None  # [E, 1] factors of messages; None where all are 1, or where attention computes them
