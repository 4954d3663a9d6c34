"""CDFGNN, Fig. 8: accuracy during training, and how soon its variants converge."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reports.cdfgnn._accuracy import PROTOCOL, SHOWN, VARIANTS, gcn_of
from reports.cdfgnn._cuts import DATASETS, EBV1, GRAPH_OF, PRINTED_GPUS
from reports.cdfgnn._times import config, timed_record
from reports.core.context import Context
from reports.core.inputs import Inputs
from reports.core.table import Ordering, Plot, Row
from reports.core.testbeds import implemented
from reports.core.train import Trained, accuracies
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import method_colours

FULL = "single GPU, full batch"
MINI, SAMPLED = "single GPU, mini-batch", "neighbour-sampling"  # of a GCN, with a limit on the neighbours drawn
NEAR = 0.98  # share of the best accuracy on one device that counts as converged


def trained_variants(context: Context, dataset: str) -> Trained:
    """All variants, and one device, on a data set or its stand-in."""
    rows = {**VARIANTS, FULL: "single"}
    graph = GRAPH_OF.get(dataset, dataset)
    return accuracies(context, graph, rows, parts=SHOWN[dataset], model=gcn_of(context), seeds=1, share=0.8)


def figure8(context: Context) -> Plot:
    """Accuracy by epoch of CDFGNN's variants and of one device."""
    paths = context.figure_paths("cdfgnn/figure8")
    runs = {dataset: trained_variants(context, dataset) for dataset in SHOWN}
    labels = [*VARIANTS, FULL]
    colours = method_colours((*VARIANTS.values(), "single"))
    with panels(paths, len(runs), columns=2, height=2.6) as axes:
        for panel, (dataset, run) in zip(axes, runs.items(), strict=True):
            for at, label in enumerate(labels):
                colour = colours[VARIANTS.get(label, "single")]
                style: Any = {"color": colour, "linestyle": DASHES[at % len(DASHES)], "linewidth": 1.1}
                named = {"Both": "cache and quantisation"}.get(label, label)
                panel.plot(*run.curve(label), **style, label=named)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test accuracy (%)")
            panel.set_title(run.data or dataset, loc="left", fontsize=8)
    return Plot(
        key="cdfgnn/figure8", title="CDFGNN, Fig. 8: accuracy during training", paths=paths,
        caption="Convergence is judged by the best test accuracy and by the epochs up to "
        f"{100 * NEAR:g} % of the best one of one device.",
        rows=tuple(row for dataset, run in runs.items() for row in _convergence(context, dataset, run)),
        orderings=tuple(ordering for run in runs.values() for ordering in (*_level(run), *_as_soon(run))),
        assumptions=(
            *(f"{run.summary}; {PROTOCOL}" for run in runs.values()),
            *(_active(run) for run in runs.values()),
            "hidden width 16 instead of 64 unless --full; 8 bits and a first threshold of 0.01; epochs not published",
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
    best: dict[str, float | None] = {label: max(run.curve(label)[1]) for label in (*VARIANTS, FULL)}
    return [
        run.ordering(
            f"{run.where}: {label} is level with full batch on one GPU", {label: label, FULL: FULL}, "demanded",
            values=best,
        )
        for label in VARIANTS
    ]  # fmt: skip


def epochs_to(run: Trained, label: str, score: float) -> float | None:
    """Epochs done at the first evaluation that reaches a score; None where none does."""
    return next((float(epoch) for epoch, reached in zip(*run.curve(label), strict=True) if reached >= score), None)


def _sooner(run: Trained) -> tuple[dict[str, float | None], float, int]:
    """Epochs to `NEAR` the best accuracy of one device, that accuracy, and the epochs between evaluations."""
    score = NEAR * max(run.curve(FULL)[1])
    at = run.curve(FULL)[0]
    step = at[1] - at[0] if len(at) > 1 else at[0]
    return {label: epochs_to(run, label, score) for label in (*VARIANTS, FULL)}, score, step


def _convergence(context: Context, dataset: str, run: Trained) -> list[Row]:
    """Epochs to converge of all variants and of one device, and their time; the mini-batches that they are compared
    with."""
    found, score, _ = _sooner(run)
    rows = [
        Row(label=label, quantity=f"epochs to {score:.1f} %", unit="epochs", published=None, ours=epochs,
            how="trained", data=run.data, note="" if epochs else "not reached")
        for label, epochs in found.items()
    ]  # fmt: skip
    wanted = [config(context, dataset, EBV1, PRINTED_GPUS[dataset], variant) for variant in VARIANTS]
    if context.inputs != Inputs():
        return rows  # no claim depends on modelled times
    for label, record in zip(VARIANTS, context.runs(wanted, "epoch times"), strict=True):
        epoch, epochs = timed_record(record)["summary"]["seconds"]["epoch"], found[label]
        rows.append(
            Row(label=label, quantity=f"time to {score:.1f} %", unit="s", published=None,
                ours=epochs * epoch if epochs else None, how="simulated", data=run.data, judge="none",
                note=f"of epochs of {DATASETS[dataset]} on {PRINTED_GPUS[dataset]} GPUs (Fig. 6)")
        )  # fmt: skip
    if not implemented(SAMPLED):
        rows.append(
            Row(label=MINI, quantity="accuracy", unit="%", published=None, ours=None, how="not built", data=run.data,
                note="a GCN's sum over sampled neighbours; that it loses most on Reddit is not tested")
        )  # fmt: skip
    return rows


def _as_soon(run: Trained) -> list[Ordering]:
    """Every variant needs as many epochs as one device, but for a fifth or one evaluation."""
    found, score, step = _sooner(run)
    near = max(0.2 * (found[FULL] or 0.0), step) + 0.5  # a difference of exactly so much is level
    never = float(run.curve(FULL)[0][-1] + 2 * near)  # of what does not get there: later than any that does
    return [
        Ordering(
            text=f"{run.where}: {label} reaches {score:.1f} % in as many epochs as one GPU", expected=(label, FULL),
            ours=(never if found[label] is None else found[label], found[FULL]), tolerance=near, ties="demanded",
            runs=run.evidence((label, FULL)),
        )
        for label in VARIANTS
    ]  # fmt: skip
