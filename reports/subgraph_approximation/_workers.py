"""Workers of subgraph approximation as counts: their memory, the time of an epoch, the cost of averaging parameters.

A worker exchanges no rows, so it is one device with a graph of its own: the part's nodes, copies of `overlap` times
as many, and the edges among them. Parts themselves are not published; what is taken for them is in `ASSUMED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from harness import datasets
from harness.partition.edge import OverlapQuality, assigned
from harness.partition.overlap import overlapped
from reports.core import load
from reports.core.context import SHAPES, Context, demand
from reports.core.table import Fitted
from reports.core.train import chosen_graph

PAPER = "subgraph-approximation"
CLUSTER = "subgraph-20x1080ti"
OVERLAPS = (0.0, 0.10, 0.25, 0.50)
EPOCH_S, EPOCH_WORKERS = 1.0, 5  # of distributed training of KW-GCN, in the example of Sec. 1: "about one second"
GRAPH_OF = {"reddit": "reddit2"}  # 11.6 M edges (X1)
ASSUMED = (
    "cut edges: 1.3 M of Reddit's in 5 parts (Sec. 1); the same share of Amazon2M's, and in P parts in proportion to "
    "1 - 1/P",
    "a part holds its own nodes, O times as many copies, and as many more edges than those among its own nodes as the "
    "overlapping parts of the graph that is trained do (a METIS cut and Algorithm 1)",
)


@dataclass(frozen=True)
class WorkerCounts:
    """Nodes and edges of one worker. Edges are directed."""

    nodes: float
    edges: float
    features: int
    classes: int

    @property
    def nbytes(self) -> float:
        """float32 features and an int64 edge list, as the authors' framework keeps them on the device."""
        return 4 * self.nodes * self.features + 16 * self.edges


def dataset(name: str) -> Mapping[str, Any]:
    """A graph of the paper's Table 1, from its set-up."""
    return load.entry(PAPER, "dataset", name=name)


def cut_share() -> float:
    """Share of Reddit's edges that METIS cuts in 5 parts, over the share that a random cut does."""
    cut = said("cut_edges")
    return cut / float(dataset("reddit")["edges"]) / (1 - 1 / 5)


def held_edges(context: Context, name: str, parts: int, overlap: float) -> float:
    """Edges that a part holds with its copies, over those among its own nodes: of the graph that is trained."""
    if parts == 1 or not overlap:
        return 1.0
    return _held(chosen_graph(context, GRAPH_OF.get(name, name))[0], parts, overlap)


@cache
def _held(graph: str, parts: int, overlap: float) -> float:
    found = overlapped(datasets.load(graph), "metis-cut", parts, overlap=overlap).quality
    assert isinstance(found, OverlapQuality)
    return sum(found.held) / (sum(found.edges) - sum(found.cut))


def worker_counts(context: Context, name: str, parts: int, overlap: float = 0.0, scale: float = 1.0) -> WorkerCounts:
    """A worker's share of a graph; `scale` is its size over that of the mean worker."""
    graph = dataset(name)
    own, edges = graph["vertices"] / parts, 2 * graph["edges"] / parts
    uncut = (1 - cut_share() * (1 - 1 / parts)) * edges
    held = uncut * held_edges(context, name, parts, overlap)
    return WorkerCounts(scale * own * (1 + overlap), scale * held, graph["features"], graph["classes"])


def followed_config(context: Context) -> dict[str, Any]:
    """The example of Sec. 1: every cut edge is followed, in both directions, by a message of input features.

    Every message has a node of its own, so that no row serves two edges.
    """
    graph, workers = dataset("reddit"), EPOCH_WORKERS
    messages = 2 * said("cut_edges")
    counts = {"nodes": round(messages), "edges": 2 * round(messages), "train": round(messages)}
    described = {
        "name": "Reddit, every cut edge followed",
        "graph": {**counts, "features": graph["features"], "classes": graph["classes"]},
        "parts": {"count": workers, "boundary": round(messages / workers), "edges_per_boundary_node": 1},
    }
    return {
        **SHAPES, "dataset": context.workload(described), "parts": workers, "method": "vanilla", "model": "gcn",
        "layers": 2, "hidden": 16, "layer0": "exchange", "cluster": CLUSTER, "epochs": 2,
    }  # fmt: skip


def followed_gb(context: Context) -> float:
    """Gigabytes of input features that an epoch of `followed_config` sends forwards."""
    record = demand(context.runs([followed_config(context)], "followed edges")[0])
    return float(record["epochs"][-1]["bytes"]["forward"][0]) / load.GB


