"""Subgraph approximation: its tables 1 to 4 beside ours.

Time to convergence is epochs times seconds. The paper prints no epochs: for KW-GCN one number is taken for all rows of
a graph; for GraphSAGE, whose rows need different numbers, no time is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reports.core import load
from reports.core.context import Context
from reports.core.null_models import Null
from reports.core.rows import judged_in
from reports.core.table import How, Ordering, PaperTable, Row
from reports.core.train import Trained
from reports.subgraph_approximation._figures import FIGURES
from reports.subgraph_approximation._training import (
    CLUSTER_GCN,
    CONVERGED,
    GNNS,
    LABELS,
    OWN,
    READINGS,
    SAGE,
    SINGLE,
    at_equal_time,
    beside_clusters,
    differences,
    epochs_at_equal_time,
    epochs_to_converge,
    equal_time_difference,
    equal_time_ordering,
    kept_equal_time,
    more_sensitive,
    orderings,
    overlap_runs,
    shown_overlaps,
)
from reports.subgraph_approximation._workers import (
    ASSUMED,
    FANOUTS,
    PAPER,
    Gcn,
    dataset,
    first_ring,
    fits_memory,
    followed_config,
    followed_gb,
    gcn_on_amazon,
    gcn_on_reddit,
    operations,
    printed_value,
    sage_bytes,
    said,
)

FITTED_LOSS = "the stand-ins of both are fitted to their printed losses in 3 parts"
SAGE_MEMORY = (
    "GraphSAGE's memory is a constant of the graph and a slope on the bytes of a worker's features and edges, fitted "
    "on Reddit's single machine and on the fewest workers without overlap of each graph; how much more than the mean "
    "the fullest worker holds, and the least less, on the rows without overlap"
)
SAGE_TIME = (
    "GraphSAGE's epochs to convergence are not printed and differ by row (more overlap needs less time, Sec. 5.2); "
    "no time is predicted for it"
)
SAGE_EPOCHS = (
    "GraphSAGE's epochs in a fixed time: copies are taken to be trained on as own nodes are, so that an epoch's work "
    "grows with the nodes; measured times grow faster, which nothing printed explains (SA8)"
)
TRANSFERRED = "another graph, and narrower layers: only differences within a table can be compared"
TABLE1 = {
    "vertices": "#Vertices", "edges": "#Edges", "classes": "#Labels", "features": "#Features",
    **dict.fromkeys(("train", "val", "test"), "% of vertices"),
}  # fmt: skip
QUANTITIES = {
    "f1_micro": "accuracy", "gpu_memory_allocated": "memory", "training_time": "time", "speedup": "speed-up",
}  # fmt: skip
EQUAL_TIME = (
    "accuracies at equal time: each overlap is read off its own training as far along as its printed epochs are of the "
    "80 without overlap"
)

EQUAL_EPOCHS = "every overlap is trained for its printed epochs, with batches of 64 of a worker's 840 training nodes"
WITHOUT_RUNS = "cells without ours: scores that the stand-in is fitted to"


def table1(context: Context) -> PaperTable:
    """Table 1: the graphs, and numbers that the text derives from them."""
    rows = []
    for line in load.published(f"{PAPER}-table1").itertuples():
        fraction = str(line.metric).endswith("_fraction")
        key = str(line.metric).removesuffix("_fraction")
        ours = float(dataset(str(line.dataset))[key]) * (100 if fraction else 1)
        conflict = "SA10" if fraction and line.dataset == "reddit" else ""
        rows.append(
            Row(
                label=str(line.dataset), quantity=str(line.metric).replace("_", " "), unit=str(line.unit),
                published=_number(line.value), ours=ours, how="quoted", conflict=conflict, judge="none",
                at=(str(line.dataset), TABLE1[key] + (f", {key}" if fraction else "")),
            )
        )  # fmt: skip
    degrees = load.text(PAPER)
    for line in degrees[degrees["metric"] == "avg_degree"].itertuples():
        graph = dataset(str(line.dataset))
        rows.append(
            Row(
                label=str(line.dataset), quantity="mean degree (Sec. 5.3)", unit="edges", how="closed form",
                published=_number(line.value), ours=2 * graph["edges"] / graph["vertices"],
                conflict="SA6" if line.dataset == "reddit" else "", judge="none",
                note="2 |E| / |V| of the same table: no prediction",
            )
        )  # fmt: skip
    run = beside_clusters(context)
    rows += [_followed(context), *_cluster_gcn_rows(run), _fewest_parts(context)]
    return PaperTable(
        key=f"{PAPER}/table1", title="Subgraph approximation, Table 1: graphs", rows=tuple(rows),
        orderings=(*_cluster_gcn(), *_first_ring(context)), 
        commands=(*context.texts_of([followed_config(context)]), *run.commands),
        assumptions=(
            "The graphs are inputs: these are the counts with which Tables 2 to 4 are predicted.",
            "Sec. 5.4 compares an epoch of ClusterGCN with one of GraphSAGE on 5 workers (10 % overlap) by complexity; "
            f"with the {FANOUTS[0]} x {FANOUTS[1]} sampled neighbours that it takes for a small constant the order is "
            "the other",
            f"epochs to convergence: until {100 * CONVERGED:g} % of a run's own best test accuracy, both with "
            "GraphSAGE's model and rate; ClusterGCN with 1,500 clusters, 20 in a batch, its authors' for Reddit, since "
            f"the sentence names no graph ({run.summary})",
            "Appendix A: nodes of one part with an edge into another, beside the copies that the largest overlap takes "
            "of them, fewest over all pairs of parts of a METIS cut; graphs a hundred times larger have more",
        ),
    )  # fmt: skip


def _followed(context: Context) -> Row:
    """The example of Sec. 1."""
    return Row(
        label="reddit", quantity="every cut edge followed, 5 workers (Sec. 1)", unit="GB",
        published=said("epoch_comm_volume"), ours=followed_gb(context), how="simulated",
        note="input features of one epoch, forwards, in a run that keeps no row for a second edge",
    )  # fmt: skip


def _cluster_gcn_rows(run: Trained) -> list[Row]:
    """Sec. 5.4 in numbers: the epochs of ClusterGCN, and the factor by which copies enlarge a worker's part."""
    clusters, sage = (epochs_to_converge(run, label) for label in (CLUSTER_GCN, SAGE))
    return [
        Row(
            label="ClusterGCN, over GraphSAGE on 5 workers with 10 % overlap", quantity="epochs to convergence",
            unit="ratio", published=said("epochs_to_converge_ratio"), ours=clusters / sage, how="trained",
            data=run.data, judge="order" if run.data else "error", note=f"{clusters:.3g} epochs over {sage:.3g}",
        ),
        Row(
            label="1 + O at 10 % overlap, of Sec. 5.4's \"< 1.2\"", quantity="overlap factor", unit="ratio",
            published=said("overlap_factor"), ours=1.10, how="closed form", judge="none",
        ),
    ]  # fmt: skip


