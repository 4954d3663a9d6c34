"""Clusters of a graph by METIS (Cluster-GCN)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.graphs import Block
from harness.partition.partitioners import metis, undirected


@dataclass(frozen=True, eq=False)
class Clusters:
    """Nodes grouped by cluster.

    Attributes:
        nodes: int64 [N], the clusters one after the other, each ascending.
        starts: int64 [c + 1], where each begins. Clusters may be empty: METIS leaves some on small graphs.
    """

    nodes: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, block: Block, count: int, seed: int) -> Clusters:
        """At most `count` clusters of a square block, with few edges between them; the same for the same seed."""
        num_nodes = block.num_rows
        if count >= num_nodes:
            label = np.arange(num_nodes)
            count = num_nodes
        else:
            adjacency = undirected(block.indptr.numpy().astype(np.int64), block.indices.numpy(), symmetric=False)
            label = metis(*adjacency, count, seed, "cut")
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(label, minlength=count), out=starts[1:])
        return cls(np.argsort(label, kind="stable"), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def union(self, chosen: np.ndarray) -> Tensor:
        """The nodes of some clusters, int64, ascending."""
        pieces = [self.nodes[self.starts[c] : self.starts[c + 1]] for c in chosen]
        return torch.from_numpy(np.sort(np.concatenate(pieces)) if pieces else np.empty(0, np.int64))