def said(metric: str) -> float:
    """The first number of the running text of this metric."""
    frame = load.text(PAPER)
    return float(frame.loc[frame["metric"] == metric, "value"].iloc[0])


FANOUTS = (25, 10)  # GraphSAGE's; the paper prints none


def operations(name: str, workers: int, overlap: float) -> tuple[float, float, float]:
    """Operations of an epoch by the complexities of Sec. 5.4: ClusterGCN; distributed GraphSAGE; the same with r^L.

    ClusterGCN: ||A|| F + N F^2. GraphSAGE: N (1 + O) F^2 / M, where the paper takes r^L, the sampled neighbours of all
    layers, to be a small constant and leaves it out; L stands before all of them.
    """
    graph = dataset(name)
    n, f, nonzeros = graph["vertices"], graph["features"], 2 * graph["edges"]
    sage = n * (1 + overlap) * f**2 / workers
    return nonzeros * f + n * f**2, sage, FANOUTS[0] * FANOUTS[1] * sage


def gcn_config(context: Context, worker: WorkerCounts) -> dict[str, Any]:
    """An epoch of the paper's KW-GCN on one worker's graph, by counts."""
    graph = {
        "nodes": round(worker.nodes),
        "edges": round(worker.edges),
        "features": worker.features,
        "classes": worker.classes,
        "train": round(0.7 * worker.nodes),
    }
    described = {"name": "one worker", "graph": graph, "parts": {"count": 1, "boundary": 0}}
    return {
        **SHAPES, "dataset": context.workload(described), "parts": 1, "method": "single", "model": "gcn", "layers": 2,
        "hidden": 128, "order": "linear-first", "cluster": CLUSTER, "epochs": 2,
    }  # fmt: skip


@dataclass(frozen=True)
class WorkerEpoch:
    """One worker's epoch: seconds on the modelled device, and the bytes that it holds at most."""

    seconds: float
    peak_bytes: float


def gcn_epochs(context: Context, workers: list[WorkerCounts], *, trial: bool = False) -> list[WorkerEpoch]:
    """A `WorkerEpoch` per worker, from shapes-only runs; a `trial` is a run that a constant is fitted with.

    Raises:
        InputError: a run failed.
    """
    records = context.runs([gcn_config(context, worker) for worker in workers], "workers of KW-GCN", trial=trial)
    summaries = [demand(record)["summary"] for record in records]
    return [WorkerEpoch(summary["epoch_seconds"], summary["peak_memory"]) for summary in summaries]


def fits_memory(context: Context, name: str, parts: int) -> bool:
    """Whether the mean worker of KW-GCN fits the memory of its device."""
    config = gcn_config(context, worker_counts(context, name, parts))
    return bool(context.runs([config], "workers of KW-GCN")[0]["state"] == "done")


def first_ring(context: Context, name: str, parts: int) -> tuple[float, float, str]:
    """The fewest nodes of one part with an edge into another, the copies that the largest overlap takes of them, and
    the graph that is cut.
    """
    graph, data = chosen_graph(context, GRAPH_OF.get(name, name))
    return *_first_ring(graph, parts), data or graph


@cache
def _first_ring(name: str, parts: int) -> tuple[float, float]:
    graph = datasets.load(name)
    owner = assigned(graph, "metis-cut", parts).owner.astype(np.int64)
    reader = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    crossing = owner[reader] != owner[graph.indices]
    met = np.unique(np.stack([owner[reader[crossing]], graph.indices[crossing]]), axis=1)
    ring = np.bincount(met[0] * parts + owner[met[1]], minlength=parts * parts).reshape(parts, parts)
    copies = max(OVERLAPS) * np.bincount(owner, minlength=parts) / (parts - 1)
    share = np.where(np.eye(parts, dtype=bool), np.inf, ring / copies[:, None])
    least = np.unravel_index(share.argmin(), share.shape)
    return float(ring[least]), float(copies[least[0]])


def average_config(name: str, parts: int) -> dict[str, Any]:
    """A run of the method itself to time the parameter average: a tiny graph, the real widths."""
    graph = dataset(name)
    described = f"synthetic:nodes=400,degree=4,features={graph['features']},classes={graph['classes']}"
    return {
        "mode": "sim", "cluster": CLUSTER, "dataset": described, "parts": parts, "layers": 2, "hidden": 128,
        "method": f"{PAPER}:overlap=0", "partitioner": "contiguous", "epochs": 2, "eval_every": -1, "threads": 1,
    }  # fmt: skip


