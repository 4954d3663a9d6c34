"""A part of a graph on which trainings are quick: balls around random training nodes, with all edges among them.

A random choice of single nodes would leave few edges between them; balls keep neighbourhoods. Boundaries of small parts
are larger than those of the whole graph, so that what a method loses there is overstated rather than understated.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.datasets import write_graph
from harness.graphs import Graph

FEWEST_NODES = 2000
"""Nodes of a sample at least: below, scores say little."""

BALL = 50
"""Nodes around a centre. Many small balls have the classes of the whole graph; a few large ones grow into whatever is
densest (four of 1,000 nodes in coauthor_physics: 93 % of one class, which has 51 % of the graph)."""


def sampled_nodes(graph: Graph, count: int, seed: int) -> np.ndarray:
    """Ids of `count` nodes, ascending: balls of `BALL` around random training nodes, one after another."""
    assert graph.train is not None
    rng = np.random.default_rng([seed, 0x5A3B])
    others = np.setdiff1d(np.arange(graph.num_nodes), graph.train)
    chosen = np.zeros(graph.num_nodes, dtype=bool)
    took = 0
    for centre in np.concatenate([rng.permutation(graph.train), rng.permutation(others)]):
        if took == count:
            break
        if chosen[centre]:
            continue
        wanted, frontier = min(took + BALL, count), np.asarray([centre])
        while len(frontier) and took < wanted:
            frontier = rng.permutation(frontier)[: wanted - took]
            chosen[frontier] = True
            took += len(frontier)
            near = _neighbours(graph, frontier)
            frontier = near[~chosen[near]]
    return np.flatnonzero(chosen)


def _neighbours(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Distinct in-neighbours of nodes."""
    starts, lengths = graph.indptr[nodes], np.diff(graph.indptr)[nodes]
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found: np.ndarray = np.unique(graph.indices[np.repeat(starts, lengths) + offsets])
    return found


def write_sample(graph: Graph, count: int, seed: int, folder: Path) -> Path:
    """The file of the graph's sample, written unless it is there."""
    path = folder / f"sample-{graph.fingerprint()[:12]}-{count}-{BALL}-{seed}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = graph.subgraph(sampled_nodes(graph, count, seed))
        note = f"{count:,} of {graph.num_nodes:,} nodes, in balls around training nodes"
        write_graph(path, replace(part, notes=(*graph.notes, note)))
    return path
