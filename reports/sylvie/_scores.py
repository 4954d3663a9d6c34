"""Sylvie's tables with accuracies: 1 (sampling), 2 (throughput and accuracy), 4 (quantising everything)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reports.bns_gcn.testbed import SYSTEMS, TITLES
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.rows import judged_in, scored
from reports.core.table import POINTS, How, Ordering, PaperTable, Row
from reports.core.train import Trained, accuracies
from reports.study import kept_scores
from reports.sylvie._programs import PER_PEER, SAR_MODEL, judged_epoch
from reports.sylvie._testbed import (
    FITTED,
    GRAPH_NOTES,
    GRAPHS,
    METHOD_OF,
    MODEL_OF,
    ON_TWO_SERVERS,
    case,
    logged_epochs,
    null_gain,
    training_of,
)
from reports.sylvie._times import CROSSING, QUANTISER, ROUNDS, throughput_claim

NOTES = {"SAR": ROUNDS, "Sylvie-S": QUANTISER, "Sylvie-A": QUANTISER}
REPEATED = "Table 3's epochs as a ratio: judged there"
ALL = "sylvie-s:bits=1:side=fp16:scope=all"


def table1(context: Context) -> PaperTable:
    """Sampling neighbours against the full graph, GraphSAGE on ogbn-products; the study judges the claims about it."""
    frame = load.published("sylvie-table1")
    name, model = "ogbn-products", "GraphSAGE"
    methods = {f"{line.method}, {line.setting}": _sampler(line) for line in frame.itertuples()}
    run = scores_of_systems(context, name, model, methods, parts=2 if context.full else 1)
    columns = [line.setting.rpartition("=")[2] if "=" in line.setting else "Full-Graph" for line in frame.itertuples()]
    rows = [
        scored(label, line.value, run, label, at=("Accuracy (%)", column))
        for label, line, column in zip(methods, frame.itertuples(), columns, strict=True)
    ]  # fmt: skip
    best = sorted(rows, key=lambda row: -(row.published or 0.0))
    orderings, gaps = tuple[Ordering, ...](), list[Row]()
    if context.full:
        chain = {row.label: row.label for row in best}
        orderings = (run.ordering(f"sampling loses accuracy, {run.where}", chain),)
        gaps = [_difference(run, row, best[0]) for row in rows if row is not best[0]]
    return PaperTable(
        key="sylvie/table1", title="Sylvie Table 1: sampling neighbours loses accuracy", rows=(*rows, *gaps),
        orderings=orderings, assumptions=(run.summary, *judged_in(context, "sylvie")),
    )  # fmt: skip


def _sampler(line: Any) -> str:
    """The method of a line of Table 1, whose settings end in the neighbours that each layer samples."""
    size = line.setting.rpartition("=")[2]
    return METHOD_OF["DGL"] if line.method == "full-graph" else f"{SYSTEMS[line.method]}:fanout={size}"


def _difference(run: Trained, row: Row, other: Row, **more: Any) -> Row:
    """A printed accuracy minus another, beside ours; the rows' labels end in those of the runs."""
    first, second = (
        one.label.rpartition(", ")[2] if one.label not in run.scores else one.label for one in (row, other)
    )
    printed = round((row.published or 0.0) - (other.published or 0.0), 2)
    return run.difference(f"{row.label} minus {second}", printed, first, second, **more)


def table2(context: Context) -> PaperTable:
    """Throughput over DGL, and accuracy, of three models on four graphs."""
    frame = load.published("sylvie-table2")
    rows: list[Row] = []
    orderings: list[Ordering] = []
    for name in GRAPHS:
        for model in MODEL_OF:
            mine = select(frame, dataset=name, model=model)
            throughput, ahead = throughput_rows(context, name, model)
            scores, judged = _scores(context, name, model, select(mine, metric=lambda m: m != "throughput_normalised"))
            rows += [*throughput, *scores]
            orderings += [ahead, *judged]
    made = case(context, GRAPHS[0])
    return PaperTable(
        key="sylvie/table2", title="Sylvie Table 2: throughput and accuracy on 2 x 4 GPUs", rows=tuple(rows),
        orderings=tuple(orderings),
        assumptions=(
            FITTED, made.fit.text(), *GRAPH_NOTES, CROSSING, PER_PEER, SAR_MODEL, ROUNDS,
            *judged_in(context, "sylvie"),
            "GAT has one head, as in the authors' code",
        ),
    )  # fmt: skip


def throughput_rows(context: Context, name: str, model: str) -> tuple[list[Row], Ordering]:
    """Speed-ups over DGL of one graph and model, and the ordering of systems: Table 2 and Fig. 5."""
    frame = select(load.published("sylvie-table2"), dataset=name, model=model, metric="throughput_normalised")
    made, names = case(context, name, model), [n for n in dict.fromkeys(frame["method"]) if n != "DGL"]
    base = made.bed.seconds(METHOD_OF["DGL"], made.fit).epoch
    found = {system: judged_epoch(made.bed, made.fit, system, over=base) for system in names}
    gains = {"DGL": 1.0, **{system: float(values["ours"]) for system, values in found.items()}}
    column = f"{TITLES[name]}, Thr."
    rows = [
        Row(label=f"{TITLES[name]}, {model}, {system}", quantity="throughput over DGL", unit="x",
            published=value(frame, method=system), how=_origin(system),
            note=REPEATED if repeated else NOTES.get(system, ""), null=null_gain(made.bed, name, system),
            at=(f"{model}, {system}", column),
            **{"ours": 1.0, "judge": "none" if system == "DGL" or repeated else "error", **found.get(system, {})})
        for system in gains
        for repeated in [(system, model) == ("Sylvie-S", "GraphSAGE")]
    ]  # fmt: skip
    order = sorted(gains, key=lambda system: -value(frame, method=system))
    text = f"throughput, {TITLES[name]}, {model}"
    ours = tuple(gains[system] for system in order)
    return rows, Ordering(text=text, expected=tuple(order), ours=ours, claim=throughput_claim(name, model))


