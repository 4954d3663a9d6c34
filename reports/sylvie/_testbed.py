"""Sylvie's testbed: graphs, models and servers as the authors' public logs and scripts have them, and its constants.

The paper prints neither depths nor widths nor how many ranks train. The logs (`reports/published/sylvie-logs.csv`) say:
8 ranks are 4 on each of 2 servers, 4 ranks are one server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from harness.workloads import METIS_LAW
from reports.bns_gcn.testbed import (
    GRADIENT_HOOKS,
    SPREAD,
    TITLES,
    halo_of,
    num_exchanging_layers,
    shape,
    trainable,
    uneven,
)
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.null_models import Null
from reports.core.predict import Fit, Testbed, device_and_host, parts_of

CLUSTER = "sylvie-2x8"
SERVER = f"{CLUSTER}:hosts.count=1"
ON_ONE_SERVER, ON_TWO_SERVERS, ON_THREE_SERVERS = 4, 8, 12  # ranks
GRAPHS = ("reddit", "yelp", "ogbn-products", "amazon")
MODEL_OF = {"GraphSAGE": "sage", "GCN": "gcn", "GAT": "gat"}
METHOD_OF = {
    "DGL": "vanilla",
    "SAR": "sar",
    "PipeGCN": "pipegcn",
    "BNS-GCN": "bns-gcn:p=0.1",
    "Sylvie-S": "sylvie-s:bits=1:side=fp16",
    "Sylvie-A": "sylvie-a:bits=1:side=fp16",
}
THREE_SYSTEMS = ("DGL", "Sylvie-S", "Sylvie-A")
SIDE_BYTES = 4  # scale and minimum of a row in 16 bits each: the reading of Table 3 that agrees with known widths (SY2)

LAYERS: dict[str, dict[str, Any]] = {
    "reddit": {"layers": 4, "hidden": 256, "dropout": 0.5},
    "yelp": {"layers": 4, "linear_layers": 2, "hidden": 512, "dropout": 0.1},
    "ogbn-products": {"layers": 3, "hidden": 128, "dropout": 0.3},
    "amazon": {"layers": 4, "linear_layers": 2, "hidden": 512, "dropout": 0.1},
}
"""Of GraphSAGE and GCN, from the authors' scripts."""
ATTENTION = {name: {"layers": 2, "hidden": 256} if name in ("reddit", "yelp") else {"layers": 3, "hidden": 128}
             for name in GRAPHS}  # fmt: skip
"""Of GAT, with one head, from the same."""
EPOCHS = {"reddit": (2000, 200), "yelp": (2000, 1000), "ogbn-products": (500, 200), "amazon": (2000, 1000)}
"""Logged epochs of training: GraphSAGE and GCN, and GAT."""
MIB = 2**20  # bytes; what the framework counts its memory in, and calls MB
AMAZON_NODES = 1_255_968  # training nodes of Amazon, which alone are in the graph that trains

FIT_GRAPH = "yelp"
FITTED = (
    "four constants for all graphs, models, methods and numbers of servers, from two logged rows: Yelp's fp32 "
    "GraphSAGE on one server and on two, the graph of the paper's study of bits, of which the logs hold every "
    "component on both. Device speed and what the program's host takes in an epoch are those with which both rows have "
    "their logged compute; what a process moves at most is from the epoch on one server, where hardly anything else "
    "limits transfers, the bandwidth of links from the epoch on two, where the link between servers does. Sylvie's "
    "quantiser has a fifth, where it is timed. SAR and BNS-GCN are other programs: no host is assumed of SAR's, and of "
    "BNS-GCN's the line through the least that was logged of it on one server (38.5 ms; Reddit, GAT) and on two (47.6 "
    "ms; Yelp, GAT), as in BNS-GCN's tables; "
    f"{GRADIENT_HOOKS}"
)
FOLLOWS = "follows from the epoch and the compute that constants are fitted on"
SETTING = (
    "depths, widths and dropout are those of the authors' scripts, 4 GPUs on each server those of their logs; Reddit, "
    "Yelp and Amazon: the graph of training nodes is partitioned"
)
HALO_ROWS = (
    "boundary nodes: an input, from Table 3's volumes of DGL on 8 parts; on 4, 6 and 12 parts in proportion to the "
    "number of other parts (assumed; BNS-GCN's volumes on 2 to 5 parts and its counts on 8 and 10 are 49 to 66, 72 to "
    "92 and 169 to 205 thousand for each other part of Reddit, Yelp and ogbn-products)"
)
BY_MEMORY = (
    "rank 0's boundary nodes follow from logged memory where fp32, fp16 and 8 bits were logged of a run: the buffers "
    "of received rows and gradients take 4, 2 and 1 bytes a value, and are twice what fp16 saves and 4/3 of what 8 "
    "bits save, which agree within 0.5 %: 53.7, 96.2 and 244.7 thousand of Reddit, Yelp and ogbn-products on 4 parts "
    "(47.8, 61.4 and 179 thousand are the mean), 51.9 thousand of Yelp on 6; the rest lies on the other ranks in equal "
    "parts"
)
PARTS_DIFFER = (
    "other boundary nodes differ from part to part: Reddit's 8 as the METIS parts in BNS-GCN's Table 1, in their "
    "order; others as METIS leaves them on the graphs measured by python -m benchmarks.boundary_edges, in a drawn order"
)
INPUT = (
    "Sylvie's program, which also stands for DGL and PipeGCN, sums GraphSAGE's input over neighbours once for the run; "
    "of GCN and GAT it keeps the input rows of boundary nodes, and sums them in every epoch. BNS-GCN's own program "
    "sums GCN's input once too; SAR exchanges it in every epoch"
)
GRAPH_NOTES = (HALO_ROWS, BY_MEMORY, PARTS_DIFFER, METIS_LAW, SETTING, INPUT)
"""What every table says of graphs and models."""