def _fewest_parts(context: Context) -> Row:
    """Sec. 5.2: into how many parts the graphs have to be divided to fit the memory of a GPU."""
    ours = next((parts for parts in range(1, 9) if fits_memory(context, "amazon2m", parts)), None)
    return Row(
        label="amazon2m, KW-GCN, no overlap", quantity="fewest parts that fit a GPU's memory", unit="parts",
        published=said("min_partitions_for_memory"), ours=ours, how="simulated",
        note="said as a lower bound; of the mean worker, without what the framework keeps aside",
    )  # fmt: skip


def _first_ring(context: Context) -> list[Ordering]:
    """Appendix A: no part has to look for copies beyond the neighbours of its own nodes."""
    found = []
    for name, parts in (("reddit", 3), ("reddit", 5), ("amazon2m", 5), ("amazon2m", 20)):
        fewest, wanted, graph = first_ring(context, name, parts)
        text = f"{graph}, {parts} parts: no recursive calls of Algorithm 1 (Appendix A)"
        names, claim = ("neighbours in another part", "copies of it"), "no recursive calls of Algorithm 1"
        found.append(Ordering(text=text, expected=names, ours=(fewest, wanted), claim=claim))
    return found


def _cluster_gcn() -> tuple[Ordering, ...]:
    """Sec. 5.4: an epoch of ClusterGCN costs more than one of distributed GraphSAGE."""
    names = ("ClusterGCN", "GraphSAGE on 5 workers")
    found = []
    for name in ("reddit", "amazon2m"):
        cluster, short, whole = operations(name, 5, 0.10)
        text = f"{name}: operations of an epoch (Sec. 5.4)"
        found.append(Ordering(text=text, expected=names, ours=(cluster, short), theory="a formula of printed counts"))
        text += ", with the sampled neighbours"
        found.append(Ordering(text=text, expected=names, ours=(cluster, whole), theory="a formula of printed counts"))
    return tuple(found)


