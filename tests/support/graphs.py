"""Small graphs for tests: random ones for hypothesis, and owners that leave parts empty or unconnected."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.graphs import Graph, from_edges


def random_graph(
    num_nodes: int, num_edges: int, *, features: int = 5, classes: int = 3, seed: int = 0, symmetric: bool = True
) -> Graph:
    """A graph with random edges (some nodes isolated), features, labels and a 60/20/20 split."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, num_edges))
    edges = edges[:, edges[0] != edges[1]]
    if symmetric:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    order = rng.permutation(num_nodes)
    a, b = int(0.6 * num_nodes), int(0.8 * num_nodes)
    return from_edges(
        "random",
        edges,
        num_nodes,
        dedupe=True,
        x=rng.standard_normal((num_nodes, features)).astype(np.float32),
        y=rng.integers(0, classes, num_nodes),
        num_classes=classes,
        train=np.sort(order[:a]),
        val=np.sort(order[a:b]),
        test=np.sort(order[b:]),
    )


@st.composite
def graphs(draw: st.DrawFn, *, symmetric: bool = True) -> Graph:
    """Random graphs of 1 to 24 nodes, from empty to dense."""
    nodes = draw(st.integers(1, 24))
    return random_graph(nodes, draw(st.integers(0, 4 * nodes)), seed=draw(st.integers(0, 10_000)), symmetric=symmetric)


def owners(graph: Graph, parts: int, kind: str, seed: int = 0) -> np.ndarray:
    """Owner of every node: `hash`, `random`, `first` (all on rank 0, the others empty) or `halves` (two ranks used)."""
    if kind == "hash":
        return (np.arange(graph.num_nodes) % parts).astype(np.int32)
    if kind == "first":
        return np.zeros(graph.num_nodes, np.int32)
    if kind == "halves":
        return (np.arange(graph.num_nodes) * 2 // max(graph.num_nodes, 1) % parts).astype(np.int32)
    return np.random.default_rng(seed).integers(0, parts, graph.num_nodes).astype(np.int32)
