"""Subgraph approximation: its figures 3 to 8. No points are printed; the claims are orderings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.core import load
from reports.core.context import Context, demand
from reports.core.inputs import Inputs
from reports.core.rows import judged_in
from reports.core.table import Ordering, Plot, Row
from reports.core.train import FEWEST, Trained, accuracies
from reports.draw.drawing import panels
from reports.draw.figures import MARKERS, METHOD_COLOURS, OTHER_COLOURS, shades
from reports.subgraph_approximation._training import (
    FEWEST_BATCHED,
    GNNS,
    ISOLATED,
    LABELS,
    SHARES,
    SINGLE,
    SPLIT,
    claim_of,
    epochs_at_equal_time,
    gnn_settings,
    kept_equal_time,
    options,
    orderings,
    overlap_runs,
    shown_overlaps,
)
from reports.subgraph_approximation._workers import CLUSTER, GRAPH_OF, PAPER

Colour = str | tuple[float, float, float]

COLOURS: dict[str, Colour] = {  # less overlap is lighter
    SINGLE: METHOD_COLOURS["single"], **dict(zip(reversed(LABELS.values()), shades(PAPER, len(LABELS)), strict=True))
}  # fmt: skip
METHOD = "subgraph approximation"  # in the published tables
REMOVED = (0.0, 0.3, 0.6, 0.9)  # shares of the training vertices
STEPS = (
    "GraphSAGE takes as many steps at every share of removed vertices, so that only vertices are missing: in as many "
    "epochs fewer vertices would be fewer batches too. KW-GCN takes one step an epoch at any share"
)
AXES = "the paper's picture was not available: axes are those that its caption and text imply, no points are printed"


@dataclass(frozen=True)
class AccuracyCurve:
    """One curve: x, and accuracy in per cent."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: Colour


def _drawn(
    context: Context,
    key: str,
    lines: Sequence[AccuracyCurve],
    xlabel: str,
    title: str,
    assumptions: Sequence[str],
    **more: Any,
) -> Plot:
    """Draw lines into a one-column figure. `more` is passed to the `Plot`: caption, orderings, commands."""
    key = f"{PAPER}/{key}"
    paths = context.figure_paths(key)
    with panels(paths, 1, height=2.8) as (axes,):
        for at, line in enumerate(lines):
            marker = MARKERS[at % len(MARKERS)]
            axes.plot(line.x, line.y, color=line.colour, marker=marker, markersize=3, linewidth=1.1, label=line.label)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("test accuracy (%)")
    title = f"Subgraph approximation, {title}"
    return Plot(key=key, title=title, paths=paths, assumptions=(*assumptions, AXES), **more)


def _curves(run: Trained, labels: Sequence[str], seconds: Mapping[str, float] | None = None) -> list[AccuracyCurve]:
    """Accuracy of the first seed against epochs, or against time where an epoch's `seconds` are given."""
    lines = []
    for label in (label for label in labels if label in run.records):
        epochs, scores = run.curve(label)
        x = [epoch * seconds[label] for epoch in epochs] if seconds else epochs
        lines.append(AccuracyCurve("1 machine" if label == SINGLE else label, x, scores, COLOURS[label]))
    return lines


def _epoch_seconds(context: Context, run: Trained, labels: Sequence[str]) -> dict[str, float]:
    """Modelled seconds of an epoch of each training on the paper's machines; no claim depends on them."""
    if context.inputs != Inputs():
        return dict.fromkeys(labels, 1.0)
    trained = [run.records[label][0]["config"] for label in labels]
    timed = [{**config, "mode": "sim", "cluster": CLUSTER, "epochs": 2, "eval_every": -1} for config in trained]
    records = context.runs(timed, "epoch times")
    return {label: demand(r)["summary"]["epoch_seconds"] for label, r in zip(labels, records, strict=True)}


