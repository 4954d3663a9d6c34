"""Seconds to assign, lay out and build partitions of one graph, and to sample its halo columns.

Run `python -m benchmarks.partition [--dataset NAME] [--parts P]`. It measures time and peak memory only: what a
partition is worth in an epoch is measured elsewhere.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch

from harness.datasets import _synthetic as synthetic
from harness.graphs import Graph, Part
from harness.partition.edge import Layout, Renumber, assign, build_part, build_parts, lay_out, quality

T = TypeVar("T")
DATASET = "synthetic:nodes=1e6,degree=50,classes=50,features=16"


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, with one line of seconds and the peak memory of the process so far."""
    begin = perf_counter()
    result = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:<44} {perf_counter() - begin:>8.2f} s   peak {peak:5.2f} GiB", flush=True)
    return result


def build(graph: Graph, layout: Layout, num_parts: int) -> None:
    """Build every part and drop it, as the cache does."""
    for rank in range(num_parts):
        build_part(graph, layout, rank)


def measure(graph: Graph, name: str, num_parts: int, renumber: Renumber) -> None:
    """One partitioner from the assignment to the parts."""
    owner = timed(f"{name}: assign", lambda: assign(graph, name, num_parts))
    found = timed(f"{name}: quality", lambda: quality(graph, owner, num_parts))
    print(f"{'':<44} volume {found.volume:,}, edge cut {found.edge_cut:,}, replication {found.replication:.2f}")
    layout = timed(f"{name}: lay out, renumber {renumber}", lambda: lay_out(graph, owner, num_parts, renumber))
    timed(f"{name}: build {num_parts} parts", lambda: build(graph, layout, num_parts))


def sample(part: Part, share: float) -> None:
    """Select a random share of the halo columns, as boundary node sampling does in every epoch."""
    halo = part.graph.halo
    rng = np.random.default_rng(0)
    chosen = torch.from_numpy(np.sort(rng.permutation(halo.num_cols)[: round(share * halo.num_cols)]))
    timed(f"select {share:.0%} of {halo.num_cols:,} columns, {halo.nnz:,} edges", lambda: halo.select_columns(chosen))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dataset", default=DATASET, help="a synthetic: string")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--partitioners", default="hash,metis-cut,metis")
    options.add_argument("--renumber", type=lambda text: "auto" if text == "auto" else int(text), default="auto")
    given = options.parse_args()
    build_parts(synthetic.load_synthetic("synthetic:nodes=300"), np.arange(300) % 2, 2, 2)  # compiles the kernels
    graph = timed("load " + given.dataset, lambda: synthetic.load_synthetic(given.dataset))
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {given.parts} parts")
    timed("fingerprint", graph.fingerprint)
    timed("is_symmetric", graph.is_symmetric)
    for name in given.partitioners.split(","):
        measure(graph, name, given.parts, given.renumber)
    part = build_part(graph, lay_out(graph, assign(graph, "hash", given.parts), given.parts), 0)
    for share in (0.01, 0.1, 0.5):
        sample(part, share)


if __name__ == "__main__":
    main()
