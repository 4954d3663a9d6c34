"""CDFGNN's data sets and their vertex cuts: real ones of a stand-in, and those of Table 3 as counts of every GPU.

One graph stands in for a data set everywhere: it is cut for Table 3, gives the shape of the cuts that are timed, and is
trained for the shares of rows that are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from reports.core.context import Context
from reports.core.load import entry, published
from reports.core.train import chosen_graph

HOSTS = 2
DATASETS = {
    "reddit": "Reddit", "ogbn-products": "ogbn-products", "friendster": "Friendster",
    "ogbn-papers100m": "ogbn-papers100M",
}  # fmt: skip
GRAPH_OF = {"reddit": "reddit2"}  # Table 1 has 11.6 M edges (X1)
PRINTED_GPUS = {"reddit": 4, "ogbn-products": 8, "friendster": 16, "ogbn-papers100m": 16}
EBV0, EBV1 = "EBV_gamma=0.0", "EBV_gamma=0.1"
ORDERS = (
    "file",
    "random",
)  # in which EBV may read the edges, beside by degree, as EBV's paper does; CDFGNN does not say
CUTS = {EBV0: "ebv:gamma=0", EBV1: "ebv:gamma=0.1", "HEP": "hep", "DNE": "dne"}


def graph_for(context: Context, dataset: str) -> tuple[str, str]:
    """`chosen_graph` of a data set: its name for `--dataset`, and "" or what it stands in for."""
    return chosen_graph(context, GRAPH_OF.get(dataset, dataset))


def printed_sizes(dataset: str) -> dict[str, Any]:
    """Table 1 of one data set."""
    return entry("cdfgnn", "dataset", name=dataset)


@dataclass(frozen=True)
class Printed:
    """One cut of Table 3: messages (largest over GPUs) inside a host and between hosts, replicas, edge imbalance."""

    dataset: str
    inner: float
    outer: float
    replication: float
    imbalance: float

    @classmethod
    def of(cls, dataset: str, method: str) -> Printed:
        """From the published table."""
        frame = published("cdfgnn-table3")
        mine = frame[(frame["dataset"] == dataset) & (frame["method"] == method)]
        v = {metric: float(value) for metric, value in zip(mine["metric"], mine["value"], strict=True)}
        inner, outer = v["inner_connections_max"], v["outer_connections_max"]
        return cls(dataset, inner, outer, v["replication_factor"], v["edge_imbalance_factor"])

    def connections(self) -> float:
        """Messages that a GPU sends on average: one to and one from the master of every mirror, 2 (R - 1) |V| / p."""
        return 2 * (self.replication - 1) * float(printed_sizes(self.dataset)["vertices"]) / PRINTED_GPUS[self.dataset]

    def mirrors(self) -> tuple[float, float]:
        """Mirrors whose master is on the same host, and on the other one, of all GPUs together.

        At most what the printed messages allow (Reddit's replication factor is above, CD2).
        """
        sent = self.inner + self.outer
        total = min(self.connections(), sent) * PRINTED_GPUS[self.dataset] / 2
        return total * self.inner / sent, total * self.outer / sent


@dataclass(frozen=True, eq=False)
class StandInCut:
    """A real cut of a graph.

    Attributes:
        quality: `VertexQuality.summary`.
        pairs: int64 [P, P], mirrors of part i whose masters part j has; edges: int64 [P], undirected.
    """

    quality: dict[str, float]
    pairs: np.ndarray
    edges: np.ndarray

    def mirrors(self) -> tuple[float, float]:
        """Mirrors whose master is on the same host, and on the other one."""
        inside = float(self.pairs[_same_host(len(self.edges))].sum())
        return inside, float(self.pairs.sum()) - inside


def _same_host(gpus: int) -> np.ndarray:
    host = np.arange(gpus) // (gpus // HOSTS)
    same: np.ndarray = host[:, None] == host[None, :]
    return same


@cache
def stand_in_cut(graph: str, method: str, gpus: int, order: str = "") -> StandInCut:
    """The cut of a data set's name by one of `CUTS`, over two hosts; `order`: of EBV's edges, other than usual."""
    from harness import datasets
    from harness.partition.vertex import assign_edges, masters, undirected_pairs, vertex_quality

    whole = datasets.load(graph)
    name = CUTS[method] + (f":order={order}" if order else "")
    part = assign_edges(whole, name, gpus, 0, HOSTS)
    u, v = undirected_pairs(whole)
    master = masters(u, v, part, whole.num_nodes, gpus, HOSTS)
    pairs = np.zeros((gpus, gpus), np.int64)
    for gpu in range(gpus):
        held = np.unique(np.concatenate([u[part == gpu], v[part == gpu]]))
        pairs[gpu] = np.bincount(master[held], minlength=gpus)
        pairs[gpu, gpu] = 0
    quality = vertex_quality(whole, part, gpus, HOSTS).summary()
    return StandInCut(dict(quality), pairs, np.bincount(part, minlength=gpus))


def gpu_counts(context: Context, dataset: str, method: str, gpus: int) -> tuple[np.ndarray, np.ndarray]:
    """(mirrors of GPU i with masters on GPU j, undirected edges of every GPU) of the paper's own graph.

    At the number of GPUs of Table 3 the mirrors inside a host and between hosts are the printed ones, spread over pairs
    of GPUs as in the stand-in's cut; at other numbers they change as the stand-in's cut changes. Edges: the fullest GPU
    has the printed imbalance at that number, elsewhere edges are spread as in the stand-in's cut.
    """
    if gpus == HOSTS and method == EBV1:
        method = EBV0  # one GPU a host: the paper has the same cuts
    graph, home = graph_for(context, dataset)[0], PRINTED_GPUS[dataset]
    here, there, printed = (
        stand_in_cut(graph, method, gpus),
        stand_in_cut(graph, method, home),
        Printed.of(dataset, method),
    )
    factors = [want / max(have, 1.0) for want, have in zip(printed.mirrors(), there.mirrors(), strict=True)]
    if gpus == HOSTS:
        factors[1] = sum(printed.mirrors()) / max(sum(there.mirrors()), 1.0)
    sizes = printed_sizes(dataset)
    pairs = here.pairs * np.where(_same_host(gpus), *factors) * context.inputs.boundary
    edges = here.edges * (sizes["edges"] / here.edges.sum())
    if gpus == home:
        edges = _with_peak(edges, printed.imbalance)
    return np.minimum(pairs, sizes["vertices"] // gpus).round().astype(np.int64), edges.round().astype(np.int64)


def _with_peak(edges: np.ndarray, imbalance: float) -> np.ndarray:
    """As many edges in all, with another largest over mean number: one GPU more, or all closer to the mean."""
    mean, fullest = edges.mean(), int(edges.argmax())
    most = imbalance * mean
    if edges[fullest] > most:
        closer: np.ndarray = mean + (edges - mean) * (most - mean) / (edges[fullest] - mean)
        return closer
    rest: np.ndarray = edges * (edges.sum() - most) / (edges.sum() - edges[fullest])
    rest[fullest] = most
    return rest


def cut_workload(context: Context, dataset: str, method: str, gpus: int) -> dict[str, Any]:
    """The workload description of one cut of the paper's own graph (docs/workloads.md)."""
    s, (pairs, edges) = printed_sizes(dataset), gpu_counts(context, dataset, method, gpus)
    graph = {"nodes": s["vertices"], "edges": 2 * s["edges"], "train": s["vertices"]}
    graph |= {"features": s["features"], "classes": s["classes"]}
    return {"name": DATASETS[dataset], "graph": graph, "parts": {"pairs": pairs.tolist(), "edges": edges.tolist()}}
