"""Sylvie's figures of time: 1, 2, 5, 6, 7 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.core import load
from reports.core.context import Context
from reports.core.null_models import Null
from reports.core.predict import Seconds
from reports.core.table import Ordering, Plot, Row
from reports.core.testbeds import TITLES, judged_in, select, value
from reports.draw.charts import colours_of, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._scores import scores_of_systems, throughput_rows
from reports.sylvie._testbed import (
    CROWDED,
    FITTED,
    GRAPH_NOTES,
    GRAPHS,
    METHOD_OF,
    MODEL_OF,
    ON_THREE_SERVERS,
    THREE_SYSTEMS,
    case,
    crowded,
    crowded_fit,
    null_gain,
    speed_ups,
    sylvie_bed,
    system_seconds,
)
from reports.sylvie._times import throughput_claim

ONE_SERVER = "the quantiser is priced by its memory traffic"


def figure1(context: Context) -> Plot:
    """GCN on two servers: epochs in their parts, and accuracy. Times are judged in Table 2, by the same runs."""
    key, names = "sylvie/figure1", ("ogbn-products", "reddit")
    paths = context.figure_paths(key)
    printed = select(load.published("sylvie-table2"), model="GCN", metric="test_accuracy")
    methods = {name: METHOD_OF[name] for name in THREE_SYSTEMS}
    colours, fits, orderings = colours_of(methods), list[str](), list[Ordering]()
    with panels(paths, 4, columns=2) as axes:
        for at, name in enumerate(names):
            made, epochs = case(context, name, "GCN"), {}
            for system in THREE_SYSTEMS:
                epochs[system] = system_seconds(made.bed, made.fit, system)
            stacked(axes[2 * at], {system: paper_parts(seconds) for system, seconds in epochs.items()})
            axes[2 * at].set_title(TITLES[name], loc="left")
            orderings.append(_shares(name, epochs))
            run = scores_of_systems(context, name, "GCN", methods)
            ours = {system: [run.mean(system)] for system in THREE_SYSTEMS}
            theirs = {system: [value(printed, dataset=name, method=system)] for system in THREE_SYSTEMS}
            grouped(axes[2 * at + 1], [run.data or name], ours, colours, theirs)
            axes[2 * at + 1].set_ylabel("test accuracy (%)")
            fits.append(run.summary)
    return Plot(
        key=key, title="Sylvie Fig. 1: epoch time and accuracy, GCN on 2 x 4 GPUs",
        caption="Simulated epochs in their parts, and accuracy of stand-ins beside the printed one.",
        paths=paths, orderings=tuple(orderings),
        assumptions=(
            "the two graphs are not named",
            "who is faster: judged in Table 2, by the same runs", FITTED, made.fit.text(),
            *GRAPH_NOTES, *fits, *judged_in(context, "sylvie"),
        ),
    )  # fmt: skip


def _shares(name: str, epochs: Mapping[str, Seconds]) -> Ordering:
    """Communication is a smaller part of Sylvie's epoch than of DGL's."""
    shares = {system: seconds.comm / seconds.epoch for system, seconds in epochs.items()}
    most = max(shares["Sylvie-S"], shares["Sylvie-A"])
    return Ordering(
        text=f"share of communication, GCN, {TITLES[name]}", expected=("DGL", "the larger of Sylvie-S and Sylvie-A"),
        ours=(shares["DGL"], most),
    )  # fmt: skip


def figure2(context: Context) -> Plot:
    """Components of the epoch of full-graph training on one server."""
    key, fit = "sylvie/figure2", crowded_fit(context)
    paths, orderings, bars = context.figure_paths(key), [], {}
    for model in ("GraphSAGE", "GCN"):
        for name in ("reddit", "yelp", "ogbn-products"):
            seconds = crowded(context, name, model).seconds("vanilla", fit)
            bars[f"{TITLES[name]}\n{model}"] = paper_parts(seconds)
            ours = (seconds.comm, max(seconds.compute, seconds.reduce))
            text = f"parts of the epoch, {TITLES[name]}, {model}"
            orderings.append(Ordering(text=text, expected=("communication", "any other"), ours=ours))
    with panels(paths, 2, columns=2) as axes:
        for panel, model in zip(axes, ("GraphSAGE", "GCN"), strict=True):
            mine = {name.partition("\n")[0]: bar for name, bar in bars.items() if name.endswith(model)}
            stacked(panel, mine, share=True)
            panel.set_title(model, loc="left")
    most = value(load.text("sylvie"), metric="comm_share_of_epoch")
    ours_most = max(100 * bar["communication"] / sum(bar.values()) for bar in bars.values())
    share = Row(
        label="largest of all", quantity="share of communication", unit="%", published=most, ours=ours_most,
        how="simulated", note="printed: up to; Reddit, Yelp and ogbn-products are taken for the three graphs",
    )  # fmt: skip
    return Plot(
        key=key, title="Sylvie Fig. 2: parts of a vanilla epoch on one server",
        caption="Simulated shares.", paths=paths, rows=(share,), orderings=tuple(orderings),
        assumptions=("the three graphs are not named", FITTED, CROWDED, fit.text(), *GRAPH_NOTES),
    )  # fmt: skip


def figure5(context: Context) -> Plot:
    """Throughput over DGL on two servers: Table 2's numbers, and its claims by another picture."""
    key, printed = "sylvie/figure5", load.published("sylvie-table2")
    paths, orderings, cases = context.figure_paths(key), list[Ordering](), list[Mapping[str, float | None]]()
    names = [name for name in METHOD_OF if name != "DGL"]
    fit = case(context, GRAPHS[0]).fit
    with panels(paths, len(MODEL_OF), columns=3) as axes:
        for panel, model in zip(axes, MODEL_OF, strict=True):
            made = {name: throughput_rows(context, name, model) for name in GRAPHS}
            orderings += [ordering for _, ordering in made.values()]
            gains = {name: {row.at[0]: row.ours for row in rows if row.at} for name, (rows, _) in made.items()}
            cases += [{name: gains[graph][f"{model}, {name}"] for name in METHOD_OF} for graph in GRAPHS]
            theirs = select(printed, model=model, metric="throughput_normalised")
            series = {name: [gains[graph][f"{model}, {name}"] for graph in GRAPHS] for name in names}
            marks = {n: [value(theirs, dataset=graph, method=n) for graph in GRAPHS] for n in names}
            grouped(panel, [TITLES[graph].replace("ogbn-", "") for graph in GRAPHS], series,
                    colours_of({n: METHOD_OF[n] for n in names}), marks)  # fmt: skip
            panel.set_title(model, loc="left")
            panel.set_ylabel("throughput over DGL")
            panel.tick_params(axis="x", labelsize=7)
    return Plot(
        key=key, title="Sylvie Fig. 5: throughput over DGL, 2 x 4 GPUs",
        caption="Bars: simulated; hollow: printed in Table 2, where they are judged.",
        paths=paths, rows=_ranges(cases), orderings=tuple(orderings),
        assumptions=(
            f"compared in the 12 cases: {', '.join(METHOD_OF)}",
            "its claims are Table 2's, and count once", FITTED, fit.text(), *GRAPH_NOTES,
        ),
    )  # fmt: skip


