"""Sylvie's figures of the 8 GPUs of one server: 2 (parts of full-graph epochs) and 7 (throughput)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reports.bns_gcn.testbed import TITLES
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.predict import Fit, Seconds
from reports.core.rows import seconds_row
from reports.core.table import Ordering, Plot, Row
from reports.draw.charts import colours_of, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._programs import (
    PER_PEER,
    RANK_0,
    SAR_MODEL,
    TIMED,
    LoggedComponent,
    judged_epoch,
    of_rank_0,
    speed_ups,
)
from reports.sylvie._servers import OREGON
from reports.sylvie._testbed import (
    FITTED,
    FOLLOWS,
    GRAPH_NOTES,
    METHOD_OF,
    MODEL_OF,
    THREE_SYSTEMS,
    Logged,
    case,
    null_for,
    null_gain,
)
from reports.sylvie._times import QUANTISER, ROUNDS

DRAWN_IN_2 = ("reddit", "yelp", "ogbn-products")
DRAWN_IN_7 = ("yelp", "ogbn-products")
PARTS: dict[LoggedComponent, str] = {"halo": "communication", "compute": "computation", "reduce": "all-reduce"}
OF_SYSTEM = {"SAR": ROUNDS, "Sylvie-S": QUANTISER}
SECTION_4_1 = "the 7.0 of Sec. 4.1; logged 6.975"
INTRODUCTION = (
    "the 9.3 of the introduction, of a graph that Fig. 7 leaves out (SY10, resolved by the logs); logged 9.31"
)


def figure2(context: Context) -> Plot:
    """Components of the epoch of full-graph training on one server."""
    key, fit = "sylvie/figure2", OREGON.fit(context)
    paths, orderings, rows, bars = context.figure_paths(key), list[Ordering](), list[Row](), {}
    for log in OREGON.logged():
        if log.system != "DGL" or log.name not in DRAWN_IN_2 or log.model == "GAT":
            continue
        seconds = OREGON.bed(context, log.name, log.model).seconds("vanilla", fit)
        bars[f"{TITLES[log.name]}\n{log.model}"] = paper_parts(seconds)
        rows += _parts_of(context, log, seconds)
        text = f"parts of the epoch, {TITLES[log.name]}, {log.model}"
        ours = (seconds.comm, max(seconds.compute, seconds.reduce))
        orderings.append(Ordering(text=text, expected=("communication", "any other"), ours=ours))
    with panels(paths, 2, columns=2) as axes:
        for panel, model in zip(axes, ("GraphSAGE", "GCN"), strict=True):
            mine = {name.partition("\n")[0]: bar for name, bar in bars.items() if name.endswith(f"\n{model}")}
            stacked(panel, mine, share=True)
            panel.set_title(model, loc="left")
    return Plot(
        key=key, title="Sylvie Fig. 2: parts of a vanilla epoch on one server",
        caption="Simulated shares.", paths=paths, rows=(*rows, _largest_share(rows)), orderings=tuple(orderings),
        assumptions=(
            "the three graphs are those of the authors' notebook; seconds are those of its logs", FITTED,
            OREGON.assumed, RANK_0, fit.text(), *GRAPH_NOTES,
        ),
    )  # fmt: skip


def _parts_of(context: Context, log: Logged, seconds: Seconds) -> list[Row]:
    """Seconds of an epoch and its components beside the logged ones."""
    base, bed = OREGON.anchor(), OREGON.bed(context, log.name, log.model)
    label, null = f"{TITLES[log.name]}, {log.model}", null_for(base.epoch, bed, log.name, log.system)
    rows = [seconds_row(label, "epoch", log.epoch, seconds.epoch, fitted=log.fitted, null=null)]
    for part, title in PARTS.items():
        follows, null = log.fitted and part == "halo", null_for(getattr(base, part), bed, log.name, log.system)
        found = of_rank_0(seconds, TIMED[part], judged=not follows)
        rows.append(seconds_row(label, title, getattr(log, part), null=null, note=FOLLOWS if follows else "", **found))
    return rows


def _largest_share(rows: list[Row]) -> Row:
    """The share of communication that the text prints, which is that of Reddit's GraphSAGE in the logs."""
    ours = {row.quantity: row.ours or 0.0 for row in rows if row.label == "Reddit, GraphSAGE"}
    return Row(
        label="Reddit, GraphSAGE", quantity="share of communication", unit="%", how="simulated",
        published=value(load.text("sylvie"), metric="comm_share_of_epoch"),
        ours=100 * ours["communication"] / ours["epoch"], note="Sec. 2.2: up to; 0.592 of 0.664 s in the logs",
    )  # fmt: skip