def settings_of(name: str, model: str = "GraphSAGE") -> dict[str, Any]:
    """Settings of a model, by its printed name, on a graph, in Sylvie's program (`INPUT`).

    DGL's attention has values for every edge.
    """
    layer0 = "precompute" if model == "GraphSAGE" else "cache"
    made = {"model": MODEL_OF[model], "norm": "layer", "layer0": layer0, **LAYERS[name]}
    if model == "GAT":
        made |= {**ATTENTION[name], "linear_layers": 0, "heads": 1, "attention": "composed"}
    return made


def training_of(name: str, model: str) -> dict[str, Any]:
    """Settings that the authors train a graph with (`--full`)."""
    return {**settings_of(name, model), "lr": 0.01, "protocol": trainable(name)["protocol"]}


def logged_epochs(name: str, model: str) -> int:
    """Epochs that the authors train for."""
    return EPOCHS[name][model == "GAT"]


def halo_rows(name: str, parts: int = ON_TWO_SERVERS) -> float:
    """Boundary nodes over all parts."""
    frame = select(load.published("sylvie-table3"), dataset=name, method="DGL")
    eight = halo_of(value(frame, metric="epoch_comm_volume_main"), settings_of(name))
    return eight * (parts - 1) / (ON_TWO_SERVERS - 1)


def rank_0_rows(name: str, parts: int) -> float | None:
    """Boundary nodes of rank 0 by its logged memory (`BY_MEMORY`), mean of what it receives and sends; None where fp32,
    fp16 and 8 bits were not logged of the same run of GraphSAGE."""
    frame = load.published("sylvie-logs-one-server")
    frame = select(frame, dataset=name, model="graphsage", partitions=float(parts), pipeline="False")
    peaks = {line.precision: float(line.peak_memory_mb) * MIB for line in frame.itertuples()}
    if not {"fp32", "fp16", "int8"} <= peaks.keys():
        return None
    buffers = [2 * (peaks["fp32"] - peaks["fp16"]), 4 / 3 * (peaks["fp32"] - peaks["int8"])]
    model = settings_of(name)
    return sum(buffers) / 2 / (2 * num_exchanging_layers(model) * int(model["hidden"]) * 4)


def boundary_of(name: str, parts: int, share: float = 1.0) -> dict[str, Any] | list[int]:
    """Boundary nodes of every part: rank 0's where its memory tells them, with the rest in equal parts on others; those
    of Reddit on 8 in the proportions of BNS-GCN's Table 1; else by METIS' law.

    The 10 METIS parts there are cut anew into 8, in their order. `share`: boundary nodes over those of `halo_rows`.
    """
    halo, first = share * halo_rows(name, parts), rank_0_rows(name, parts)
    if first is not None:
        others = (halo - share * first) / (parts - 1)
        return [round(share * first), *(round(others) for _ in range(parts - 1))]
    if (name, parts) != ("reddit", ON_TWO_SERVERS):
        return uneven(name, round(halo / parts), parts)
    frame = select(load.published("bns-gcn-table1"), dataset=name, metric="boundary_nodes")
    counts = [0.0, *accumulate(frame.sort_values("partition_index")["value"])]
    edges = np.interp(np.linspace(0, len(counts) - 1, parts + 1), range(len(counts)), counts)
    return [round(halo * part) for part in np.diff(edges) / counts[-1]]


