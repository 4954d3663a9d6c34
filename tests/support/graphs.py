"""Small graphs for tests: random ones for hypothesis, and owners that leave parts empty or unconnected."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from harness.conformance import _ground
from harness.graphs import Graph


def random_graph(
    num_nodes: int, num_edges: int, *, features: int = 5, classes: int = 3, seed: int = 0, symmetric: bool = True
) -> Graph:
    """A graph with random edges (some nodes isolated), features, labels and a 60/20/20 split."""
    rng = np.random.default_rng(seed)
    edges, order = _ground.random_edges(num_nodes, num_edges, rng), rng.permutation(num_nodes)
    x, y = rng.standard_normal((num_nodes, features)), rng.integers(0, classes, num_nodes)
    return _ground.labelled_graph(_ground.both_ways(edges) if symmetric else edges, x, y, classes, order)


@st.composite
def graphs(draw: st.DrawFn, *, symmetric: bool = True) -> Graph:
    """Random graphs of 1 to 24 nodes, from empty to dense."""
    nodes = draw(st.integers(1, 24))
    return random_graph(nodes, draw(st.integers(0, 4 * nodes)), seed=draw(st.integers(0, 10_000)), symmetric=symmetric)


def owners(graph: Graph, parts: int, kind: _ground.Deal, seed: int = 0) -> np.ndarray:
    """Owner of every node, int32 [N]: `hash`, `random`, `first` (the other ranks are empty) or `halves` (two ranks)."""
    return _ground.owners(graph.num_nodes, parts, kind, seed)
