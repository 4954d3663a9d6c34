"""CDFGNN, Fig. 5 and 6: seconds of an epoch on two hosts of eight A800, from the printed vertex cuts.

No time is printed, so nothing is fitted: orderings are judged. Replication and the share of messages between hosts are
those of Table 3 at its number of GPUs; at other numbers they are scaled as they change on a real graph that is cut the
same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from reports.cdfgnn._accuracy import MODEL, VARIANTS, cache_run, observed
from reports.core.clusters import link_bandwidth, link_changed
from reports.core.context import SHAPES, Context, demand
from reports.core.load import entry, published
from reports.core.table import Ordering, Plot
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import COMPONENT_COLOURS, OTHER_COLOURS

CLUSTER = "cdfgnn-2x8a800"
HOSTS = 2
DATASETS = {
    "reddit": "Reddit", "ogbn-products": "ogbn-products", "friendster": "Friendster",
    "ogbn-papers100m": "ogbn-papers100M",
}  # fmt: skip
PRINTED_GPUS = {"reddit": 4, "ogbn-products": 8, "friendster": 16, "ogbn-papers100m": 16}
CUTS = {"EBV_gamma=0.0": "ebv:gamma=0", "EBV_gamma=0.1": "ebv:gamma=0.1", "HEP": "hep", "DNE": "dne"}
STAND_INS = {
    "reddit": "flickr_attr", "ogbn-products": "amazon_computers", "friendster": "github_social",
    "ogbn-papers100m": "coauthor_physics",
}  # fmt: skip
COMMUNICATION = "communication, with codec, comparison and waiting"
ELSEWHERE = "synthetic:nodes=4000,degree=30"  # where a stand-in is not on disk


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


@dataclass(frozen=True)
class Cut:
    """Parameters of a cut in the simulation: replication, the share of messages that leave a host, edge imbalance."""

    replication: float
    outside: float
    imbalance: float

    @classmethod
    def of(cls, dataset: str, method: str, gpus: int) -> Cut:
        """Table 3's at its number of GPUs; otherwise changed as the stand-in's cut changes with the number."""
        if gpus == HOSTS and method.startswith("EBV"):
            method = "EBV_gamma=0.0"  # one GPU a host: the paper has the same cuts
        printed, home = Printed.of(dataset, method), PRINTED_GPUS[dataset]
        here, there = measured(dataset, method, gpus), measured(dataset, method, home)
        # The printed replication factor is capped by the printed messages (CD2: Reddit's is above).
        most = 1 + (printed.inner + printed.outer) * home / (2 * printed_sizes(dataset)["vertices"])
        replication = min(printed.replication, most)
        growth = (here["replication"] - 1) / (there["replication"] - 1)
        outside = printed.outer / (printed.inner + printed.outer)
        if gpus == HOSTS:
            outside = 1.0
        elif gpus != home:
            outside = min(outside * _outside(here) / _outside(there), 0.99)
        spread = 1 + (printed.imbalance - 1) * (gpus / home) ** 0.5
        return cls(min(1 + (replication - 1) * growth, float(gpus)), outside, spread)


def _outside(counts: Mapping[str, float]) -> float:
    return counts["outer"] / max(counts["inner"] + counts["outer"], 1.0)


def printed_sizes(dataset: str) -> dict[str, Any]:
    """Table 1 of one data set."""
    return entry("cdfgnn", "dataset", name=dataset)


def stand_in(dataset: str) -> str:
    """The graph that is cut in place of a data set."""
    from harness.datasets import known_datasets

    there = {name for name, _, here in known_datasets() if here}
    return STAND_INS[dataset] if STAND_INS[dataset] in there else ELSEWHERE


def measured(dataset: str, method: str, gpus: int) -> dict[str, float]:
    """Quality of a stand-in's cut (`VertexQuality.summary`)."""
    return _measured(stand_in(dataset), CUTS[method], gpus)


@cache
def _measured(name: str, partitioner: str, gpus: int) -> dict[str, float]:
    from harness import datasets
    from harness.partition.vertex import assign_edges, vertex_quality

    graph = datasets.load(name)
    cut_quality: dict[str, float] = vertex_quality(
        graph, assign_edges(graph, partitioner, gpus, 0, HOSTS), gpus, HOSTS
    ).summary()
    return cut_quality


