"""BNS-GCN's tables with accuracies: 4 (all graphs), 5 (ogbn-products), 7 (random partitions), 9 (edges), 13 (p)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reports.bns_gcn._times import CLUSTER, boundary, fitted_reddit
from reports.core import load
from reports.core.context import Context
from reports.core.table import How, Ordering, PaperTable, Row
from reports.core.testbeds import (
    PROFILE,
    SMALL_NOTE,
    SMALL_PARTS,
    SYSTEMS,
    TITLES,
    bed_of,
    epochs_of,
    halo_of,
    implemented,
    sage,
    scored,
    seconds_row,
    select,
    trainable,
    value,
    work_of,
)
from reports.core.train import Trained, accuracies

SCORES = ("test_accuracy", "f1_micro")
GRAPHS = ("reddit", "ogbn-products", "yelp")
BELOW = {("yelp", "p=0.0", 3): "BN12", ("yelp", "p=0.0", 6): "BN12"}  # Table 4 against "p = 0 is always worst"
BELOW |= {("reddit", "p=0.01", parts): "BN13" for parts in (2, 4, 8)}  # and against "p > 0 loses nothing"
FEW = "the bandwidth is that of 8 parts (Table 11); with fewer parts each printed link is slower (BN11)"
EDGES = {"BNS-GCN": "bns-gcn:p=0.1", "BES": "bns-gcn:p=0.1:sampling=bes", "DropEdge": "bns-gcn:p=0.1:sampling=dropedge"}


def trained_on(
    context: Context,
    name: str,
    methods: Sequence[str],
    parts: int,
    share: float,
    *,
    few: int = SMALL_PARTS,
    **changes: Any,
) -> Trained:
    """Train methods on a graph, or without `--full` on its stand-in in `few` parts; each label is the method's text."""
    rows: Mapping[str, str | Mapping[str, Any]] = {method: method for method in methods}
    model = trainable(context, name, **changes)
    parts = parts if context.full else few
    return accuracies(context, name, rows, parts=parts, model=model, seeds=10, epochs=epochs_of(name), share=share)


def method_of(line: Any) -> str:
    """The method of a published line: a rate of BNS-GCN, or the method that corresponds to another system."""
    return work_of(line.setting) if line.method == "BNS-GCN" else SYSTEMS[line.method]


def methods_of(frame: pd.DataFrame) -> list[str]:
    """The methods of a frame's lines that haloscope has, each once."""
    return [method for method in dict.fromkeys(map(method_of, frame.itertuples())) if implemented(method)]


def table4(context: Context) -> PaperTable:
    """Accuracies of sampling-based methods and of BNS-GCN for four rates."""
    frame = load.published("bns-gcn-table4")
    rows: list[Row] = []
    orderings, notes = [], [SMALL_NOTE]
    for name in GRAPHS:
        mine = select(frame, dataset=name)
        numbers = sorted({int(n) for n in select(mine, method="BNS-GCN")["partitions"]})
        runs = {
            n: trained_on(context, name, methods_of(mine), n, 0.75) for n in (numbers if context.full else numbers[-1:])
        }
        notes += [run.summary for run in runs.values()]
        rows += [_of_table4(line, runs) for line in mine.itertuples()]
        orderings += [_worst(n, select(mine, method="BNS-GCN"), run) for n, run in runs.items()]
    notes.append("p = 1 is exact: one training stands for every number of parts, and its rows are not independent")
    return PaperTable(
        key="bns-gcn/table4", title="BNS-GCN Table 4: accuracies", rows=tuple(rows), orderings=tuple(orderings),
        assumptions=tuple(notes),
    )  # fmt: skip


def _of_table4(line: Any, runs: Mapping[int, Trained]) -> Row:
    """A line of Table 4; without `--full` BNS-GCN is trained with one number of parts only."""
    method, name = method_of(line), TITLES[line.dataset]
    run = runs[max(runs)]
    if line.method != "BNS-GCN":
        there = implemented(method)
        how: How = "trained" if there else "not built"
        return scored(f"{name}, {line.method}", line.value, run if there else None, method, how=how)
    exact = line.setting.startswith("p=1.0")
    there = line.partitions in runs or exact
    run = runs.get(int(line.partitions), run)
    conflict = BELOW.get((line.dataset, line.setting.partition(";")[0], int(line.partitions)), "")
    return scored(
        f"{name}, {line.setting}, {line.partitions:.0f} parts", line.value, run if there else None, method,
        note=_table4_note(line, runs, exact), conflict=conflict,
    )  # fmt: skip


