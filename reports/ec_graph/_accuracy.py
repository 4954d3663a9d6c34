"""EC-Graph, Fig. 6 to 8: the loss of accuracy by compression, and how much of it compensation recovers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reports.core.context import Context
from reports.core.load import text
from reports.core.rows import judged_in
from reports.core.table import POINTS, Ordering, Plot, Row
from reports.core.train import Trained, accuracies, chosen_graph
from reports.draw.drawing import AS_PRINTED, DASHES, panels
from reports.draw.figures import METHOD_COLOURS, shades
from reports.ec_graph._fits import Timing
from reports.ec_graph._times import (
    DATASETS,
    NON_CP,
    NOT_NORMALISED,
    PARTS,
    bits,
    default_depth,
    ec_graph,
    gcn,
    split_of,
)
from reports.study import kept_scores

STUDIED = ("cora", "reddit")  # a sparse and a dense graph, on which the study has runs for these figures
WIDTHS = (1, 2, 4, 8)  # bits
SEEDS = 3  # at most: fewer where the budget leaves too few epochs
SPLITS = (
    "Cora: a random split of the printed sizes; stand-ins: their own. The study has no runs of 8 bits on Cora, nor of "
    "ResEC-BP with 8 bits"
)
SAME = 0.01  # speed-ups this close tie
NEAR = 1.0  # points below Non-cp's best accuracy at which a run counts as converged


def graphs(context: Context) -> tuple[str, ...]:
    """The data sets of the figures: the paper's five with `--full`."""
    return tuple(DATASETS) if context.full else STUDIED


def depth_of(context: Context, dataset: str) -> int:
    """Layers of the model of a data set: the paper's default with `--full`, else two."""
    return default_depth(dataset) if context.full else 2


def trained(context: Context, dataset: str, texts: Mapping[str, str], share: float) -> Trained:
    """Methods trained on a graph of the paper or its stand-in; narrow and of two layers unless `--full`."""
    _, stands_in = chosen_graph(context, dataset)
    widths = dataset if context.full else "cora"
    settings = {**gcn(widths, depth_of(context, dataset)), "partitioner": "hash"}
    settings["split"] = split_of(dataset, shares=bool(stands_in))
    return accuracies(context, dataset, texts, parts=PARTS, model=settings, seeds=SEEDS, share=share)


def shown_runs(context: Context, dataset: str, texts: Mapping[str, str]) -> Trained:
    """What a figure shows of methods on a data set: the study's runs, without those it lacks; trainings with `--full`.

    The study judges the claims about them.
    """
    if context.full:
        return trained(context, dataset, texts, 1.0)
    return kept_scores("ec-graph", dataset, {label: {"method": method} for label, method in texts.items()})


def best(run: Trained, label: str) -> float:
    """Best test accuracy of a run in per cent, mean over the seeds."""
    return statistics.fmean(best_each(run, label))


def best_each(run: Trained, label: str) -> list[float]:
    """Best test accuracy of every seed in per cent."""
    return [max(scores) for _, scores in run.curves(label)]


def figure6(context: Context) -> Plot:
    """Test accuracy by epoch for forward compression, without and with compensation."""
    texts = {"Non-cp": NON_CP}
    texts |= {f"Cp-fp-{b}": f"ec-graph:fp=compressed:bits={b}:bp=exact" for b in WIDTHS}
    texts |= {f"ReqEC-FP-{b}": f"ec-graph:fp=trend:bits={b}:tune=false:bp=exact" for b in WIDTHS}
    title = "EC-Graph, Fig. 6: test accuracy with compressed embeddings"
    return _curves(context, "ec-graph/figure6", title, texts, ("Cp-fp", "ReqEC-FP"), published_points=True)


def figure7(context: Context) -> Plot:
    """The same for backward compression."""
    texts = {"Non-cp": NON_CP}
    texts |= {f"Cp-bp-{b}": f"ec-graph:fp=exact:bp=compressed:backward_bits={b}" for b in WIDTHS}
    texts |= {f"ResEC-BP-{b}": f"ec-graph:fp=exact:bp=residual:backward_bits={b}" for b in WIDTHS}
    title = "EC-Graph, Fig. 7: test accuracy with compressed gradients"
    return _curves(context, "ec-graph/figure7", title, texts, ("Cp-bp", "ResEC-BP"), published_points=False)


