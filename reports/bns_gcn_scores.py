"""BNS-GCN's tables with accuracies: 4 (all graphs), 5 (ogbn-products), 7 (random partitions), 9 (edges), 13 (p)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from reports import load
from reports.bns_gcn_times import CLUSTER, boundary, reddit
from reports.context import Context
from reports.graphs import (
    NAMES,
    PROFILE,
    SMALL_PARTS,
    SMALL_SAID,
    bed_of,
    commands,
    epochs_of,
    halo_of,
    sage,
    select,
    timed,
    trainable,
    value,
    work_of,
)
from reports.table import Ordering, Row, Table
from reports.train import Trained, accuracies

SCORES = ("test_accuracy", "f1_micro")
GRAPHS = ("reddit", "ogbn-products", "yelp")
NOISE = 0.5  # points that a stand-in's few seeds may hide
EDGES = {"BNS-GCN": "bns-gcn:p=0.1", "BES": "bns-gcn:p=0.1:sampling=bes", "DropEdge": "bns-gcn:p=0.1:sampling=dropedge"}


def trained(context: Context, name: str, methods: Sequence[str], parts: int, share: float, **changes: Any) -> Trained:
    """Methods on a graph, or on its stand-in in `SMALL_PARTS` parts, each under its own text as label."""
    rows: Mapping[str, str | Mapping[str, Any]] = {method: method for method in methods}
    model = trainable(context, name, **changes)
    parts = parts if context.full else SMALL_PARTS
    return accuracies(context, name, rows, parts=parts, model=model, seeds=10, epochs=epochs_of(name), share=share)


def score(label: str, printed: float, run: Trained | None, method: str, **more: Any) -> Row:
    """An accuracy: only its place among the others is judged, unless the graph is the paper's."""
    ours = run.mean(method) if run else None
    judge: Literal["error", "order"] = "error" if run and not run.data else "order"
    return Row(
        label=label, quantity="accuracy", unit="%", published=printed, ours=ours, how="trained",
        data=run.data if run else "", judge=judge, **more,
    )  # fmt: skip


def not_built(line: Any, quantity: str) -> Row:
    """A row of a system that haloscope does not have."""
    label = f"{NAMES[line.dataset]}, {line.method}"
    return Row(label=label, quantity=quantity, unit=line.unit, published=line.value, ours=None, how="not built")


def table4(context: Context) -> Table:
    """Accuracies of sampling-based methods and of BNS-GCN for four rates."""
    frame = load.published("bns-gcn-table4")
    rows: list[Row] = [not_built(line, "accuracy") for line in frame.itertuples() if line.method != "BNS-GCN"]
    orderings, said, texts = [], [SMALL_SAID], list[str]()
    for name in GRAPHS:
        mine = select(frame, dataset=name, method="BNS-GCN")
        most = int(mine["partitions"].max())
        settings = list(dict.fromkeys(mine["setting"]))
        run = trained(context, name, [work_of(s) for s in settings], most, 0.75)
        said.append(run.said)
        texts += run.commands
        for line in mine.itertuples():
            label = f"{NAMES[name]}, {line.setting}, {line.partitions:.0f} parts"
            there = line.partitions == most or line.setting.startswith("p=1.0")
            note = "" if there else "one number of parts is trained"
            rows.append(score(label, line.value, run if there else None, work_of(line.setting), note=note))
        orderings.append(_worst(name, most, mine, run))
    said.append("p = 1 is exact: one training stands for every number of parts")
    return Table(
        key="bns-gcn/table4", title="BNS-GCN Table 4: accuracies", rows=tuple(rows), orderings=tuple(orderings),
        assumptions=tuple(said), commands=tuple(texts),
    )  # fmt: skip


