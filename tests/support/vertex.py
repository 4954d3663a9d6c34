"""Vertex cuts for tests: random assignment of edges, and sums over replicas on all ranks in process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.exchanges import Leg, Replicas, ReplicaSync
from harness.graphs import Graph, VertexPart, from_edges
from harness.partition.partitioners import undirected_pairs
from harness.partition.vertex._build import build_vertex_parts
from harness.partition.vertex._masters import masters
from harness.rank import Rank

DEALS = ("random", "one", "two")


@st.composite
def looped_graphs(draw: st.DrawFn) -> Graph:
    """Symmetric graphs of 1 to 20 nodes with self loops, isolated nodes and, sometimes, no edge at all."""
    num_nodes, rng = draw(st.integers(1, 20)), np.random.default_rng(draw(st.integers(0, 10_000)))
    edges = rng.integers(0, num_nodes, (2, draw(st.integers(0, 50))))
    edges = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    order = rng.permutation(num_nodes)
    third = -(-num_nodes // 3)
    return from_edges(
        "looped",
        edges,
        num_nodes,
        x=rng.standard_normal((num_nodes, 4)).astype(np.float32),
        y=rng.integers(0, 3, num_nodes),
        num_classes=3,
        train=np.sort(order[:third]),
        val=np.sort(order[third : 2 * third]),
        test=np.sort(order[2 * third :]),
    )


def dealt(graph: Graph, num_parts: int, deal: str, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """Pairs, the part of every edge, and the owner of every node: `random`, all on rank 0, or on two ranks."""
    pairs = undirected_pairs(graph)
    limit = {"random": num_parts, "one": 1, "two": min(2, num_parts)}[deal]
    part = np.random.default_rng(seed).integers(0, limit, len(pairs[0])).astype(np.int32)
    return pairs, part, masters(*pairs, part, graph.num_nodes, num_parts)


def vertex_parts(
    graph: Graph, num_parts: int, deal: str = "random", *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[VertexPart]:
    """The parts of a graph with features of the wanted type."""
    built = build_vertex_parts(graph, *dealt(graph, num_parts, deal, seed), num_parts)
    return [replace(part, x=part.x.to(dtype)) for part in built if part.x is not None]


def totals(
    parts: list[VertexPart], syncs: list[ReplicaSync], rows: list[Tensor], leg: Leg, epoch: int = 0
) -> list[Tensor]:
    """Every rank's result of `sync.total` for its rows."""

    async def program(rank: Rank) -> Tensor:
        rank.epoch = epoch
        return await syncs[rank.index].total(rank, rows[rank.index], leg)

    return loopback.run_ranks(program, len(parts))


def summed(parts: list[VertexPart], rows: list[Tensor]) -> list[Tensor]:
    """The expected totals: rows of the same node added over all ranks."""
    whole = torch.zeros(parts[0].totals.num_nodes, rows[0].shape[1], dtype=rows[0].dtype)
    for part, mine in zip(parts, rows, strict=True):
        whole.index_add_(0, part.nodes, mine)
    return [whole[part.nodes] for part in parts]


def replicas_of(parts: list[VertexPart]) -> list[Replicas]:
    """The replicas of every rank."""
    return [Replicas.of(part) for part in parts]
