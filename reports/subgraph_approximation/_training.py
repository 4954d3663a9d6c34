"""The accuracies of subgraph approximation: both GNNs, trained for its tables and its figures by the same runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from reports.core.context import Context
from reports.core.table import POINTS, Ordering
from reports.core.train import Trained, accuracies, chosen_graph
from reports.subgraph_approximation._workers import CLUSTER, OVERLAPS, PAPER

GNNS = ("KW-GCN", "GraphSAGE")
SINGLE = "single"
LABELS = {overlap: f"{100 * overlap:.0f} % overlap" for overlap in OVERLAPS}
OWN = {overlap: f"{100 * overlap:.0f} % overlap, loss of own nodes" for overlap in OVERLAPS if overlap}
"""The second reading: copies are inputs only. The tables' own epochs and Sec. 3.2 say that they are trained on."""
READINGS = (
    "accuracies with copies are trained with the loss of all training nodes of a worker's subgraph (Sec. 3.2; the "
    "epochs of Table 4 fall as 1 / (1 + O)); rows of the loss of own nodes are the other reading"
)
BATCH = 256
SPLIT = "random:0.7/0.2/0.1"


def gnn_settings(context: Context, name: str, gnn: str, layers: int = 2) -> dict[str, Any]:
    """Settings of `RunConfig` that all rows of a GNN share; smaller widths and fan-outs where a stand-in is trained."""
    real = context.full or not chosen_graph(context, name)[1]
    common = {"layers": layers, "hidden": 128 if real else 32, "split": SPLIT, "mode": "sim", "cluster": CLUSTER}
    if context.full:
        common["protocol"] = "inductive"  # as the paper trains; with few nodes it would leave too few edges
    if gnn == "KW-GCN":
        return {**common, "model": "gcn", "lr": 0.02}
    rate = {"reddit": 1e-4, "amazon2m": 2e-4}[name]
    return {**common, "model": "sage", "lr": rate if real else 5e-3}


def options(context: Context, name: str, gnn: str, layers: int = 2) -> str:
    """The method's options of a GNN: mini-batches for GraphSAGE."""
    if gnn == "KW-GCN":
        return ""
    real = context.full or not chosen_graph(context, name)[1]
    fanouts = (25, 10) if real else (10, 5)  # the input layer's first: the last is drawn from the batch itself
    return f":batch={BATCH}:fanouts={'/'.join(map(str, fanouts[-layers:]))}"


def overlap_runs(context: Context, name: str, gnn: str, parts: int, *, single: bool = True, layers: int = 2) -> Trained:
    """One machine and every overlap on `parts` workers, in both readings of the loss (`READINGS`).

    One machine runs the same mini-batches, without parts.
    """
    extra = options(context, name, gnn, layers)
    rows: dict[str, Any] = {}
    if single:
        rows[SINGLE] = {"method": f"{PAPER}:overlap=0{extra}" if extra else "single", "parts": 1}
    whole = {overlap: f"{PAPER}:overlap={overlap:g}{':loss=all' if overlap else ''}{extra}" for overlap in LABELS}
    rows |= {label: whole[overlap] for overlap, label in LABELS.items()}
    rows |= {label: whole[overlap].replace(":loss=all", "") for overlap, label in OWN.items()}
    share = 0.5 if gnn == "KW-GCN" else 0.25  # of the time; the estimate knows what mini-batches cost
    epochs = 200 if gnn == "KW-GCN" else 80
    shared = gnn_settings(context, name, gnn, layers)
    return accuracies(context, name, rows, parts=parts, model=shared, seeds=3, epochs=epochs, share=share)


def orderings(run: Trained, what: str) -> tuple[Ordering, ...]:
    """Overlap restores accuracy, in both readings: most of it with the first copies."""
    zero = LABELS[0.0]
    claims = []
    for labels, reading in ((LABELS, ""), (OWN, ", loss of own nodes")):
        more, little = {"50 %": labels[0.50], "0 %": zero}, {"10 %": labels[0.10], "0 %": zero}
        claims.append(run.ordering(f"{run.where}; {what}: copies raise accuracy{reading}", more))
        claims.append(run.ordering(f"{run.where}; {what}: a little overlap already does{reading}", little))
    if SINGLE in run.scores:
        claim = f"{run.where}; {what}: isolated parts lose accuracy"
        claims.append(run.ordering(claim, {"one machine": SINGLE, "0 %": zero}))
    return tuple(claims)


def at_equal_time(
    run: Trained, epochs: Mapping[float, float], labels: Mapping[float, str] = LABELS
) -> dict[float, float]:
    """Test accuracy in per cent, mean over seeds, by overlap, after equal training time; of one reading's labels.

    Without overlap all epochs are done by then, with it fewer, in the proportion of the printed `epochs` (overlap ->
    epochs completed in the fixed time); the last evaluation up to there is used, or the first one.
    """
    return {
        overlap: fmean(_scored(record["epochs"], count / epochs[0.0]) for record in run.records[labels[overlap]])
        for overlap, count in epochs.items()
        if overlap in labels
    }


def _scored(lines: Sequence[Mapping[str, Any]], share: float) -> float:
    last = round(share * len(lines))
    points = [(line["epoch"] + 1, 100 * float(line["test"])) for line in lines if line["test"] is not None]
    before = [score for epoch, score in points if epoch <= last]
    return before[-1] if before else points[0][1]


def equal_time_ordering(scores: Mapping[float, float], run: Trained) -> Ordering:
    """More copies give more accuracy, although fewer epochs are done (Sec. 5.2)."""
    labels = [LABELS[overlap] for overlap in sorted(scores, reverse=True)]
    values = {LABELS[overlap]: score for overlap, score in scores.items()}
    text = f"{run.where}; GraphSAGE, equal time: {' > '.join(labels)}"
    return run.ordering(text, {label: label for label in labels}, values=values)


def more_sensitive(gcn: Trained, sage: Trained, parts: int) -> Ordering:
    """KW-GCN loses more to partitioning than GraphSAGE (Sec. 5.2)."""
    lost = tuple(_lost(run) for run in (gcn, sage))
    text = f"{gcn.where}: loss at 0 % overlap: KW-GCN > GraphSAGE"
    return Ordering(text=text, expected=GNNS, ours=lost, tolerance=POINTS, ties="not judged")


def _lost(run: Trained) -> float | None:
    single, isolated = run.mean(SINGLE), run.mean(LABELS[0.0])
    return None if single is None or isolated is None else single - isolated