def _origin(system: str) -> How:
    """DGL's throughput is 1 by definition."""
    return "quoted" if system == "DGL" else "simulated"


def _scores(context: Context, name: str, model: str, frame: Any) -> tuple[list[Row], list[Ordering]]:
    """Accuracies of one graph and model: those of the study, which judges the claims about them; with `--full` of
    trainings, with their differences from DGL's.

    Where the printed ones of Sylvie and DGL are level, ours have to be; on GAT BNS-GCN is behind Sylvie-S (Sec. 4.1).
    """
    methods = {name: METHOD_OF[name] for name in dict.fromkeys(frame["method"])}
    run = scores_of_systems(context, name, model, methods)
    column = f"{TITLES[name]}, {'F1-micro' if name == 'yelp' else 'Test Acc.'} (%)"
    rows = [
        scored(f"{TITLES[name]}, {model}, {line.method}", line.value, run, line.method,
               at=(f"{model}, {line.method}", column), note=run.summary if not context.full else "")
        for line in frame.itertuples()
    ]  # fmt: skip
    if not context.full:
        return rows, []
    full, *others = rows
    gaps = [_difference(run, row, full, claim=accuracy_claim(name, model, row.label.rpartition(", ")[2]))
            for row in others]  # fmt: skip
    orderings = []
    for own in ("Sylvie-S", "Sylvie-A"):
        gap = abs(value(frame, method=own) - value(frame, method="DGL"))
        text = f"{own} is as accurate as DGL ({gap:.2f} points apart as printed), {model}, {run.where}"
        level = run.ordering(text, {own: own, "DGL": "DGL"}, "demanded")
        orderings += [replace(level, claim=accuracy_claim(name, model, own))] if gap < POINTS else []
    if model == "GAT":
        text = f"BNS-GCN is less accurate than Sylvie-S, {model}, {run.where}"
        orderings.append(run.ordering(text, {"Sylvie-S": "Sylvie-S", "BNS-GCN": "BNS-GCN"}))
    return [*rows, *gaps], orderings


def scores_of_systems(
    context: Context,
    name: str,
    model: str,
    methods: Mapping[str, str],
    *,
    parts: int = ON_TWO_SERVERS,
    seeds: int = 3,
) -> Trained:
    """Methods by label on a graph: the study's runs, or trainings with `--full`, of so many `seeds`.

    DGL and SAR are exact: in the study one device stands for both.
    """
    if context.full:
        return accuracies(
            context, name, methods, parts=parts, model=training_of(name, model),
            epochs=logged_epochs(name, model), seeds=seeds,
        )  # fmt: skip
    exact = {METHOD_OF["DGL"], METHOD_OF["SAR"]}
    runs = {
        label: {"method": "single" if method in exact else method, "parts": parts} for label, method in methods.items()
    }
    return kept_scores("sylvie", name, runs, model=model, where=f"{parts} part{'s' * (parts > 1)}")


def accuracy_claim(name: str, model: str, system: str) -> str:
    """Identity of the claim how far a system's accuracy is from DGL's: Table 2 and Fig. 9 make it."""
    return f"sylvie: accuracy against DGL, {name}, {model}, {system}"


def table4(context: Context) -> PaperTable:
    """Quantising what is sent against quantising everything."""
    frame = load.published("sylvie-table4")
    rows: list[Row] = []
    orderings: list[Ordering] = []
    assumptions = [*judged_in(context, "sylvie")]
    methods = {"Sylvie-S": METHOD_OF["Sylvie-S"], "quantize all": ALL}
    for name in dict.fromkeys(frame["dataset"]):
        for model in MODEL_OF:
            mine = select(frame, dataset=name, model=model)
            run = scores_of_systems(context, name, model, methods)
            label = f"{TITLES[name]}, {model}"
            pair = [
                scored(f"{label}, {line.method}", line.value, run, line.method,
                       at=(model, f"{TITLES[name]}, {line.method}"))
                for line in mine.itertuples()
            ]  # fmt: skip
            rows += pair
            assumptions.append(f"{model}: {run.summary}")
            if not context.full:
                continue
            rows.append(_difference(run, pair[1], pair[0], claim=f"sylvie: quantising everything, {name}, {model}"))
            text = f"quantising everything loses accuracy, {model}, {run.where}"
            orderings.append(run.ordering(text, {m: m for m in methods}))
    return PaperTable(
        key="sylvie/table4", title="Sylvie Table 4: quantising everything", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(dict.fromkeys(assumptions)),
    )  # fmt: skip
