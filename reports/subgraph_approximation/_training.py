"""The accuracies of subgraph approximation, of both GNNs: the study's runs, or trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from reports.core import load
from reports.core.context import Context
from reports.core.table import Ordering, Row
from reports.core.train import FEWEST, Trained, accuracies, chosen_graph
from reports.study import kept_scores
from reports.subgraph_approximation._workers import GRAPH_OF, OVERLAPS, PAPER

GNNS = ("KW-GCN", "GraphSAGE")
SINGLE = "single"
LABELS = {overlap: f"{100 * overlap:.0f} % overlap" for overlap in OVERLAPS}
OWN = {OVERLAPS[-1]: f"{100 * OVERLAPS[-1]:.0f} % overlap, loss of own nodes"}
"""The second reading: copies are inputs only. The tables' own epochs and Sec. 3.2 say that they are trained on."""
READINGS = (
    "accuracies with copies are trained with the loss of all training nodes of a worker's subgraph (Sec. 3.2; the "
    "epochs of Table 4 fall as 1 / (1 + O)); rows of the loss of own nodes are the other reading, at 50 %"
)
ISOLATED = "isolated parts lose accuracy"
BATCH = 256
SPLIT = "random:0.7/0.2/0.1"
RATES = {"KW-GCN": 0.05, "GraphSAGE": 0.01}  # of stand-ins, which are trained for fewer epochs than the paper's graphs
STUDIED_BATCH = 64  # of the study's runs of Table 4
FEWEST_BATCHED = 10  # epochs of mini-batches: tens of steps each
SHARES = {"KW-GCN": 1.0, "GraphSAGE": 1.25}  # of the training time of a figure that trains without --full


def gnn_settings(context: Context, name: str, gnn: str, layers: int = 2) -> dict[str, Any]:
    """Settings of `RunConfig` that all rows of a GNN share; smaller widths and fan-outs where a stand-in is trained."""
    real = _real(context, name)
    common = {"layers": layers, "hidden": 128 if real else 32, "split": SPLIT, "protocol": "inductive"}
    if gnn == "KW-GCN":
        return {**common, "model": "gcn", "lr": 0.02 if real else RATES[gnn]}
    rate = {"reddit": 1e-4, "amazon2m": 2e-4}[name]
    return {**common, "model": "sage", "lr": rate if real else RATES[gnn]}


def _real(context: Context, name: str) -> bool:
    """Whether a graph is trained with the paper's settings."""
    return context.full or not chosen_graph(context, GRAPH_OF.get(name, name))[1]


def options(context: Context, name: str, gnn: str, layers: int = 2) -> str:
    """The method's options of a GNN: mini-batches for GraphSAGE."""
    if gnn == "KW-GCN":
        return ""
    fanouts = (25, 10) if _real(context, name) else (10, 5)  # the input layer's first: the last is drawn from a batch
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
    if gnn == "KW-GCN" or not single:
        rows |= {label: whole[overlap].replace(":loss=all", "") for overlap, label in OWN.items()}
    return accuracies(
        context, GRAPH_OF.get(name, name), rows, parts=parts, model=gnn_settings(context, name, gnn, layers), seeds=3,
        epochs=200 if gnn == "KW-GCN" else 80, share=SHARES[gnn],
        fewest=FEWEST_BATCHED if extra else FEWEST,
    )  # fmt: skip


def kept_overlaps(name: str, gnn: str, parts: int, *, single: bool = True) -> Trained:
    """The study's runs of one machine and of every overlap, full batches of both GNNs, in the first reading."""
    rows: dict[str, dict[str, Any]] = {SINGLE: {"method": "single"}} if single else {}
    for overlap, label in LABELS.items():
        rows[label] = {"method": f"{PAPER}:overlap={overlap:g}{':loss=all' if overlap else ''}", "parts": parts}
    return kept_scores(PAPER, name, rows, model=gnn, where=f"{parts} parts")


