"""EC-Graph: Tables II and III, and the list of all its tables and figures."""

from __future__ import annotations

from collections.abc import Callable

from reports.core.context import Context
from reports.core.load import GIB, published, text
from reports.core.table import How, Ordering, PaperTable, Plot, Row
from reports.ec_graph._accuracy import figure6, figure7, figure8
from reports.ec_graph._closed_forms import counted, example_rows, theorem1
from reports.ec_graph._figures import figure9, figure10
from reports.ec_graph._machines import figure11
from reports.ec_graph._table4 import table4
from reports.ec_graph._table5 import table5
from reports.ec_graph._times import DATASETS, TOPOLOGIES, bits, gcn, on_disk, published_counts, tuner_note

BYTES = 4  # of a float


def table2(context: Context) -> PaperTable:
    """Cost per target vertex, in orders of magnitude: evaluated for ogbn-products, and the worked example of Sec. I."""
    costs = _costs()
    rows = [
        Row(
            label=f"{line['method']}, {line['metric'].replace('_', ' ')}",
            quantity="cost per target vertex", unit="values", published=None,
            ours=costs[line["method"], line["metric"]], how="closed form", judge="none",
            note="; ".join(filter(None, (line["note"], tuner_note(line["method"], tuned=False)))),
            at=(line["metric"].replace("_", " "), line["method"]),
        )
        for _, line in published("ec-graph-table2").iterrows()
    ]  # fmt: skip
    printed = text("ec-graph").set_index("metric")["value"]
    layer = 1e9 * 0.1 * 128 * BYTES / GIB
    rows += [
        Row(label=f"worked example of Sec. I-A, {what}", quantity="volume", unit="GiB",
            published=float(printed[metric]), ours=ours, how="closed form", judge="none",
            note="1 B edges, a tenth remote, 128 floats each; printed as GB, in powers of 1024 (EC1, EC2)")
        for what, metric, ours in (
            ("a layer", "embedding_volume_per_layer", layer), ("an epoch", "epoch_comm_volume", 5 * layer),
        )
    ]  # fmt: skip
    row, claim = theorem1()
    rows += [*counted(context), *example_rows(), row]
    names = ("ML-centered framework", "EC-Graph")
    orderings = tuple(
        Ordering(
            text=f"{kind} cost: {' > '.join(names)}", expected=names, ours=tuple(costs[n, metric] for n in names),
            theory="both sides are formulas of the table",
        )
        for kind, metric in (("memory", "memory_cost"), ("communication", "communication_cost"))
    )  # fmt: skip
    return PaperTable(
        key="ec-graph/table2", title="EC-Graph, Table II, Fig. 3 and Theorem 1: costs and closed forms",
        rows=tuple(rows), orderings=(*orderings, claim),
        assumptions=(
            "formulas as printed, without their constants; g, d0 and L of ogbn-products, d = 256, B = 2, T = 1, "
            "remote neighbours 5/6 of all (hash, 6 machines); bytes are counted in a run, memory and "
            "computation are not",
            "Fig. 3 and Theorem 1 stand here as closed forms: neither is a table",
        ),
    )  # fmt: skip


def _costs() -> dict[tuple[str, str], float]:
    """The six formulas of Table II for ogbn-products with the default model."""
    graph, each = published_counts("ogbn-products"), gcn("ogbn-products", 3)
    g, d, d0, depth = graph["avg_degree"], each["hidden"], graph["features"], each["layers"]
    remote = g * 5 / 6
    return {
        ("ML-centered framework", "memory_cost"): g**depth * d,
        ("EC-Graph", "memory_cost"): g * d,
        ("ML-centered framework", "computation_cost"): g ** (depth - 1) * d**2,
        ("EC-Graph", "computation_cost"): depth * d**2,
        ("ML-centered framework", "communication_cost"): g**depth * d0,
        ("EC-Graph", "communication_cost"): depth * remote * d / (32 / bits("ogbn-products")["ReqEC"]),
    }


def table3(context: Context) -> PaperTable:
    """Data sets: printed counts beside those of the graphs on disk."""
    measured = {dataset: _measured(name) for dataset, name in TOPOLOGIES.items() if on_disk(name)}
    rows = []
    for _, line in published("ec-graph-table3").iterrows():
        dataset, metric = line["dataset"], line["metric"]
        ours = measured.get(dataset, {}).get(metric)
        how: How = "quoted" if ours is None else "measured"
        rows.append(
            Row(
                label=DATASETS[dataset], quantity=metric.replace("_", " "), unit=line["unit"],
                published=float(line["value"]), ours=ours, how=how, note=line["note"], judge="none",
                at=(DATASETS[dataset], metric.replace("_", " ")),
            )
        )  # fmt: skip
    return PaperTable(
        key="ec-graph/table3", title="EC-Graph, Table III: data sets", rows=tuple(rows),
        assumptions=(
            "inputs: what is counted on disk is no prediction and is not judged",
            "graphs that are not on disk are quoted; the Pubmed on disk has no features",
        ),
    )  # fmt: skip


def _measured(name: str) -> dict[str, float]:
    """Counts of a graph on disk; without features where it has none."""
    from harness import datasets

    graph = datasets.load(name)
    counts: dict[str, float] = {
        "vertices": graph.num_nodes, "edges": graph.num_edges, "avg_degree": graph.num_edges / graph.num_nodes,
        "classes": graph.num_classes,
    }  # fmt: skip
    return {**counts, "features": graph.num_features} if graph.num_features > 1 else counts


TABLES: dict[str, Callable[[Context], PaperTable]] = {
    "table2": table2, "table3": table3, "table4": table4, "table5": table5,
}  # fmt: skip
FIGURES: dict[str, Callable[[Context], Plot]] = {
    "figure6": figure6, "figure7": figure7, "figure8": figure8, "figure9": figure9, "figure10": figure10,
    "figure11": figure11,
}  # fmt: skip
