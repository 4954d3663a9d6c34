"""Parts of a graph with more edges than memory holds: seconds, processor seconds and memory of every step.

    python -m benchmarks.large_graph [--edges E] [--degree D] [--parts P] [--partitioner NAME] [--renumber auto]
                                     [--folder DIR]

Writes a graph as a folder of `.npy` files, cuts it, makes and stores the parts, and compares every edge of every part
with the graph. What making the parts takes at most is printed before. Memory is without pages of files, which the
kernel can reclaim. The graph: `D` / 2 random bijections v -> a v + b of the integers modulo a prime N, each an edge in
both directions; every node has D neighbours, with a few repeated edges and self loops. A row follows from its number,
so the graph is written front to back in any memory. Everything is removed in the end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np
from numba import njit

from harness import datasets
from harness.console import stdout
from harness.graphs import Graph, Part, index_dtype
from harness.machine import ArrayMaker, ResidentPeak
from harness.partition.edge import PartitionFolder, Renumber, assigned, build_memory, partitioned

T = TypeVar("T")
GIB = 2.0**30


def step(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, with a line of what it took."""
    begin, computed = perf_counter(), process_time()
    with ResidentPeak() as memory:
        result = work()
    took = f"{perf_counter() - begin:>9.1f} s {process_time() - computed:>9.1f} s of the processor"
    stdout().print(f"{what:<38}{took} {memory.most / GIB:>7.2f} GiB at most", markup=False, highlight=False)
    return result


def say(line: str) -> None:
    """Print a line as it is."""
    stdout().print(line, markup=False, highlight=False, soft_wrap=True)


def size_of(folder: Path) -> float:
    """GiB of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / GIB


def prime_from(least: int) -> int:
    """The smallest prime that is at least `least`."""
    number = max(least, 2)
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number


def write_graph(folder: Path, num_nodes: int, degree: int) -> None:
    """The graph of the module's docstring; `num_nodes` is prime, `degree` even."""
    rng, half = np.random.default_rng(0), degree // 2
    factor, shift = rng.integers(1, num_nodes, half), rng.integers(0, num_nodes, half)
    back = np.array([pow(int(a), -1, num_nodes) for a in factor], np.int64)
    files = ArrayMaker(folder, within=0)
    indptr = files.new("indptr", (num_nodes + 1,), np.int64)
    _write_rows(factor, back, shift, indptr, files.new("indices", (num_nodes * degree,), index_dtype(num_nodes)))


@njit(cache=True, nogil=True)
def _write_rows(
    factor: np.ndarray, back: np.ndarray, shift: np.ndarray, indptr: np.ndarray, indices: np.ndarray
) -> None:
    half, num_nodes, at = len(factor), len(indptr) - 1, 0
    image, origin = shift.copy(), (num_nodes - shift) * back % num_nodes  # of node 0
    indptr[0] = 0
    for v in range(num_nodes):
        begin = at
        for i in range(half):
            indices[at], indices[at + 1] = image[i], origin[i]
            at += 2
            image[i] += factor[i]
            image[i] -= num_nodes if image[i] >= num_nodes else 0
            origin[i] += back[i]
            origin[i] -= num_nodes if origin[i] >= num_nodes else 0
        indices[begin:at].sort()
        indptr[v + 1] = at


def compare(graph: Graph, folder: PartitionFolder) -> None:
    """Raise SystemExit unless the rows of all parts are those of the graph, and their transposes hold the same."""
    edges = 0
    for rank in range(folder.num_parts):
        part: Part = folder.part(rank)
        own, halo = part.graph.own, part.graph.halo
        edges += own.nnz + halo.nnz
        blocks = [array.numpy() for block in (own, halo) for array in (block.indptr, block.indices)]
        row = _first_wrong(graph.indptr, graph.indices, part.nodes.numpy(), part.halo_nodes.numpy(), *blocks)
        if row >= 0:
            raise SystemExit(f"part {rank}: row {row} is not that of its node")
        for side, block in (("own", own), ("halo", halo)):
            ahead, _ = _sum_of_entries(block.indptr.numpy(), block.indices.numpy(), False)
            back, ascending = _sum_of_entries(block.t_indptr.numpy(), block.t_indices.numpy(), True)
            if ahead != back or not ascending:
                raise SystemExit(f"part {rank}: the transpose of {side} holds other entries")
    if edges != graph.num_edges:
        raise SystemExit(f"the parts have {edges} edges, the graph has {graph.num_edges}")