def _curves(
    context: Context, key: str, title: str, texts: dict[str, str], names: tuple[str, str], *, published_points: bool
) -> Plot:
    """A panel per graph and method: accuracy by epoch for every number of bits."""
    paths = context.figure_paths(key)
    runs = {dataset: shown_runs(context, dataset, texts) for dataset in graphs(context)}
    colours = shades("ec-graph", len(WIDTHS))[::-1]  # few bits: lighter
    with panels(paths, 2 * len(runs), columns=2, height=2.2) as axes:
        for at, (dataset, name) in enumerate((d, n) for d in runs for n in names):
            run, panel = runs[dataset], axes[at]
            panel.set_title(f"{run.data or DATASETS[dataset]}: {name}", loc="left")
            for curve in _drawn(run, "Non-cp"):
                panel.plot(*curve, color="#595959", linewidth=1.6, alpha=0.6, label="Non-cp")
            for which, b in enumerate(WIDTHS):
                style: Any = {"color": colours[which], "linestyle": DASHES[which % len(DASHES)], "linewidth": 1.1}
                for curve in _drawn(run, f"{name}-{b}"):
                    panel.plot(*curve, **style, label=f"{b} bit" + "s" * (b > 1))
            if published_points and dataset == "reddit":
                epochs, score = _printed(name)
                last = max((curve[0][-1] for curve in _drawn(run, "Non-cp")), default=epochs)
                panel.scatter([last], [score], **AS_PRINTED, label="printed best (Reddit, 8 bits)")
                annotation = f"after {epochs:.0f}"
                panel.annotate(annotation, (last, score), (-5, 4), textcoords="offset points", ha="right", fontsize=6.5)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test accuracy (%)")
    return Plot(
        key=key, title=title, paths=paths,
        caption=f"{names[0]}: compression alone; {names[1]}: with compensation. {PARTS} parts.",
        rows=tuple(_eight_bits(context, runs["reddit"], names) if published_points else ()),
        orderings=(*_better(runs, names, published_points), *_few_bits(runs, names)) if context.full else (),
        assumptions=(
            *(run.summary for run in runs.values()),
            "learning rate 0.01 and epochs: not published; accuracies of stand-ins are compared with each other only",
            "two layers of 16 for all, the widths and depths of each data set with --full",
            *((f"orderings at one and two bits{', and at four and eight for Reddit' * published_points}, of the best "
               "accuracy and of the mean accuracy over the first half of the epochs, each the mean over the seeds; "
               f"less than {POINTS:g} point apart is not judged",) if context.full else judged_in(context, "ec-graph")),
            "the Bit-Tuner is off",
            "the split is EC-Graph's, by position" if context.full else SPLITS,
            NOT_NORMALISED,
        ),
        commands=tuple(command for run in runs.values() for command in run.commands),
    )  # fmt: skip


def _drawn(run: Trained, label: str) -> list[tuple[list[int], list[float]]]:
    """The curves of every seed; none of what the study has no runs of."""
    return run.curves(label) if label in run.records else []


def _printed(name: str) -> tuple[float, float]:
    """Printed (epochs to the best accuracy, that accuracy) of one method on Reddit with 8 bits."""
    numbers = text("ec-graph")
    mine = numbers[(numbers["dataset"] == "reddit") & (numbers["method"] == name) & (numbers["setting"] == "B=8")]
    values = dict(zip(mine["metric"], mine["value"], strict=True))
    return float(values["epochs_to_best"]), float(values["test_accuracy"])


def _better(runs: Mapping[str, Trained], names: tuple[str, str], printed: bool) -> list[Ordering]:
    """Compensation beats compression alone at equal bits, in best accuracy; with `printed` also at Reddit's 8 bits."""
    orderings = []
    for dataset, trained_ in runs.items():
        for b in WIDTHS if printed and dataset == "reddit" else WIDTHS[:2]:
            labels = (f"{names[1]}-{b}", f"{names[0]}-{b}")
            for what, score in (
                ("best test accuracy", best_each),
                ("test accuracy over the first half of the epochs", Trained.early),
            ):
                values = {label: score(trained_, label) for label in labels}
                claim = f"{trained_.where}: {labels[0]} > {labels[1]} in {what}"
                orderings.append(trained_.ordering(claim, {label: label for label in labels}, values=values))
    return orderings


