"""EC-Graph's machines: seconds of an epoch on six of them and on one, with one constant per graph.

Two systems share EC-Graph's code base: Non-cp, whose epoch times are not printed, and the authors' DistGNN, whose are.
So one constant per graph is fitted on the DistGNN row of two layers: compute of Non-cp, and a fifth
of its traffic (delayed rounds: 5). It is used at all depths. The network and the codec keep the constants of the
cluster file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from harness.errors import InputError
from harness.methods.registry import METHODS
from harness.workloads import Degrees
from reports.core.clusters import all_faster
from reports.core.context import SHAPES, Context, demand
from reports.core.load import entry, published, text
from reports.core.predict import Seconds
from reports.ec_graph._sampled import expected_shares

DATASETS = {
    "cora": "Cora", "pubmed": "Pubmed", "reddit": "Reddit", "ogbn-products": "ogbn-products",
    "ogbn-papers100m": "ogbn-papers100M",
}  # fmt: skip
LAYERS = (2, 3, 4)
PARTS = 6
PERIOD = 10  # epochs from one exact exchange to the next; an epoch's time is the mean over them
TOPOLOGIES = {"cora": "cora", "pubmed": "pubmed_nofeat"}  # real ones, where they are on disk
# Coefficient of variation of the degrees: nothing is printed, and none moves the boundary of dense graphs by over 8 %.
SPREADS = {"cora": 1.3, "pubmed": 1.7, "reddit": 1.6, "ogbn-products": 1.9, "ogbn-papers100m": 2.0}
# The graph in whose training the share of predicted rows, which are not sent, is measured.
WATCHED = {"cora": "cora", "pubmed": "cora"}
OTHERS = "amazon_computers"
ELSEWHERE = "synthetic:nodes=2000,degree=8,features=64"  # where a graph is not on disk
NON_CP = "ec-graph:fp=exact:bp=exact"
DELAYED = float(entry("ec-graph", "baseline", name="DistGNN")["delayed_rounds"])
# Published systems and the method that would stand for them; names that the registry lacks are "not built".
METHOD_OF = {
    "DGL": "single", "PyG": "single", "EC-Graph": "ec-graph", "EC-Graph-S": "ec-graph-s", "DistGNN": "distgnn",
    "DistDGL": "distdgl", "AGL": "agl", "AliGraph-FG": "aligraph-fg",
}  # fmt: skip
ALONE = ("DGL", "PyG")  # on one machine


def bits(dataset: str) -> dict[str, int]:
    """Bits of Cp-fp, Cp-bp, ReqEC and ResEC on a data set, from Fig. 8 (Table IV prints none)."""
    numbers = text("ec-graph")
    mine = numbers[(numbers["dataset"] == dataset) & (numbers["metric"] == "bits")]
    return {method: int(value) for method, value in zip(mine["method"], mine["value"], strict=True)}


def ec_graph(dataset: str, name: str = "ec-graph") -> str:
    """EC-Graph as published on a data set: predicted forwards, compensated backwards, fixed bits."""
    each = bits(dataset)
    return f"{name}:bits={each['ReqEC']}:backward_bits={each['ResEC']}:tune=false"


def tuner_note(system: str, tuned: bool) -> str:
    """Whether the Bit-Tuner runs, for rows of EC-Graph and EC-Graph-S; "" for other systems."""
    return f"Bit-Tuner {'on' if tuned else 'off'}" if system.startswith("EC-Graph") else ""


def gcn(dataset: str, layers: int) -> dict[str, Any]:
    """Settings of the paper's GCN on a data set."""
    hidden = entry("ec-graph", "model", dataset=dataset)["hidden"]
    return {"model": "gcn", "layers": layers, "hidden": hidden, "order": "auto"}


def default_depth(dataset: str) -> int:
    """Layers that the paper trains a data set with where it does not vary them."""
    return int(entry("ec-graph", "model", dataset=dataset)["layers_default"])


def published_counts(dataset: str) -> dict[str, Any]:
    """Table III and the split of one data set."""
    return entry("ec-graph", "dataset", name=dataset)


def on_disk(name: str) -> bool:
    """Whether a graph can be loaded here."""
    from harness.datasets import known_datasets

    return any(known_name == name and here for known_name, _, here in known_datasets())


