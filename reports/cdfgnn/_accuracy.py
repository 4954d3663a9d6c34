"""CDFGNN, Fig. 7: the share of messages that the adaptive cache still sends; the variants and how they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from reports.cdfgnn._cuts import DATASETS, graph_for
from reports.core.context import Context, demand
from reports.core.load import text
from reports.core.table import Ordering, Plot, Row
from reports.core.train import SETTINGS
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import OTHER_COLOURS

# Sec. 3.1 normalises the adjacency without self loops.
MODEL: dict[str, Any] = {"model": "gcn-no-loop", "layers": 2, "hidden": 64, "order": "linear-first"}
# "Both" is all of CDFGNN; the last layer is summed on every replica, as in Algorithm 1.
VARIANTS = {
    "Both": "cdfgnn:last=full",
    "Cache": "cdfgnn:quantise=false:last=full",
    "Quantify": "cdfgnn:cache=false:last=full",
    "Baseline": "cdfgnn:cache=false:quantise=false:last=full",
}
SMALLER = {**MODEL, "hidden": 16}  # trained without --full
WATCHED_EPOCHS = 100  # the paper speaks of the first 100
QUIET = (50, 100)  # epochs in which almost no forward messages are sent on ogbn-products
SHOWN = {"ogbn-products": 4, "reddit": 8}  # GPUs, as the text of Fig. 7 has them (CD8)
WATCHED = {**SHOWN, "friendster": 16, "ogbn-papers100m": 16}  # GPUs on which shares of rows sent are measured
STREAMS = {
    "sent/0": "layer 1, forward", "sent/1": "layer 2, forward", "sent-backward/0": "layer 1, backward",
    "sent-backward/1": "layer 2, backward",
}  # fmt: skip
PROTOCOL = "transductive: the paper prints no protocol, and the graph that trains is all of Table 1's"


def gcn_of(context: Context) -> dict[str, Any]:
    """The paper's model with `--full`, a narrower one otherwise."""
    return MODEL if context.full else SMALLER


def watched_run(context: Context, variant: str, dataset: str) -> dict[str, Any]:
    """The run that measures the share of rows that a variant with a cache sends, on a data set or its stand-in."""
    name, _ = graph_for(context, dataset)
    return {
        **gcn_of(context), **SETTINGS.get(name, {}), "dataset": name, "parts": WATCHED[dataset], "threads": 1,
        "method": VARIANTS[variant], "epochs": 200 if context.full else WATCHED_EPOCHS, "eval_every": -1,
    }  # fmt: skip


def observed(context: Context, variant: str, dataset: str) -> dict[str, float]:
    """Mean shares of rows sent over a training run of a variant with a cache."""
    record = demand(context.runs([watched_run(context, variant, dataset)], "shares of rows sent")[0])
    epochs = [epoch["observed"] for epoch in record["epochs"][1:]]
    names = sorted({name for seen in epochs for name in seen})
    return {name: fmean(seen[name] for seen in epochs if name in seen) for name in names}


def saved(seen: Mapping[str, float]) -> float:
    """Per cent of the messages between replicas that the cache saves, mean over layers and directions.

    Of rows that may change: gradients of the last layer that are always zero on mirrors are counted apart.
    """
    return 100 * (1 - fmean(seen[name] for name in STREAMS))