def _eight_bits(context: Context, run: Trained, names: tuple[str, str]) -> list[Row]:
    """The printed best accuracies of Reddit with eight bits beside ours, and what compensation adds."""
    printed = {name: _printed(name)[1] for name in names}
    rows = [
        Row(
            label=f"Reddit, {name}-8", quantity="best test accuracy", unit="%", published=printed[name],
            ours=best(run, f"{name}-8") if f"{name}-8" in run.records else None, data=run.data,
            how="trained" if f"{name}-8" in run.records else "needs data", judge="order" if run.data else "points",
            seeds=len(run.each(f"{name}-8")) or None,
            note="; ".join(filter(None, ("Bit-Tuner off", "below Table V's 92.66 (EC9)" * (name == names[1])))),
        )
        for name in names
    ]  # fmt: skip
    added = printed[names[1]] - printed[names[0]]
    label = f"Reddit, 8 bits: {names[1]} less {names[0]}"
    note = "Bit-Tuner off; at the best validation; learning rate and epochs are not printed"
    gap = run.difference(label, added, f"{names[1]}-8", f"{names[0]}-8", note=note)
    return [*rows, replace(gap, judge=gap.judge if context.full else "none")]


def _few_bits(runs: Mapping[str, Trained], names: tuple[str, str]) -> list[Ordering]:
    """Sec. V-B's claims on few bits forwards: enough for Cora, not for the dense Reddit, unless compensated."""
    if names[0] != "Cp-fp":
        return []
    scores = {d: {label: best_each(run, label) for label in run.records} for d, run in runs.items()}
    cora, reddit = runs["cora"], runs["reddit"]
    level = {"Cp-fp-2": "Cp-fp-2", "Non-cp": "Non-cp"}
    orderings = [
        cora.ordering(f"{cora.where}: 2 bits alone are level with Non-cp", level, "demanded", values=scores["cora"]),
        reddit.ordering(
            f"{reddit.where}: fewer than 8 bits alone do not reach Non-cp", {"Non-cp": "Non-cp", "Cp-fp-2": "Cp-fp-2"},
            values=scores["reddit"],
        ),
        reddit.ordering(
            f"{reddit.where}: with compensation 2 bits are level with Non-cp",
            {"ReqEC-FP-2": "ReqEC-FP-2", "Non-cp": "Non-cp"}, "demanded", values=scores["reddit"],
        ),
    ]  # fmt: skip
    lost = tuple(
        tuple(a - b for a, b in zip(scores[d]["Non-cp"], scores[d]["Cp-fp-2"], strict=True)) for d in ("reddit", "cora")
    )
    claim = f"2 bits alone lose more on the denser graph: {reddit.where} > {cora.where}"
    labels = (reddit.where, cora.where)
    return [*orderings, Ordering.of_seeds(claim, labels, lost)]


def figure8(context: Context) -> Plot:
    """Ablation: speed-up to convergence over Non-cp, and the accuracy reached."""
    paths = context.figure_paths("ec-graph/figure8")
    runs = {dataset: shown_runs(context, dataset, ablation(dataset)) for dataset in graphs(context)}
    timing = Timing.fitted(context)
    each = {dataset: _speedups(context, timing, dataset, run) for dataset, run in runs.items()}
    speedups = {dataset: {k: statistics.fmean(v) for k, v in found.items()} for dataset, found in each.items()}
    with panels(paths, len(runs), columns=2) as axes:
        for panel, dataset in zip(axes, runs, strict=True):
            run, labels = runs[dataset], list(speedups[dataset])
            panel.set_title(run.data or DATASETS[dataset], loc="left")
            bars = [speedups[dataset][label] for label in labels]
            panel.bar(range(len(labels)), bars, 0.6, color=METHOD_COLOURS["ec-graph"], label="speed-up to convergence")
            for at, (label, bar) in enumerate(zip(labels, bars, strict=True)):
                annotation = f"{bar:.2f}" if speedups[dataset][label] else "never"
                panel.text(at, 0.03 * max(bars), annotation, ha="center", va="bottom", fontsize=6.5)
            panel.set_xticks(range(len(labels)), labels, rotation=35, ha="right", fontsize=7)
            panel.set_ylabel("speed-up over Non-cp")
            panel.set_ylim(0, 1.25 * max(bars, default=1.0))
            right = panel.twinx()
            scores = [best(run, label) for label in labels]
            right.plot(range(len(labels)), scores, "D-", color="#404040", markersize=3.2, linewidth=0.8)
            right.set_ylabel("best test accuracy (%), diamonds")
            right.spines["right"].set_visible(True)
            if scores:
                margin = max(2.0, max(scores) - min(scores))
                right.set_ylim(min(scores) - 1.5 * margin, max(scores) + 0.5 * margin)
    return Plot(
        key="ec-graph/figure8", title="EC-Graph, Fig. 8: ablation", paths=paths,
        caption=f"Converged: within {NEAR:g} point of Non-cp's best test accuracy. Epochs from training, seconds of an "
        "epoch from the simulated testbed.",
        orderings=tuple(_ablation_orderings(each, {d: run.where for d, run in runs.items()}, study=not context.full)),
        assumptions=(
            *(run.summary for run in runs.values()), *judged_in(context, "ec-graph"),
            "bits as printed for each data set; seconds of an epoch are those of the paper's graphs, as in Table IV",
            NOT_NORMALISED,
            "a method that does not converge in the epochs trained has the speed-up 0: it is slower than every "
            "one that does",
            "the last bar, both directions compensated, is not named in the text; Bit-Tuner on in ReqEC-adapt, "
            "else off",
        ),
        commands=(
            *(command for run in runs.values() for command in run.commands),
            *context.texts_of(
                timing.machines(d, depth_of(context, d)).config(method)
                for d in runs
                for method in ablation(d).values()
            ),
        ),
    )  # fmt: skip


def ablation(dataset: str) -> dict[str, str]:
    """The bars of Fig. 8 with the bits printed for a data set, and both directions compensated."""
    b = bits(dataset)
    return {
        "Non-cp": NON_CP,
        f"Cp-fp-{b['Cp-fp']}": f"ec-graph:fp=compressed:bits={b['Cp-fp']}:bp=exact",
        f"Cp-bp-{b['Cp-bp']}": f"ec-graph:fp=exact:bp=compressed:backward_bits={b['Cp-bp']}",
        f"ReqEC-{b['ReqEC']}": f"ec-graph:fp=trend:bits={b['ReqEC']}:tune=false:bp=exact",
        f"ResEC-{b['ResEC']}": f"ec-graph:fp=exact:bp=residual:backward_bits={b['ResEC']}",
        "ReqEC-adapt": "ec-graph:fp=trend:bp=exact",
        "EC-Graph": ec_graph(dataset),
    }


def _speedups(context: Context, timing: Timing, dataset: str, run: Trained) -> dict[str, list[float]]:
    """Non-cp's seconds to convergence over each method's, of every seed; 0 where one never converges.

    Of the methods that have runs, and of the seeds that both have.
    """
    bed = timing.machines(dataset, depth_of(context, dataset))
    targets = [max(scores) - NEAR for _, scores in _drawn(run, "Non-cp")]
    seconds: dict[str, list[float]] = {}
    for label, method in ablation(dataset).items():
        each = [reached_at(*curve, target) for curve, target in zip(_drawn(run, label), targets, strict=False)]
        if each:
            seconds[label] = [math.inf if epoch is None else epoch * bed.seconds(method) for epoch in each]
    first = seconds.get("Non-cp", [])
    return {label: [a / b for a, b in zip(first, values, strict=False)] for label, values in seconds.items()}


def reached_at(epochs: Sequence[int], scores: Sequence[float], target: float) -> int | None:
    """The first epoch whose accuracy is at least the target; None where there is none."""
    return next((epoch for epoch, score in zip(epochs, scores, strict=True) if score >= target), None)


def _ablation_orderings(
    speedups: Mapping[str, Mapping[str, Sequence[float]]], names: Mapping[str, str], *, study: bool = False
) -> list[Ordering]:
    """Compression alone is slower to convergence than none; gains are smaller on the dense graph.

    Of the study's runs the second alone: it judges the epochs of the first itself.
    """
    claims = []
    for dataset, values in {} if study else speedups.items():
        for kind in ("Cp-fp", "Cp-bp"):
            label = next(name for name in values if name.startswith(kind))
            claim = f"{names[dataset]}: {label} converges later than Non-cp"
            claims.append(Ordering.of_seeds(claim, ("Non-cp", label), (values["Non-cp"], values[label])))
    most = {
        d: [max(each) for each in zip(*(v for k, v in values.items() if k.startswith(("Re", "EC"))), strict=False)]
        for d, values in speedups.items()
    }
    for sparser in (d for d in speedups if d != "reddit" and most[d] and most["reddit"]):
        labels = (names[sparser], names["reddit"])
        claim = f"the speed-up of EC-Graph is smaller on a dense graph: {' > '.join(labels)}"
        claims.append(Ordering.of_seeds(claim, labels, (most[sparser], most["reddit"])))
    return claims