def figure3(context: Context) -> Plot:
    """Figure 3: accuracy on all test vertices after training vertices were removed."""
    run = {gnn: _removal(context, gnn) for gnn in GNNS}
    shares = [100 * share for share in REMOVED]
    colours = (OTHER_COLOURS[0], OTHER_COLOURS[1])
    means = {gnn: [run[gnn].mean(_removed(share)) or float("nan") for share in REMOVED] for gnn in GNNS}
    lines = [AccuracyCurve(gnn, shares, means[gnn], colour) for gnn, colour in zip(GNNS, colours, strict=True)]
    ends = {f"{100 * share:.0f} %": _removed(share) for share in (REMOVED[0], REMOVED[-1])}
    claims = [
        run[gnn].ordering(f"{run[gnn].where}; {gnn}: removing 90 % of the training vertices costs accuracy", ends)
        for gnn in GNNS
    ]
    each = {gnn: [run[gnn].each(_removed(share)) for share in REMOVED] for gnn in GNNS}
    lost = [[a - b for a, b in zip(each[gnn][0], each[gnn][-1], strict=True)] for gnn in GNNS]
    claim = f"{run[GNNS[0]].where}: KW-GCN loses more than GraphSAGE"
    claims.append(Ordering.of_seeds(claim, GNNS, lost))
    claims += [_late(run[gnn], f"{run[gnn].where}; {gnn}", each[gnn]) for gnn in GNNS]
    return _drawn(
        context, "figure3", lines, "training vertices removed (%)", "Figure 3: resilience to missing vertices",
        [*(run[gnn].summary for gnn in GNNS), STEPS],
        caption="Accuracy on the whole test set when a random share of the training vertices is missing from training.",
        orderings=tuple(claims), commands=tuple(dict.fromkeys(c for gnn in GNNS for c in run[gnn].commands)),
    )  # fmt: skip


def _late(run: Trained, what: str, each: Sequence[Sequence[float]]) -> Ordering:
    """Little is lost up to some share of the vertices, and much beyond (Sec. 2.2)."""
    names = (f"the last {100 * (REMOVED[-1] - REMOVED[-2]):.0f} %", f"the first {100 * REMOVED[1]:.0f} %")
    lost = [[a - b for a, b in zip(each[at], each[at + 1], strict=True)] for at in (len(each) - 2, 0)]
    text = f"{what}: removing {names[0]} costs more than {names[1]}"
    evidence = run.evidence([_removed(share) for share in REMOVED])
    return Ordering.of_seeds(text, names, lost, runs=evidence)


def _removed(share: float) -> str:
    return f"{100 * share:.0f} % removed"


def _removal(context: Context, gnn: str) -> Trained:
    """Training on one machine without the removed vertices, judged on the complete test set (Sec. 2.2).

    The split is the same for every share; the inductive protocol takes removed vertices out of the graph that trains.
    GraphSAGE takes as many steps at every share: fewer training vertices are fewer batches an epoch, so that it is
    trained for more epochs. KW-GCN takes one step an epoch at any share.
    """
    model: Mapping[str, Any] = gnn_settings(context, "reddit", gnn)
    extra = options(context, "reddit", gnn)
    method = f"{PAPER}:overlap=0{extra}" if extra else "single"
    rows = {
        _removed(share): {
            "method": method, "split": f"{SPLIT}:keep={1 - share:g}", "longer": 1 / (1 - share) if extra else 1.0
        }
        for share in REMOVED
    }  # fmt: skip
    return accuracies(
        context, GRAPH_OF["reddit"], rows, parts=1, model=model, epochs=200, share=SHARES[gnn] / 2,
        fewest=FEWEST_BATCHED if extra else FEWEST,
    )  # fmt: skip


def figure4(context: Context) -> Plot:
    """Figure 4: GraphSAGE on 3 and 5 isolated parts."""
    three, five = (shown_overlaps(context, "reddit", "GraphSAGE", parts) for parts in (3, 5))
    zero = LABELS[0.0]
    lines = _curves(three, [SINGLE])
    for name, run, colour in (("3 workers", three, METHOD_COLOURS[PAPER]), ("5 workers", five, COLOURS[zero])):
        lines += [AccuracyCurve(name, line.x, line.y, colour) for line in _curves(run, [zero])]
    claim = Ordering.of_seeds(
        f"{three.data or 'Reddit'}: accuracy falls with the number of isolated parts",
        ("1 machine", "3 workers", "5 workers"), (three.each(SINGLE), three.each(zero), five.each(zero)),
        claim=claim_of(three, "GraphSAGE", ISOLATED),
    )  # fmt: skip
    return _drawn(
        context, "figure4", lines, "epoch", "Figure 4: GraphSAGE without approximation",
        [three.summary, five.summary, *judged_in(context, PAPER)],
        caption="Test accuracy while training on one machine, and on isolated parts.",
        orderings=(claim,) if context.full else (), commands=tuple(dict.fromkeys([*three.commands, *five.commands])),
    )  # fmt: skip