def _second_reading(run: Trained, lines: Any, gnn: str, scores: Mapping[float, float] | None = None) -> list[Row]:
    """Rows of a table's accuracies, with the loss of own nodes only."""
    rows = []
    for line in lines[(lines["metric"] == "f1_micro") & (lines["model"] == gnn)].itertuples():
        overlap = line.overlap_pct / 100
        if overlap in OWN and f", {line.partitions:.0f} parts" in run.where:
            label = f"{gnn}, {line.partitions:.0f} workers, {OWN[overlap]}"
            ours = scores[overlap] if scores else run.mean(OWN[overlap])
            rows.append(
                Row(
                    label=label, quantity="accuracy", unit=line.unit, published=_number(line.value), ours=ours,
                    how="trained", data=run.data, judge="order" if run.data else "points",
                    seeds=len(run.each(OWN[overlap])),
                )
            )  # fmt: skip
    return rows


def table2(context: Context) -> PaperTable:
    """Table 2: accuracy, time, speed-up and memory of both GNNs on Reddit, on 1, 3 and 5 machines."""
    gcn = gcn_on_reddit(context)
    runs = {(gnn, parts): shown_overlaps(context, "reddit", gnn, parts) for parts in (3, 5) for gnn in GNNS}
    lines = load.published(f"{PAPER}-table2")
    lines = lines[lines["value"].notna()].drop_duplicates(["model", "metric", "partitions", "overlap_pct", "bound"])
    rows = [
        _row(context, line, gcn, runs[str(line.model), 5 if line.partitions == 5 else 3]) for line in lines.itertuples()
    ]
    claims = list[Ordering]()
    for (gnn, parts), run in runs.items():
        if not context.full:  # the study has one reading of the loss, and judges the claims about it
            continue
        claims += orderings(run, f"{gnn}, {parts} workers")
        rows += _second_reading(run, lines, gnn)
        rows += differences(run, _accuracies(lines, gnn, parts), f"{gnn}, {parts} workers")
    for parts in (3, 5):
        fitted = FITTED_LOSS if parts == 3 and not context.full else ""
        claims.append(replace(more_sensitive(runs[GNNS[0], parts], runs[GNNS[1], parts], parts), theory=fitted))
    return PaperTable(
        key=f"{PAPER}/table2",
        title="Subgraph approximation, Table 2: Reddit on 1, 3 and 5 machines",
        rows=tuple(rows),
        orderings=(*claims, *_times(gcn)),
        assumptions=(
            *gcn.notes, SAGE_MEMORY, SAGE_TIME, *ASSUMED, *(run.summary for run in runs.values()),
            *((READINGS,) if context.full else judged_in(context, PAPER)),
        ),
    )  # fmt: skip


def _accuracies(lines: Any, gnn: str, parts: int) -> dict[str, float]:
    """Printed accuracies of one GNN by the label of their training: one machine, and every overlap."""
    mine = lines[(lines["metric"] == "f1_micro") & (lines["model"] == gnn)]
    shown = mine[mine["partitions"].isin((1, parts))]
    labels = [SINGLE if math.isnan(overlap) else LABELS[overlap / 100] for overlap in shown["overlap_pct"]]
    return dict(zip(labels, map(float, shown["value"]), strict=True))