def _table4_note(line: Any, runs: Mapping[int, Trained], exact: bool) -> str:
    if line.partitions in runs:
        return ""
    return f"the run of {max(runs)} parts again" if exact else "one number of parts is trained"


def _worst(parts: int, frame: pd.DataFrame, run: Trained) -> Ordering:
    """The claim that p = 0 is worst, against the best printed rate."""
    settings = [s for s in dict.fromkeys(frame["setting"]) if not s.startswith("p=0.0")]
    best = max(settings, key=lambda s: value(frame, setting=s, partitions=float(parts)))
    pair = {best: work_of(best), "p=0.0; METIS": "bns-gcn:p=0"}
    return run.ordering(f"p = 0 is behind the best printed rate, {run.where}", pair)


def table5(context: Context) -> PaperTable:
    """Training time and accuracy on ogbn-products; 500 epochs (setup), 10 parts."""
    frame = load.published("bns-gcn-table5")
    epochs = epochs_of("ogbn-products")
    bed = bed_of(context, CLUSTER, "ogbn-products", 10, halo=boundary("ogbn-products"))
    settings = [s for s in dict.fromkeys(frame["setting"]) if s.startswith("p=")]
    base = value(frame, setting=settings[0], metric="training_time")
    fit = bed.fitted("vanilla", base / epochs, source="the training time of p = 1")
    run = trained_on(context, "ogbn-products", methods_of(frame), 10, 1.0)
    rows: list[Row] = []
    times = {method: epochs * bed.seconds(method, fit).epoch for method in methods_of(frame)}
    for line in frame.itertuples():
        label, method = f"{line.method}, {line.setting}", method_of(line)
        if line.metric != "training_time":
            how: How = "trained" if method in times else "not built"
            rows.append(scored(label, line.value, run, method, how=how))
        elif method in times:
            first = line.setting == settings[0]
            conflict = "BN7" if line.method == "BNS-GCN" and not first else ""
            rows.append(seconds_row(label, "training time", line.value, times[method], fitted=first, conflict=conflict))
        else:
            rows.append(Row(label=label, quantity="training time", unit="s", published=line.value, ours=None,
                            how="not built"))  # fmt: skip
    return PaperTable(
        key="bns-gcn/table5",
        title="BNS-GCN Table 5: training on ogbn-products",
        rows=tuple(rows),
        orderings=(
            Ordering(text="training time", expected=tuple(settings), ours=tuple(times[work_of(s)] for s in settings)),
        ),
        assumptions=(PROFILE, fit.text(), f"{epochs} epochs in 10 METIS parts of Table 8", run.summary, SMALL_NOTE),
    )