def _ranges(cases: Sequence[Mapping[str, float | None]]) -> tuple[Row, ...]:
    """Sec. 4.1's least and largest gains over the 12 cases of Table 2."""
    text = select(load.text("sylvie"), metric="speedup", section="4.1", bound=lambda bound: bound in ("min", "max"))
    rows = []
    for line in text.itertuples():
        gains = [ours / other for case in cases if (ours := case[line.method]) and (other := case[line.baseline])]
        ours = (min if line.bound == "min" else max)(gains, default=None)
        rows.append(
            Row(label=f"{line.method} over {line.baseline}, {line.bound} of {len(cases)} cases", quantity="throughput",
                unit="x", published=float(line.value), ours=ours, how="simulated", null=Null(same=1.0))
        )  # fmt: skip
    return tuple(rows)


def figure6(context: Context) -> Plot:
    """Amazon on two and on three servers."""
    key, made = "sylvie/figure6", case(context, "amazon")
    names = [name for name in METHOD_OF if name != "DGL"]
    three = sylvie_bed(context, "amazon", parts=ON_THREE_SERVERS, cluster="sylvie-3x8")
    paths, beds = context.figure_paths(key), {"2 servers": made.bed, "3 servers": three}
    gains = {servers: speed_ups(bed, made.fit, names) for servers, bed in beds.items()}
    with panels(paths, 1) as (axes,):
        series = {name: [gains[servers][name] for servers in gains] for name in names}
        grouped(axes, list(gains), series, colours_of({n: METHOD_OF[n] for n in names}))
        axes.set_ylabel("throughput over DGL")
    more = [
        Ordering(text=f"gain of {name} over DGL", expected=("3 servers", "2 servers"),
                 ours=(gains["3 servers"][name], gains["2 servers"][name]))
        for name in ("Sylvie-S", "Sylvie-A")
    ]  # fmt: skip
    order = ("Sylvie-A", "Sylvie-S", "BNS-GCN", "PipeGCN", "SAR")
    best = [
        Ordering(text=f"throughput, {servers}", expected=order, ours=tuple(ours[n] for n in order),
                 claim=throughput_claim("amazon", "GraphSAGE") if servers == "2 servers" else "")
        for servers, ours in gains.items()
    ]  # fmt: skip
    return Plot(
        key=key, title="Sylvie Fig. 6: Amazon on two and three servers",
        caption="Simulated throughput over DGL on as many servers.", paths=paths, orderings=(*more, *best),
        assumptions=("4 GPUs of every server", FITTED, made.fit.text() + ", on both", *GRAPH_NOTES),
    )  # fmt: skip


