"""CDFGNN, Fig. 7 and 8: what share of messages the adaptive cache still sends, and what that costs in accuracy."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reports.context import Context, demand
from reports.drawing import DASHES, panels
from reports.figures import OTHER_COLOURS, method_colours
from reports.table import Ordering, Plot
from reports.train import SETTINGS, Trained, accuracies, chosen_graph

MODEL: dict[str, Any] = {"model": "gcn", "layers": 2, "hidden": 64, "order": "linear-first"}
# "Both" is all of CDFGNN; the last layer is summed on every replica, as in Algorithm 1.
VARIANTS = {
    "Both": "cdfgnn:last=full",
    "Cache": "cdfgnn:quantise=false:last=full",
    "Quantify": "cdfgnn:cache=false:last=full",
    "Baseline": "cdfgnn:cache=false:quantise=false:last=full",
}
FULL = "single GPU, full batch"
SMALLER = {**MODEL, "hidden": 16}  # what is trained within a budget
WATCHED_EPOCHS = 80
SHOWN = {"ogbn-products": 4, "reddit": 8}  # GPUs, as the text of Fig. 7 has them (CD8)
STREAMS = {
    "sent/0": "layer 1, forward", "sent/1": "layer 2, forward", "sent-backward/0": "layer 1, backward",
    "sent-backward/1": "layer 2, backward",
}  # fmt: skip


def model(context: Context) -> dict[str, Any]:
    """The paper's model with `--full`, a narrower one otherwise."""
    return MODEL if context.full else SMALLER


def trained(context: Context) -> Trained:
    """All variants, and one device, on ogbn-products or its stand-in."""
    rows = {**VARIANTS, FULL: "single"}
    parts = SHOWN["ogbn-products"]
    return accuracies(context, "ogbn-products", rows, parts=parts, model=model(context), seeds=1, share=0.5)


def watched(context: Context, variant: str) -> dict[str, Any]:
    """The run that says what share of rows a variant with a cache sends."""
    name, _ = chosen_graph(context, "ogbn-products")
    return {
        **model(context), **SETTINGS.get(name, {}), "dataset": name, "parts": SHOWN["ogbn-products"], "threads": 1,
        "method": VARIANTS[variant], "epochs": 200 if context.full else WATCHED_EPOCHS, "eval_every": -1,
    }  # fmt: skip


def observed(context: Context, variant: str) -> dict[str, float]:
    """Mean shares of rows sent over a training run of one variant; empty for one without a cache."""
    record = demand(context.runs([watched(context, variant)], "shares of rows sent")[0])
    epochs = [epoch["observed"] for epoch in record["epochs"][1:]]
    names = sorted({name for seen in epochs for name in seen})
    return {name: fmean(seen[name] for seen in epochs if name in seen) for name in names}


def figure7(context: Context) -> Plot:
    """Share of messages sent by epoch, layer and direction, and the threshold."""
    paths = context.figure_paths("cdfgnn/figure7")
    runs = {
        dataset: accuracies(
            context, dataset, {"Both": VARIANTS["Both"]}, parts=gpus, model=model(context), seeds=1, share=0.25
        )
        for dataset, gpus in SHOWN.items()
    }
    orderings = list[Ordering]()
    with panels(paths, len(runs), columns=2) as axes:
        for panel, (dataset, found) in zip(axes, runs.items(), strict=True):
            epochs = [epoch["observed"] for epoch in found.records["Both"][0]["epochs"]]
            for at, (name, label) in enumerate(STREAMS.items()):
                share = [100 * seen[name] for seen in epochs]
                style: Any = {"color": OTHER_COLOURS[at // 2], "linestyle": DASHES[at % 2], "linewidth": 1.1}
                panel.plot(range(1, len(share) + 1), share, **style, label=label)
                orderings.append(_falls(found.data or dataset, label, share))
            panel.set_title(found.data or dataset, loc="left", fontsize=8)
            panel.set_xlabel("epoch")
            panel.set_ylabel("messages sent (%)")
            panel.set_ylim(0, 102)
            right = panel.twinx()
            thresholds = [seen["threshold"] for seen in epochs]
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
            *(found.said for found in runs.values()),
            "hidden width 16 instead of 64 unless --full; first threshold 0.01 and 8 bits (not published)",
            "threshold adapted as the text says, not as Eq. 6 (CD6)",
        ),
        commands=tuple(command for found in runs.values() for command in found.commands),
    )  # fmt: skip


def _falls(name: str, label: str, share: list[float]) -> Ordering:
    """Fewer messages in the middle of training than at its start."""
    third = max(len(share) // 3, 1)
    values = (fmean(share[:third]), fmean(share[third : 2 * third] or share[-1:]))
    said = f"{name}, {label}: more messages in the first third than in the second"
    return Ordering(text=said, expected=("first third", "second third"), ours=values)


def figure8(context: Context) -> Plot:
    """Accuracy by epoch of CDFGNN's variants and of one device; level is less than a point apart, either way."""
    paths = context.figure_paths("cdfgnn/figure8")
    found = trained(context)
    labels = [*VARIANTS, FULL]
    colours = method_colours((*VARIANTS.values(), "single"))
    best = {label: max(found.curve(label)[1]) for label in labels}
    with panels(paths, 1, height=2.8) as (panel,):
        for at, label in enumerate(labels):
            colour = colours[VARIANTS.get(label, "single")]
            style: Any = {"color": colour, "linestyle": DASHES[at % len(DASHES)], "linewidth": 1.1}
            panel.plot(*found.curve(label), **style, label={"Both": "cache and quantisation"}.get(label, label))
        panel.set_xlabel("epoch")
        panel.set_ylabel("test accuracy (%)")
        panel.set_title(found.data or "ogbn-products", loc="left")
    level = tuple(
        found.ordering(
            f"{found.where}: {label} is level with full batch on one GPU", {label: label, FULL: FULL}, "demanded",
            values=best,
        )
        for label in VARIANTS
    )  # fmt: skip
    return Plot(
        key="cdfgnn/figure8", title="CDFGNN, Fig. 8: accuracy during training", paths=paths,
        caption="Best test accuracies are compared. Mini-batches are left out: the sum of a GCN is not sampled here.",
        orderings=level,
        assumptions=(found.said, "hidden width 16 instead of 64 unless --full; 8 bits and a first threshold of 0.01"),
        commands=found.commands,
    )  # fmt: skip
