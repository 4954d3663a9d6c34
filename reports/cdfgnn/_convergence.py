"""CDFGNN, Fig. 8: accuracy during training, and how soon its variants converge."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reports.cdfgnn._accuracy import MODEL, PROTOCOL, SHOWN, VARIANTS
from reports.cdfgnn._cuts import DATASETS, EBV1, GRAPH_OF, PRINTED_GPUS
from reports.cdfgnn._times import config, timed_record
from reports.core.context import Context
from reports.core.inputs import Inputs
from reports.core.rows import judged_in
from reports.core.table import Ordering, Plot, Row
from reports.core.train import Trained, accuracies
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import method_colours
from reports.study import kept_scores

FULL = "single GPU, full batch"
MINI, SAMPLED = "single GPU, mini-batch", "graphsage-ns:fanout=10"  # the limit on the neighbours drawn is not printed
NEAR = 0.98  # share of the best accuracy on one device that counts as converged


def trained_variants(context: Context, dataset: str) -> Trained:
    """All variants, and one device: the study's runs, without those it lacks; with `--full` trainings."""
    rows: dict[str, dict[str, Any]] = {label: {"method": method} for label, method in VARIANTS.items()}
    rows |= {FULL: {"method": "single"}, MINI: {"method": SAMPLED, "parts": 1}}
    if not context.full:
        rows[MINI]["partitioner"] = "metis-cut"  # the study's other runs cut vertices
        return kept_scores("cdfgnn", dataset, rows, where=f"{SHOWN[dataset]} parts")
    graph = GRAPH_OF.get(dataset, dataset)
    return accuracies(context, graph, rows, parts=SHOWN[dataset], model=MODEL, seeds=1)


def figure8(context: Context) -> Plot:
    """Accuracy by epoch of CDFGNN's variants and of one device."""
    paths = context.figure_paths("cdfgnn/figure8")
    runs = {dataset: trained_variants(context, dataset) for dataset in SHOWN}
    labels = [*VARIANTS, FULL, MINI]
    methods = {**VARIANTS, FULL: "single", MINI: SAMPLED}
    colours = method_colours(tuple(methods[label] for label in labels))
    with panels(paths, len(runs), columns=2, height=2.6) as axes:
        for panel, (dataset, run) in zip(axes, runs.items(), strict=True):
            for at, label in enumerate(label for label in labels if label in run.records):
                colour = colours[methods[label]]
                style: Any = {"color": colour, "linestyle": DASHES[at % len(DASHES)], "linewidth": 1.1}
                if label == FULL:  # the variants' curves lie on it
                    style = {"color": colour, "linewidth": 3.5, "alpha": 0.35, "zorder": 1}
                named = {"Both": "cache and quantisation"}.get(label, label)
                panel.plot(*run.curve(label), **style, label=named)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test accuracy (%)")
            panel.set_title(run.data or dataset, loc="left", fontsize=8)
    return Plot(
        key="cdfgnn/figure8", title="CDFGNN, Fig. 8: accuracy during training", paths=paths,
        caption="Convergence is judged by the best test accuracy and by the epochs up to "
        f"{100 * NEAR:g} % of the best one of one device.",
        rows=tuple(
            row for dataset, run in runs.items() for row in (*_convergence(context, dataset, run), *_mini_batch(run))
        ),
        orderings=(
            *(ordering for run in runs.values() if context.full for ordering in (*_level(run), *_as_soon(run))),
            *_behind(context, runs),
        ),
        assumptions=(
            *(f"{run.summary}; {PROTOCOL}" for run in runs.values()),
            *(_active(run) for run in runs.values() if context.full),
            *judged_in(context, "cdfgnn"),
            f"mini-batches: {SAMPLED}, a gcn's sums weighted to be unbiased; the paper prints no limit of neighbours",
            "8 bits and a first threshold of 0.01; epochs not published",
        ),
        commands=tuple(command for run in runs.values() for command in run.commands),
    )  # fmt: skip


def _active(run: Trained) -> str:
    """The share of messages that the cache alone sends: in a short run nearly all, and the curves show little."""
    seen = [epoch["observed"] for epoch in run.records["Cache"][0]["epochs"]]
    sent = fmean(share for each in seen for name, share in each.items() if name.startswith("sent"))
    return f"{run.where}: the cache alone sends {100 * sent:.0f} % of the messages of these epochs"


def _level(run: Trained) -> list[Ordering]:
    """No variant is a point away from one device's best accuracy."""
    best = {label: [max(scores) for _, scores in run.curves(label)] for label in (*VARIANTS, FULL)}
    return [
        run.ordering(
            f"{run.where}: {label} is level with full batch on one GPU", {label: label, FULL: FULL}, "demanded",
            values=best,
        )
        for label in VARIANTS
    ]  # fmt: skip