def figure7(context: Context) -> Plot:
    """Share of messages sent by epoch, layer and direction, and the threshold."""
    paths = context.figure_paths("cdfgnn/figure7")
    wanted = [watched_run(context, "Both", dataset) for dataset in SHOWN]
    records = context.runs(wanted, "shares of messages")
    orderings, lines = list[Ordering](), list[str]()
    with panels(paths, len(SHOWN), columns=2) as axes:
        for panel, dataset, record in zip(axes, SHOWN, records, strict=True):
            name = f"{graph_for(context, dataset)[1] or dataset}, {SHOWN[dataset]} GPUs"
            epochs = [epoch["observed"] for epoch in demand(record)["epochs"]]
            orderings += _drawn_shares(panel, dataset, name, epochs)
            lines.append(f"{name}: {len(epochs)} epochs, 1 seed; {PROTOCOL}")
    return Plot(
        key="cdfgnn/figure7", title="CDFGNN, Fig. 7: share of messages sent, and the threshold", paths=paths,
        caption="Dotted grey: the threshold of the cache. The paper prints no number but the epochs 50 to 100 in which "
        "almost nothing is sent on ogbn-products.",
        rows=_reduction(context), orderings=tuple(orderings),
        assumptions=(
            *lines,
            "hidden width 16 instead of 64 unless --full; first threshold 0.01 and 8 bits (not published)",
            "threshold adapted as the text says, not as Eq. 6 (CD6)",
        ),
        commands=context.texts_of(wanted),
    )  # fmt: skip


def _drawn_shares(panel: Any, dataset: str, name: str, epochs: list[Mapping[str, float]]) -> list[Ordering]:
    """Draw shares and threshold of one data set; its claims."""
    orderings = list[Ordering]()
    for at, (stream, label) in enumerate(STREAMS.items()):
        share = [100 * seen[stream] for seen in epochs]
        style: Any = {"color": OTHER_COLOURS[at // 2], "linestyle": DASHES[at % 2], "linewidth": 1.1}
        panel.plot(range(1, len(share) + 1), share, **style, label=label)
        orderings.append(_falls(name, label, share))
        if dataset == "ogbn-products" and "forward" in label:
            orderings.append(_quiet(name, label, share))
    panel.set_title(name, loc="left", fontsize=8)
    panel.set_xlabel("epoch")
    panel.set_ylabel("messages sent (%)")
    panel.set_ylim(0, 102)
    right = panel.twinx()
    thresholds = [seen["threshold"] for seen in epochs]
    right.plot(range(1, len(epochs) + 1), thresholds, color="#808080", linewidth=0.9, linestyle=DASHES[2])
    right.set_ylabel("threshold")
    right.set_ylim(bottom=0)
    right.spines["right"].set_visible(True)
    return [*orderings, *_largest_between(name, thresholds)]


def _reduction(context: Context) -> tuple[Row, ...]:
    """The abstract's reduction of remote accesses, as the mean over data sets, and theirs."""
    frame = text("cdfgnn")
    (line,) = frame[frame["metric"] == "remote_access_reduction"].itertuples()
    each = {dataset: saved(observed(context, "Both", dataset)) for dataset in DATASETS}
    graphs = {dataset: graph_for(context, dataset)[1] for dataset in DATASETS}
    whole = Row(
        label="CDFGNN, mean over the data sets", quantity="remote vertex accesses saved", unit="%",
        published=float(line.value), ours=fmean(each.values()), how="trained",
        data="stand-ins" if any(graphs.values()) else "",
        note="the paper does not say over what it averages; mean over epochs, layers and directions here",
    )  # fmt: skip
    return whole, *(
        Row(label=f"CDFGNN, {DATASETS[dataset]}", quantity="remote vertex accesses saved", unit="%", published=None,
            ours=ours, how="trained", data=graphs[dataset])
        for dataset, ours in each.items()
    )  # fmt: skip


def _falls(name: str, label: str, share: list[float]) -> Ordering:
    """Fewer messages in the middle of training than at its start."""
    third = max(len(share) // 3, 1)
    values = (fmean(share[:third]), fmean(share[third : 2 * third] or share[-1:]))
    claim = f"{name}, {label}: more messages in the first third than in the second"
    return Ordering(text=claim, expected=("first third", "second third"), ours=values)


def _quiet(name: str, label: str, share: list[float]) -> Ordering:
    """Almost no forward messages in epochs 50 to 100, read as less than a tenth of those of the first epochs."""
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