def figure7(context: Context) -> Plot:
    """Throughput over DGL on one server: two graphs, three models, and the introduction's on a third graph."""
    key, fit = "sylvie/figure7", OREGON.fit(context)
    names, orderings, rows = [name for name in METHOD_OF if name != "DGL"], list[Ordering](), list[Row]()
    gains = dict[tuple[str, str], dict[str, float]]()
    for graph in DRAWN_IN_7:
        for model in MODEL_OF:
            found = _gains(context, fit, graph, model)
            rows += found
            gains[graph, model] = {name: row.ours or 0.0 for name, row in zip(names, found, strict=True)}
            two = case(context, graph, model)
            both = speed_ups(two.bed, two.fit, ["Sylvie-S"])["Sylvie-S"]
            orderings += [
                _outperforms(f"{TITLES[graph]}, {model}", gains[graph, model]),
                Ordering(text=f"gain of Sylvie-S, {TITLES[graph]}, {model}", expected=("2 servers", "1 server"),
                         ours=(both, gains[graph, model]["Sylvie-S"])),
            ]  # fmt: skip
    rows.append(_introduction(context, fit))
    paths, labels = context.figure_paths(key), [f"{TITLES[graph]}\n{model}" for graph, model in gains]
    with panels(paths, 1) as (axes,):
        logged = {name: [row.published for row in rows if row.label.endswith(f", {name}")][: len(gains)]
                  for name in names}  # fmt: skip
        series = {name: [found[name] for found in gains.values()] for name in names}
        grouped(axes, labels, series, colours_of({n: METHOD_OF[n] for n in names}), logged)
        axes.set_ylabel("throughput over DGL")
    return Plot(
        key=key, title="Sylvie Fig. 7: throughput over DGL on one server",
        caption="Simulated; hollow: by the authors' logs.", paths=paths, rows=tuple(rows), orderings=tuple(orderings),
        assumptions=(
            "graphs and models are those of the authors' notebook, which draws numbers of a later program in place of "
            "Sylvie's: Sylvie-S and Sylvie-A are those of the same logs, which have the printed 7.0",
            FITTED, fit.text(), OREGON.assumed, PER_PEER, SAR_MODEL, ROUNDS, *GRAPH_NOTES,
        ),
    )  # fmt: skip


def _gains(context: Context, fit: Fit, graph: str, model: str) -> list[Row]:
    """Speed-ups over DGL beside the logged ones, by system; where the text prints one, beside that."""
    logged = {row.system: row.epoch for row in OREGON.logged() if (row.name, row.model) == (graph, model)}
    bed, rows = OREGON.bed(context, graph, model), list[Row]()
    base = bed.seconds(METHOD_OF["DGL"], fit).epoch
    for system in METHOD_OF:
        if system == "DGL":
            continue
        printed, note = logged["DGL"] / logged[system], OF_SYSTEM.get(system, "")
        if (graph, model, system) == ("ogbn-products", "GraphSAGE", "Sylvie-A"):
            printed, note = value(load.text("sylvie"), dataset=graph, metric="speedup"), SECTION_4_1
        rows.append(
            Row(label=f"{TITLES[graph]}, {model}, {system}", quantity="speed-up over DGL", unit="x",
                published=printed, how="simulated", note=note, null=null_gain(bed, graph, system),
                **judged_epoch(bed, fit, system, over=base))
        )  # fmt: skip
    return rows


def _introduction(context: Context, fit: Fit) -> Row:
    """The introduction's speed-up on one server, which is Sylvie-A's on Amazon."""
    row = _gains(context, fit, "amazon", "GraphSAGE")[-1]
    text = select(load.text("sylvie"), metric="speedup", method="Sylvie", section="1")
    return replace(row, published=value(text), note=INTRODUCTION)


def _outperforms(where: str, gains: Mapping[str, float]) -> Ordering:
    """Both of Sylvie's systems are faster than any other, DGL included."""
    others = {"DGL": 1.0, **{other: gain for other, gain in gains.items() if other not in THREE_SYSTEMS}}
    best = max(others, key=lambda other: others[other])
    slower = min(gains["Sylvie-S"], gains["Sylvie-A"])
    return Ordering(
        text=f"throughput on one server, {where}, against {', '.join(others)}",
        expected=("the slower of Sylvie-S and Sylvie-A", f"the fastest other ({best})"), ours=(slower, others[best]),
    )  # fmt: skip