@dataclass(frozen=True, kw_only=True)
class GraphBed(Testbed):
    """A testbed that knows the name of its graph."""

    graph: str

    def whole(self, model: Mapping[str, Any]) -> Testbed:
        """The same servers and number of parts with all nodes of the graph, and another model.

        Boundary nodes are in proportion to nodes.
        """
        (nodes, *_), (everything, *more) = trained_shape(self.graph), shape(self.graph, whole=True)
        edges, features, classes = more
        described = _described(self.graph, (everything, edges, features, classes), self.parts, everything / nodes)
        return replace(self, model=model, workload=described)


def sylvie_bed(
    context: Context,
    name: str,
    model: str = "GraphSAGE",
    *,
    parts: int = ON_TWO_SERVERS,
    cluster: str = CLUSTER,
    **changed: Any,
) -> GraphBed:
    """A graph in parts of equally many nodes; settings of the model may be changed."""
    described, settings = _described(name, trained_shape(name), parts), {**settings_of(name, model), **changed}
    return GraphBed(
        context=context, cluster=cluster, model=settings, workload=described, parts=parts, hooks=True, graph=name
    )  # fmt: skip


def trained_shape(name: str) -> tuple[int, int, int, int]:
    """Nodes, directed edges, features and classes of the graph that Sylvie's program trains on."""
    nodes, edges, features, classes = shape(name)
    if name == "amazon":
        nodes, edges = AMAZON_NODES, round(edges * (AMAZON_NODES / nodes) ** 2)
    return nodes, edges, features, classes


def _described(name: str, counts: tuple[int, int, int, int], parts: int, share: float = 1.0) -> dict[str, Any]:
    """A graph in parts as a workload; `share`: its boundary nodes over those of the graph that trains."""
    boundary = boundary_of(name, parts, share)
    return parts_of(*counts, count=parts, partitioner="metis", boundary=boundary, degrees={"spread": SPREAD})


def anchor(parts: int) -> Logged:
    """The row that constants are fitted on, of a number of parts."""
    (found,) = [row for row in logged(parts) if row.fitted]
    return found


def constants(context: Context) -> Fit:
    """Device speed and host from the logged compute of the anchors on one server and on two, then the ceiling of a
    process from the epoch of the first and the bandwidth of links from that of the second."""
    one, two = anchor(ON_ONE_SERVER), anchor(ON_TWO_SERVERS)
    alone, across = one.bed(context), two.bed(context)
    both = f"compute of {one.label}, on one server and on two (logs)"
    fit = device_and_host((alone, one.compute), (across, two.compute), both, CLUSTER)
    for listed in (False, True):  # the links of a server move its row a little
        fit = alone.fitted("vanilla", one.epoch, source=f"{one.label}, one server (logs)", free="process", start=fit,
                           listed=listed, testbed=CLUSTER)  # fmt: skip
        fit = across.fitted("vanilla", two.epoch, source=f"{two.label}, two servers (logs)", start=fit, listed=listed)
    return fit


def seconds_claim(name: str, model: str, system: str, parts: int, what: str) -> str:
    """Identity of a time of an epoch, or of a part of it, which the logs have and Table 3 may repeat, rounded."""
    return f"sylvie: seconds of {what}, {name}, {model}, {system}, {parts} parts"


@dataclass(frozen=True)
class Case:
    """A graph on the two servers, with the constants of the testbed."""

    name: str
    bed: Testbed
    fit: Fit
    halo: float  # boundary nodes over all ranks

    @property
    def exchanges(self) -> int:
        """Exchanges of an epoch, both directions."""
        return 2 * num_exchanging_layers(self.bed.model)


def case(context: Context, name: str, model: str = "GraphSAGE") -> Case:
    """A model on 4 GPUs of each of two servers."""
    return Case(name, sylvie_bed(context, name, model), constants(context), halo_rows(name))


def sent_bytes(model: Mapping[str, Any], halo: float, system: str) -> float:
    """Bytes of boundary rows in an epoch, over all ranks."""
    width, rows = int(model["hidden"]), halo * 2 * num_exchanging_layers(model)
    if system in ("Sylvie-S", "Sylvie-A"):
        return rows * (width / 8 + SIDE_BYTES)
    return rows * width * 4 * (0.1 if system == "BNS-GCN" else 1.0)