def epochs_to(run: Trained, label: str, score: float) -> list[float | None]:
    """Epochs done at the first evaluation that reaches a score, of every seed; None where none does."""
    return [
        next((float(epoch) for epoch, reached in zip(*curve, strict=True) if reached >= score), None)
        for curve in run.curves(label)
    ]


def _sooner(run: Trained) -> tuple[dict[str, list[float | None]], float, int]:
    """Epochs to `NEAR` the best accuracy of one device, that accuracy (of the first seed), and the epochs between
    evaluations."""
    at, scores = run.curve(FULL)
    score = NEAR * max(scores)
    step = at[1] - at[0] if len(at) > 1 else at[0]
    shown = (label for label in (*VARIANTS, FULL) if label in run.records)
    return {label: epochs_to(run, label, score) for label in shown}, score, step


def _mean(epochs: list[float | None]) -> float | None:
    """Over the seeds; None where one never gets there."""
    there = [epoch for epoch in epochs if epoch is not None]
    return fmean(there) if len(there) == len(epochs) else None


def _convergence(context: Context, dataset: str, run: Trained) -> list[Row]:
    """Epochs to converge of all variants and of one device, and their time; the mini-batches that they are compared
    with."""
    if FULL not in run.records:
        return []
    each, score, _ = _sooner(run)
    found = {label: _mean(epochs) for label, epochs in each.items()}
    rows = [
        Row(label=label, quantity=f"epochs to {score:.1f} %", unit="epochs", published=None, ours=epochs,
            how="trained", data=run.data, note="" if epochs else "not reached")
        for label, epochs in found.items()
    ]  # fmt: skip
    wanted = [config(context, dataset, EBV1, PRINTED_GPUS[dataset], variant) for variant in VARIANTS]
    if context.inputs != Inputs():
        return rows  # no claim depends on modelled times
    for label, record in zip(VARIANTS, context.runs(wanted, "epoch times"), strict=True):
        epoch, epochs = timed_record(record)["summary"]["seconds"]["epoch"], found.get(label)
        rows.append(
            Row(label=label, quantity=f"time to {score:.1f} %", unit="s", published=None,
                ours=epochs * epoch if epochs else None, how="simulated", data=run.data, judge="none",
                note=f"of epochs of {DATASETS[dataset]} on {PRINTED_GPUS[dataset]} GPUs (Fig. 6)")
        )  # fmt: skip
    return rows


def _mini_batch(run: Trained) -> list[Row]:
    """The best accuracy of mini-batches on one device, beside that of full batch."""
    best = {
        label: fmean(max(scores) for _, scores in run.curves(label)) for label in (MINI, FULL) if label in run.records
    }
    return [
        Row(label=label, quantity="best accuracy", unit="%", published=None, ours=score, how="trained", data=run.data,
            seeds=len(run.records[label]), judge="none", note=SAMPLED if label == MINI else "")
        for label, score in best.items()
    ]  # fmt: skip


def _behind(context: Context, runs: dict[str, Trained]) -> list[Ordering]:
    """Mini-batches are less accurate than full batch, and most of all on Reddit; in full trainings only."""
    if not context.full:
        return []
    best = {
        name: {label: [max(scores) for _, scores in run.curves(label)] for label in (FULL, MINI)}
        for name, run in runs.items()
    }
    found = [
        run.ordering(f"{run.where}: {MINI} is less accurate than full batch", {FULL: FULL, MINI: MINI},
                     values=best[name])
        for name, run in runs.items()
    ]  # fmt: skip
    lost = {name: [a - b for a, b in zip(each[FULL], each[MINI], strict=True)] for name, each in best.items()}
    order = sorted(lost, key=lambda name: name != "reddit")
    text = "mini-batches lose most accuracy on Reddit"
    return [*found, Ordering.of_seeds(text, tuple(order), [lost[name] for name in order])]


def _as_soon(run: Trained) -> list[Ordering]:
    """Every variant needs as many epochs as one device, but for a fifth or one evaluation."""
    each, score, step = _sooner(run)
    near = max(0.2 * (_mean(each[FULL]) or 0.0), step) + 0.5  # a difference of exactly so much is level
    never = float(run.curve(FULL)[0][-1] + 2 * near)  # of what does not get there: later than any that does
    epochs = {label: [never if epoch is None else epoch for epoch in found] for label, found in each.items()}
    return [
        Ordering.of_seeds(
            f"{run.where}: {label} reaches {score:.1f} % in as many epochs as one GPU", (label, FULL),
            (epochs[label], epochs[FULL]), tolerance=near, ties="demanded", runs=run.evidence((label, FULL)),
        )
        for label in VARIANTS
    ]  # fmt: skip
