"""BNS-GCN's figures of convergence: 7 (ogbn-products) and 9 (Reddit and Yelp)."""

from __future__ import annotations

from collections.abc import Sequence

from reports.bns_gcn_scores import trained
from reports.charts import colours_of, curves
from reports.context import Context
from reports.drawing import panels
from reports.graphs import NAMES, RATES, SMALL_SAID, WORKS
from reports.table import Plot

DRAWN = {**RATES, "p = 0": WORKS["p=0.0"]}


def figure7(context: Context) -> Plot:
    """Accuracy against epochs on ogbn-products."""
    return _convergence(context, "figure7", ("ogbn-products",), "BNS-GCN Fig. 7: convergence, ogbn-products")


def figure9(context: Context) -> Plot:
    """Accuracy against epochs on Reddit and Yelp."""
    return _convergence(context, "figure9", ("reddit", "yelp"), "BNS-GCN Fig. 9: convergence, Reddit and Yelp")


def _convergence(context: Context, name: str, graphs: Sequence[str], title: str) -> Plot:
    """Curves for four rates; judged by the last accuracy of p = 0.1 and p = 0."""
    key, paths = f"bns-gcn/{name}", context.figure_paths(f"bns-gcn/{name}")
    orderings, said = [], [SMALL_SAID]
    with panels(paths, len(graphs), columns=2) as axes:
        for panel, graph in zip(axes, graphs, strict=True):
            run = trained(context, graph, list(DRAWN.values()), 10, 0.75)
            lines = {rate: run.curve(method) for rate, method in DRAWN.items()}
            curves(panel, lines, colours_of(DRAWN))
            panel.set_title(run.data or NAMES[graph], loc="left", fontsize=6.5)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test score (%)")
            last: dict[str, float | None] = {DRAWN[rate]: scores[-1] for rate, (_, scores) in lines.items()}
            pair = {rate: DRAWN[rate] for rate in ("p = 0.1", "p = 0")}
            orderings.append(run.ordering(f"last score, {run.where}", pair, values=last))
            said.append(run.said)
    return Plot(
        key=key, title=title, caption="Test score during training; no number is printed.", paths=paths,
        orderings=tuple(orderings), assumptions=tuple(said),
    )  # fmt: skip
