"""Edge cuts of one graph side by side: seconds, memory, volume, balance; then seconds to build the parts of one cut.

    python -m benchmarks.partition [--dataset NAME] [--parts P] [--partitioners NAMES] [--rounds N] [--build NAME]

Every partitioner runs in a process of its own that shares the graph, on one core; its peak memory counts the graph.
Ratios are to metis-cut where it is among them. What a partition is worth in an epoch is measured elsewhere.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from collections.abc import Callable
from time import perf_counter, process_time
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from harness.datasets import _synthetic as synthetic
from harness.graphs import Graph, Part
from harness.partition import Cutting
from harness.partition.edge import Layout, Quality, assign, build_part, build_parts, lay_out, quality

T = TypeVar("T")
DATASET = "synthetic:nodes=1e6,degree=50,classes=50,features=16"
BASE = "metis-cut"


class Cut(NamedTuple):
    """What a partitioner took, in seconds, processor seconds and GiB, and what its cut is worth."""

    seconds: float
    processor: float
    peak: float
    quality: Quality


def peak() -> float:
    """GiB of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, with one line of seconds and the peak memory of the process so far."""
    begin = perf_counter()
    result = work()
    print(f"{what:<44} {perf_counter() - begin:>8.2f} s   peak {peak():5.2f} GiB", flush=True)
    return result


def apart(work: Callable[[], T]) -> T:
    """The result of `work` in a forked process, whose peak memory is its own."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: theirs.send(work()))
    process.start()
    theirs.close()
    try:
        result: T = ours.recv()
    except EOFError:
        raise SystemExit("a partitioner was ended, by lack of memory perhaps") from None
    finally:
        process.join()
    return result


def cut_by(graph: Graph, name: str, num_parts: int) -> Cut:
    """One partitioner."""
    Cutting("edge", name).compile(name)
    begin, computed = perf_counter(), process_time()
    owner = assign(graph, name, num_parts)
    seconds, computed, most = perf_counter() - begin, process_time() - computed, peak()
    return Cut(seconds, computed, most, quality(graph, owner, num_parts))


def side_by_side(graph: Graph, names: list[str], num_parts: int, rounds: int) -> None:
    """Print a line for each partitioner: of several rounds, which alternate, the one of least processor time."""
    found: dict[str, list[Cut]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(apart(lambda: cut_by(graph, name, num_parts)))  # noqa: B023
            print(f"  {name}: {found[name][-1].seconds:.2f} s, processor {found[name][-1].processor:.2f} s", flush=True)
    best = {name: min(cuts, key=lambda cut: cut.processor) for name, cuts in found.items()}
    base = best.get(BASE, best[names[0]])
    print(
        f"{'partitioner':<24}{'s':>9}{'processor s':>13}{'x':>7}{'peak GiB':>10}{'volume':>14}{'x volume':>10}"
        f"{'edge cut':>14}"
        f"{'nodes':>8}{'edges':>8}{'halo':>8}  (largest over mean)"
    )
    for name, (seconds, computed, most, cut) in best.items():
        print(
            f"{name:<24}{seconds:>9.2f}{computed:>13.2f}{computed / base.processor:>7.3f}{most:>10.2f}{cut.volume:>14,}"
            f"{cut.volume / base.quality.volume:>10.3f}{cut.edge_cut:>14,}{cut.node_balance:>8.3f}"
            f"{cut.edge_balance:>8.3f}{cut.halo_balance:>8.3f}",
            flush=True,
        )


def build(graph: Graph, layout: Layout, num_parts: int) -> None:
    """Build every part and drop it, as the cache does."""
    for rank in range(num_parts):
        build_part(graph, layout, rank)


def sample(part: Part, share: float) -> None:
    """Select a random share of the halo columns, as boundary node sampling does in every epoch."""
    halo = part.graph.halo
    rng = np.random.default_rng(0)
    chosen = torch.from_numpy(np.sort(rng.permutation(halo.num_cols)[: round(share * halo.num_cols)]))
    timed(f"select {share:.0%} of {halo.num_cols:,} columns, {halo.nnz:,} edges", lambda: halo.select_columns(chosen))


def main() -> None:
    """Print the table and the lines."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dataset", default=DATASET, help="a synthetic: string")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--partitioners", default="hash,fennel,label-propagation,kaminpar,metis-cut")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--build", default="hash", help="the cut whose parts are built; empty for none")
    options.add_argument("--renumber", type=lambda text: "auto" if text == "auto" else int(text), default="auto")
    given = options.parse_args()
    build_parts(synthetic.load_synthetic("synthetic:nodes=300"), np.arange(300) % 2, 2, 2)  # compiles the kernels
    graph = timed("load " + given.dataset, lambda: synthetic.load_synthetic(given.dataset))
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges, {given.parts} parts")
    timed("fingerprint", graph.fingerprint)
    timed("is_symmetric", graph.is_symmetric)
    side_by_side(graph, given.partitioners.split(","), given.parts, given.rounds)
    if not given.build:
        return
    owner = timed(f"{given.build}: assign", lambda: assign(graph, given.build, given.parts))
    layout = timed(f"lay out, renumber {given.renumber}", lambda: lay_out(graph, owner, given.parts, given.renumber))
    timed(f"build {given.parts} parts", lambda: build(graph, layout, given.parts))
    part = build_part(graph, layout, 0)
    for share in (0.01, 0.1, 0.5):
        sample(part, share)


if __name__ == "__main__":
    main()