def workload(context: Context, dataset: str) -> str:
    """A hash partition of a data set: of the real topology where it is on disk, otherwise in expectation."""
    c = published_counts(dataset)
    sizes = {"features": c["features"], "classes": c["classes"], "train": c["train"]}
    if on_disk(TOPOLOGIES.get(dataset, "")):
        graph, parts = {"dataset": TOPOLOGIES[dataset], **sizes}, {"partitioner": "hash"}
        return context.workload({"name": DATASETS[dataset], "graph": graph, "parts": parts})
    graph = {"nodes": c["vertices"], "edges": c["edges"], **sizes}
    degrees = {"spread": SPREADS[dataset]}
    return context.workload({"name": DATASETS[dataset], "graph": graph, "parts": {"cut": "hash", "degrees": degrees}})


@dataclass(frozen=True)
class Machines:
    """Runs of one data set at one depth on the paper's machines."""

    context: Context
    dataset: str
    layers: int
    parts: int = PARTS

    @property
    def cluster(self) -> str:
        """The cluster file: cluster 2 for ogbn-papers100M, cluster 1 for the others; at most 13 machines."""
        if self.dataset == "ogbn-papers100m":
            return "ec-graph-papers"
        return "ec-graph" if self.parts <= PARTS else "ec-graph-13"

    def clock(self, method: str, *, alone: bool = False, faster: float = 1.0) -> Seconds:
        """One epoch of a method; `alone` on one machine; `faster` multiplies the network's bandwidths."""
        config = self.config(method, alone=alone, faster=faster)
        return Seconds.mean(self.context.runs([config], DATASETS[self.dataset])[0])

    def config(self, method: str, *, alone: bool = False, faster: float = 1.0) -> dict[str, Any]:
        """The run of a method."""
        cluster = all_faster(self.cluster, faster)
        watched = method.startswith("ec-graph:") and ("fp=" not in method or "fp=trend" in method)
        rates = {"rates": self.context.rates("ec-graph", self._predicted(method))} if watched else {}
        run = {"dataset": workload(self.context, self.dataset), "method": method, "cluster": cluster, **rates}
        return {
            **SHAPES, **gcn(self.dataset, self.layers), **run,
            "parts": 1 if alone else self.parts, "epochs": 2 + (PERIOD if watched else 2),
        }  # fmt: skip

    def _predicted(self, method: str) -> dict[str, float]:
        """Shares of predicted rows, observed in training on a small graph."""
        record = demand(self.context.runs([self.watched(method)], "shares of predicted rows")[0])
        epochs = [epoch["observed"] for epoch in record["epochs"][1:]]
        names = sorted({name for seen in epochs for name in seen})
        return {n: fmean(seen[n] for seen in epochs if n in seen) for n in names}

    def watched(self, method: str) -> dict[str, Any]:
        """The training run in which the share of predicted rows is measured."""
        name = WATCHED.get(self.dataset, OTHERS)
        return {
            **gcn("cora", self.layers), "dataset": name if on_disk(name) else ELSEWHERE, "method": method,
            "parts": PARTS, "partitioner": "hash", "epochs": 30, "eval_every": -1, "threads": 1,
            "features": "raw" if name == "cora" else "standard",
        }  # fmt: skip

    def distgnn(self) -> Seconds:
        """An epoch of DistGNN: its own if haloscope has the method, otherwise Non-cp's with a share of the traffic."""
        if METHOD_OF["DistGNN"] in METHODS:
            return self.clock(METHOD_OF["DistGNN"])
        return self.clock(NON_CP, faster=DELAYED)

    def overhead(self) -> float:
        """Software seconds of a layer on all edges, fitted on DistGNN's row of two layers; 0 where none is printed.

        Raises:
            InputError: the modelled part alone takes longer than the printed epoch.
        """
        printed = cell(self.dataset, LAYERS[0], "DistGNN")
        if printed is None:
            return 0.0
        left = printed - replace(self, layers=LAYERS[0], parts=PARTS).distgnn().epoch
        if left <= 0:
            reason = f"what is not fitted takes longer than the printed {printed:.3g} s"
            raise InputError(f"{reason} (DistGNN, {DATASETS[self.dataset]}, {LAYERS[0]} layers)")
        return left / LAYERS[0]

    def software(self, shares: Sequence[float] = ()) -> float:
        """Software seconds of an epoch, in addition to the model: a round per layer, and the handling of its edges.

        A round takes as long as a layer of the smallest graph, which has hardly any edges; the rest of `overhead` is
        proportional to the edges of a machine.

        Args:
            shares: of the edges that each layer reads; by default all.
        """
        whole = self.overhead()
        round_s = min(whole, replace(self, dataset="cora").overhead())
        edges = sum(shares) if shares else float(self.layers)
        return self.layers * round_s + edges * (whole - round_s) * PARTS / self.parts

    def seconds(self, method: str) -> float:
        """Predicted seconds of one epoch on the paper's machines."""
        return self.clock(method).epoch + self.software()

    def shortage(self, method: str) -> str:
        """A note if a method does not fit the machines' memory, "" if it does; such a run is timed anyway."""
        record = self.context.runs([self.config(method)])[0]
        return str(record["message"]).partition(" (")[0] if record["state"] == "out_of_memory" else ""

    def sampled(self, fanouts: str) -> float:
        """Predicted seconds of an epoch of EC-Graph-S."""
        record = self.context.runs([self.sampled_config(fanouts)], "EC-Graph-S")[0]
        shares = record["epochs"][-1]["observed"] if self._drawn() else self._shares(fanouts)
        kept = [shares[f"sampled halo edges/{layer}"] for layer in range(self.layers)]
        return Seconds.mean(record).epoch + self.software(kept)

    def sampled_config(self, fanouts: str) -> dict[str, Any]:
        """EC-Graph-S: sampled from Cora where it is on disk; otherwise by expected shares, from counts."""
        c = published_counts(self.dataset)
        run = {
            **gcn(self.dataset, self.layers), "cluster": self.cluster, "parts": self.parts, "epochs": PERIOD + 2,
            "method": f"{ec_graph(self.dataset, 'ec-graph-s')}:fanouts={fanouts}",
        }  # fmt: skip
        if self._drawn():
            split = f"counts:{c['train']}/{c['val']}/{c['test']}"
            plain = {"mode": "sim", "eval_every": -1, "deterministic": False}
            return {**plain, **run, "dataset": "cora", "split": split, "partitioner": "hash"}
        seen = {**self._predicted(ec_graph(self.dataset)), **self._shares(fanouts)}
        rates = self.context.rates("ec-graph-s", seen)
        return {**SHAPES, **run, "dataset": workload(self.context, self.dataset), "rates": rates}

    def _drawn(self) -> bool:
        """Whether a sample can be drawn from the data set itself."""
        return self.dataset == "cora" and on_disk("cora")

    def _shares(self, fanouts: str) -> dict[str, float]:
        """Expected shares of edges and rows of a sample."""
        c = published_counts(self.dataset)
        degrees = Degrees(mean=c["edges"] / c["vertices"], spread=SPREADS[self.dataset])
        return expected_shares(degrees, c["train"] / c["vertices"], list(map(int, fanouts.split("/"))), self.parts)


def cell(dataset: str, layers: int, method: str) -> float | None:
    """Printed seconds of Table IV; None where the cell is a dash."""
    numbers = published("ec-graph-table4")
    mine = numbers[(numbers["dataset"] == dataset) & (numbers["layers"] == layers) & (numbers["method"] == method)]
    value = float(mine["value"].iloc[0])
    return None if value != value else value


def alone_seconds(context: Context, dataset: str, system: str, layers: int) -> float:
    """Epoch of a library on one machine, with one constant from its row of two layers.

    DGL's is a factor on the modelled work; PyG's, which stores a message per edge, software seconds per layer. Where
    that row is not printed, the modelled time is returned.
    """
    now, first = (Machines(context, dataset, n).clock("single", alone=True).epoch for n in (layers, LAYERS[0]))
    printed = cell(dataset, LAYERS[0], system)
    if printed is None:
        return now
    return now * printed / first if system == "DGL" else now + layers * (printed - first) / LAYERS[0]