def epochs_at_equal_time() -> dict[float, float]:
    """Overlap -> epochs that Table 4 prints for the same time."""
    lines = load.published(f"{PAPER}-table4")
    done = lines[lines["metric"] == "epochs"].set_index("overlap_pct")["value"]
    return {overlap: float(done[100 * overlap]) for overlap in LABELS}


def kept_equal_time(epochs: Mapping[float, float]) -> Trained:
    """The study's runs of Table 4: GraphSAGE on Amazon2M with 20 workers, as many epochs as are printed.

    Args:
        epochs: overlap -> epochs. A number of epochs that the study has no runs of leaves its overlap out.
    """
    rows = {
        LABELS[overlap]: {
            "method": f"{PAPER}:overlap={overlap:g}{':loss=all' if overlap else ''}:batch={STUDIED_BATCH}",
            "parts": 20, "epochs": int(count),
        }
        for overlap, count in epochs.items()
    }  # fmt: skip
    return kept_scores(PAPER, "amazon2m", rows, model="GraphSAGE", where="20 parts")


CLUSTER_GCN, SAGE = "ClusterGCN", "GraphSAGE on 5 workers"
CLUSTERS = "cluster-gcn:clusters=1500:batch=20"  # of its authors' script for Reddit
CONVERGED = 0.99
"""Share of its own best test accuracy at which a run of Sec. 5.4's comparison counts as converged."""


def beside_clusters(context: Context) -> Trained:
    """ClusterGCN on one machine, and GraphSAGE on 5 workers with 10 % overlap, of the same model (Sec. 5.4)."""
    sage = f"{PAPER}:overlap=0.1:loss=all{options(context, 'reddit', 'GraphSAGE')}"
    return accuracies(
        context, GRAPH_OF.get("reddit", "reddit"), {CLUSTER_GCN: {"method": CLUSTERS, "parts": 1}, SAGE: sage}, parts=5,
        model=gnn_settings(context, "reddit", "GraphSAGE"), seeds=3, epochs=80, share=0.5, fewest=FEWEST_BATCHED,
    )  # fmt: skip


def epochs_to_converge(run: Trained, label: str) -> float:
    """Epochs until a run reaches `CONVERGED` of its own best test accuracy, mean over the seeds."""
    counts = []
    for record in run.records[label]:
        scores = [(line["epoch"] + 1, float(line["test"])) for line in record["epochs"] if line["test"] is not None]
        enough = CONVERGED * max(score for _, score in scores)
        counts.append(next(epoch for epoch, score in scores if score >= enough))
    return fmean(counts)


def orderings(run: Trained, what: str) -> tuple[Ordering, ...]:
    """Overlap restores accuracy, most of it with the first copies; in the other reading of the loss it does so too.

    Each is one claim of a GNN on a graph, on however many workers and in however many tables.
    """
    zero, most, little = LABELS[0.0], LABELS[0.50], LABELS[0.10]
    pairs = [(most, zero, "copies raise accuracy"), (little, zero, "a little overlap already does")]
    pairs += [(OWN[0.50], zero, "copies raise accuracy, loss of own nodes")] * (OWN[0.50] in run.scores)
    pairs += [(SINGLE, zero, ISOLATED)] * (SINGLE in run.scores)
    named = {SINGLE: "one machine"}
    return tuple(
        replace(
            run.ordering(
                f"{run.where}; {what}: {claim}",
                {named.get(label, label.partition(" overlap")[0]): label for label in (more, less)},
            ),
            claim=claim_of(run, what.partition(",")[0], claim),
        )
        for more, less, claim in pairs
    )


def claim_of(run: Trained, gnn: str, claim: str) -> str:
    """Identity of a claim of a GNN on a graph."""
    return f"{gnn}, {run.where.rpartition(',')[0]}: {claim}"


