"""Seconds per epoch of sampling methods on one part and one core, and the nodes that they sample per second.

Run `python -m benchmarks.samplers [--nodes N] [--degree D] [--methods A,B]`. A few steps of an epoch are measured,
after two that compile and warm up, and an epoch is as many steps as the method says. Drawing is everything up to the
rows of the inputs and labels; training is forward and backward pass, optimizer and what a method keeps. Seconds are
those of the process on its core, so that other work on the machine does not count. A second table has the operators
that draw, on one of two parts, beside what the model charges for them (`host.bandwidth` of a device file). Nodes and
edges are per second and core. The full size (1 M nodes, 50 M edges) needs about 3.5 GiB; the peak is printed last.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from harness import datasets, loopback
from harness.config import ModelConfig
from harness.graphs import Part
from harness.kernels.work import declared_work
from harness.methods.bases.mini_batch import Batched
from harness.methods.registry import parse_method
from harness.nn import build_model, summed_loss
from harness.partition.edge import build_parts
from harness.rank import Rank
from harness.sampling import Neighbours
from sims.device import load_device

METHODS = "graphsage-ns:fanout=10,graphsage-ns:fanout=25/10,distdgl:fanout=25/10,vr-gcn:fanout=2"
WARM = 2


async def measure(rank: Rank, text: str, part: Part, layers: int, hidden: int, steps: int) -> str:
    """The row of one method."""
    method = parse_method(text)
    assert isinstance(method, Batched), f"{text} does not train by batches"
    config = ModelConfig(name="sage", layers=layers, hidden=hidden)
    model = build_model(config, part.totals.num_features, part.totals.num_classes, seed=0).train()
    rank.epoch, begin = -1, time.process_time()
    state = await method.setup(rank, part, model)
    memory, optimizer = method.remember(rank, part, model, state), method.optimizer(rank, model, 0.01, 0.0)
    set_up, rank.epoch = time.process_time() - begin, 0
    drawing = training = 0.0
    nodes = edges = 0
    for step, seeds in enumerate(method.batches(rank, state)[: WARM + steps]):
        begin = time.process_time()
        batch = await method.draw(rank, part, model, state, memory, seeds, step)
        drawn = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        summed_loss(method.logits(rank, model, batch, step), batch.y, part.totals.multilabel).backward()
        optimizer.step()
        await method.after_step(rank, part, model, state, memory, batch)
        if step >= WARM:
            drawing, training = drawing + drawn - begin, training + time.process_time() - drawn
            nodes += len(batch.nodes[0])
            edges += sum(layer.block.nnz for layer in batch.layers if layer is not None)
    epoch = (drawing + training) / steps * state.steps
    return (
        f"{text:<32}{set_up:>9.2f}{state.steps:>7}{epoch:>10.1f}{100 * drawing / (drawing + training):>9.0f} %"
        f"{nodes / steps:>11,.0f}{nodes / drawing / 1e6:>11.2f}{edges / drawing / 1e6:>11.2f}"
    )


def operators(part: Part, fanout: int = 10, seeds: int = 20_000) -> Iterator[str]:
    """The rows of the operators' table."""
    neighbours, rate = Neighbours.of(part), load_device("rtx-2080ti").host.value

    def row(name: str, *args: Any) -> tuple[Any, str]:
        operator, best = getattr(torch.ops.haloscope, name), float("inf")
        for _ in range(3):
            begin = time.process_time()
            found = operator(*args)
            best = min(best, time.process_time() - begin)
        results = [found] if isinstance(found, torch.Tensor) else list(found)
        formula = declared_work(f"haloscope::{name}")
        assert formula is not None
        charged = formula(args, [a for a in args if isinstance(a, torch.Tensor)], results).nbytes / rate
        entries = max(len(result) for result in results)
        return found, f"{name:<32}{entries:>12,}{1e3 * best:>14.2f}{1e3 * charged:>12.2f}"

    ids = neighbours.own(part.train[:seeds])
    places = neighbours.nodes, neighbours.rows, neighbours.starts
    local, line = row("own_rows", *places, ids, neighbours.shift)
    yield line
    (counts, columns), line = row("draw_lists", neighbours.columns, neighbours.indptr, local, ids, fanout, 1, 0)
    yield line
    yield row("by_owner", columns, 0, part.num_parts)[1]
    (indptr, columns), line = row("ordered_lists", counts, columns, torch.arange(len(ids)).flip(0))
    yield line
    yield row("list_block", columns, indptr, ids, neighbours.num_nodes, 0)[1]
    own = columns[columns & 0xFFFF == 0]
    yield row("last_of_each", neighbours.local(own))[1]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", type=int, default=1_000_000)
    options.add_argument("--degree", type=int, default=50)
    options.add_argument("--features", type=int, default=100)
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--hidden", type=int, default=128)
    options.add_argument("--steps", type=int, default=10, help="steps measured")
    options.add_argument("--methods", default=METHODS)
    given = options.parse_args()
    torch.set_num_threads(1)
    name = f"synthetic:nodes={given.nodes},degree={given.degree},classes=16,features={given.features}"
    graph = datasets.load(name)
    (part,) = build_parts(graph, np.zeros(graph.num_nodes, np.int32), 1)
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {given.layers} layers, one thread")
    heads = "".join(f"{head:>11}" for head in ("drawing", "nodes/step", "Mnodes/s", "Medges/s"))
    print(f"{'method':<32}{'set-up s':>9}{'steps':>7}{'epoch s':>10}{heads}")
    for text in given.methods.split(","):
        program = partial(measure, text=text, part=part, layers=given.layers, hidden=given.hidden, steps=given.steps)
        (row,) = loopback.run_ranks(program, 1)
        print(row, flush=True)
    del part, program  # two graphs at a time are the most that is held
    first = build_parts(graph, np.arange(graph.num_nodes, dtype=np.int32) % 2, 2)[0]
    print(f"{'operator':<32}{'entries':>12}{'measured ms':>14}{'charged ms':>12}")
    for row in operators(first):
        print(row)
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    found = [module for module in ("pyg_lib", "torch_sparse") if importlib.util.find_spec(module)]
    print(
        f"PyG's NeighborLoader is not beside them: it needs pyg-lib or torch-sparse, and here is {found or 'neither'}"
    )


if __name__ == "__main__":
    main()
