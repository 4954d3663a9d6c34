"""Boundary samplers by name: which halo nodes of a rank are wanted in an epoch, and what their rows are multiplied by.

A sampler draws; who is told what was drawn is the method's business. Draws are keyed by rank and epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from harness.graphs import LocalGraph, Part
from harness.kernels.boundary import draw_rows
from harness.rank import Rank
from harness.registry import Registry


@dataclass(frozen=True, eq=False)
class BoundaryDraw:
    """What one rank drew in one epoch.

    Attributes:
        graph: the graph with the kept halo nodes and edges only.
        kept: int64 [n], rows of the halo that are wanted, ascending.
        counts: int64 [P], how many of them each rank owns.
    """

    graph: LocalGraph
    kept: Tensor
    counts: np.ndarray


class BoundarySampler(ABC):
    """Draws a share of what crosses the boundary; holds nothing between draws."""

    thins_halo: bool = True
    """A share of 0 leaves no halo node, so that nothing need be sent."""

    draws_nodes: bool = True
    """Whole nodes are drawn, so that the share of rows sent is that of the nodes."""

    async def share(self, rank: Rank, part: Part, p: float) -> float:
        """What `draw` is to keep, for a share p of the boundary; asked once, and it may communicate."""
        return p

    @abstractmethod
    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        """One epoch's draw; `available` int64 [P] counts the halo nodes of every owner. Sizes only on meta tensors."""

    def counts(self, share: float, available: np.ndarray) -> np.ndarray | None:
        """int64 [P], how many of so many nodes a pair of ranks keeps, where that does not depend on the draw."""
        return None

    def scale(
        self, share: float, available: np.ndarray, kept: np.ndarray, device: torch.device
    ) -> float | Tensor | None:
        """What owners multiply kept rows by: a number, one per row sent, or nothing.

        Args:
            available, kept: int64 [P], rows that an owner could send to every rank, and those that it does.
        """
        return 1.0 / share


class Bernoulli(BoundarySampler):
    """Every boundary node alone (BNS-GCN, Alg. 1)."""

    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        return _of_nodes(rank, graph, available, share, np.floor(share * available + 0.5).astype(np.int64), fixed=False)


class Fixed(BoundarySampler):
    """int(share * n) of each pair's n boundary nodes (BNS-GCN, the authors' code); the realised share scales rows.

    Owners know how many of their nodes are wanted before they are told which.
    """

    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        return _of_nodes(rank, graph, available, share, self.counts(share, available), fixed=True)

    def counts(self, share: float, available: np.ndarray) -> np.ndarray:
        return np.floor(share * available).astype(np.int64)

    def scale(self, share: float, available: np.ndarray, kept: np.ndarray, device: torch.device) -> Tensor:
        return torch.from_numpy(np.repeat(available / np.maximum(kept, 1), kept)).to(device)


class BoundaryEdges(BoundarySampler):
    """Edges from boundary nodes (BNS-GCN, Table 9: BES); a node travels while one of its edges is left."""

    draws_nodes = False

    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        graph = replace(graph, halo=graph.halo.drop_edges(rank.key("halo edges"), share))
        if rank.shapes_only:
            return _expected(graph, np.round(available * rank.rate("kept nodes")).astype(np.int64))
        kept = graph.halo.t_indptr.diff().nonzero()[:, 0]
        counts = np.bincount(_owners(available)[kept.cpu().numpy()], minlength=len(available)).astype(np.int64)
        return BoundaryDraw(_with_halo(graph, kept), kept, counts)


class DropEdge(BoundaryEdges):
    """Edges anywhere (BNS-GCN, Table 9: DropEdge), as many as `BoundaryEdges` drops; degrees become expected ones."""

    thins_halo = False

    async def share(self, rank: Rank, part: Part, p: float) -> float:
        cut, edges = part.graph.halo.nnz, part.graph.own.nnz + part.graph.halo.nnz
        if not rank.shapes_only:
            counts = torch.tensor([cut, edges], dtype=torch.int64)
            cut, edges = (await rank.all_reduce(counts.to(rank.device), label="edges", direction="other")).tolist()
        return 1.0 - (1.0 - p) * cut / max(edges, 1)

    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        own = graph.own.drop_edges(rank.key("own edges"), share, diagonal=True)
        thinned = replace(graph, own=own, degree=graph.degree * share, halo_degree=graph.halo_degree * share)
        return super().draw(rank, available, thinned, share)

    def scale(self, share: float, available: np.ndarray, kept: np.ndarray, device: torch.device) -> None:
        return None


_BUILTIN: dict[str, BoundarySampler] = {
    "bernoulli": Bernoulli(), "fixed": Fixed(), "bes": BoundaryEdges(), "dropedge": DropEdge(),
}  # fmt: skip

SAMPLERS: Registry[BoundarySampler] = Registry("boundary sampler", "haloscope.samplers", _BUILTIN)


def _owners(available: np.ndarray) -> np.ndarray:
    """The owner of every halo node."""
    return np.repeat(np.arange(len(available)), available)


def _of_nodes(
    rank: Rank, graph: LocalGraph, available: np.ndarray, share: float, expected: np.ndarray, *, fixed: bool
) -> BoundaryDraw:
    """Nodes drawn on the host; `expected` int64 [P] is how many of each rank, where tensors have no numbers."""
    device = "meta" if rank.shapes_only else "cpu"
    nodes = torch.empty(int(available.sum()), dtype=torch.int64, device=device)
    kept = draw_rows(nodes, available.tolist(), share, fixed, rank.key("boundary"), int(expected.sum()))
    if not rank.shapes_only:
        bounds = np.concatenate([[0], np.cumsum(available)])
        expected = np.diff(np.searchsorted(kept.numpy(), bounds)).astype(np.int64)
        kept = kept.to(rank.device)
    return BoundaryDraw(_with_halo(graph, kept), kept, expected)


def _expected(graph: LocalGraph, counts: np.ndarray) -> BoundaryDraw:
    kept = torch.empty(int(counts.sum()), dtype=torch.int64, device="meta")
    return BoundaryDraw(_with_halo(graph, kept), kept, counts)


def _with_halo(graph: LocalGraph, kept: Tensor) -> LocalGraph:
    """The graph with the kept halo nodes only."""
    return replace(graph, halo=graph.halo.select_columns(kept), halo_degree=graph.halo_degree[kept])