def _times(gcn: Gcn) -> list[Ordering]:
    """The text's claims on KW-GCN's times: all follow from what is fitted and from counts."""
    claims = []
    for parts in (3, 5):
        speedup = gcn.seconds(1, 0.0) / gcn.seconds(parts, 0.0)
        claims.append(
            Ordering(
                text=f"KW-GCN, {parts} workers: speed-up is sub-linear", expected=(f"{parts} workers", "speed-up"),
                ours=(float(parts), speedup), claim="KW-GCN: speed-up is sub-linear",
                theory="both times of 3 workers are fitted" if parts == 3 else
                "the parameter average, fitted on 3 workers, is added to an equal share of the work",
            )
        )  # fmt: skip
        claims.append(
            Ordering(
                text=f"KW-GCN, {parts} workers: overlap costs time",
                expected=tuple(f"{100 * overlap:.0f} %" for overlap in reversed(LABELS)),
                ours=tuple(gcn.seconds(parts, overlap) for overlap in reversed(LABELS)),
                claim="KW-GCN: overlap costs time", theory="more copies are more nodes and edges on the same device",
            )
        )  # fmt: skip
    return claims


def table3(context: Context) -> PaperTable:
    """Table 3: KW-GCN on Amazon2M with 5 workers."""
    gcn = gcn_on_amazon(context)
    run = shown_overlaps(context, "amazon2m", "KW-GCN", 5, single=False)
    lines = load.published(f"{PAPER}-table3")
    rows = [_row(context, line, gcn, run) for line in lines.itertuples()]
    if context.full:
        rows += _second_reading(run, lines, "KW-GCN")
        rows += differences(run, _accuracies(lines, "KW-GCN", 5), "KW-GCN, 5 workers")
    return PaperTable(
        key=f"{PAPER}/table3",
        title="Subgraph approximation, Table 3: KW-GCN on Amazon2M, 5 workers",
        rows=tuple(rows),
        orderings=orderings(run, "KW-GCN, 5 workers") if context.full else (),
        assumptions=(
            *gcn.notes, *ASSUMED, run.summary,
            *((READINGS,) if context.full else (*judged_in(context, PAPER), WITHOUT_RUNS)),
        ),
    )  # fmt: skip


def table4(context: Context) -> PaperTable:
    """Table 4: GraphSAGE on Amazon2M with 20 workers, for a fixed time."""
    lines = load.published(f"{PAPER}-table4")
    epochs = epochs_at_equal_time()
    claims, rows = tuple[Ordering, ...](), list[Row]()
    if context.full:
        run = overlap_runs(context, "amazon2m", "GraphSAGE", 20, single=False)
        scores = at_equal_time(run, epochs)
        printed = {o: value for o in LABELS for value in [_accuracies(lines, "GraphSAGE", 20)[LABELS[o]]]}
        rows += _second_reading(run, lines, "GraphSAGE", at_equal_time(run, epochs, OWN))
        rows.append(equal_time_difference(run, printed, epochs))
        claims = (equal_time_ordering(epochs, run),)
    else:
        run, scores = kept_equal_time(epochs), None
    return PaperTable(
        key=f"{PAPER}/table4",
        title="Subgraph approximation, Table 4: GraphSAGE on Amazon2M, 20 workers, 2386 s",
        rows=(*(_row(context, line, None, run, scores) for line in lines.itertuples()), *rows),
        orderings=claims,
        assumptions=(
            SAGE_MEMORY, SAGE_EPOCHS, *ASSUMED, run.summary,
            *((EQUAL_TIME, READINGS) if context.full else (*judged_in(context, PAPER), EQUAL_EPOCHS)),
        ),
    )  # fmt: skip


