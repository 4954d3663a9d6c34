"""BNS-GCN's Table 9: sampling of boundary nodes, of boundary edges (BES) and of all edges (DropEdge)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.bns_gcn._machine import MACHINE, fewest, machine
from reports.bns_gcn._scores import BNS_GRAPHS, FROM_8_PARTS, SCORE_METRICS, scores_of_rates
from reports.bns_gcn.testbed import TITLES, as_coded, laws_of
from reports.core import load
from reports.core.context import Context, demand
from reports.core.load import select, value
from reports.core.null_models import Null
from reports.core.predict import Fit
from reports.core.rows import judged_in, scored, seconds_row
from reports.core.table import Ordering, PaperTable, Row
from reports.core.train import Trained
from reports.study import study_run_settings

EDGES = {"BNS-GCN": "bns-gcn:p=0.1", "BES": "bns-gcn:p=0.1:sampling=bes", "DropEdge": "bns-gcn:p=0.1:sampling=dropedge"}
COUNTED_EPOCHS = 3  # in which boundary nodes that are still sent are counted


def table9(context: Context) -> PaperTable:
    """Volume, time, and accuracy: that of the study, which judges the claims about it; with `--full` of trainings."""
    fit = machine(context)
    rows: list[Row] = []
    orderings: list[Ordering] = []
    assumptions = [MACHINE, fit.text(), *laws_of("METIS"), *judged_in(context, "bns-gcn")]
    for name in BNS_GRAPHS:
        made, judged, run = _edges(context, name, fit)
        rows += made
        orderings += judged
        assumptions.append(run.summary)
    assumptions.append(
        "boundary nodes follow from the volume of BNS-GCN (BN10); times take the shares of them that BES and DropEdge "
        "still send from their printed volumes; the volumes shown are of the shares that are kept on the study's first "
        "graph, counted in a few epochs; with --full in the trainings"
    )
    return PaperTable(
        key="bns-gcn/table9", title="BNS-GCN Table 9: sampling nodes against sampling edges", rows=tuple(rows),
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def _edges(context: Context, name: str, fit: Fit) -> tuple[list[Row], list[Ordering], Trained]:
    """Table 9's rows and orderings of one graph."""
    frame, halo = select(load.published("bns-gcn-table9"), dataset=name), fewest(name)
    volumes = {m: value(frame, method=m, metric="epoch_comm_volume") for m in EDGES}
    everything = volumes["BNS-GCN"] / 0.1
    bed, parts = halo.bed(context), halo.parts
    run = scores_of_rates(context, name, list(EDGES.values()), parts)
    kept = _shares_kept(context, name, parts, run)
    rows, times = [], {}
    for printed, method in EDGES.items():
        label, share = f"{TITLES[name]}, {printed}, {parts} parts", volumes[printed] / everything
        rates = {"kept nodes": min(share, 1.0)} if ":sampling" in method else None
        times[printed] = bed.seconds(as_coded(method), fit, rates).epoch
        side = f"{TITLES[name]} ({parts} partitions), {printed}"
        rows += [
            Row(label=label, quantity="volume", unit="MB", published=volumes[printed],
                ours=everything * kept[method], how="fitted" if printed == "BNS-GCN" else "trained",
                data=run.data, judge="order", at=(side, "Epoch Comm (MB)")),
            seconds_row(label, "epoch time", value(frame, method=printed, metric="epoch_time"), times[printed],
                        note=FROM_8_PARTS, null=halo.null(share), at=(side, "Epoch Time (sec)")),
            scored(label, value(frame, method=printed, metric=lambda m: m in SCORE_METRICS), run, method,
                   at=(side, "Test Score (%)")),
        ]  # fmt: skip
    for printed in ("BES", "DropEdge") if context.full else ():
        scores = [value(frame, method=m, metric=lambda x: x in SCORE_METRICS) for m in ("BNS-GCN", printed)]
        rows.append(run.difference(f"{TITLES[name]}, BNS-GCN against {printed}", round(scores[0] - scores[1], 2),
                                   EDGES["BNS-GCN"], EDGES[printed]))  # fmt: skip
    rows += _gains(name, times)
    order = ("DropEdge", "BES", "BNS-GCN")
    shares = tuple(kept[EDGES[m]] for m in order)
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


def _gains(name: str, times: Mapping[str, float]) -> list[Row]:
    """Sec. 4.3's gains of BNS-GCN over sampling edges on a graph, beside the ratios of `times` by system."""
    text = load.text("bns-gcn")
    said = [
        (line.method, line.value, "BN9" if line.method == "BES" else "")
        for line in select(text, dataset=name, metric="epoch_time_ratio").itertuples()
    ]
    if name == "ogbn-products":
        said.append(("DropEdge", value(text, metric="speedup", baseline="edge sampling"), ""))
    return [
        Row(label=f"{TITLES[name]}, {system} over BNS-GCN", quantity="epoch time", unit="x", published=printed,
            ours=times[system] / times["BNS-GCN"], how="simulated", conflict=conflict, null=Null(same=1.0))
        for system, printed, conflict in said
    ]  # fmt: skip


def _shares_kept(context: Context, name: str, parts: int, run: Trained) -> dict[str, float]:
    """Method -> mean share of the boundary nodes that were sent, over the epochs of the first seed.

    The study keeps no counts; without `--full` a few epochs on its first graph give them.
    """
    if context.full:
        records = {method: run.records[method][0] for method in EDGES.values()}
    else:
        counted = {"epochs": COUNTED_EPOCHS, "eval_every": -1}
        configs = [
            study_run_settings("bns-gcn", name, {"method": method, "parts": parts, **counted})
            for method in EDGES.values()
        ]
        made = map(demand, context.runs(configs, f"boundary nodes sent, {name}"))
        records = dict(zip(EDGES.values(), map(dict, made), strict=True))
    return {method: _mean_kept(record["epochs"]) for method, record in records.items()}


def _mean_kept(epochs: Sequence[Mapping[str, Any]]) -> float:
    seen = [float(epoch["observed"]["kept nodes"]) for epoch in epochs if epoch["observed"]]
    return sum(seen) / len(seen)