def average_seconds(context: Context, name: str, parts: int, *, trial: bool = False) -> float:
    """Modelled seconds of one parameter average: up to the master, down to all workers."""
    record = demand(context.runs([average_config(name, parts)], "parameter average", trial=trial)[0])
    seconds: Mapping[str, float] = record["summary"]["seconds"]
    return seconds["reduce"] + seconds["wait"]


@dataclass(frozen=True)
class Gcn:
    """KW-GCN on one graph.

    Attributes:
        workers: (parts, overlap, "min" | "max" | "") -> the least or fullest worker's epoch; "" on one machine.
        slow: seconds of the paper's machine per modelled second of the device.
        epochs: to convergence, in every row.
        average_s: parts -> seconds of one parameter average.
        notes: the fitted constants and the rows they were fitted on.
    """

    workers: dict[tuple[int, float, str], WorkerEpoch]
    slow: float
    epochs: float
    average_s: dict[int, float]
    notes: tuple[str, ...]

    def peak_gb(self, parts: int, overlap: float, bound: str) -> float:
        """Memory of the least or fullest worker."""
        return self.workers[parts, overlap, bound].peak_bytes / load.GB

    def seconds(self, parts: int, overlap: float) -> float:
        """Time to convergence: the fullest worker's epochs and their averages."""
        epoch = self.workers[parts, overlap, "max" if parts > 1 else ""]
        return self.epochs * (self.slow * epoch.seconds + self.average_s.get(parts, 0.0))


def printed(table: str, gnn: str, metric: str, parts: int, overlap: float | None) -> pd.DataFrame:
    """The cells of Table 2, 3 or 4 of one GNN and machine count; an overlap of None is the single machine."""
    frame = load.published(f"{PAPER}-{table}").drop_duplicates(
        ["model", "metric", "partitions", "overlap_pct", "bound"]
    )
    same = frame["overlap_pct"].isna() if overlap is None else frame["overlap_pct"] == 100 * overlap
    return frame[(frame["model"] == gnn) & (frame["metric"] == metric) & (frame["partitions"] == parts) & same]


def printed_value(table: str, gnn: str, metric: str, parts: int, overlap: float | None) -> float:
    """The mean of `printed`."""
    return float(printed(table, gnn, metric, parts, overlap)["value"].mean())


@dataclass(frozen=True)
class Machine:
    """The constants of KW-GCN on the paper's machines.

    Attributes:
        slow: seconds of the paper's machine per modelled second of the device.
        average: seconds of a parameter average per modelled second.
        epochs: to convergence on Reddit, in every row.
    """

    slow: float
    average: float
    epochs: float


def fitted_machine(context: Context) -> Machine:
    """Fitted on the single machine (compute) and on 3 workers without overlap (the average)."""
    epochs = printed_value("table2", "KW-GCN", "training_time", EPOCH_WORKERS, 0.0) / EPOCH_S
    fullest = _sizes(context, "table2", "reddit", 3)["max"]
    wanted = [worker_counts(context, "reddit", 1), worker_counts(context, "reddit", 3, 0.0, fullest)]
    single, worker = gcn_epochs(context, wanted, trial=True)
    slow = printed_value("table2", "KW-GCN", "training_time", 1, None) / epochs / single.seconds
    isolated = printed_value("table2", "KW-GCN", "training_time", 3, 0.0) / epochs
    average = (isolated - slow * worker.seconds) / average_seconds(context, "reddit", 3, trial=True)
    rows = "Table 2, KW-GCN, "
    context.fits.update(
        {
            Fitted(testbed=CLUSTER, constant="factor on device speed", value=1 / slow, row=rows + "1 machine"): None,
            Fitted(testbed=CLUSTER, constant="factor on the speed of the parameter average", value=1 / average,
                   row=rows + "3 workers, 0 % overlap"): None,
        }
    )  # fmt: skip
    return Machine(slow, average, epochs)


def gcn_on_reddit(context: Context) -> Gcn:
    """KW-GCN on Reddit, with two constants fitted on its own baselines."""
    machine = fitted_machine(context)
    workers, notes = _workers(context, "table2", "reddit", (3, 5))
    (single,) = gcn_epochs(context, [worker_counts(context, "reddit", 1)])
    fitted = (
        f"KW-GCN takes {machine.epochs:.0f} epochs in every row ({EPOCH_S:.0f} s an epoch on {EPOCH_WORKERS} workers, "
        f"Sec. 1); modelled compute x {machine.slow:.3g}, fitted on the single machine",
        f"the parameter average takes {machine.average:.3g} times what the modelled link needs, fitted on 3 workers at "
        "0 %",
        "KW-GCN's memory is the ledger's, with no constant; the fullest worker is the slowest",
    )
    averages = {parts: machine.average * average_seconds(context, "reddit", parts) for parts in (3, 5)}
    return Gcn({**workers, (1, 0.0, ""): single}, machine.slow, machine.epochs, averages, (*fitted, *notes))


