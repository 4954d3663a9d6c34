"""Seconds per training epoch beside hand-written PyTorch and PyG, as ratios in one run.

    python -m benchmarks.epoch [--nodes 100000] [--epochs 12] [--rounds 3] [--only vanilla,floor] [--save epochs.csv]
                               [--beside OLDER_CHECKOUT] [--against epochs.csv]

Setting: synthetic graph with communities, 50 neighbours, 128 features, 16 classes; GraphSAGE 3 x 256 with LayerNorm and
dropout 0.5, Adam, layer 0 precomputed, fp32. One process x 2 threads, and two gloo ranks x 1 thread, with every
method of an edge cut that takes this model. Each contender runs in a process of its own, one after the other in every
round. Printed are the median over rounds of a round's median epoch (of the second half: a method with messages in
flight over the end of an epoch has touched all of its memory only after some epochs), the smallest and the largest of
them, page faults of a rank in an epoch, and peak memory of a rank above interpreter and libraries. The floor is what
products and neighbour sums take alone, on both parts at once with a thread each, in memory that is there already.

`--beside` runs the contenders of another checkout too, each right after this one's in every round; `--against`
prints ratios to the medians of a file that `--save` wrote, which mean something on the same idle machine only.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness import datasets
from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Part
from harness.kernels.dropout import keyed_dropout
from harness.machine import large_tensors
from harness.methods.registry import cut_of, typical_methods
from harness.nn import aggregate
from harness.running import prepare, run
from real.rank._clocks import HostClock


def setting(nodes: int, epochs: int) -> RunConfig:
    """The benchmark's run, on one real rank with two threads."""
    dataset = f"synthetic:nodes={nodes},degree=50,classes=16,features=128,communities=200,homophily=0.7,seed=0"
    return RunConfig.of(
        dataset=dataset, model="sage", layers=3, hidden=256, dropout=0.5, norm="layer", method="vanilla", parts=1,
        mode="real", epochs=epochs, threads=2, eval_every=-1,
    )  # fmt: skip


class Handwritten(nn.Module):
    """The same network as a plain PyTorch module on one device, with haloscope's kernels only."""

    def __init__(self, part: Part, hidden: int) -> None:
        super().__init__()
        widths = [part.totals.num_features, hidden, hidden, part.totals.num_classes]
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.near = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths[1:-1])
        self.scale = (1.0 / part.graph.degree.clamp(min=1).float())[:, None]
        self.graph, self.nodes = part.graph.own, part.nodes

    def forward(self, x: Tensor, z0: Tensor, epoch: int) -> Tensor:
        h = x
        for l, (own, near) in enumerate(zip(self.own, self.near, strict=True)):
            h = keyed_dropout(h, self.nodes, 0.5, 10 * epoch + l)
            z = keyed_dropout(z0, self.nodes, 0.5, -epoch - 1) if l == 0 else aggregate(self.graph, h) * self.scale
            h = own(h) + near(z)
            if l < 2:
                h = self.norms[l](h).relu()
        return h


def _timed(epoch: Callable[[int], Tensor], epochs: int) -> list[float]:
    seconds = []
    for number in range(epochs):
        begin = time.perf_counter()
        float(epoch(number))
        seconds.append(time.perf_counter() - begin)
    return seconds


def _train(model: nn.Module, forward: Callable[[int], Tensor], part: Part, epochs: int) -> list[float]:
    assert part.y is not None
    labels, rows = part.y[part.train], part.train
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def epoch(number: int) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(forward(number)[rows], labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return _timed(epoch, epochs)


def handwritten(config: RunConfig) -> list[float]:
    """Epoch seconds of `Handwritten`."""
    part = prepare(config).training(0)
    assert part.x is not None
    x, model = part.x, Handwritten(part, config.model.hidden)
    z0 = aggregate(part.graph.own, x) * model.scale
    return _train(model, lambda number: model(x, z0, number), part, config.training.epochs)


def pyg(config: RunConfig, form: str) -> list[float]:
    """Epoch seconds of PyG's SAGEConv on torch CSR (`csr`) or on an edge index (`edge_index`), file order of nodes."""
    from torch_geometric.nn import SAGEConv

    part = prepare(config.changed(renumber="0")).training(0)
    assert part.x is not None
    block, x = part.graph.own, part.x
    rows = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff().long())
    edges = torch.stack([block.indices.long(), rows])
    sparse = torch.sparse_csr_tensor(block.indptr, block.indices, torch.ones(block.nnz), (len(x), len(x)))
    z0 = (sparse @ x) / part.graph.degree.clamp(min=1)[:, None]
    adjacency = sparse if form == "csr" else edges
    classes = part.totals.num_classes

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2 * x.shape[1], 256)
            self.convs = nn.ModuleList([SAGEConv(256, 256), SAGEConv(256, classes)])
            self.norms = nn.ModuleList([nn.LayerNorm(256), nn.LayerNorm(256)])

        def forward(self, xz: Tensor) -> Tensor:
            h = self.first(functional.dropout(xz, 0.5))
            for norm, conv in zip(self.norms, self.convs, strict=True):
                h = conv(functional.dropout(norm(h).relu(), 0.5), adjacency)
            return h

    model, xz = Net(), torch.cat([x, z0], 1)
    return _train(model, lambda _: model(xz), part, config.training.epochs)


