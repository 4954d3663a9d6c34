"""EC-Graph's machines: seconds of an epoch on six of them and on one, from counts, devices and links.

What is fitted is in `_fits`: one factor on the device, one on the software of messages, and the time that EC-Graph's
code takes to hand its tables of vertex numbers on, for all data sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from harness.datasets import data_folder
from harness.workloads import Degrees
from reports.core.clusters import hosts_slowed
from reports.core.context import SHAPES, Context, demand
from reports.core.load import entry, published, text
from reports.core.predict import Seconds
from reports.ec_graph._sampled import expected_shares
from sims.cluster import load_cluster
from sims.device import load_device
from sims.units import format_quantity

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
DELAYED = int(entry("ec-graph", "baseline", name="DistGNN")["delayed_rounds"])
DISTGNN, TARGETS = f"distgnn-ec:r={DELAYED}:bins=halo", f"distgnn-ec:r={DELAYED}:bins=targets"
"""DistGNN of EC-Graph's tables: every halo row in one of five rounds, as DistGNN delays, and the authors' code, in
which a fifth of the vertices request in every round."""
# Published systems and the method that stands for each.
METHOD_OF = {
    "DGL": "single:style=fused", "PyG": "single:style=gather", "EC-Graph": "ec-graph", "EC-Graph-S": "ec-graph-s",
    "DistGNN": "distgnn-ec", "DistDGL": "distdgl", "AGL": "agl", "AliGraph-FG": "aligraph-fg",
}  # fmt: skip
ALONE = ("DGL", "PyG")  # on one machine
LABELLED = {"vertices": 1_546_782, "edges": 2 * 13_649_351}
"""ogbn-papers100M in the authors' configuration (songzhen-neu/ecgraph, python/ecgraph/context/context.py): the labelled
nodes, and the edges between them in both directions; the file counts each edge once, as it does for all graphs."""
ONE_CALL = ":requests=false"
"""A request and its reply are one remote call (Alg. 3, line 1), which the model prices as one message: timed runs leave
out the request's numbers, 4 bytes a row. Counted bytes have them (Table II)."""
NOT_NORMALISED = (
    "rows are not divided by their L2 norm after hidden layers. The authors' code does so in all its public versions "
    "but the last, in which that line is commented out (python/ecgraph/autograd/autograd_new.py, 13 January 2022), "
    "and the paper says that embeddings, unlike gradients, are normalised into a unit ball (Sec. IV-C), so that its "
    "numbers are likely of rows that are; the trainings here were made without. `haloscope run --norm l2` does it"
)
DEVICES = {
    "ec-graph": "xeon-e3-1226v3-coo", "ec-graph-13": "xeon-e3-1226v3-coo", "ec-graph-papers": "xeon-silver-4110-2x-coo",
}  # fmt: skip
"""Clusters with devices that sum rows as EC-Graph's code does."""


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


def timed_counts(dataset: str, *, printed: bool = False) -> dict[str, Any]:
    """The counts that a data set is timed with: those of Table III, of ogbn-papers100M `LABELLED` unless `printed`."""
    labelled = LABELLED if dataset == "ogbn-papers100m" and not printed else {}
    return {**published_counts(dataset), **labelled}