def gcn_on_amazon(context: Context) -> Gcn:
    """Machine and average as fitted on Reddit; the number of epochs is fitted on the row without overlap."""
    machine = fitted_machine(context)
    workers, notes = _workers(context, "table3", "amazon2m", (5,))
    fullest = _sizes(context, "table3", "amazon2m", 5)["max"]
    (isolated,) = gcn_epochs(context, [worker_counts(context, "amazon2m", 5, 0.0, fullest)], trial=True)
    epoch = machine.slow * isolated.seconds + machine.average * average_seconds(context, "amazon2m", 5, trial=True)
    epochs = printed_value("table3", "KW-GCN", "training_time", 5, 0.0) / epoch
    row = "Table 3, 5 workers, 0 % overlap"
    trained = Fitted(testbed=CLUSTER, constant="training of KW-GCN on Amazon2M", value=epochs, unit="epochs", row=row)
    context.fits[trained] = None
    fitted = (
        f"{epochs:.0f} epochs in every row, fitted on the row without overlap; machine and average as fitted on Reddit "
        f"(compute x {machine.slow:.3g}, average x {machine.average:.3g})"
    )
    average = machine.average * average_seconds(context, "amazon2m", 5)
    return Gcn(workers, machine.slow, epochs, {5: average}, (fitted, *notes))


def _sizes(context: Context, table: str, name: str, parts: int) -> dict[str, float]:
    """Size of the least and the fullest worker over the mean one ("min", "max"), by the memory printed at 0 %."""
    (mean,) = gcn_epochs(context, [worker_counts(context, name, parts)], trial=True)
    cells = printed(table, "KW-GCN", "gpu_memory_allocated", parts, 0.0)
    return dict(zip(cells["bound"], load.GB * cells["value"] / mean.peak_bytes, strict=True))


def _workers(
    context: Context, table: str, name: str, parts: tuple[int, ...]
) -> tuple[dict[tuple[int, float, str], WorkerEpoch], list[str]]:
    """Epochs of the least and fullest workers of every row; their sizes are fitted on the rows at 0 %."""
    wanted, notes = dict[tuple[int, float, str], WorkerCounts](), []
    for count in parts:
        scales = _sizes(context, table, name, count)
        wanted |= {
            (count, o, bound): worker_counts(context, name, count, o, s)
            for o in OVERLAPS
            for bound, s in scales.items()
        }
        held = " and ".join(f"{scale:.2f}" for scale in scales.values())
        notes.append(
            f"{name}, {count} workers: least and fullest hold {held} of the mean, by the memory printed without overlap"
        )
    return dict(zip(wanted, gcn_epochs(context, list(wanted.values())), strict=True)), notes


def sage_bytes(context: Context, name: str, parts: int, overlap: float, bound: str = "") -> float:
    """Memory of a GraphSAGE worker: a constant of the graph, and a slope on the bytes of features and edges.

    The slope is fitted on Reddit's single machine and 3 workers without overlap, the constant on 3 (Reddit) or 20
    (Amazon2M) workers without overlap. The sizes of the least ("min") and the fullest ("max") worker are fitted on the
    rows without overlap of as many workers; "" is the mean worker, or the only number printed.
    """
    memory = "gpu_memory_allocated"
    one, three = worker_counts(context, "reddit", 1).nbytes, worker_counts(context, "reddit", 3).nbytes
    drop = printed_value("table2", "GraphSAGE", memory, 1, None) - printed_value("table2", "GraphSAGE", memory, 3, 0.0)
    slope = load.GB * drop / (one - three)
    table, base = ("table2", 3) if name == "reddit" else ("table4", 20)
    fitted = load.GB * printed_value(table, "GraphSAGE", memory, base, 0.0)
    constant = fitted - slope * worker_counts(context, name, base).nbytes
    scale = 1.0
    if bound:
        cells = printed(table, "GraphSAGE", memory, parts, 0.0)
        isolated = load.GB * float(cells.loc[cells["bound"] == bound, "value"].iloc[0])
        scale = (isolated - constant) / (slope * worker_counts(context, name, parts).nbytes)
    return constant + scale * slope * worker_counts(context, name, parts, overlap).nbytes