def config(context: Context, dataset: str, method: str, gpus: int, variant: str) -> dict[str, Any]:
    """The run of one variant of CDFGNN on one cut.

    Only counts per GPU are known, so every pair of GPUs exchanges equally much; the bandwidth of the adapter between
    the hosts is raised by the factor by which the cut sends less through it. Edge imbalance slows down the first host.
    """
    cut, s = Cut.of(dataset, method, gpus), printed_sizes(dataset)
    even = gpus / HOSTS / (gpus - 1)
    cluster = link_changed(CLUSTER, "nic", link_bandwidth(CLUSTER, "nic") * even / cut.outside)
    graph = {"nodes": s["vertices"], "edges": 2 * s["edges"], "train": s["vertices"]}
    graph |= {"features": s["features"], "classes": s["classes"]}
    path = context.workload({"name": DATASETS[dataset], "graph": graph, "parts": {"replication": cut.replication}})
    rates = {"rates": context.rates("cdfgnn", observed(context, variant, dataset))} if "Quantify" not in variant else {}
    if variant == "Baseline":
        rates = {}
    return {
        **SHAPES, **MODEL, "dataset": path, "parts": gpus, "method": VARIANTS[variant], **rates, "epochs": 2,
        "cluster": f"{cluster}:stragglers.hosts.0={cut.imbalance:.4g}",
    }  # fmt: skip


def shown(dataset: str) -> tuple[int, ...]:
    """The smallest and largest number of GPUs of the paper, and that of Table 3."""
    return tuple(sorted({2, PRINTED_GPUS[dataset], 16}))


def figure5(context: Context) -> Plot:
    """Average time of an epoch by the number of GPUs."""
    paths = context.figure_paths("cdfgnn/figure5")
    cases = [(dataset, method, gpus) for dataset in DATASETS for method in CUTS for gpus in shown(dataset)]
    configs = [config(context, *case, "Both") for case in cases]
    records = context.runs(configs, "epoch times")
    by_case = dict(zip(cases, map(timed_record, records), strict=True))
    seconds = {case: float(record["summary"]["seconds"]["epoch"]) for case, record in by_case.items()}
    full = [case for case, record in by_case.items() if record["state"] == "out_of_memory"]
    with panels(paths, len(DATASETS), columns=4, height=2.1) as axes:
        for panel, dataset in zip(axes, DATASETS, strict=True):
            for at, method in enumerate(CUTS):
                values = [seconds[dataset, method, gpus] for gpus in shown(dataset)]
                style: Any = {
                    "color": OTHER_COLOURS[at],
                    "linestyle": DASHES[at],
                    "marker": "osD^"[at],
                    "markersize": 3,
                }
                panel.plot(shown(dataset), values, **style, label=method.replace("_gamma=", ", gamma "))
            over = [case for case in full if case[0] == dataset]
            crossed: Any = {"color": "#202020", "marker": "x", "s": 30, "linewidths": 0.8, "zorder": 4}
            panel.scatter([gpus for *_, gpus in over], [seconds[case] for case in over], **crossed,
                          label="exceeds 80 GB a GPU")  # fmt: skip
            panel.set_title(DATASETS[dataset], loc="left")
            panel.set_xscale("log", base=2)
            panel.set_ylim(0)
            panel.set_xticks(shown(dataset), list(map(str, shown(dataset))))
            panel.set_xlabel("GPUs")
        axes[0].set_ylabel("epoch (s)")
    return Plot(
        key="cdfgnn/figure5", title="CDFGNN, Fig. 5: average time of an epoch", paths=paths,
        caption="Simulated; CAGNET and Sancus are not built. The paper prints no epoch time. Crossed out: what would "
        "not fit the memory of a GPU, timed all the same.",
        orderings=tuple(_faster(seconds)),
        assumptions=(
            "nothing is fitted: device and NCCL constants of the cluster file; one adapter per host",
            "replication (at most what the printed connections allow, CD2), messages between hosts and edge imbalance "
            "of Table 3; at other numbers of GPUs scaled by "
            + ", ".join(f"{stand_in(d)} for {DATASETS[d]}" for d in DATASETS),
            "shares of rows sent: mean over training on each data set's own stand-in (Fig. 7); 8 bits (not published)",
        ),
        commands=context.texts_of([*(cache_run(context, "Both", dataset) for dataset in DATASETS), *configs]),
    )  # fmt: skip