def _row(
    context: Context, line: Any, gcn: Gcn | None, run: Trained, scores: Mapping[float, float] | None = None
) -> Row:
    """The row of one printed number. `gcn` is None where the table has no KW-GCN; `scores` replace the run's best."""
    parts, overlap = int(line.partitions), 0.0 if line.partitions == 1 else line.overlap_pct / 100
    ours: float | None = None
    more: dict[str, Any] = {}
    how = _how(line, parts, overlap)
    if line.metric == "f1_micro":
        trained = SINGLE if parts == 1 else LABELS[overlap]
        ours = scores[overlap] if scores else run.mean(trained)
        more = {"data": run.data, "judge": "order" if run.data else "points", "note": TRANSFERRED if run.data else ""}
        more["seeds"] = len(run.each(trained))
        more["interval"] = None if scores else run.half_width(trained)
        how = how if ours is not None else "needs data"
    elif line.metric == "gpu_memory_allocated" and line.model == "KW-GCN" and gcn is not None:
        ours = gcn.peak_gb(parts, overlap, line.bound)
        more = {"conflict": "SA9" if parts == 5 and overlap == 0.25 and line.bound == "max" else ""}
    elif line.metric == "gpu_memory_allocated":
        ours = sage_bytes(context, line.dataset, parts, overlap, line.bound) / load.GB
    elif line.metric == "epochs":
        ours = line.value if how == "fitted" else _epochs(line) / (1 + overlap)
    elif line.model == "KW-GCN" and gcn is not None:
        ours, more = gcn.seconds(parts, overlap), {"null": _null(line, parts)}
        if line.metric == "speedup":
            ours = gcn.seconds(1, 0.0) / ours
    elif how == "needs data":
        more = {"note": "epochs to convergence are not published"}
    return Row(
        label=_label(line, parts, overlap), quantity=QUANTITIES.get(line.metric, line.metric), unit=line.unit,
        published=_number(line.value), ours=ours, how=how, at=_place(line, parts), **more,
    )  # fmt: skip


def _null(line: Any, parts: int) -> Null:
    """The time of the fitted row with workers, or its speed-up, and the same in proportion to the master's traffic."""
    workers = 3 if line.dataset == "reddit" else 5
    fitted = printed_value(f"table{line.table}", "KW-GCN", "training_time", workers, 0.0)
    share = (parts - 1) / (workers - 1)
    if line.metric == "speedup":
        single = printed_value("table2", "KW-GCN", "training_time", 1, None)
        return Null(same=single / fitted, by_bytes=single / fitted / share)
    return Null(same=fitted, by_bytes=fitted * share)


def _place(line: Any, parts: int) -> tuple[str, str]:
    """Row and column of a number in the paper's layout; the single machine is printed in both blocks of Table 2."""
    column = {"f1_micro": "Accuracy", "training_time": "Training time", "speedup": "Speed-up", "epochs": "Epochs",
              "gpu_memory_allocated": "Allocated GPU memory"}[line.metric]  # fmt: skip
    overhead = "" if parts == 1 else str(line.setting).partition(";")[0].removeprefix("overhead=") + " overhead"
    if line.dataset == "reddit":
        where = "Single machine" if parts == 1 else f"{parts} workers, {overhead}"
        return where, f"{column}, {'KW' if line.model == 'KW-GCN' else 'GS'} [{line.unit}]"
    return overhead, f"{column} [{line.unit}]"


def _how(line: Any, parts: int, overlap: float) -> How:
    """Origin of our number; rows on which a constant was fitted are marked."""
    isolated = parts > 1 and overlap == 0
    if line.metric == "f1_micro":
        return "trained"
    if line.metric == "gpu_memory_allocated":
        if line.model == "KW-GCN":
            return "fitted" if isolated else "simulated"
        return "fitted" if parts == 1 or isolated else "closed form"
    if line.metric == "epochs":
        return "fitted" if isolated else "closed form"
    if line.model != "KW-GCN":
        return "needs data"
    baseline = parts == 1 or (isolated and (parts == 3 or line.dataset == "amazon2m"))
    return "fitted" if baseline else "simulated"


def _epochs(line: Any) -> float:
    """Epochs in the fixed time without overlap."""
    frame = load.published(f"{PAPER}-table{line.table}")
    return float(frame.loc[(frame["metric"] == "epochs") & (frame["overlap_pct"] == 0), "value"].iloc[0])


def _label(line: Any, parts: int, overlap: float) -> str:
    """E.g. "KW-GCN, 3 workers, 10 % overlap, least"."""
    where = "1 machine" if parts == 1 else f"{parts} workers, {LABELS[overlap]}"
    bound = {"min": ", least worker", "max": ", fullest worker"}.get(line.bound, "")
    return f"{line.model}, {where}{bound}"


def _number(value: Any) -> float | None:
    return None if value != value else float(value)


TABLES = {"table1": table1, "table2": table2, "table3": table3, "table4": table4}
__all__ = ["FIGURES", "TABLES"]
