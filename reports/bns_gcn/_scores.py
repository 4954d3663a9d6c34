"""BNS-GCN's tables with accuracies: 4 (all graphs), 5 (ogbn-products), 7 (random partitions), 13 (p)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from reports.bns_gcn._machine import MACHINE, cut, machine
from reports.bns_gcn._sampled import ONE_DEVICE, SAMPLED_TIMES, behind_full_graph, sampled_epoch, sampled_time
from reports.bns_gcn._times import PROPORTIONAL, at_rate, share_of
from reports.bns_gcn.testbed import SYSTEMS, TITLES, as_coded, epochs_of, laws_of, trainable, work_of
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.rows import judged_in, scored, seconds_row
from reports.core.table import Ordering, PaperTable, Row
from reports.core.train import Trained, accuracies
from reports.study import kept_scores

SCORE_METRICS = ("test_accuracy", "f1_micro")
BNS_GRAPHS = ("reddit", "ogbn-products", "yelp")
BELOW = {("yelp", "p=0.0", 3): "BN12", ("yelp", "p=0.0", 6): "BN12"}  # Table 4 against "p = 0 is always worst"
BELOW |= {("reddit", "p=0.01", parts): "BN13" for parts in (2, 4, 8)}  # and against "p > 0 loses nothing"
FROM_8_PARTS = "both constants are those of 8 parts of Reddit"
OUTSIDE = (
    "Table 8 prints a gain of 3.4 for p = 0.1 on these parts, and these times one of 1.73 (CONSISTENCY.md, BN7): what "
    "is predicted is near to the gain, and to the time of p = 0.1, so not to the time of p = 1. That time asks for 1.5 "
    "GB/s of every process, where Tables 9 and 11 have 0.45 to 0.69 (BN11). Excluded: start-up or evaluation in all "
    "three times, which with Table 8's gain would be 108 s, and leave 0.095 s for an epoch of p = 0.1, for which 5 "
    "parts take 0.388 s (Table 9)"
)
SCRIPT_EPOCHS = {"ClusterGCN": 50, "NeighborSampling": 20, "GraphSAINT": 20}  # of OGB's and PyG's scripts
WITHOUT_RUNS = (
    "cells without ours: scores that a stand-in is fitted to (isolated parts), and systems on graphs that the study "
    "has no runs of; --full trains them"
)
PARTITIONER = "metis-cut"  # of trainings where none is named
CLUSTERS = {"reddit": 130, "ogbn-products": 150}
"""Of ClusterGCN, so that they keep the nodes that the authors' have on Reddit, and OGB's on ogbn-products."""
SUBGRAPHS: dict[str, dict[str, Any]] = {
    "reddit": {"method": "graphsaint:sampler=rw:size=500"},
    "ogbn-products": {"method": "graphsaint:sampler=rw:size=2000:depth=3:coverage=0", "epochs": 300},
}
MANY_STEPS = {"reddit": 30}  # epochs of systems that take tens of steps in one


def studied_samplers(name: str) -> dict[str, dict[str, Any]]:
    """Sampling-based system as printed -> the settings of its runs in the study of BNS-GCN, on one device.

    Batches and draws are the authors', numbers of clusters and sizes of subgraphs scaled to the stand-in. Empty for a
    graph on which the study has none.
    """
    if name not in CLUSTERS:
        return {}
    epochs = {"epochs": MANY_STEPS[name]} if name in MANY_STEPS else {}
    drawn: dict[str, dict[str, Any]] = {
        system: {"method": SYSTEMS[system], **epochs}
        for system in ("FastGCN", "GraphSAGE", "AS-GCN", "LADIES", "VR-GCN")
    }
    batch = 20 if name == "reddit" else 32
    others: dict[str, dict[str, Any]] = {
        "ClusterGCN": {"method": f"cluster-gcn:clusters={CLUSTERS[name]}:batch={batch}"},
        "GraphSAINT": SUBGRAPHS[name],
        "NeighborSampling": {"method": "graphsage-ns:fanout=15/10/5:batch=1024"},
    }
    return {system: {**run, "parts": 1} for system, run in (drawn | others).items()}


def trained_in_full(
    context: Context,
    name: str,
    methods: Sequence[str],
    parts: int,
    *,
    others: Mapping[str, Mapping[str, Any]] | None = None,
    **changes: Any,
) -> Trained:
    """Train methods on a graph as the paper does (`--full`); each label is the method's text.

    `others`: label -> settings of further trainings.
    """
    rows: dict[str, str | Mapping[str, Any]] = {method: method for method in methods}
    return accuracies(
        context, name, {**rows, **(others or {})}, parts=parts, model=trainable(name, **changes), seeds=10,
        epochs=epochs_of(name),
    )  # fmt: skip


def method_of(line: Any) -> str:
    """The method of a published line: a rate of BNS-GCN, or the method that corresponds to another system."""
    return work_of(line.setting) if line.method == "BNS-GCN" else SYSTEMS[line.method]


def methods_of(frame: pd.DataFrame) -> list[str]:
    """The methods of a frame's lines, each once."""
    return list(dict.fromkeys(map(method_of, frame.itertuples())))


