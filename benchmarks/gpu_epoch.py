"""Epochs of one GPU beside PyG, hand-written PyTorch, and the model's predictions from a calibration of that GPU.

    python -m benchmarks.gpu_epoch measure --save epochs.json [--epochs 20] [--only haloscope,pyg] [--cells 400000]
    haloscope calibrate --device cuda --out calibration
    python -m benchmarks.gpu_epoch predict epochs.json [--cluster calibration/cluster.toml]

Full-graph training on one rank, no exchange: made graphs of four sizes, three models, two widths, 3 layers, 16 classes,
no dropout, Adam, fp32. `measure` times, in one process: haloscope's rank (`single`), as it is and with `graphs`
(`--cuda-graphs`); `pyg`, PyG's layers on an edge
index; `pyg-csr`, the same on a sparse matrix of torch (cuSPARSE; GCN and GraphSAGE); `torch`, the same network written
down with torch's sparse matrices. Each is the median of the epochs after the first five, by events on the stream.
`predict` needs no GPU; a calibration has seen none of these runs (of `h200-1`, the host's two numbers are fitted to six
of them).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.config import RunConfig, from_mapping
from harness.errors import HaloscopeError
from harness.graphs import Part
from harness.running import prepare, run
from real.launch import run_rank

SKIPPED = 5
GRAPHS = ((5_000, 10), (30_000, 20), (100_000, 20), (400_000, 30))
MODELS = ("gcn", "sage", "gat")
WIDTHS = (64, 256)
CONTENDERS = ("haloscope", "graphs", "pyg", "pyg-csr", "torch")
OURS = CONTENDERS[:2]
CLASSES = 16

Forward = Callable[[Tensor], Tensor]


def cells(epochs: int) -> list[RunConfig]:
    """The runs on a GPU."""
    return [
        from_mapping(
            {
                "dataset": f"synthetic:nodes={nodes},degree={degree},features={hidden},classes={CLASSES},seed=1",
                "method": "single", "parts": 1, "model": model, "hidden": hidden, "layers": 3, "epochs": epochs,
                "eval_every": -1, "mode": "real", "device": "cuda", "order": "auto", "renumber": "0",
            }
        )
        for nodes, degree in GRAPHS
        for model in MODELS
        for hidden in WIDTHS
    ]  # fmt: skip


def named(config: RunConfig) -> dict[str, Any]:
    """What tells a cell from the others."""
    nodes, degree = (part.partition("=")[2] for part in config.data.dataset.partition(":")[2].split(",")[:2])
    return {"nodes": int(nodes), "degree": int(degree), "model": config.model.name, "width": config.model.hidden}


def haloscope(config: RunConfig) -> dict[str, float]:
    """Median epoch of the rank that `haloscope run` starts, here in this process, and its memory."""
    records: list[Any] = []
    torch.cuda.reset_peak_memory_stats()
    run_rank(config, records.append)
    kept = records[SKIPPED:]
    return {
        "seconds": statistics.median(each.seconds["epoch"] for each in kept),
        "memory": max(each.peak_memory for each in kept),
    }


def sparse(part: Part, scaled: str, transposed: bool = False) -> Tensor:
    """The graph as torch's sparse matrix: `gcn` with loops and symmetric factors, `mean` of neighbours, or `plain`."""
    block, degree = part.graph.own, part.graph.degree.float()
    rows = torch.repeat_interleave(torch.arange(block.num_rows, device=degree.device), block.indptr.diff().long())
    columns, factor = block.indices.long(), (degree + 1).rsqrt()
    if scaled == "gcn":
        loops = torch.arange(block.num_rows, device=degree.device)
        rows, columns = torch.cat([rows, loops]), torch.cat([columns, loops])
        values = factor[rows] * factor[columns]
    else:
        values = 1 / degree.clamp(min=1)[rows] if scaled == "mean" else torch.ones(len(rows), device=degree.device)
    ends = torch.stack([columns, rows] if transposed else [rows, columns])
    return torch.sparse_coo_tensor(ends, values, (block.num_rows, block.num_rows)).coalesce().to_sparse_csr()


class _Product(torch.autograd.Function):
    """A x, with the gradient A^T g of a transpose that is there already."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, x: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ grads[0]


class Handwritten(nn.Module):
    """GCN or GraphSAGE on torch's sparse matrices, each layer with the cheaper order of product and aggregation."""

    def __init__(self, part: Part, model: str, width: int) -> None:
        super().__init__()
        widths = [width, width, width, CLASSES]
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.near = nn.ModuleList(nn.Linear(a, b, bias=model == "gcn") for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs) if model == "sage" else None
        self.matrix, self.transposed = (sparse(part, "gcn" if model == "gcn" else "mean", t) for t in (False, True))

    def forward(self, h: Tensor) -> Tensor:
        for l, near in enumerate(self.near):
            if near.out_features < near.in_features:
                z = _Product.apply(self.matrix, self.transposed, functional.linear(h, near.weight))  # type: ignore[no-untyped-call]
                z = z if near.bias is None else z + near.bias
            else:
                z = near(_Product.apply(self.matrix, self.transposed, h))  # type: ignore[no-untyped-call]
            h = z if self.own is None else self.own[l](h) + z
            h = h.relu() if l < 2 else h
        return h


def pyg(part: Part, model: str, width: int, csr: bool) -> Forward:
    """A network of PyG's layers on an edge index, or on a sparse matrix of torch."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    block = part.graph.own
    if csr:
        graph = sparse(part, "gcn" if model == "gcn" else "plain")
    else:
        places = torch.arange(block.num_rows, device=block.indptr.device)
        graph = torch.stack([block.indices.long(), torch.repeat_interleave(places, block.indptr.diff().long())])
    options: dict[str, Any] = {}
    if model == "gcn":
        options = {"normalize": False} if csr else {"cached": True}
    kind: Any = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv}[model]
    layers = nn.ModuleList(kind(width, to, **options) for to in (width, width, CLASSES)).to(block.indptr.device)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, h: Tensor) -> Tensor:
            for l, layer in enumerate(self.layers):
                h = layer(h, graph)
                h = h.relu() if l < 2 else h
            return h

    return Net()


def peer(name: str, part: Part, config: RunConfig) -> dict[str, float] | None:
    """Median epoch and peak memory of a contender; None if it has no such model."""
    model, width = config.model.name, config.model.hidden
    if name != "pyg" and model == "gat":
        return None
    torch.cuda.reset_peak_memory_stats()
    net: Any = Handwritten(part, model, width) if name == "torch" else pyg(part, model, width, name == "pyg-csr")
    net = net.to("cuda")
    assert part.x is not None and part.y is not None
    x, labels, rows = part.x, part.y[part.train], part.train
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    seconds = []
    for _ in range(config.training.epochs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(net(x)[rows], labels).backward()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return {"seconds": statistics.median(seconds[SKIPPED:]), "memory": torch.cuda.max_memory_allocated()}


def measure(epochs: int, only: Sequence[str], chosen: str, file: Path) -> None:
    """Print and save every contender's epoch, cell by cell."""
    if not torch.cuda.is_available():
        sys.exit("no GPU is visible here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; milliseconds an epoch (memory in GB)")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cells": []}
    for config in cells(epochs):
        about = named(config)
        if chosen and chosen not in f"{about['model']}:{about['nodes']}":
            continue
        row: dict[str, Any] = {**about, "contenders": {}}
        part = prepare(config).training(0).to(torch.device("cuda"))
        for name in only:
            try:
                ours = haloscope(config.changed(cuda_graphs=name == "graphs")) if name in OURS else None
                got = ours or peer(name, part, config)
            except torch.OutOfMemoryError:
                got = {"error": "out of memory"}  # type: ignore[dict-item]
            except (HaloscopeError, RuntimeError) as error:
                got = {"error": str(error)[:200]}  # type: ignore[dict-item]
            if got is not None:
                row["contenders"][name] = got
            gc.collect()
            torch.cuda.empty_cache()
        found["cells"].append(row)
        file.write_text(json.dumps(found, indent=1))
        print(_line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    ours = row["contenders"].get("haloscope", {}).get("seconds")
    texts = []
    for name, got in row["contenders"].items():
        if "seconds" not in got:
            texts.append(f"{name} {got['error'][:60]}")
            continue
        ratio = f" x{got['seconds'] / ours:.2f}" if ours and name != "haloscope" else ""
        texts.append(f"{name} {1e3 * got['seconds']:.3f} ({got['memory'] / 1e9:.1f}){ratio}")
    return f"{row['nodes']:>7} x {row['degree']:<3}{row['model']:<5}{row['width']:>4}: " + "  ".join(texts)


def predicted(config: RunConfig, cluster: str) -> float:
    """Seconds of the simulated epoch."""
    result = run(config.changed(mode="sim", device="cpu", cluster=cluster, shapes_only=True))
    return statistics.median(epoch["seconds"]["epoch"] for epoch in result.epochs[SKIPPED:])


def predict(file: Path, cluster: str) -> None:
    """Print what the model predicts for the measured cells, without CUDA graphs and with them where both were run."""
    saved = json.loads(file.read_text())
    configs = {tuple(named(config).values()): config for config in cells(SKIPPED + 2)}
    print(f"{saved['device']}, predicted from {cluster}")
    for contender in OURS:
        rows = [row for row in saved["cells"] if "seconds" in row["contenders"].get(contender, {})]
        if not rows:
            continue
        print(
            f"\n{contender}\n{'nodes':>9}{'degree':>8}{'model':>7}{'width':>7}{'measured':>13}{'predicted':>13}{'error':>9}"
        )
        errors = []
        for row in rows:
            about = {key: row[key] for key in ("nodes", "degree", "model", "width")}
            config = configs[tuple(about.values())].changed(cuda_graphs=contender == "graphs")
            measured, seconds = row["contenders"][contender]["seconds"], predicted(config, cluster)
            errors.append(abs(seconds / measured - 1))
            figures = f"{1e3 * measured:>10.3f} ms{1e3 * seconds:>10.3f} ms{seconds / measured - 1:>+9.1%}"
            print(f"{about['nodes']:>9}{about['degree']:>8}{about['model']:>7}{about['width']:>7}{figures}", flush=True)
        print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}, {len(errors)} cells")