def figure7(context: Context) -> Plot:
    """Throughput over DGL on one server."""
    key, fit = "sylvie/figure7", crowded_fit(context)
    names = [name for name in METHOD_OF if name != "DGL"]
    graphs, gains, orderings = ("reddit", "yelp", "ogbn-products"), dict[str, dict[str, float]](), []
    paths = context.figure_paths(key)
    for name in graphs:
        gains[name] = speed_ups(crowded(context, name), fit, names)
        two = case(context, name)
        both = speed_ups(two.bed, two.fit, names)
        orderings += [
            _outperforms(name, gains[name]),
            Ordering(text=f"gain of Sylvie-S, {TITLES[name]}", expected=("2 servers", "1 server"),
                     ours=(both["Sylvie-S"], gains[name]["Sylvie-S"])),
        ]  # fmt: skip
    best, name = value(load.text("sylvie"), dataset="ogbn-products", metric="speedup"), "ogbn-products"
    found = {system: gains[name][system] or 0.0 for system in ("Sylvie-S", "Sylvie-A")}
    ahead = max(found, key=lambda system: found[system])
    row = Row(
        label=f"ogbn-products, the better of Sylvie-S and Sylvie-A ({ahead})", quantity="speed-up over DGL", unit="x",
        published=best, ours=found[ahead], how="simulated", null=null_gain(crowded(context, name), name, ahead),
        note=f"Sec. 4.1; the introduction says 9.3 (SY10), the logs have 2.7 on 4 GPUs; {ONE_SERVER}",
    )  # fmt: skip
    largest = Row(
        label="the largest of all", quantity="speed-up over DGL", unit="x", conflict="SY10", how="simulated",
        published=value(load.text("sylvie"), metric="speedup", method="Sylvie", section="1"), null=Null(same=1.0),
        ours=max(gains[graph][system] or 0.0 for graph in graphs for system in ("Sylvie-S", "Sylvie-A")),
    )  # fmt: skip
    with panels(paths, 1) as (axes,):
        series = {n: [gains[name][n] for name in graphs] for n in names}
        marks = {"Sylvie-A": [None, None, best]}
        grouped(axes, [TITLES[n] for n in graphs], series, colours_of({n: METHOD_OF[n] for n in names}), marks)
        axes.set_ylabel("throughput over DGL")
    return Plot(
        key=key, title="Sylvie Fig. 7: throughput over DGL on one server, GraphSAGE",
        caption="Simulated; hollow: the printed maximum, of a variant that is not said.",
        paths=paths, rows=(row, largest), orderings=tuple(orderings),
        assumptions=(FITTED, two.fit.text(), CROWDED, fit.text(), *GRAPH_NOTES),
    )  # fmt: skip