def haloscope(config: RunConfig) -> dict[str, object]:
    """Epoch seconds, components, memory, and page faults of a real run."""
    stamps: list[dict[int, int]] = []
    result = run(config, lambda record: stamps.append(_children_faults()))
    summary = result.summary()
    first = min(1, len(stamps) - 1)
    # ranks may have ended when the last epoch is reported
    last = max(at for at, stamp in enumerate(stamps) if stamp.keys() >= stamps[first].keys())
    grown = sum(stamps[last][process] - faults for process, faults in stamps[first].items())
    return {
        "seconds": [e["seconds"]["epoch"] for e in result.epochs],
        "parts": {k: round(v, 4) for k, v in summary["seconds"].items()},
        "peak": summary["peak_memory"],
        "faults": grown / max(last - first, 1) / config.cut.parts,
    }


def _children_faults() -> dict[int, int]:
    """Process id -> page faults so far of each process that this one started, and that still runs."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == os.getpid():
            found[int(stat.parent.name)] = int(fields[7])
    return found


def floor(config: RunConfig) -> list[float]:
    """Epoch seconds of the dense products and the neighbour sums of two ranks alone, one thread each."""
    prepared = prepare(config.changed(parts=2, threads=1))
    torch.set_num_threads(1)
    works = [_bare(prepared.training(rank), config.model.hidden) for rank in range(2)]

    def epoch(_: int) -> Tensor:
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return torch.zeros(())

    return _timed(epoch, config.training.epochs)


def _bare(part: Part, hidden: int) -> Callable[[], None]:
    """The products and sums of one rank's epoch, on rows of zeros, aggregated first and the input once for all."""
    widths, graph = [part.totals.num_features, hidden, hidden, part.totals.num_classes], part.graph
    rows, halo = (torch.zeros(n, max(widths)) for n in (graph.num_own, graph.num_halo))
    weights = torch.zeros(max(widths), max(widths))

    def epoch() -> None:
        for l, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            x, g, w = rows[:, :a].contiguous(), rows[:, :b].contiguous(), weights[:a, :b].contiguous()
            for _ in ("own", "near"):
                torch.mm(x, w)
                torch.mm(x.t(), g)
                if l:
                    torch.mm(g, w.t())
            for block, source in ((graph.own, rows), (graph.halo, halo)) if l else ():
                back = (block.t_indptr, block.t_indices, rows[:, :a].contiguous())
                torch.ops.haloscope.gather_sum(block.indptr, block.indices, source[:, :a].contiguous())
                torch.ops.haloscope.gather_sum(*back)

    return epoch


def _two_ranks(method: str, config: RunConfig) -> dict[str, object]:
    """A method on two ranks, its input layer as the method has it by default."""
    return haloscope(config.changed(parts=2, threads=1, method=method, layer0="auto"))


HUGE_PAGES, FLOOR, OLDER = "huge pages", "floor: products and sums, 2 x 1 thread", " (other checkout)"
OTHER_METHODS = [text for text in typical_methods(3) if cut_of(text) == "edge" and text != "vanilla"]
CONTENDERS: dict[str, Callable[[RunConfig], dict[str, object]]] = {
    "haloscope, 1 rank x 2 threads": lambda c: haloscope(c),
    "haloscope, 2 ranks x 1 thread": lambda c: haloscope(c.changed(parts=2, threads=1)),
    "haloscope, 2 ranks, order auto": lambda c: haloscope(c.changed(parts=2, threads=1, order="auto")),
    "haloscope, 2 ranks, bf16": lambda c: haloscope(c.changed(parts=2, threads=1, precision="bf16")),
    "2 ranks, vanilla:overlap=true": partial(_two_ranks, "vanilla:overlap=true"),
    **{f"2 ranks, {method}": partial(_two_ranks, method) for method in OTHER_METHODS},
    FLOOR: lambda c: {"seconds": floor(c)},
    "hand-written loop, same kernels": lambda c: {"seconds": handwritten(c)},
    "PyG SAGEConv on torch CSR": lambda c: {"seconds": pyg(c, "csr")},
    "PyG on torch CSR, huge pages": lambda c: {"seconds": pyg(c, "csr")},
    "PyG on edge_index, huge pages": lambda c: {"seconds": pyg(c.changed(epochs=3), "edge_index")},
    "PyG SAGEConv on edge_index": lambda c: {"seconds": pyg(c.changed(epochs=3), "edge_index")},
}