def table7(context: Context) -> PaperTable:
    """Random partitions: accuracy, and its loss against METIS."""
    frame = load.published("bns-gcn-table7")
    rows: list[Row] = []
    orderings, assumptions = [], [SMALL_NOTE]
    for name in GRAPHS:
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = [work_of(s) for s in dict.fromkeys(mine["setting"])]
        random = trained_on(context, name, methods, parts, 0.4, partitioner="hash")
        metis = trained_on(context, name, methods, parts, 0.4)
        assumptions.append(random.summary)
        for line in mine.itertuples():
            label, method = f"{TITLES[name]}, {line.setting}", work_of(line.setting)
            if line.metric in SCORES:
                rows.append(scored(label, line.value, random, method))
            else:
                lost = (random.mean(method) or 0.0) - (metis.mean(method) or 0.0)
                rows.append(
                    Row(label=label, quantity="against METIS", unit="points", published=line.value, ours=lost,
                        how="trained", data=random.data, judge="order")
                )  # fmt: skip
        pair = {"p=0.1": "bns-gcn:p=0.1", "p=0.0": "bns-gcn:p=0"}
        orderings.append(random.ordering(f"random partitions need sampled rows, {random.where}", pair))
    return PaperTable(
        key="bns-gcn/table7", title="BNS-GCN Table 7: random partitions", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def table9(context: Context) -> PaperTable:
    """Sampling of boundary nodes, of boundary edges (BES) and of all edges (DropEdge): volume, time, accuracy."""
    _, fit = fitted_reddit(context)
    rows: list[Row] = []
    orderings: list[Ordering] = []
    assumptions = [PROFILE, fit.text() + "; the same machine for all graphs", SMALL_NOTE]
    for name in GRAPHS:
        made, judged, run = _edges(context, name, fit)
        rows += made
        orderings += judged
        assumptions.append(run.summary)
    assumptions.append(
        "boundary nodes follow from the volume of BNS-GCN (BN10); times take the shares of them that BES and DropEdge "
        "still send from their printed volumes; the volumes shown are of the shares that the trained graphs kept"
    )
    return PaperTable(
        key="bns-gcn/table9", title="BNS-GCN Table 9: sampling nodes against sampling edges", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def _edges(context: Context, name: str, fit: Any) -> tuple[list[Row], list[Ordering], Trained]:
    """Table 9's rows and orderings of one graph."""
    frame = select(load.published("bns-gcn-table9"), dataset=name)
    parts = int(frame["partitions"].iloc[0])
    volumes = {m: value(frame, method=m, metric="epoch_comm_volume") for m in EDGES}
    everything = volumes["BNS-GCN"] / 0.1
    bed = bed_of(context, CLUSTER, name, parts, halo=halo_of(everything, sage(name)))
    run = trained_on(context, name, list(EDGES.values()), parts, 0.75)
    rows, kept, times = [], {}, {}
    for printed, method in EDGES.items():
        label = f"{TITLES[name]}, {printed}, {parts} parts"
        rates = {"kept nodes": min(volumes[printed] / everything, 1.0)} if ":sampling" in method else None
        times[printed] = bed.seconds(method, fit, rates).epoch
        kept[printed] = everything * _share_kept(run, method)
        rows += [
            Row(label=label, quantity="volume", unit="MB", published=volumes[printed], ours=kept[printed],
                how="fitted" if printed == "BNS-GCN" else "trained", data=run.data, judge="order"),
            seconds_row(label, "epoch time", value(frame, method=printed, metric="epoch_time"), times[printed],
                        note=FEW),
            scored(label, value(frame, method=printed, metric=lambda m: m in SCORES), run, method),
        ]  # fmt: skip
    order = ("DropEdge", "BES", "BNS-GCN")
    shares = tuple(_share_kept(run, EDGES[m]) for m in order)
    sent = Ordering(
        text=f"volume (share of the boundary nodes sent), {run.where}", expected=order, ours=shares,
        runs=run.evidence(EDGES.values()),
    )  # fmt: skip
    ours = tuple(times[m] for m in order)
    # The printed volumes of BES and DropEdge are inputs of their times, so their order cannot fail.
    slower = Ordering(
        text=f"epoch time, {TITLES[name]}", expected=order, ours=ours, theory="the printed volumes are inputs"
    )
    return rows, [sent, slower], run


def _share_kept(run: Trained, method: str) -> float:
    """Mean share of the boundary nodes that were sent, over the epochs of the first seed."""
    seen = [epoch["observed"]["kept nodes"] for epoch in run.records[method][0]["epochs"] if epoch["observed"]]
    return float(sum(seen) / len(seen))


def table13(context: Context) -> PaperTable:
    """Accuracy for p from 0.1 to 1."""
    frame = load.published("bns-gcn-table13")
    rows: list[Row] = []
    orderings, assumptions = [], [SMALL_NOTE]
    for name in ("reddit", "ogbn-products"):
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = {s: f"bns-gcn:{s.partition(';')[0]}" for s in mine["setting"]}
        run = trained_on(context, name, list(methods.values()), parts, 1.2)
        assumptions.append(run.summary)
        for line in mine.itertuples():
            label = f"{TITLES[name]}, {line.setting}, {parts} parts"
            rows.append(scored(label, line.value, run, methods[line.setting]))
        pair = {p: methods[f"{p}; METIS"] for p in ("p=0.1", "p=1.0")}
        orderings.append(run.ordering(f"p = 0.1 is no worse than p = 1, {run.where}", pair, "right"))
    return PaperTable(
        key="bns-gcn/table13", title="BNS-GCN Table 13: accuracy and p", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip
