"""One process of another system, timed epoch by epoch; started by `benchmarks.peers`, it imports no haloscope.

    PYTHON benchmarks/peer_rank.py '{"system": "sar", "checkout": DIR, "graph": graph.npz, "folder": DIR, ...}'

It needs torch and DGL. The systems' code is used as it is, with three changes from outside: calls of CUDA stay on the
CPU, packages that only load their data sets (and DGL's graphbolt) are replaced by empty ones, and epochs end when their
optimizer has stepped. Prints one line of JSON: seconds of every epoch, and bytes of memory above those after the
imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode


class Anything(types.ModuleType):
    """A module that is imported and never used."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


sys.modules["dgl.graphbolt"] = Anything("dgl.graphbolt")  # its library is built for few releases of torch; unused here
import dgl  # noqa: E402

ENDS: list[float] = []  # of the steps of the optimizer, s


class OnCpu(TorchFunctionMode):
    """Tensors that are asked for on a GPU, or in pinned memory, are ordinary ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


class NoStream:
    """A stream or an event of a device that is never behind."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def without_cuda() -> None:
    """From now on, code that was written for GPUs runs on the CPU."""

    def same(value: Any, *_: Any, **__: Any) -> Any:
        return value

    for owner in (Tensor, nn.Module):
        owner.cuda = same
    Tensor.pin_memory = same
    dgl.DGLGraph.to = same
    torch.cuda.Stream = torch.cuda.Event = NoStream
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.current_stream = lambda *_: NoStream()
    for name in ("synchronize", "reset_peak_memory_stats", "set_device"):
        setattr(torch.cuda, name, lambda *_: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        setattr(torch.cuda, name, lambda *_: 0)
    OnCpu().__enter__()


def without_data_sets() -> None:
    """Stand-ins for packages that the systems import to load their own data sets and to score them."""
    for name in ("ogb", "ogb.nodeproppred", "sklearn", "sklearn.metrics", "sklearn.preprocessing"):
        sys.modules[name] = Anything(name)


def graph_of(asked: dict[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """DGL's graph of the file, and its node data."""
    file = np.load(asked["graph"], allow_pickle=False)
    degree = np.diff(file["indptr"])
    target = np.repeat(np.arange(len(degree)), degree)
    graph = dgl.graph((torch.from_numpy(file["indices"].astype(np.int64)), torch.from_numpy(target)),
                      num_nodes=len(degree))  # fmt: skip
    train = torch.zeros(len(degree), dtype=torch.bool)
    train[torch.from_numpy(file["train"])] = True
    return graph, {"feat": torch.from_numpy(file["x"]), "label": torch.from_numpy(file["y"]), "train_mask": train}


def with_sums(graph: Any, x: Tensor) -> Tensor:
    """Every row with the mean of its neighbours' behind it: the input of the first layer, computed once."""
    with graph.local_scope():
        graph.ndata["x"] = x
        graph.update_all(dgl.function.copy_u("x", "m"), dgl.function.mean("m", "z"))
        return torch.cat([x, graph.ndata["z"]], 1)


def partition(asked: dict[str, Any]) -> None:
    """Write the parts of a system as it reads them: METIS with the volume as its objective."""
    graph, data = graph_of(asked)
    ours = {**data, "val_mask": torch.zeros_like(data["train_mask"]), "test_mask": torch.zeros_like(data["train_mask"])}
    if asked["system"] == "sar":
        ours["features"], ours["labels"] = with_sums(graph, ours.pop("feat")), ours.pop("label")
    else:
        ours |= {"in_degree": graph.in_degrees(), "in_deg": graph.in_degrees(), "out_deg": graph.out_degrees()}
    graph.ndata.update(ours)
    folder = Path(asked["folder"]) / "partitions" / "graph"
    dgl.distributed.partition_graph(graph, "graph", 2, str(folder), part_method="metis", objtype="vol")
    sizes = {"n_feat": data["feat"].shape[1], "n_class": asked["classes"], "n_train": int(data["train_mask"].sum())}
    (folder / "meta.json").write_text(json.dumps(sizes))


def authors_program(asked: dict[str, Any]) -> None:
    """BNS-GCN or PipeGCN: `train.init_processes` of the checkout, with the flags of its `main.py`."""
    without_data_sets()
    without_cuda()
    dgl.function.copy_src = lambda src, out: dgl.function.copy_u(src, out)  # its name in old releases
    sys.path.insert(0, asked["checkout"])
    folder = Path(asked["folder"])
    os.chdir(folder)
    flags = ["--graph-name", "graph", "--model", "graphsage", "--n-layers", "3", "--n-hidden", asked["hidden"]]
    flags += ["--dropout", "0.5", "--norm", "layer", "--use-pp", "--no-eval", "--n-epochs", asked["epochs"]]
    flags += ["--n-partitions", "2", "--log-every", "1000", "--port", asked["port"]]
    if asked["system"] == "bns-gcn":
        flags += ["--part-path", folder / "partitions", "--sampling-rate", asked["rate"]]
    else:
        sizes = json.loads((folder / "partitions" / "graph" / "meta.json").read_text())
        flags += ["--enable-pipeline"]
        flags += [text for name, value in sizes.items() for text in (f"--{name.replace('_', '-')}", value)]
    sys.argv = ["main.py", *map(str, flags)]
    import train
    from helper.parser import create_parser

    train.init_processes(asked["rank"], 2, create_parser())


class Sage(nn.Module):
    """GraphSAGE with DGL's layers; the first one is a product, since its sums are in the rows."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.convs = nn.ModuleList(dgl.nn.SAGEConv(hidden, width, "mean") for width in (hidden, classes))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))

    def forward(self, graph: Any, rows: Tensor) -> Tensor:
        h = self.first(functional.dropout(rows, 0.5))
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(graph, functional.dropout(norm(h).relu(), 0.5))
        return h


def trained(asked: dict[str, Any], graph: Any, rows: Tensor, labels: Tensor, train: Tensor, sar: Any = None) -> None:
    """Train `Sage`; with SAR, on two ranks."""
    model = Sage(rows.shape[1], asked["hidden"], asked["classes"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if sar is not None:
        sar.sync_params(model)
    for _ in range(asked["epochs"]):
        loss = functional.cross_entropy(model(graph, rows)[train], labels[train], reduction="sum") / asked["num_train"]
        optimizer.zero_grad()
        loss.backward()
        if sar is not None:
            sar.gather_grads(model)
        optimizer.step()
        float(loss)


def on_sar(asked: dict[str, Any]) -> None:
    """SAR, full graph, on the loopback device only."""
    os.environ["SAR_SOCKET_NAME"] = "lo"
    sys.path.insert(0, asked["checkout"])
    import sar

    sar.initialize_comms(asked["rank"], 2, "127.0.0.1", "gloo", master_port_number=asked["port"])
    config = str(Path(asked["folder"]) / "partitions" / "graph" / "graph.json")
    data = sar.load_dgl_partition_data(config, asked["rank"], torch.device("cpu"))
    rows, labels, train = (
        sar.suffix_key_lookup(data.node_features, key) for key in ("features", "labels", "train_mask")
    )
    graph = sar.construct_full_graph(data)
    del data
    trained(asked, graph, rows, labels.long(), train.bool(), sar)


def on_dgl(asked: dict[str, Any]) -> None:
    """DGL in one process."""
    graph, data = graph_of(asked)
    rows = with_sums(graph, data["feat"])
    trained(asked, graph, rows, data["label"], data["train_mask"])


def main() -> None:
    """Run what was asked for."""
    asked = json.loads(sys.argv[1])
    if asked.get("what") == "partition":
        partition(asked)
        return
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(0)
    register_optimizer_step_post_hook(lambda *_: ENDS.append(time.perf_counter()))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmRSS")
    {"sar": on_sar, "dgl": on_dgl}.get(asked["system"], authors_program)(asked)
    seconds = [later - earlier for earlier, later in zip(ENDS[:-1], ENDS[1:], strict=True)]
    print(json.dumps({"seconds": seconds, "peak": _status("VmHWM") - before}), flush=True)
    if dist.is_initialized():
        dist.barrier()
    os._exit(0)  # their thread pools would wait for ever


def _status(name: str) -> int:
    """A number of bytes that the kernel keeps of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return 1024 * int(lines[name].split()[0])


if __name__ == "__main__":
    main()
