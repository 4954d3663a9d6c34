"""CDFGNN, Fig. 7 and 8: the share of messages that the adaptive cache still sends, and its cost in accuracy."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reports.core.context import Context, demand
from reports.core.table import Ordering, Plot
from reports.core.train import SETTINGS, Trained, accuracies, chosen_graph
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import OTHER_COLOURS, method_colours

# Sec. 3.1 normalises the adjacency without self loops.
MODEL: dict[str, Any] = {"model": "gcn-no-loop", "layers": 2, "hidden": 64, "order": "linear-first"}
# "Both" is all of CDFGNN; the last layer is summed on every replica, as in Algorithm 1.
VARIANTS = {
    "Both": "cdfgnn:last=full",
    "Cache": "cdfgnn:quantise=false:last=full",
    "Quantify": "cdfgnn:cache=false:last=full",
    "Baseline": "cdfgnn:cache=false:quantise=false:last=full",
}
FULL = "single GPU, full batch"
SMALLER = {**MODEL, "hidden": 16}  # trained without --full
WATCHED_EPOCHS = 80
QUIET = (50, 100)  # epochs in which almost no forward messages are sent on ogbn-products
SHOWN = {"ogbn-products": 4, "reddit": 8}  # GPUs, as the text of Fig. 7 has them (CD8)
WATCHED = {**SHOWN, "friendster": 16, "ogbn-papers100m": 16}  # GPUs on which shares of rows sent are measured
STREAMS = {
    "sent/0": "layer 1, forward", "sent/1": "layer 2, forward", "sent-backward/0": "layer 1, backward",
    "sent-backward/1": "layer 2, backward",
}  # fmt: skip


def gcn_of(context: Context) -> dict[str, Any]:
    """The paper's model with `--full`, a narrower one otherwise."""
    return MODEL if context.full else SMALLER


def trained_variants(context: Context, dataset: str) -> Trained:
    """All variants, and one device, on a data set or its stand-in."""
    rows = {**VARIANTS, FULL: "single"}
    return accuracies(context, dataset, rows, parts=SHOWN[dataset], model=gcn_of(context), seeds=1, share=0.8)


def cache_run(context: Context, variant: str, dataset: str) -> dict[str, Any]:
    """The run that measures the share of rows that a variant with a cache sends, on a data set or its stand-in."""
    name, _ = chosen_graph(context, dataset)
    return {
        **gcn_of(context), **SETTINGS.get(name, {}), "dataset": name, "parts": WATCHED[dataset], "threads": 1,
        "method": VARIANTS[variant], "epochs": 200 if context.full else WATCHED_EPOCHS, "eval_every": -1,
    }  # fmt: skip


def observed(context: Context, variant: str, dataset: str) -> dict[str, float]:
    """Mean shares of rows sent over a training run of one variant; empty for one without a cache."""
    record = demand(context.runs([cache_run(context, variant, dataset)], "shares of rows sent")[0])
    epochs = [epoch["observed"] for epoch in record["epochs"][1:]]
    names = sorted({name for seen in epochs for name in seen})
    return {name: fmean(seen[name] for seen in epochs if name in seen) for name in names}


def figure7(context: Context) -> Plot:
    """Share of messages sent by epoch, layer and direction, and the threshold."""
    paths = context.figure_paths("cdfgnn/figure7")
    runs = {
        dataset: accuracies(
            context, dataset, {"Both": VARIANTS["Both"]}, parts=gpus, model=gcn_of(context), seeds=1, share=0.8
        )
        for dataset, gpus in SHOWN.items()
    }
    orderings = list[Ordering]()
    with panels(paths, len(runs), columns=2) as axes:
        for panel, (dataset, run) in zip(axes, runs.items(), strict=True):
            epochs = [epoch["observed"] for epoch in run.records["Both"][0]["epochs"]]
            for at, (name, label) in enumerate(STREAMS.items()):
                share = [100 * seen[name] for seen in epochs]
                style: Any = {"color": OTHER_COLOURS[at // 2], "linestyle": DASHES[at % 2], "linewidth": 1.1}
                panel.plot(range(1, len(share) + 1), share, **style, label=label)
                orderings.append(_falls(run.data or dataset, label, share))
                if dataset == "ogbn-products" and "forward" in label and len(share) >= QUIET[1]:
                    orderings.append(_quiet(run.data or dataset, label, share))
            panel.set_title(run.data or dataset, loc="left", fontsize=8)
            panel.set_xlabel("epoch")
            panel.set_ylabel("messages sent (%)")
            panel.set_ylim(0, 102)
            right = panel.twinx()
            thresholds = [seen["threshold"] for seen in epochs]
            orderings += _largest_between(run.data or dataset, thresholds)
            right.plot(range(1, len(epochs) + 1), thresholds, color="#808080", linewidth=0.9, linestyle=DASHES[2])
            right.set_ylabel("threshold")
            right.set_ylim(bottom=0)
            right.spines["right"].set_visible(True)
    return Plot(
        key="cdfgnn/figure7", title="CDFGNN, Fig. 7: share of messages sent, and the threshold", paths=paths,
        caption="Dotted grey: the threshold of the cache. The paper prints no number but the epochs 50 to 100 in which "
        "almost nothing is sent on ogbn-products.",
        orderings=tuple(orderings),
        assumptions=(
            *(run.summary for run in runs.values()),
            "hidden width 16 instead of 64 unless --full; first threshold 0.01 and 8 bits (not published)",
            "threshold adapted as the text says, not as Eq. 6 (CD6)",
        ),
        commands=tuple(command for run in runs.values() for command in run.commands),
    )  # fmt: skip


def _falls(name: str, label: str, share: list[float]) -> Ordering:
    """Fewer messages in the middle of training than at its start."""
    third = max(len(share) // 3, 1)
    values = (fmean(share[:third]), fmean(share[third : 2 * third] or share[-1:]))
    claim = f"{name}, {label}: more messages in the first third than in the second"
    return Ordering(text=claim, expected=("first third", "second third"), ours=values)


def _quiet(name: str, label: str, share: list[float]) -> Ordering:
    """Almost no forward messages in epochs 50 to 100: interpreted as less than a tenth of those of the first epochs."""
    values = (0.1 * fmean(share[: QUIET[0] // 5]), fmean(share[QUIET[0] : QUIET[1]]))
    claim = f"{name}, {label}: almost nothing is sent in epochs {QUIET[0]} to {QUIET[1]}"
    return Ordering(text=claim, expected=("a tenth of the first epochs' share", "theirs"), ours=values)


def _largest_between(name: str, thresholds: list[float]) -> list[Ordering]:
    """The threshold is larger in the middle of training than early and late."""
    third = max(len(thresholds) // 3, 1)
    first, middle, last = (fmean(thresholds[at * third : (at + 1) * third] or thresholds[-1:]) for at in range(3))
    return [
        Ordering(text=f"{name}: the threshold is larger in the middle of training than {when}",
                 expected=("second third", other), ours=(middle, value))
        for when, other, value in (("early", "first third", first), ("late", "last third", last))
    ]  # fmt: skip


def figure8(context: Context) -> Plot:
    """Accuracy by epoch of CDFGNN's variants and of one device; level is less than a point apart, either way."""
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
        caption="Best test accuracies are compared. Mini-batches are left out: the sum of a GCN is not sampled here.",
        orderings=tuple(ordering for run in runs.values() for ordering in _level(run)),
        assumptions=(
            *(run.summary for run in runs.values()),
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