def timed_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a run that has times, also where it exceeds memory. Raises InputError where it failed."""
    return record if record["state"] == "out_of_memory" else demand(record)


def _faster(seconds: Mapping[tuple[str, str, int], float]) -> list[Ordering]:
    """The claims of Sec. 7.2 on the partitioners."""
    orderings = []
    for dataset, name in DATASETS.items():
        gpus = PRINTED_GPUS[dataset]
        for slower in ("EBV_gamma=0.0", "HEP", "DNE"):
            if (dataset, slower) == ("reddit", "HEP"):
                continue  # on which the paper reports good results of HEP
            labels = (slower, "EBV_gamma=0.1")
            values = tuple(seconds[dataset, label, gpus] for label in labels)
            claim = f"{name}, {gpus} GPUs: {slower} takes longer than EBV_gamma=0.1"
            claim += " (CD3: it sends fewer messages)" if slower == "HEP" else ""
            orderings.append(Ordering(text=claim, expected=labels, ours=values))
    return orderings


def figure6(context: Context) -> Plot:
    """Computation and communication of an epoch for every partitioner and for cache and quantisation alone."""
    paths = context.figure_paths("cdfgnn/figure6")
    bars = {method: (method, "Both") for method in CUTS}
    bars |= {variant: ("EBV_gamma=0.1", variant) for variant in ("Cache", "Quantify", "Baseline")}
    graphs = ("reddit", "ogbn-products")
    cases = [(dataset, bar) for dataset in graphs for bar in bars]
    configs = [config(context, dataset, bars[b][0], PRINTED_GPUS[dataset], bars[b][1]) for dataset, b in cases]
    records = context.runs(configs, "parts of an epoch")
    times = {case: _split(timed_record(record)) for case, record in zip(cases, records, strict=True)}
    with panels(paths, len(graphs), columns=2) as axes:
        for panel, dataset in zip(axes, graphs, strict=True):
            compute = [1e3 * times[dataset, bar][0] for bar in bars]
            panel.bar(range(len(bars)), compute, 0.65, color=COMPONENT_COLOURS["compute"], label="computation")
            panel.bar(range(len(bars)), [1e3 * times[dataset, bar][1] for bar in bars], 0.65, compute,
                      color=COMPONENT_COLOURS["halo"], label=COMMUNICATION)  # fmt: skip
            labels = [bar.replace("_gamma=", " ") for bar in bars]
            panel.set_xticks(range(len(bars)), labels, rotation=35, ha="right", fontsize=7)
            panel.set_title(f"{DATASETS[dataset]}, {PRINTED_GPUS[dataset]} GPUs", loc="left")
            panel.set_ylabel("epoch (ms)")
    return Plot(
        key="cdfgnn/figure6", title="CDFGNN, Fig. 6: computation and communication", paths=paths,
        caption="Simulated means over GPUs. Cache, Quantify and Baseline are on EBV, gamma 0.1.",
        orderings=tuple(_communication({case: parts[1] for case, parts in times.items()}, graphs)),
        assumptions=("as Fig. 5", "the paper prints no time"),
        commands=context.texts_of(
            [*(cache_run(context, variant, name) for variant in ("Both", "Cache") for name in graphs), *configs]
        ),
    )  # fmt: skip


def _split(record: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of computation and of everything that the paper counts as communication."""
    seconds = record["summary"]["seconds"]
    return seconds["compute"], seconds["epoch"] - seconds["compute"]


def _communication(comm: Mapping[tuple[str, str], float], graphs: tuple[str, ...]) -> list[Ordering]:
    """The claims of Sec. 7.3 on communication time."""
    claims = []
    pairs = [
        ("EBV_gamma=0.0", "EBV_gamma=0.1"), ("Baseline", "Cache"), ("Baseline", "Quantify"),
        ("Cache", "EBV_gamma=0.1"), ("Quantify", "EBV_gamma=0.1"),
    ]  # fmt: skip
    for dataset in graphs:
        last = ("Cache", "Quantify") if dataset == "reddit" else ("Quantify", "Cache")
        for labels in (*pairs, last):
            claim = f"{DATASETS[dataset]}: {labels[0]} communicates longer than {labels[1]}"
            claims.append(Ordering(text=claim, expected=labels, ours=tuple(comm[dataset, label] for label in labels)))
    return claims