def kept_bytes(config: RunConfig) -> int:
    """Bytes of the tensors one rank must keep for an epoch: features, index, and what backward reads.

    Per hidden layer and node: the input of the linear map (dropped rows), the aggregated rows, the input of the norm,
    and the ReLU's output; layer 0 reads features and aggregated features, each dropped; parameters with Adam x 4.
    """
    part = prepare(config).training(0)
    nodes, width, inputs = len(part.nodes), config.model.hidden, part.totals.num_features
    edges = part.graph.own.nnz
    floats = nodes * (2 * inputs + 2 * inputs + 2 * 2 * width + 2 * 2 * width + part.totals.num_classes)
    return 4 * floats + 2 * 4 * edges


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", help="contenders whose name has one of these texts, separated by semicolons or commas"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="every epoch as a row of a CSV file")
    parser.add_argument("--beside", type=Path, metavar="DIR", help="another checkout, whose contenders run too")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="a saved file, to whose medians ratios are printed"
    )
    parser.add_argument("--contender", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    config = setting(options.nodes, options.epochs)
    if options.contender:
        torch.set_num_threads(2)
        clock = HostClock()
        found = CONTENDERS[options.contender](config)
        found.setdefault("peak", clock.peak_memory())
        print(json.dumps(found))
        return
    graph = datasets.load(config.data.dataset)
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges, {os.cpu_count()} cores; GraphSAGE 3 x 256")
    prepare(config), prepare(config.changed(parts=2)), prepare(config.changed(renumber="0"))
    rounds = _wanted(options.only or "", options.beside)
    for number in range(options.rounds):
        for name in list(rounds):
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            try:
                rounds[name].append(run_contender(name, options))
            except InputError as error:
                print(f"{name:38} not run: {error}")
                del rounds[name]
    _print(rounds, _medians(options.against) if options.against else {})
    if options.save:
        _save(rounds, options.save)
    print(f"tensors that must be kept, 1 rank: {kept_bytes(config) / 2**30:.2f} GiB")


def _wanted(only: str, beside: Path | None) -> dict[str, list[dict[str, Any]]]:
    """The rows of every contender that is wanted, none yet; those of the other checkout follow this one's."""
    texts = [text.strip() for text in only.split(";" if ";" in only else ",")]
    rounds: dict[str, list[dict[str, Any]]] = {}
    for name in CONTENDERS:
        if any(text in name for text in texts):
            rounds[name] = []
            if beside is not None and ("haloscope" in name or "2 ranks" in name):
                rounds[name + OLDER] = []
    return rounds


def middle(seconds: list[float]) -> float:
    """The median of the second half of a run's epochs."""
    return statistics.median(seconds[len(seconds) // 2 :])


def _medians(path: Path) -> dict[str, float]:
    """Contender -> median over rounds of a round's median epoch, of a file that `_save` wrote."""
    found: dict[str, dict[str, list[float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["contender"], {}).setdefault(row["round"], []).append(float(row["seconds"]))
    return {name: statistics.median(map(middle, rounds.values())) for name, rounds in found.items()}


def _print(rounds: dict[str, list[dict[str, Any]]], saved: dict[str, float]) -> None:
    """A line for every contender, beside the first, and beside itself in a saved file."""
    base = 0.0
    for name, runs in rounds.items():
        if not runs:
            continue
        each = sorted(middle(run["seconds"]) for run in runs)
        median = statistics.median(each)
        base = base or median
        faults = [run["faults"] for run in runs if "faults" in run]
        print(
            f"{name:38} {median:7.3f} s/epoch ({each[0]:.3f} to {each[-1]:.3f})  {median / base:5.2f} x  "
            f"peak {max(run['peak'] for run in runs) / 2**30:.2f} GiB"
            + (f"  {statistics.median(faults):9,.0f} faults/epoch" if faults else "")
            + (f"  {median / saved[name]:5.2f} x saved" if name in saved else ""),
            runs[-1].get("parts", ""),
        )


def _save(rounds: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """One row per contender, round and epoch."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["contender", "round", "epoch", "seconds", "faults_per_epoch", "peak_bytes"])
        for name, runs in rounds.items():
            for number, found in enumerate(runs):
                for epoch, seconds in enumerate(found["seconds"]):
                    writer.writerow([name, number, epoch, seconds, found.get("faults", ""), found["peak"]])


def run_contender(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a contender finds in a process of its own, with the nodes and epochs of the options.

    Raises:
        InputError: it failed; with the last line that it wrote.
    """
    command = [sys.executable, "-m", "benchmarks.epoch", "--contender", name.removesuffix(OLDER)]
    command += ["--nodes", str(options.nodes), "--epochs", str(options.epochs)]
    # The memory setting that the launcher gives to ranks with tensors of this size. PyG is run without one, as its
    # users do, and once more with huge pages, to show the effect of the setting alone.
    environment, folder = dict(os.environ), options.beside if name.endswith(OLDER) else None
    if folder is not None:
        environment["PYTHONPATH"] = str(folder.resolve())
    if HUGE_PAGES in name:
        environment["THP_MEM_ALLOC_ENABLE"] = "1"
    if name == FLOOR or "hand-written" in name:
        environment |= large_tensors(4 * options.nodes * 256)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if done.returncode:
        raise InputError(done.stderr.strip().splitlines()[-1])
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


if __name__ == "__main__":
    main()