def _worst(name: str, parts: int, frame: pd.DataFrame, run: Trained) -> Ordering:
    """The claim that p = 0 is worst where the printed numbers say so themselves (not everywhere, BN12)."""
    settings = [s for s in dict.fromkeys(frame["setting"]) if not s.startswith("p=0.0")]
    best = max(settings, key=lambda s: value(frame, setting=s, partitions=float(parts)))
    return Ordering(
        text=f"p = 0 is behind the best rate, {NAMES[name]}, {parts} parts", expected=(best, "p=0.0; METIS"),
        ours=(run.mean(work_of(best)), run.mean("bns-gcn:p=0")), tolerance=NOISE,
    )  # fmt: skip


def table5(context: Context) -> Table:
    """Training time and accuracy on ogbn-products; 500 epochs (setup), 10 parts."""
    frame = load.published("bns-gcn-table5")
    epochs = epochs_of("ogbn-products")
    bed = bed_of(context, CLUSTER, "ogbn-products", 10, halo=boundary("ogbn-products"))
    settings = [s for s in dict.fromkeys(frame["setting"]) if s.startswith("p=")]
    base = value(frame, setting=settings[0], metric="training_time")
    fit = bed.fitted("vanilla", base / epochs, source="the training time of p = 1")
    run = trained(context, "ogbn-products", [work_of(s) for s in settings], 10, 1.0)
    rows: list[Row] = []
    times = {s: epochs * bed.seconds(work_of(s), fit).epoch for s in settings}
    for line in frame.itertuples():
        quantity = "training time" if line.metric == "training_time" else "accuracy"
        label = f"{line.method}, {line.setting}"
        if line.method != "BNS-GCN":
            rows.append(not_built(line, quantity))
        elif quantity == "accuracy":
            rows.append(score(label, line.value, run, work_of(line.setting)))
        else:
            first = line.setting == settings[0]
            ours = times[line.setting]
            rows.append(timed(label, quantity, line.value, ours, fitted=first, conflict="" if first else "BN7"))
    return Table(
        key="bns-gcn/table5",
        title="BNS-GCN Table 5: training on ogbn-products",
        rows=tuple(rows),
        orderings=(Ordering(text="training time", expected=tuple(settings), ours=tuple(times[s] for s in settings)),),
        assumptions=(PROFILE, fit.text(), f"{epochs} epochs in 10 METIS parts of Table 8", run.said, SMALL_SAID),
        commands=(*commands(bed, [work_of(s) for s in settings], fit), *run.commands),
    )


def table7(context: Context) -> Table:
    """Random partitions: accuracy, and what is lost against METIS."""
    frame = load.published("bns-gcn-table7")
    rows: list[Row] = []
    orderings, said, texts = [], [SMALL_SAID], list[str]()
    for name in GRAPHS:
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = [work_of(s) for s in dict.fromkeys(mine["setting"])]
        random = trained(context, name, methods, parts, 0.4, partitioner="hash")
        metis = trained(context, name, methods, parts, 0.4)
        said.append(random.said)
        texts += random.commands
        for line in mine.itertuples():
            label, method = f"{NAMES[name]}, {line.setting}", work_of(line.setting)
            if line.metric in SCORES:
                rows.append(score(label, line.value, random, method))
            else:
                lost = (random.mean(method) or 0.0) - (metis.mean(method) or 0.0)
                rows.append(
                    Row(label=label, quantity="against METIS", unit="points", published=line.value, ours=lost,
                        how="trained", data=random.data, judge="order")
                )  # fmt: skip
        ours = tuple(random.mean(m) for m in ("bns-gcn:p=0.1", "bns-gcn:p=0"))
        text = f"random partitions need sampled rows: accuracy on {NAMES[name]}"
        orderings.append(Ordering(text=text, expected=("p=0.1", "p=0.0"), ours=ours, tolerance=NOISE))
    return Table(
        key="bns-gcn/table7", title="BNS-GCN Table 7: random partitions", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(said), commands=tuple(texts),
    )  # fmt: skip