def table4(context: Context) -> PaperTable:
    """Accuracies of sampling-based methods and of BNS-GCN for four rates: those of the study, which judges the claims
    about them; with `--full` of trainings, with differences and orderings."""
    frame = load.published("bns-gcn-table4")
    rows: list[Row] = []
    orderings, notes = list[Ordering](), [*judged_in(context, "bns-gcn")]
    for name in BNS_GRAPHS:
        mine = select(frame, dataset=name)
        own = select(mine, method="BNS-GCN")
        numbers = sorted({int(n) for n in own["partitions"]})
        sampled = [method for method in methods_of(own) if method != "vanilla"]
        others: dict[str, Mapping[str, Any]] = {
            at_parts(m, n): {"method": m, "parts": n} for n in numbers for m in sampled
        }
        if not context.full:
            runs = {"vanilla": {"method": "single"}, **others, **studied_samplers(name)}
            run = kept_scores("bns-gcn", name, runs)
            rows += [_of_table4(line, run) for line in mine.itertuples()]
            notes.append(run.summary)
            continue
        run = trained_in_full(context, name, ["vanilla"], numbers[-1], others=others | on_one_rank(mine))
        notes.append(run.summary)
        rows += [_of_table4(line, run) for line in mine.itertuples()]
        rows += _changes(own, run)
        scores = {line.method: line.value for line in mine.itertuples() if line.method in run.scores and line.value > 0}
        full = {"vanilla": float(select(own, setting="p=1.0; METIS")["value"].iloc[0])}
        orderings += behind_full_graph(name, scores | full, run, "vanilla", "FastGCN")
        for parts in numbers:
            orderings += _worst(name, parts, own, run)
    notes.append("p = 1 is exact: one training stands for every number of parts, and its rows are not independent")
    notes.append(ONE_DEVICE if context.full else WITHOUT_RUNS)
    return PaperTable(
        key="bns-gcn/table4", title="BNS-GCN Table 4: accuracies", rows=tuple(rows), orderings=tuple(orderings),
        assumptions=tuple(notes),
    )  # fmt: skip


