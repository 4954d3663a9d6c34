"""Seconds, memory and quality of vertex cuts on one products-like graph.

    python -m benchmarks.vertex_cut [--edges 2e6] [--parts 8] [--hosts 2] [--partitioners ebv,dne,...]

The graph is the ogbn-products stand-in, scaled to the given number of undirected edges at the published degree; 62e6
is its full size. One core. "peak" is that of the whole process so far, the generation of the graph included where it
was not in the cache.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np

from harness.datasets import PRESETS
from harness.datasets import _synthetic as synthetic
from harness.graphs import Graph
from harness.partition.partitioners import PARTITIONERS, undirected_pairs
from harness.partition.vertex import VertexQuality, assign_edges, vertex_quality

T = TypeVar("T")
PRODUCTS = PRESETS["products-like"]
VERTEX_CUTS = [name for name, kind in PARTITIONERS.own().items() if kind.cuts == "vertex"]


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, with one line of seconds, processor seconds and the peak memory of the process so far."""
    begin, computed = perf_counter(), process_time()
    result = work()
    seconds, computed = perf_counter() - begin, process_time() - computed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:<44} {seconds:>8.2f} s, processor {computed:>7.2f} s   peak {peak:5.2f} GiB", flush=True)
    return result


def report(found: VertexQuality) -> None:
    """Print what CDFGNN's Table 3 prints, and the vertex balance that it leaves out."""
    print(
        f"{'':<8} replication {found.replication:.4f}, edge balance {found.edge_balance:.4f}, "
        f"vertex balance {found.vertex_balance:.4f}, largest inner {max(found.inner):,}, outer {max(found.outer):,}",
        flush=True,
    )


def measure(graph: Graph, name: str, num_parts: int, hosts: int) -> None:
    """One partitioner and its quality."""
    part = timed(f"{name}: assign", lambda: assign_edges(graph, name, num_parts, 0, hosts))
    report(timed(f"{name}: quality", lambda: vertex_quality(graph, part, num_parts, hosts)))


def main() -> None:
    """Print the table; "random" is a uniform part per edge, the upper end of replication."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--edges", type=float, default=2e6, help="undirected edges")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--hosts", type=int, default=2)
    options.add_argument("--partitioners", default="random,ebv:gamma=0,ebv,hep,hep:tau=10,hep:tau=1,dne,libra,hdrf")
    given = options.parse_args()
    small = synthetic.load_synthetic("synthetic:nodes=300")
    for name in VERTEX_CUTS:  # compiles the kernels
        vertex_quality(small, assign_edges(small, name, given.parts, 0, given.hosts), given.parts, given.hosts)
    nodes = round(given.edges / (PRODUCTS.degree / 2))
    graph = timed("graph", lambda: synthetic.load_synthetic(f"synthetic:products-like,nodes={nodes},features=1"))
    u, _ = timed("pairs, symmetry checked", lambda: undirected_pairs(graph))
    print(f"{graph.num_nodes:,} nodes, {len(u):,} undirected edges, {given.parts} parts on {given.hosts} hosts")
    for name in given.partitioners.split(","):
        if name == "random":
            part = np.random.default_rng(0).integers(0, given.parts, len(u), np.int32)
            report(timed("random: quality", lambda: vertex_quality(graph, part, given.parts, given.hosts)))  # noqa: B023
        else:
            measure(graph, name, given.parts, given.hosts)


if __name__ == "__main__":
    main()