def null_for(same: float, bed: Testbed, name: str, system: str) -> Null:
    """Null models of a time: the fitted row's `same`, that by bytes of boundary rows, and by exchanging layers. The
    fitted row is the anchor on as many servers."""
    there = settings_of(FIT_GRAPH)
    rows = halo_rows(FIT_GRAPH, ON_ONE_SERVER if bed.parts == ON_ONE_SERVER else ON_TWO_SERVERS)
    sent = sent_bytes(bed.model, halo_rows(name, bed.parts), system) / sent_bytes(there, rows, "DGL")
    layers = num_exchanging_layers(bed.model) / num_exchanging_layers(there)
    return Null(same=same, by_bytes=same * sent, by_layers=same * layers)


def null_gain(bed: Testbed, name: str, system: str) -> Null:
    """Null models of a speed-up over DGL: none, and that of the bytes."""
    halo = halo_rows(name, bed.parts)
    return Null(same=1.0, by_bytes=sent_bytes(bed.model, halo, "DGL") / sent_bytes(bed.model, halo, system))


@dataclass(frozen=True)
class Logged:
    """One row of the authors' logs; components and memory that were not recorded are 0."""

    name: str
    model: str
    hidden: int
    parts: int
    system: str
    epoch: float
    halo: float = 0.0
    reduce: float = 0.0
    compute: float = 0.0
    memory_mb: float = 0.0

    @property
    def label(self) -> str:
        """Such as "Yelp, GraphSAGE, DGL"."""
        return f"{TITLES[self.name]}, {self.model}, {self.system}"

    @property
    def fitted(self) -> bool:
        """Whether the constants are fitted on it."""
        return (self.name, self.model, self.system) == (FIT_GRAPH, "GraphSAGE", "DGL")

    def bed(self, context: Context) -> Testbed:
        """Its testbed. Amazon's GraphSAGE on one server is logged with another width than the scripts have."""
        cluster, changed = CLUSTER if self.parts == ON_TWO_SERVERS else SERVER, dict[str, Any]()
        if self.parts != ON_TWO_SERVERS and self.hidden:
            changed["hidden"] = self.hidden
        return sylvie_bed(context, self.name, self.model, parts=self.parts, cluster=cluster, **changed)


_OWN = {
    ("fp32", "False"): "DGL",
    ("fp32", "True"): "PipeGCN",
    ("int1", "False"): "Sylvie-S",
    ("int1", "True"): "Sylvie-A",
}
_SAR_LOG = {ON_ONE_SERVER: "sar/sar_n4.csv", ON_TWO_SERVERS: "sar/sar_n8_2node.csv"}


@cache
def logged(parts: int) -> tuple[Logged, ...]:
    """Rows of the logs at a number of parts that are systems of Table 2, by graph and model."""
    frame = load.published("sylvie-logs")
    return read_rows(frame[frame["partitions"] == parts], parts, _SAR_LOG[parts])


def read_rows(frame: pd.DataFrame, parts: int, sar: str) -> tuple[Logged, ...]:
    """Lines of logs as rows, by graph and model: those that are systems of Table 2. `sar`: the end of SAR's file."""
    frame = frame[frame["synchronise_every"].isin(["NA", ""])]
    found = [_read(line, parts, sar) for line in frame.itertuples()]
    place = {key: at for at, key in enumerate((n, m, s) for n in GRAPHS for m in MODEL_OF for s in METHOD_OF)}
    return tuple(sorted((row for row in found if row), key=lambda row: place[row.name, row.model, row.system]))


def _read(line: Any, parts: int, sar: str) -> Logged | None:
    """A line as a row; None for models, codes and machines that are in no table of the paper."""
    models = {"graphsage": "GraphSAGE", "gcn": "GCN", "gat": "GAT"}
    system = _OWN.get((line.precision, line.pipeline), "")
    if line.system == "SAR":
        system = "SAR" if line.source_file.endswith(sar) else ""
    elif line.system.startswith("BNS-GCN"):
        system = "BNS-GCN"
    if line.model not in models or not system:
        return None
    numbers = (float(x or 0) for x in (line.epoch_s, line.halo_s, line.reduce_s, line.compute_s, line.peak_memory_mb))
    return Logged(line.dataset, models[line.model], int(line.hidden or 0), parts, system, *numbers)