@njit(cache=True, nogil=True)
def _first_wrong(
    indptr: np.ndarray,
    indices: np.ndarray,
    nodes: np.ndarray,
    halo_nodes: np.ndarray,
    own_ptr: np.ndarray,
    own: np.ndarray,
    halo_ptr: np.ndarray,
    halo: np.ndarray,
) -> int:
    for row in range(len(nodes)):
        begin, end = indptr[nodes[row]], indptr[nodes[row] + 1]
        found = np.empty(end - begin, np.int64)
        at = 0
        for e in range(own_ptr[row], own_ptr[row + 1]):
            if at < len(found):
                found[at] = nodes[own[e]]
            at += 1
        for e in range(halo_ptr[row], halo_ptr[row + 1]):
            if at < len(found):
                found[at] = halo_nodes[halo[e]]
            at += 1
        if at != len(found):
            return row
        found.sort()
        for i in range(at):
            if found[i] != indices[begin + i]:
                return row
    return -1


@njit(cache=True, nogil=True)
def _sum_of_entries(indptr: np.ndarray, indices: np.ndarray, transposed: bool) -> tuple[np.uint64, bool]:
    """A sum over a mixture of row and column of every entry, and whether every line ascends."""
    total, ascending = np.uint64(0), True
    for line in range(len(indptr) - 1):
        for e in range(indptr[line], indptr[line + 1]):
            ascending = ascending and (e == indptr[line] or indices[e] >= indices[e - 1])
            row, column = (indices[e], line) if transposed else (line, indices[e])
            z = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(column) * np.uint64(0xD1B54A32D192ED03)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            total += z ^ (z >> np.uint64(27))
    return total, ascending


def measure(folder: Path, edges: int, degree: int, num_parts: int, partitioner: str, renumber: Renumber) -> None:
    """All steps on a graph of at least so many directed edges, in `folder`; the parts go to the cache."""
    num_nodes = prime_from(-(-edges // degree))
    step("write the graph", lambda: write_graph(folder, num_nodes, degree))
    graph = step("open and check it", lambda: datasets.load(f"{folder}{os.sep}"))
    beyond = f", {graph.num_edges / 2**31:.3f} x 2^31" if graph.num_edges >= 2**31 else ""
    say(f"  {graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges{beyond}, {size_of(folder):.1f} GiB on disk")
    step("fingerprint", graph.fingerprint)
    stated = build_memory(graph, partitioner, num_parts, renumber)
    steps = ", ".join(f"{name} {size / GIB:.2f}" for name, size in stated.steps.items())
    say(f"  stated: up to {stated.peak / GIB:.2f} GiB, of them {stated.before / GIB:.2f} before; GiB by step: {steps}")
    with ResidentPeak() as memory:
        step("symmetry", graph.is_symmetric)
        step(f"{partitioner}: assignment, quality", lambda: assigned(graph, partitioner, num_parts, 0, renumber))
        made = step(
            f"lay out, build {num_parts} parts", lambda: partitioned(graph, partitioner, num_parts, 0, renumber)
        )
    most, before = memory.most / GIB, stated.peak / GIB
    later = made.memory.of_parts.peak / GIB if made.memory else before
    say(f"  measured: {most:.2f} GiB at most; {before:.2f} stated, {later:.2f} once the cut was known")
    cut = made.quality
    say(f"  parts: {size_of(made.path):.1f} GiB on disk, {cut.volume:,} halo rows, {cut.edge_cut:,} edges cut")
    step("compare all edges, both directions", lambda: compare(graph, made))
    say("  all rows are those of the graph, and all transposes hold the same entries")


def main() -> None:
    """Print the lines."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--edges", type=lambda text: int(float(text)), default=20_000_000, help="directed, at least")
    options.add_argument("--degree", type=int, default=54, help="even")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--partitioner", default="hash")
    options.add_argument("--renumber", type=lambda text: "auto" if text == "auto" else int(text), default="auto")
    options.add_argument("--folder", type=Path, help="for the graph and the parts; 18 bytes an edge are needed")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        os.environ["HALOSCOPE_CACHE"] = str(Path(scratch) / "cache")
        small, graph = Path(scratch) / "small", Path(scratch) / "graph"
        small.mkdir()
        graph.mkdir()
        write_graph(small, 101, 4)  # compiles the kernels
        compare(datasets.load(f"{small}{os.sep}"), partitioned(datasets.load(f"{small}{os.sep}"), given.partitioner, 2))
        measure(graph, given.edges, given.degree, given.parts, given.partitioner, given.renumber)


if __name__ == "__main__":
    main()
