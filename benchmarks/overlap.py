"""Seconds to choose and build overlapping parts of one graph, and to sample mini-batches from one of them.

Run `python -m benchmarks.overlap [--dataset NAME] [--parts P,P]`. The size of Reddit, 114.6 M directed edges, is
`--dataset synthetic:nodes=232965,degree=492,classes=41,features=16`. The assignment is `--partitioner`'s: hash cuts the
most and is the worst case for the search.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np
import torch

from benchmarks.partition import timed
from harness import datasets
from harness.config import ModelConfig
from harness.graphs import Graph, Part
from harness.nn import build_model
from harness.partition.edge import assign, quality
from harness.partition.overlap import overlapped
from harness.partition.overlap._parts import sample_copies
from harness.partition.overlap._quality import overlap_quality
from harness.rank import Rank
from harness.sampling import NeighbourSampler, batches
from harness.sampling._minibatch import BatchGraphs

DATASET = "synthetic:nodes=50000,degree=100,classes=41,features=16"
OVERLAPS = (0.1, 0.5)


def choose(graph: Graph, name: str, num_parts: int) -> None:
    """Algorithm 1 for one assignment, and the cut edges that it restores."""
    owner = timed(f"{name} into {num_parts}: assign", lambda: assign(graph, name, num_parts))
    base = quality(graph, owner, num_parts)
    for overlap in OVERLAPS:
        what = f"  Algorithm 1, overlap {overlap:.0%}"
        copies = timed(what, lambda o=overlap: sample_copies(graph, owner, num_parts, o, 0))  # type: ignore[misc]
        found = overlap_quality(graph, owner, base, copies)
        print(f"{'':<44} overhead {found.overhead:.2%}, cut edges kept {found.cut_kept:.1%}")


def draw(part: Part, batch: int, fanouts: tuple[int, ...]) -> list[BatchGraphs]:
    """The mini-batches of one epoch of a two-layer GraphSAGE on one part."""
    model = build_model(ModelConfig(name="sage"), part.totals.num_features, part.totals.num_classes, seed=0)
    rank, sampler = Rank(0, part.num_parts), NeighbourSampler.of(part, model, fanouts)
    return [sampler.sample(rank, rows, step) for step, rows in enumerate(batches(rank, part, batch))]


def measure(dataset: str, partitioner: str, numbers: list[int], batch: int) -> None:
    """Everything on one graph; the first number of parts is also built and sampled from."""
    small = datasets.load("synthetic:nodes=300")  # compiles the kernels
    draw(overlapped(small, "hash", 2, 0, 0, overlap=0.5).part(0), 10, (2, 2))
    sample_copies(small, np.arange(300, dtype=np.int32) % 2, 2, 5.0, 0)
    graph = timed("load " + dataset, lambda: datasets.load(dataset))
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, one thread")
    for num_parts in numbers:
        choose(graph, partitioner, num_parts)
    timed("fingerprint and symmetry", lambda: (graph.fingerprint(), graph.is_symmetric()))
    what = f"all of it: {numbers[0]} parts of overlap {OVERLAPS[0]:.0%}, kept"
    folder = timed(what, lambda: overlapped(graph, partitioner, numbers[0], 0, 0, overlap=OVERLAPS[0]))
    part = folder.part(0)
    drawn = timed(f"sample one epoch of a part, batch {batch}, 25/10", lambda: draw(part, batch, (25, 10)))
    edges = sum(graph.own.nnz + graph.halo.nnz for one in drawn for graph in one.graphs)
    print(f"{'':<44} {len(drawn)} batches, {edges:,} edges, {sum(len(one.rows) for one in drawn):,} feature rows")


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dataset", default=DATASET, help="a synthetic: string")
    options.add_argument("--parts", default="5,20", help="numbers of parts; the first is also built and sampled from")
    options.add_argument("--partitioner", default="hash")
    options.add_argument("--batch", type=int, default=256)
    given = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:  # an empty cache, which is removed afterwards
        os.environ["HALOSCOPE_CACHE"] = cache
        measure(given.dataset, given.partitioner, [int(number) for number in given.parts.split(",")], given.batch)


if __name__ == "__main__":
    main()