def split_of(dataset: str, *, drawn: bool = False, shares: bool = False) -> str:
    """The split that EC-Graph's code makes of a data set, by position; `drawn`: a random one of the printed sizes;
    `shares`: their shares, for a graph of another size."""
    c = published_counts(dataset)
    sizes = [c["train"], c["val"], c["test"]]
    if shares:
        shares_of = (size * 10_000 // sum(sizes) / 10_000 for size in sizes)  # rounded down: at most 1 in all
        return "position:" + "/".join(f"{share:.4f}" for share in shares_of)
    return f"{'counts' if drawn else 'position'}:{'/'.join(map(str, sizes))}"


def on_disk(name: str) -> bool:
    """Whether the data folder has this real graph."""
    return (data_folder() / f"{name}.npz").is_file()


def workload(context: Context, dataset: str, *, printed: bool = False, **parts: Any) -> str:
    """A hash partition of a data set: of the real topology where it is on disk, otherwise in expectation.

    Args:
        printed: counts of ogbn-papers100M as printed, not of its labelled nodes.
        parts: the keys of `[parts]` instead, for another partition.
    """
    c = timed_counts(dataset, printed=printed)
    sizes = {"features": c["features"], "classes": c["classes"], "train": c["train"]}
    if on_disk(TOPOLOGIES.get(dataset, "")):
        graph, cut = {"dataset": TOPOLOGIES[dataset], **sizes}, {"partitioner": "hash"}
        return context.workload({"name": DATASETS[dataset], "graph": graph, "parts": parts or cut})
    graph = {"nodes": c["vertices"], "edges": c["edges"], **sizes}
    expected = {"cut": "hash", "degrees": {"spread": SPREADS[dataset]}}
    return context.workload({"name": DATASETS[dataset], "graph": graph, "parts": parts or expected})


@dataclass(frozen=True)
class Constants:
    """Factors on the seconds of a device's operators and of the software of messages; seconds of a vertex number.

    The second has the fixed costs of operations and messages and the coding of bytes; the wire is as printed. The third
    counts per own or fetched vertex and exchange (`Machines.numbering`).
    """

    device: float = 1.0
    messages: float = 1.0
    number: float = 0.0


@dataclass(frozen=True)
class Machines:
    """Runs of one data set at one depth on the paper's machines.

    Attributes:
        constants: those that were fitted; none by default.
        trial: whether a constant is fitted with these runs.
        printed: ogbn-papers100M with the counts of Table III.
    """

    context: Context
    dataset: str
    layers: int
    parts: int = PARTS
    constants: Constants = Constants()
    trial: bool = False
    printed: bool = False

    @property
    def cluster(self) -> str:
        """The cluster: cluster 2 for ogbn-papers100M, cluster 1 for the others (at most 13 machines), with devices
        that compute as EC-Graph's code does and the fitted software of messages."""
        name = "ec-graph" if self.parts <= PARTS else "ec-graph-13"
        name = "ec-graph-papers" if self.dataset == "ogbn-papers100m" else name
        slow, quantities = self.constants.messages, dict(load_cluster(name).quantities())
        changes = [f"hosts.device={DEVICES[name]}"]
        if slow != 1.0:
            times = ("transport.operation", "transport.message")
            changes += [f"{key}={format_quantity(quantities[key].value * slow, 'time')}" for key in times]
            coding = quantities["transport.process"].value / slow
            changes.append(f"transport.process={format_quantity(coding, 'bandwidth')}")
        return ":".join([name, *changes])

    def record(self, config: Mapping[str, Any], what: str = "") -> Mapping[str, Any]:
        """The result record of a run."""
        return self.context.runs([config], what or DATASETS[self.dataset], trial=self.trial)[0]

    def clock(self, method: str) -> Seconds:
        """One epoch of a method."""
        return self.timed(self.config(method))

    def timed(self, config: Mapping[str, Any], what: str = "") -> Seconds:
        """The mean epoch of a run, with what EC-Graph's code does beside: haloscope's layers do without either."""
        record = self.record(config, what)
        seconds, more = Seconds.mean(record), self._concatenating(record) + self.numbering(record)
        return replace(seconds, epoch=seconds.epoch + more, compute=seconds.compute + more)

    def _concatenating(self, record: Mapping[str, Any]) -> float:
        """Seconds that own and fetched inputs of layers which multiply first take to become one matrix (Alg. 1, line
        7), by the device's rates. Where a layer aggregates first, the run scales rows of this width instead."""
        device = load_device(DEVICES[self.cluster.partition(":")[0]])
        c, model = timed_counts(self.dataset, printed=self.printed), gcn(self.dataset, self.layers)
        widths = [c["features"], *[model["hidden"]] * (self.layers - 1), c["classes"]]
        cut, seen, seconds = record["graph"]["partition"], record["epochs"][-1]["observed"], 0.0
        for layer in (l for l in range(self.layers) if widths[l] > widths[l + 1]):
            rows = c["vertices"] / self.parts + cut["mean_halo"] * seen.get(f"rows read/{layer}", 1.0)
            nbytes = 4 * rows * widths[layer]
            seconds += 2 * nbytes / device.bandwidth["copy"].value
            if device.fresh is not None and nbytes > device.fresh_above.value:
                seconds += nbytes / device.fresh.value
        return seconds * self.constants.device / (1.0 if self.trial else self.context.inputs.compute)

    def numbering(self, record: Mapping[str, Any]) -> float:
        """Seconds that tables of vertex numbers take, from the graph's to a machine's own.

        In the authors' code a machine has one entry for each own and each fetched vertex. A Python dict of them goes to
        C++ in every backward exchange, which makes a `std::map` of it (python/ecgraph/util_python/remote_access.py,
        pullNeighborG), and in both directions each thread that sends a request copies the map
        (core/service/dgnn_client.cc). This grows with vertices, whatever is sent of them.
        """
        read = [record["epochs"][-1]["observed"].get(f"rows read/{layer}", 1.0) for layer in range(1, self.layers)]
        fetched = record["graph"]["partition"]["mean_halo"] * max(read)
        entries: float = timed_counts(self.dataset, printed=self.printed)["vertices"] / self.parts + fetched
        exchanges = 2 * (self.layers - 1)
        return exchanges * entries * self.constants.number / (1.0 if self.trial else self.context.inputs.compute)

    def config(self, method: str) -> dict[str, Any]:
        """The run of a method on all machines."""
        compressed = method.startswith("ec-graph:")
        watched = compressed and ("fp=" not in method or "fp=trend" in method)
        rates = {"rates": self.context.rates("ec-graph", self._predicted(method))} if watched else {}
        if method == TARGETS:
            rates = {"rates": self.context.rates("distgnn-ec", {"fetched rows": self.requested()})}
        return {
            **SHAPES, **gcn(self.dataset, self.layers), **rates, "parts": self.parts,
            "method": method + ONE_CALL * compressed,
            "dataset": workload(self.context, self.dataset, printed=self.printed),
            "cluster": self._slowed(self.cluster), "epochs": 2 + (PERIOD if watched else 2),
        }  # fmt: skip

    def _slowed(self, cluster: str) -> str:
        return hosts_slowed(cluster, self.parts, self.constants.device)

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

    def degrees(self) -> Degrees:
        """The assumed distribution of degrees."""
        c = timed_counts(self.dataset, printed=self.printed)
        return Degrees(mean=c["edges"] / c["vertices"], spread=SPREADS[self.dataset])

    def requested(self) -> float:
        """Share of its halo rows that a fifth of a machine's nodes read (`TARGETS`), in closed form."""
        rest = [1 - self.degrees().generating(1 - 1 / pieces) for pieces in (self.parts * DELAYED, self.parts)]
        return rest[0] / rest[1]

    def seconds(self, method: str) -> float:
        """Predicted seconds of one epoch."""
        return self.clock(method).epoch

    def sent(self, method: str) -> float:
        """Bytes that a method sends in an epoch, mean over all but the first."""
        return float(self.record(self.config(method))["summary"]["bytes_per_epoch"])

    def shortage(self, method: str) -> str:
        """A note if a method does not fit the machines' memory, "" if it does; such a run is timed anyway."""
        record = self.record(self.config(method))
        return str(record["message"]).partition(" (")[0] if record["state"] == "out_of_memory" else ""

    def sampled(self, fanouts: str) -> Seconds:
        """An epoch of EC-Graph-S."""
        return self.timed(self.sampled_config(fanouts), "EC-Graph-S")

    def sampled_config(self, fanouts: str) -> dict[str, Any]:
        """EC-Graph-S: sampled from Cora where it is on disk; otherwise by expected shares, from counts."""
        run = {
            **gcn(self.dataset, self.layers), "cluster": self._slowed(self.cluster), "parts": self.parts,
            "epochs": PERIOD + 2, "method": f"{ec_graph(self.dataset, 'ec-graph-s')}:fanouts={fanouts}{ONE_CALL}",
        }  # fmt: skip
        if self.dataset == "cora" and on_disk("cora"):
            plain = {"mode": "sim", "eval_every": -1, "deterministic": False}
            return {**plain, **run, "dataset": "cora", "split": split_of("cora"), "partitioner": "hash"}
        seen = {**self._predicted(ec_graph(self.dataset)), **self._shares(fanouts)}
        rates = self.context.rates("ec-graph-s", seen)
        return {**SHAPES, **run, "dataset": workload(self.context, self.dataset, printed=self.printed), "rates": rates}

    def _shares(self, fanouts: str) -> dict[str, float]:
        """Expected shares of edges and rows of a sample."""
        c, hops = timed_counts(self.dataset, printed=self.printed), list(map(int, fanouts.split("/")))
        return expected_shares(self.degrees(), c["train"] / c["vertices"], hops, self.parts)


def cell(dataset: str, layers: int, method: str) -> float | None:
    """Printed seconds of Table IV; None where the cell is a dash."""
    numbers = published("ec-graph-table4")
    mine = numbers[(numbers["dataset"] == dataset) & (numbers["layers"] == layers) & (numbers["method"] == method)]
    value = float(mine["value"].iloc[0])
    return None if value != value else value


def alone(
    context: Context, dataset: str, layers: int, system: str, device: float = 1.0, *, trial: bool = False
) -> Seconds:
    """An epoch of a library on one machine, whose operators take `device` times as long as its profile says."""
    config = _alone_config(context, dataset, layers, system, device)
    return Seconds.mean(context.runs([config], "one machine", trial=trial)[0])


def memory_alone(
    context: Context, dataset: str, layers: int, system: str, *, printed: bool = False
) -> tuple[float, bool]:
    """Bytes that a library needs on one machine, and whether that has them; `printed` as in `workload`."""
    config = _alone_config(context, dataset, layers, system, printed=printed)
    record = context.runs([config], "memory of one machine")[0]
    return float(record["summary"]["peak_memory"]), record["state"] != "out_of_memory"


def _alone_config(
    context: Context, dataset: str, layers: int, system: str, device: float = 1.0, *, printed: bool = False
) -> dict[str, Any]:
    """The run of a library, with the order of operations that it has."""
    cluster = "ec-graph-papers" if dataset == "ogbn-papers100m" else "ec-graph"
    return {
        **SHAPES, **gcn(dataset, layers), "order": "method", "method": METHOD_OF[system], "layer0": "cache",
        "dataset": workload(context, dataset, printed=printed), "parts": 1, "epochs": 4,
        "cluster": hosts_slowed(cluster, 1, device),
    }  # fmt: skip