def on_one_rank(frame: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """System as printed -> the settings of its training on one rank, for those of a frame."""
    systems = {str(line.method): method_of(line) for line in frame.itertuples() if line.method != "BNS-GCN"}
    return {system: {"method": method, "parts": 1} for system, method in systems.items()}


def at_parts(method: str, parts: float) -> str:
    """The label of a training in so many parts; p = 1 is trained once."""
    return method if method == "vanilla" else f"{method} in {parts:.0f} parts"


def _of_table4(line: Any, run: Trained) -> Row:
    """A line of Table 4."""
    method, name = method_of(line), TITLES[line.dataset]
    if line.method != "BNS-GCN":
        label, at = f"{name}, {line.method}", (line.method, name)
        return scored(label, line.value, run, line.method, at=at, note=_trained_as(run, line.method, method))
    conflict = BELOW.get((line.dataset, line.setting.partition(";")[0], int(line.partitions)), "")
    return scored(
        f"{name}, {line.setting}, {line.partitions:.0f} parts", line.value, run, at_parts(method, line.partitions),
        conflict=conflict, at=(at_rate(line.setting), f"{name}, {line.partitions:.0f} parts"),
        note="one training of p = 1 stands for all numbers of parts" if method == "vanilla" else "",
    )  # fmt: skip


def _trained_as(run: Trained, system: str, method: str) -> str:
    """The method of a system's runs, and their epochs where a study has them; the printed system's without runs."""
    kept = run.records.get(system, [{}])[0]
    return f"{kept['method']}, {kept['epochs'][-1]['epoch'] + 1} epochs" if "method" in kept else method


def _changes(own: pd.DataFrame, run: Trained) -> list[Row]:
    """What each rate changes against p = 1 in as many parts, as printed and as trained."""
    rows = []
    for line in own.itertuples():
        if line.setting.startswith("p=1.0"):
            continue
        full = value(own, setting="p=1.0; METIS", partitions=line.partitions)
        rows.append(
            run.difference(
                f"{TITLES[line.dataset]}, {line.setting} against p=1, {line.partitions:.0f} parts",
                round(line.value - full, 2), at_parts(work_of(line.setting), line.partitions), "vanilla",
                claim=gained(line.dataset, line.setting, line.partitions),
            )
        )  # fmt: skip
    return rows


def gained(name: str, setting: str, parts: float) -> str:
    """The claim of what a rate changes against p = 1, which Tables 4, 5 and 13 print."""
    return f"bns-gcn: {name}, {setting.partition(';')[0]} against p = 1 in {parts:.0f} parts"


def _worst(name: str, parts: int, own: pd.DataFrame, run: Trained) -> list[Ordering]:
    """The claim that p = 0 is worst, against each other rate in turn."""
    none = at_parts("bns-gcn:p=0", parts)
    found = []
    for setting in dict.fromkeys(own["setting"]):
        method = work_of(setting)
        if method == "bns-gcn:p=0":
            continue
        shown = setting.partition(";")[0]
        pair = {shown: at_parts(method, parts), "p=0.0": none}
        printed = [value(own, setting=s, partitions=float(parts)) for s in (setting, "p=0.0; METIS")]
        trained = run.data or TITLES[name]
        text = f"p = 0 is worst: behind {shown}, {trained}, {parts} parts"
        ordering = run.ordering(text, pair, conflict="BN12" if printed[0] <= printed[1] else "")
        found.append(replace(ordering, claim=f"bns-gcn: p = 0 is always worst on {name}"))
    return found


def table5(context: Context) -> PaperTable:
    """Training time and accuracy on ogbn-products; 500 epochs (setup), 10 parts."""
    frame = load.published("bns-gcn-table5")
    epochs, fit, halo = epochs_of("ogbn-products"), machine(context), cut("ogbn-products")
    bed = halo.bed(context)
    settings = [s for s in dict.fromkeys(frame["setting"]) if s.startswith("p=")]
    rates, own_lines = [work_of(s) for s in settings], select(frame, method="BNS-GCN")
    run = _of_table5(context, rates, frame)
    rows: list[Row] = []
    times = {method: epochs * bed.seconds(as_coded(method), fit).epoch for method in rates}
    for line in frame.itertuples():
        label, method, own = f"{line.method}, {line.setting}", method_of(line), line.method == "BNS-GCN"
        side = at_rate(line.setting) if own else line.method
        if line.metric != "training_time":
            trained = method if own else line.method
            rows.append(scored(label, line.value, run, trained, at=(side, "Test Acc (%)")))
            if own and method != "vanilla" and context.full:
                printed = line.value - value(frame, setting=settings[0], metric="test_accuracy")
                rows.append(run.difference(f"{label} against p=1", round(printed, 2), method, "vanilla",
                                           claim=gained("ogbn-products", line.setting, 10)))  # fmt: skip
        elif own:
            null = halo.null(share_of(line.setting), epochs=epochs)
            rows.append(
                seconds_row(label, "training time", line.value, times[method], note=OUTSIDE, null=null,
                            at=(side, "Total Train Time"))
            )  # fmt: skip
        else:
            seconds, why = sampled_epoch(context, method, "ogbn-products", fit)
            whole = None if seconds is None else SCRIPT_EPOCHS[line.method] * seconds.epoch
            rows.append(sampled_time(label, line, whole, why, method, (side, "Total Train Time")))
    accurate = select(frame, metric="test_accuracy")
    scores = {line.method: line.value for line in accurate.itertuples() if line.method in run.scores}
    scores["vanilla"] = value(own_lines, setting=settings[0], metric="test_accuracy")
    return PaperTable(
        key="bns-gcn/table5",
        title="BNS-GCN Table 5: training on ogbn-products",
        rows=tuple(rows),
        orderings=(
            Ordering(text="training time", expected=tuple(settings), ours=tuple(times[work_of(s)] for s in settings),
                     theory=PROPORTIONAL),
            *(behind_full_graph("ogbn-products", scores, run, "vanilla", "") if context.full else ()),
        ),
        assumptions=(
            MACHINE, fit.text(), *laws_of("METIS"), f"{epochs} epochs in 10 METIS parts of Table 8", OUTSIDE,
            run.summary, *judged_in(context, "bns-gcn"),
            SAMPLED_TIMES, f"epochs of their scripts: {SCRIPT_EPOCHS}",
        ),
    )  # fmt: skip


def _of_table5(context: Context, rates: Sequence[str], frame: pd.DataFrame) -> Trained:
    """The accuracies of Table 5: those of the study, whose samplers have their scripts' settings scaled to the
    stand-in; with `--full` of trainings."""
    if context.full:
        return trained_in_full(context, "ogbn-products", rates, 10, others=on_one_rank(frame))
    runs = {rate: {"method": "single" if rate == "vanilla" else rate, "parts": 10} for rate in rates}
    return kept_scores("bns-gcn", "ogbn-products", runs | studied_samplers("ogbn-products"))


def table7(context: Context) -> PaperTable:
    """Random partitions: accuracy, and its loss against METIS."""
    frame = load.published("bns-gcn-table7")
    rows: list[Row] = []
    orderings = list[Ordering]()
    assumptions = [*judged_in(context, "bns-gcn")]
    for name in BNS_GRAPHS:
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = [work_of(s) for s in dict.fromkeys(mine["setting"])]
        run = _random_and_metis(context, name, methods, parts)
        assumptions.append(run.summary)
        head = f"{TITLES[name]} ({parts} partitions)"
        for line in mine.itertuples():
            label, method = f"{TITLES[name]}, {line.setting}", work_of(line.setting)
            side = f"Random+{at_rate(line.setting)}"
            if line.metric in SCORE_METRICS:
                rows.append(scored(label, line.value, run, method, at=(side, head)))
            elif method == "vanilla":  # exact: the same training
                rows.append(Row(label=label, quantity="against METIS", unit="points", published=line.value, ours=0.0,
                                how="trained", data=run.data, judge="none", at=(side, f"{head}, +/-"),
                                note="p = 1 is exact: parts do not matter"))  # fmt: skip
            else:
                gap = run.difference(label, line.value, method, by_metis(method), at=(side, f"{head}, +/-"))
                rows.append(replace(gap, quantity="against METIS", judge="difference" if context.full else "none"))
        if not context.full:
            continue
        sampled = {"p=0.1": "bns-gcn:p=0.1", "p=0.0": "bns-gcn:p=0"}
        level = {"METIS": by_metis("bns-gcn:p=0.1"), "random": "bns-gcn:p=0.1"}
        orderings += [
            run.ordering(f"random partitions need sampled rows, {run.where}", sampled),
            run.ordering(f"random partitions do as well as METIS at p = 0.1, {run.where}", level, "demanded"),
        ]
    return PaperTable(
        key="bns-gcn/table7", title="BNS-GCN Table 7: random partitions", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def _random_and_metis(context: Context, name: str, methods: Sequence[str], parts: int) -> Trained:
    """Methods in random parts and in METIS parts: the study's runs, or trainings with `--full`."""
    sampled = [method for method in methods if method != "vanilla"]
    if context.full:
        others = {by_metis(m): {"method": m, "partitioner": PARTITIONER} for m in sampled}
        return trained_in_full(context, name, methods, parts, others=others, partitioner="hash")
    runs: dict[str, dict[str, Any]] = {"vanilla": {"method": "single"}}
    for method in sampled:
        runs |= {method: {"method": method, "parts": parts, "partitioner": "hash"},
                 by_metis(method): {"method": method, "parts": parts}}  # fmt: skip
    return kept_scores("bns-gcn", name, runs, where=f"{parts} parts")


def by_metis(method: str) -> str:
    """The label of a training in METIS parts beside random ones."""
    return f"{method} in METIS parts"


def table13(context: Context) -> PaperTable:
    """Accuracy for p from 0.1 to 1: of the study, which judges the claims about it; with `--full` of trainings."""
    frame = load.published("bns-gcn-table13")
    rows: list[Row] = []
    orderings, assumptions = list[Ordering](), [*judged_in(context, "bns-gcn")]
    for name in ("reddit", "ogbn-products"):
        mine = select(frame, dataset=name)
        parts = int(mine["partitions"].iloc[0])
        methods = {s: work_of(s) for s in mine["setting"]}
        run = scores_of_rates(context, name, list(methods.values()), parts)
        assumptions.append(run.summary)
        for line in mine.itertuples():
            label = f"{TITLES[name]}, {line.setting}, {parts} parts"
            short = line.setting.partition(";")[0]
            at = (f"{TITLES[name]} ({parts} partitions)", short.replace("=", " = "))
            rows.append(scored(label, line.value, run, methods[line.setting], at=at))
            if short != "p=1.0" and context.full:
                printed = round(line.value - value(mine, setting="p=1.0; METIS"), 2)
                rows.append(run.difference(f"{label} against p=1", printed, methods[line.setting], "vanilla",
                                           claim=gained(name, line.setting, parts)))  # fmt: skip
        if context.full:
            pair = {p: methods[f"{p}; METIS"] for p in ("p=0.1", "p=1.0")}
            orderings.append(run.ordering(f"p = 0.1 is no worse than p = 1, {run.where}", pair, "right"))
    return PaperTable(
        key="bns-gcn/table13", title="BNS-GCN Table 13: accuracy and p", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def scores_of_rates(context: Context, name: str, methods: Sequence[str], parts: int) -> Trained:
    """Methods in so many METIS parts: the study's runs, where p = 1 is one device; or trainings with `--full`."""
    if context.full:
        return trained_in_full(context, name, methods, parts)
    runs = {method: {"method": "single" if method == "vanilla" else method, "parts": parts} for method in methods}
    return kept_scores("bns-gcn", name, runs, where=f"{parts} parts")