def table9(context: Context) -> Table:
    """Sampling of boundary nodes, of boundary edges (BES) and of all edges (DropEdge): volume, time, accuracy."""
    _, fit = reddit(context)
    rows: list[Row] = []
    orderings: list[Ordering] = []
    said = [PROFILE, fit.text() + "; the same machine for all graphs", SMALL_SAID]
    texts: list[str] = []
    for name in GRAPHS:
        made, judged, run = _edges(context, name, fit)
        rows += made
        orderings += judged
        said.append(run.said)
        texts += run.commands
    said.append(
        "boundary nodes follow from the volume of BNS-GCN (BN10); times take the shares of them that BES and DropEdge "
        "still send from their printed volumes; the volumes shown are of the shares that the trained graphs kept"
    )
    return Table(
        key="bns-gcn/table9", title="BNS-GCN Table 9: sampling nodes against sampling edges", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(said), commands=tuple(texts),
    )  # fmt: skip


def _edges(context: Context, name: str, fit: Any) -> tuple[list[Row], list[Ordering], Trained]:
    """Table 9's rows and orderings of one graph."""
    frame = select(load.published("bns-gcn-table9"), dataset=name)
    parts = int(frame["partitions"].iloc[0])
    volumes = {m: value(frame, method=m, metric="epoch_comm_volume") for m in EDGES}
    everything = volumes["BNS-GCN"] / 0.1
    bed = bed_of(context, CLUSTER, name, parts, halo=halo_of(everything, sage(name)))
    run = trained(context, name, list(EDGES.values()), parts, 0.75)
    rows, kept, times = [], {}, {}
    for printed, method in EDGES.items():
        label = f"{NAMES[name]}, {printed}, {parts} parts"
        rates = {"kept nodes": min(volumes[printed] / everything, 1.0)} if ":sampling" in method else None
        times[printed] = bed.seconds(method, fit, rates).epoch
        kept[printed] = everything * _share_kept(run, method)
        rows += [
            Row(label=label, quantity="volume", unit="MB", published=volumes[printed], ours=kept[printed],
                how="trained", data=run.data, judge="order"),
            timed(label, "epoch time", value(frame, method=printed, metric="epoch_time"), times[printed]),
            score(label, value(frame, method=printed, metric=lambda m: m in SCORES), run, method),
        ]  # fmt: skip
    order = ("DropEdge", "BES", "BNS-GCN")
    orderings = [
        Ordering(text=f"{what}, {NAMES[name]}", expected=order, ours=tuple(found[m] for m in order))
        for what, found in (("volume", kept), ("epoch time", times))
    ]
    return rows, orderings, run


def _share_kept(run: Trained, method: str) -> float:
    """Mean share of the boundary nodes that were sent, over the epochs of the first seed."""
    seen = [epoch["observed"]["kept nodes"] for epoch in run.records[method][0]["epochs"] if epoch["observed"]]
    return float(sum(seen) / len(seen))


def table13(context: Context) -> Table:
    """Accuracy for p from 0.1 to 1."""
    frame = load.published("bns-gcn-table13")
    rows: list[Row] = []
    orderings, said, texts = [], [SMALL_SAID], list[str]()
    for name in ("reddit", "ogbn-products"):
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = {s: f"bns-gcn:{s.partition(';')[0]}" for s in mine["setting"]}
        run = trained(context, name, list(methods.values()), parts, 1.2)
        said.append(run.said)
        texts += run.commands
        for line in mine.itertuples():
            label = f"{NAMES[name]}, {line.setting}, {parts} parts"
            rows.append(score(label, line.value, run, methods[line.setting]))
        ours = tuple(run.mean(methods[f"{p}; METIS"]) for p in ("p=0.1", "p=1.0"))
        text = f"p = 0.1 is no worse than p = 1, {NAMES[name]}"
        orderings.append(Ordering(text=text, expected=("p=0.1", "p=1.0"), ours=ours, tolerance=NOISE))
    return Table(
        key="bns-gcn/table13", title="BNS-GCN Table 13: accuracy and p", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(said), commands=tuple(texts),
    )  # fmt: skip
