"""BNS-GCN's figures of convergence: 7 (ogbn-products) and 9 (Reddit and Yelp)."""

from __future__ import annotations

from collections.abc import Sequence

from reports.bns_gcn_scores import NOISE, trained
from reports.charts import colours_of, curves
from reports.context import Context
from reports.drawing import panels
from reports.graphs import NAMES, SMALL_SAID
from reports.table import Ordering, Plot

RATES = {"p = 1": "vanilla", "p = 0.1": "bns-gcn:p=0.1", "p = 0.01": "bns-gcn:p=0.01", "p = 0": "bns-gcn:p=0"}


def figure7(context: Context) -> Plot:
    """Accuracy against epochs on ogbn-products."""
    return _convergence(context, "figure7", ("ogbn-products",), "BNS-GCN Fig. 7: convergence, ogbn-products")


def figure9(context: Context) -> Plot:
    """Accuracy against epochs on Reddit and Yelp."""
    return _convergence(context, "figure9", ("reddit", "yelp"), "BNS-GCN Fig. 9: convergence, Reddit and Yelp")


def _convergence(context: Context, name: str, graphs: Sequence[str], title: str) -> Plot:
    """Curves for four rates; judged by the last accuracy of p = 0.1 and p = 0."""
    key, paths = f"bns-gcn/{name}", context.figure_paths(f"bns-gcn/{name}")
    orderings, said, texts = [], [SMALL_SAID], list[str]()
    with panels(paths, len(graphs), columns=2) as axes:
        for panel, graph in zip(axes, graphs, strict=True):
            run = trained(context, graph, list(RATES.values()), 10, 0.75)
            lines = {rate: run.curve(method) for rate, method in RATES.items()}
            curves(panel, lines, colours_of(RATES))
            panel.set_title(run.data or NAMES[graph], loc="left", fontsize=6.5)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test score (%)")
            last = {rate: scores[-1] for rate, (_, scores) in lines.items()}
            orderings.append(
                Ordering(text=f"last score, {NAMES[graph]}", expected=("p = 0.1", "p = 0"),
                         ours=(last["p = 0.1"], last["p = 0"]), tolerance=NOISE)
            )  # fmt: skip
            said.append(run.said)
            texts += run.commands
    return Plot(
        key=key, title=title, caption="Test score during training; no number is printed.", paths=paths,
        orderings=tuple(orderings), assumptions=tuple(said), commands=tuple(texts),
    )  # fmt: skip