def at_equal_time(
    run: Trained, epochs: Mapping[float, float], labels: Mapping[float, str] = LABELS
) -> dict[float, float]:
    """Test accuracy in per cent, mean over seeds, by overlap, after equal training time; of one reading's labels.

    Without overlap all epochs are done by then, with it fewer, in the proportion of the printed `epochs` (overlap ->
    epochs completed in the fixed time); the last evaluation up to there is used, or the first one.
    """
    return {overlap: fmean(at_equal_time_each(run, epochs, overlap, labels)) for overlap in epochs if overlap in labels}


def at_equal_time_each(
    run: Trained, epochs: Mapping[float, float], overlap: float, labels: Mapping[float, str] = LABELS
) -> list[float]:
    """`at_equal_time` of one overlap, seed by seed."""
    share = epochs[overlap] / epochs[0.0]
    return [_scored(record["epochs"], share) for record in run.records[labels[overlap]]]


def _scored(lines: Sequence[Mapping[str, Any]], share: float) -> float:
    last = round(share * len(lines))
    points = [(line["epoch"] + 1, 100 * float(line["test"])) for line in lines if line["test"] is not None]
    before = [score for epoch, score in points if epoch <= last]
    return before[-1] if before else points[0][1]


def shown_overlaps(context: Context, name: str, gnn: str, parts: int, *, single: bool = True) -> Trained:
    """What a table or figure shows of every overlap: the study's runs, or trainings with `--full`."""
    if context.full:
        return overlap_runs(context, name, gnn, parts, single=single)
    return kept_overlaps(name, gnn, parts, single=single)


def equal_time_ordering(epochs: Mapping[float, float], run: Trained) -> Ordering:
    """More copies give more accuracy, although fewer epochs are done (Sec. 5.2)."""
    labels = [LABELS[overlap] for overlap in sorted(epochs, reverse=True) if overlap in LABELS]
    values = {LABELS[o]: at_equal_time_each(run, epochs, o) for o in epochs if o in LABELS}
    text = f"{run.where}; GraphSAGE, equal time: {' > '.join(labels)}"
    return run.ordering(text, {label: label for label in labels}, values=values)


def more_sensitive(gcn: Trained, sage: Trained, parts: int) -> Ordering:
    """KW-GCN loses more to partitioning than GraphSAGE (Sec. 5.2)."""
    return Ordering.of_seeds(
        f"{gcn.where}: loss at 0 % overlap: KW-GCN > GraphSAGE", GNNS, [_lost(run) for run in (gcn, sage)],
        claim="KW-GCN is more sensitive to partitioning than GraphSAGE",
    )  # fmt: skip


def _lost(run: Trained) -> list[float]:
    return [a - b for a, b in zip(run.each(SINGLE), run.each(LABELS[0.0]), strict=False)]


def differences(run: Trained, printed: Mapping[str, float], what: str) -> list[Row]:
    """Printed differences of accuracy beside ours: what isolation loses, what a little overlap and most of it gain.

    Args:
        printed: label of `run` -> printed accuracy.
    """
    zero, little, most = LABELS[0.0], LABELS[0.10], LABELS[0.50]
    pairs = [(SINGLE, zero, "lost without overlap"), (little, zero, "gained by 10 % overlap"),
             (most, zero, "gained by 50 % overlap")]  # fmt: skip
    return [
        run.difference(f"{what}: {text}", printed[first] - printed[second], first, second)
        for first, second, text in pairs
        if first in printed and first in run.scores
    ]


def equal_time_difference(run: Trained, printed: Mapping[float, float], epochs: Mapping[float, float]) -> Row:
    """`Trained.difference` of the largest overlap and none after equal training time."""
    most = max(epochs)
    shortened = {
        LABELS[overlap]: [
            {**record, "summary": {**record["summary"], "test_at_best_val": score / 100}}
            for record, score in zip(
                run.records[LABELS[overlap]], at_equal_time_each(run, epochs, overlap), strict=True
            )
        ]
        for overlap in (0.0, most)
    }
    return replace(run, records=shortened).difference(
        f"GraphSAGE, 20 workers, equal time: gained by {LABELS[most]}", printed[most] - printed[0.0], LABELS[most],
        LABELS[0.0],
    )  # fmt: skip