def _outperforms(name: str, gains: Mapping[str, float | None]) -> Ordering:
    """Both of Sylvie's systems are faster than any other, DGL included."""
    others = {"DGL": 1.0, **{other: gain for other, gain in gains.items() if gain and other not in THREE_SYSTEMS}}
    best = max(others, key=lambda other: others[other])
    slower = min((gains["Sylvie-S"], gains["Sylvie-A"]), key=lambda gain: gain or 0.0)
    return Ordering(
        text=f"throughput on one server, {TITLES[name]}, against {', '.join(others)}",
        expected=("the slower of Sylvie-S and Sylvie-A", f"the fastest other ({best})"), ours=(slower, others[best]),
    )  # fmt: skip


def figure10(context: Context) -> Plot:
    """Shares of the parts of Sylvie-S' epoch on Reddit, one and two servers."""
    key, two, fit = "sylvie/figure10", case(context, "reddit"), crowded_fit(context)
    one, method = crowded(context, "reddit"), METHOD_OF["Sylvie-S"]
    seconds: dict[str, Seconds] = {"1 server": one.seconds(method, fit), "2 servers": two.bed.seconds(method, two.fit)}
    paths, text = context.figure_paths(key), load.text("sylvie")
    with panels(paths, 1) as (axes,):
        stacked(axes, {name: paper_parts(s) for name, s in seconds.items()}, share=True)
    last = seconds["2 servers"]
    shares = {name: s.comm / s.epoch for name, s in seconds.items()}
    printed = {"quantisation": ("low_bit_module", last.codec), "all-reduce": ("allreduce", last.reduce)}
    rows = [
        Row(label=f"2 servers, {name}", quantity="share of the epoch", unit="%", how="simulated",
            published=value(text, metric=f"{metric}_share_of_epoch"), ours=100 * ours / last.epoch,
            note="quantisation costs memory traffic only here" if name == "quantisation" else "")
        for name, (metric, ours) in printed.items()
    ]  # fmt: skip
    return Plot(
        key=key, title="Sylvie Fig. 10: parts of Sylvie-S' epoch, Reddit",
        caption="Simulated shares.",
        paths=paths, rows=tuple(rows),
        orderings=(
            *(_smallest(servers, parts) for servers, parts in seconds.items()),
            Ordering(text="two servers", expected=("all-reduce", "quantisation"), ours=(last.reduce, last.codec)),
            Ordering(text="share of communication", expected=("2 servers", "1 server"),
                     ours=(shares["2 servers"], shares["1 server"])),
        ),
        assumptions=(FITTED, two.fit.text(), CROWDED, fit.text(), *GRAPH_NOTES,
                     "quantisation costs memory traffic only; a framework's own kernels take longer"),
    )  # fmt: skip


def _smallest(servers: str, seconds: Seconds) -> Ordering:
    """The low-bit module has the smallest portion of the epoch."""
    others = {name: part for name, part in paper_parts(seconds).items() if name != "quantisation"}
    least = min(others, key=lambda name: others[name])
    return Ordering(
        text=f"quantisation is the smallest part, {servers}",
        expected=(f"the smallest other ({least})", "quantisation"), ours=(others[least], seconds.codec),
    )  # fmt: skip