def figure5(context: Context) -> Plot:
    """Figure 5: GraphSAGE on 5 workers with overlap."""
    run = shown_overlaps(context, "reddit", "GraphSAGE", 5)  # its other claims are Table 2's
    claim = f"{run.where}: 10 % overlap reaches one machine"
    early = {label: run.early(label) for label in run.records}
    claims = (
        run.ordering(claim, {"10 %": LABELS[0.10], "1 machine": SINGLE}, "right"),
        run.ordering(
            f"{run.where}: overlap converges faster (accuracy over the first half of the epochs)",
            {"10 %": LABELS[0.10], "0 %": LABELS[0.0]}, values=early,
        ),
        run.ordering(
            f"{run.where}: more overlap converges no slower (accuracy over the first half of the epochs)",
            {"50 %": LABELS[0.50], "10 %": LABELS[0.10]}, "right", values=early,
        ),
    )  # fmt: skip
    return _drawn(
        context, "figure5", _curves(run, [SINGLE, *LABELS.values()]), "epoch", "Figure 5: GraphSAGE on 5 workers",
        [run.summary, *judged_in(context, PAPER)], caption="Test accuracy while training, by overlap.",
        orderings=claims if context.full else (), commands=run.commands,
    )  # fmt: skip


def figure6(context: Context) -> Plot:
    """Figure 6: GraphSAGE on Amazon2M, 20 workers, by epoch."""
    if context.full:
        run = overlap_runs(context, "amazon2m", "GraphSAGE", 20, single=False)
    else:
        run = kept_equal_time(epochs_at_equal_time())
    shown = "" if context.full else ", of the runs of Table 4: up to the epochs that it prints for each"
    return _drawn(
        context, "figure6", _curves(run, list(LABELS.values())), "epoch", "Figure 6: 20 workers, Amazon2M",
        [run.summary, *judged_in(context, PAPER)],
        caption=f"Test accuracy by epoch and overlap{shown}.",
        rows=(_at_80(run),) if context.full else (),  # the stand-in is fitted to it
        orderings=orderings(run, "GraphSAGE, 20 workers, equal epochs") if context.full else (), commands=run.commands,
    )  # fmt: skip


def _at_80(run: Trained) -> Row:
    """Appendix B: what the largest overlap gains in as many epochs."""
    said = load.text(PAPER)
    said = said[(said["metric"] == "f1_micro") & said["setting"].str.endswith("at 80 epochs")]
    isolated, most = (float(said.loc[said["method"] == how, "value"].iloc[0]) for how in ("isolated subgraphs", METHOD))
    return run.difference(
        "GraphSAGE, 20 workers, equal epochs: gained by 50 % overlap", most - isolated, LABELS[0.50], LABELS[0.0]
    )


def figure7(context: Context) -> Plot:
    """Figure 7: GraphSAGE with two layers against training time."""
    return _against_time(context, "figure7", 2)


def figure8(context: Context) -> Plot:
    """Figure 8: GraphSAGE with one layer against training time."""
    return _against_time(context, "figure8", 1)


def _against_time(context: Context, key: str, layers: int) -> Plot:
    run = {depth: overlap_runs(context, "reddit", "GraphSAGE", 5, layers=depth) for depth in (1, 2)}
    gains = [_differences(run[depth], LABELS[0.10], LABELS[0.0]) for depth in (2, 1)]
    losses = [_differences(run[depth], SINGLE, LABELS[0.0]) for depth in (2, 1)]
    claims = (
        _deeper(f"{run[2].where}: 10 % overlap gains more with two layers than with one", gains),
        _deeper(f"{run[2].where}: isolated parts lose more with two layers than with one", losses),
    )  # of both figures: the first is counted with figure 7, the second with figure 8
    shown, number, overlaps = run[layers], key.removeprefix("figure"), list(LABELS.values())
    return _drawn(
        context, key, _curves(shown, overlaps, _epoch_seconds(context, shown, overlaps)), "modelled training time (s)",
        f"Figure {number}: GraphSAGE, {layers} layer{'s' * (layers > 1)}, 5 workers", [r.summary for r in run.values()],
        caption="Test accuracy against the modelled time of training on the paper's machines, by overlap.",
        orderings=claims[:1] if layers == 2 else claims[1:],
        commands=tuple(dict.fromkeys(c for r in run.values() for c in r.commands)),
    )  # fmt: skip


def _deeper(text: str, each: Sequence[Sequence[float]]) -> Ordering:
    return Ordering.of_seeds(text, ("two layers", "one layer"), each)


def _differences(run: Trained, more: str, less: str) -> list[float]:
    """Of every seed."""
    return [a - b for a, b in zip(run.each(more), run.each(less), strict=True)]


FIGURES = {
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
    "figure7": figure7,
    "figure8": figure8,
}