def main() -> None:
    """Measure on this GPU, or predict what was measured."""
    parser = argparse.ArgumentParser(description="Measured and predicted epochs of one GPU.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure", help="time every contender on this GPU")
    measuring.add_argument("--save", type=Path, required=True, metavar="FILE", help="write the times here, as JSON")
    measuring.add_argument("--epochs", type=int, default=20)
    measuring.add_argument("--only", default=",".join(CONTENDERS), help="contenders, with commas between")
    measuring.add_argument("--cells", default="", metavar="TEXT", help="cells whose MODEL:NODES contains this text")
    predicting = verbs.add_parser("predict", help="predict what was measured")
    predicting.add_argument("file", type=Path)
    predicting.add_argument("--cluster", default="calibration/cluster.toml", metavar="FILE")
    options = parser.parse_args()
    if options.verb == "predict":
        predict(options.file, options.cluster)
        return
    if options.epochs <= SKIPPED:
        parser.error(f"--epochs must be more than the {SKIPPED} that warm up")
    unknown = set(options.only.split(",")) - set(CONTENDERS)
    if unknown:
        parser.error(f"unknown contenders {', '.join(sorted(unknown))}; there are {', '.join(CONTENDERS)}")
    measure(options.epochs, options.only.split(","), options.cells, options.save)


if __name__ == "__main__":
    main()
