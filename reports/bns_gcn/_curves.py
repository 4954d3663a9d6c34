"""BNS-GCN's figures of convergence: 7 (ogbn-products) and 9 (Reddit and Yelp)."""

from __future__ import annotations

from collections.abc import Sequence

from reports.bns_gcn._figures import COUNTS
from reports.bns_gcn._scores import scores_of_rates
from reports.bns_gcn.testbed import RATES, TITLES, WORKS
from reports.core.context import Context
from reports.core.rows import judged_in
from reports.core.table import STANDS_IN, Ordering, Plot
from reports.core.train import Trained
from reports.draw.charts import colours_of, curves
from reports.draw.drawing import panels

DRAWN = {**RATES, "p = 0": WORKS["p=0.0"]}


def figure7(context: Context) -> Plot:
    """Accuracy against epochs on ogbn-products."""
    return _convergence(context, "figure7", ("ogbn-products",), "BNS-GCN Fig. 7: convergence, ogbn-products")


def figure9(context: Context) -> Plot:
    """Accuracy against epochs on Reddit and Yelp."""
    return _convergence(context, "figure9", ("reddit", "yelp"), "BNS-GCN Fig. 9: convergence, Reddit and Yelp")


def _convergence(context: Context, name: str, graphs: Sequence[str], title: str) -> Plot:
    """Curves for four rates, and the claims of the text on them."""
    key, paths = f"bns-gcn/{name}", context.figure_paths(f"bns-gcn/{name}")
    orderings, assumptions = list[Ordering](), [*judged_in(context, "bns-gcn")]
    with panels(paths, len(graphs), columns=2) as axes:
        for panel, graph in zip(axes, graphs, strict=True):
            run = scores_of_rates(context, graph, list(DRAWN.values()), COUNTS[graph][-1])
            drawn = {rate: method for rate, method in DRAWN.items() if method in run.scores}
            curves(panel, {rate: run.curve(method) for rate, method in drawn.items()}, colours_of(drawn))
            panel.set_title(short(run.data) or TITLES[graph], loc="left", fontsize=6.5)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test score (%)")
            orderings += _claims(run, study=not context.full)
            assumptions.append(run.summary)
            if name == "figure9":
                few = scores_of_rates(context, graph, [DRAWN["p = 0.1"], DRAWN["p = 0"]], COUNTS[graph][0])
                orderings += _growing_gap(run, few)
                assumptions.append(few.summary)
    return Plot(
        key=key, title=title, caption="Test score during training; no number is printed.", paths=paths,
        orderings=tuple(orderings), assumptions=tuple(assumptions),
    )  # fmt: skip


def short(data: str) -> str:
    """The name of a stand-in without its parameters, which would not fit over a panel."""
    graph, stands_in, published = data.partition(STANDS_IN)
    return graph.partition(",")[0] + stands_in + published


def _claims(run: Trained, *, study: bool) -> list[Ordering]:
    """Sampling converges no worse than p = 1 and better than p = 0, which is slowest (Sec. 4.2 and 4.3, App. B).

    Of the study's runs the first half of the epochs alone: the study itself judges their last scores.
    """
    last = {method: [scores[-1] for _, scores in run.curves(method)] for method in run.scores}
    early = {method: run.early(method) for method in run.scores}

    def pair(*rates: str) -> dict[str, str]:
        return {rate: DRAWN[rate] for rate in rates}

    first_half = f"early score (first half of the epochs), {run.where}"
    converging = run.ordering(first_half, pair("p = 0.1", "p = 0"), values=early)
    if study:
        return [converging]
    return [
        run.ordering(f"last score, {run.where}", pair("p = 0.1", "p = 0"), values=last),
        run.ordering(f"last score: p = 1 is not ahead, {run.where}", pair("p = 0.1", "p = 1"), "right", values=last),
        converging,
    ]


def _growing_gap(many: Trained, few: Trained) -> list[Ordering]:
    """The gap between p = 0.1 and p = 0 is wider with more parts (App. B); nothing where the study has no such runs."""
    gaps = [
        [a - b for a, b in zip(run.each(DRAWN["p = 0.1"]), run.each(DRAWN["p = 0"]), strict=False)]
        for run in (many, few)
    ]
    if not all(gaps):
        return []
    return [
        Ordering.of_seeds(
            "gap of p = 0.1 over p = 0 grows with the parts", (many.where, few.where), gaps,
            runs=many.evidence(many.records) + few.evidence(few.records),
        )
    ]  # fmt: skip
