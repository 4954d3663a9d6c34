"""Sylvie's figures of time on two servers and more: 1, 5, 6 and 10; those of one server are in `_one_server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from reports.bns_gcn.testbed import TITLES
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.null_models import Null
from reports.core.predict import Fit, Seconds, Testbed
from reports.core.rows import judged_in, seconds_row
from reports.core.table import Ordering, Plot, Row
from reports.draw.charts import colours_of, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._programs import (
    PER_PEER,
    RANK_0,
    SAR_MODEL,
    judged_epoch,
    logged_reduce,
    of_rank_0,
    speed_ups,
    system_seconds,
)
from reports.sylvie._scores import scores_of_systems, throughput_rows
from reports.sylvie._testbed import (
    FITTED,
    GRAPH_NOTES,
    GRAPHS,
    METHOD_OF,
    MODEL_OF,
    ON_ONE_SERVER,
    ON_THREE_SERVERS,
    ON_TWO_SERVERS,
    SERVER,
    THREE_SYSTEMS,
    anchor,
    case,
    null_for,
    sylvie_bed,
)
from reports.sylvie._times import ROUNDS, throughput_claim

BOTH_HALVES = "an operator's time is fitted on both halves of the quantiser together"
THREE_SERVERS = (
    "seconds on three servers are those of the authors' notebook (cell 30), whose seconds on two are the logs'; "
    "they are of Sylvie-S. The gains that it draws of Sylvie are others, of a later program"
)
PARTS_OF_FIGURE_10: dict[str, Callable[[Seconds], float]] = {
    "communication": lambda seconds: seconds.comm,
    "all-reduce": logged_reduce,
    "computation": lambda seconds: seconds.logged,
}
"""Without the quantiser, which the figure shows apart."""
IN_FIGURE_10 = (
    "seconds are those of the authors' notebook (cell 66), whose shares of two servers are the printed 5.9 and 6.7 % "
    "without the part that it calls Coordinate, of a later program that chooses bits; one server has 4 GPUs: its "
    "computation and all-reduce are those of the logs of 4 (0.063 and 0.007 s; 0.035 s of computation on 8)"
)


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
        caption="Simulated throughput over DGL on as many servers.", paths=paths,
        rows=_on_three_servers(three, made.fit), orderings=(*more, *best),
        assumptions=("4 GPUs of every server", THREE_SERVERS, FITTED, made.fit.text() + ", on both", PER_PEER,
                     SAR_MODEL, ROUNDS, *GRAPH_NOTES),
    )  # fmt: skip


def _on_three_servers(bed: Testbed, fit: Fit) -> tuple[Row, ...]:
    """Seconds of epochs on three servers."""
    frame = select(load.published("sylvie-notebook"), figure="6", servers="3")
    return tuple(
        Row(label=f"Amazon, 3 servers, {line.method}", quantity="epoch time", unit="s", published=float(line.seconds),
            how="simulated", null=null_for(anchor(ON_TWO_SERVERS).epoch, bed, "amazon", line.method),
            **{"judge": "error", **judged_epoch(bed, fit, line.method)})
        for line in frame.itertuples()
    )  # fmt: skip


def figure10(context: Context) -> Plot:
    """Parts of Sylvie-S' epoch on Reddit, one and two servers."""
    key, two = "sylvie/figure10", case(context, "reddit")
    one = sylvie_bed(context, "reddit", parts=ON_ONE_SERVER, cluster=SERVER)
    beds = {"1 server": one, "2 servers": two.bed}
    seconds = {servers: system_seconds(bed, two.fit, "Sylvie-S") for servers, bed in beds.items()}
    paths, last = context.figure_paths(key), seconds["2 servers"]
    with panels(paths, 1) as (axes,):
        stacked(axes, {name: paper_parts(s) for name, s in seconds.items()}, share=True)
    shares = {name: s.comm / s.epoch for name, s in seconds.items()}
    return Plot(
        key=key, title="Sylvie Fig. 10: parts of Sylvie-S' epoch, Reddit",
        caption="Simulated shares.",
        paths=paths, rows=(*_shares_of_two_servers(last), *_seconds_of_parts(seconds)),
        orderings=(
            *(_smallest(servers, parts) for servers, parts in seconds.items()),
            Ordering(text="two servers", expected=("all-reduce", "quantisation"),
                     ours=(last.reduce + last.tail, last.codec)),
            Ordering(text="share of communication", expected=("2 servers", "1 server"),
                     ours=(shares["2 servers"], shares["1 server"])),
        ),
        assumptions=(FITTED, two.fit.text(), IN_FIGURE_10, RANK_0, PER_PEER, *GRAPH_NOTES),
    )  # fmt: skip


def _shares_of_two_servers(last: Seconds) -> list[Row]:
    """The two shares that Sec. 4.4 prints."""
    text = load.text("sylvie")
    printed = {"quantisation": ("low_bit_module", last.codec), "all-reduce": ("allreduce", last.reduce + last.tail)}
    return [
        Row(label=f"2 servers, {name}", quantity="share of the epoch", unit="%", how="simulated",
            published=value(text, metric=f"{metric}_share_of_epoch"), ours=100 * ours / last.epoch)
        for name, (metric, ours) in printed.items()
    ]  # fmt: skip


def _seconds_of_parts(seconds: Mapping[str, Seconds]) -> list[Row]:
    """Seconds behind the figure, by the authors' notebook."""
    frame, rows, one = select(load.published("sylvie-notebook"), figure="10"), list[Row](), dict[str, float]()
    for servers, found in seconds.items():
        theirs = {line.part: float(line.seconds) for line in select(frame, servers=servers[0]).itertuples()}
        one = one or theirs
        base = anchor(ON_ONE_SERVER if servers == "1 server" else ON_TWO_SERVERS)
        same = {"communication": base.halo, "all-reduce": base.reduce, "computation": base.compute}
        rows += [
            seconds_row(f"{servers}, {name}", "seconds of an epoch", theirs[name], null=Null(same=same[name]),
                        **of_rank_0(found, part))
            for name, part in PARTS_OF_FIGURE_10.items()
        ]  # fmt: skip
        rows += [
            seconds_row(f"{servers}, {name}", "seconds of an epoch", theirs[name], ours, fitted=servers == "1 server",
                        null=Null(same=one[name]), note=BOTH_HALVES)
            for name, ours in (("quantise", found.codec - found.decode), ("dequantise", found.decode))
        ]  # fmt: skip
    return rows


def _smallest(servers: str, seconds: Seconds) -> Ordering:
    """Quantising and dequantising have the smallest portions of the epoch, each by itself."""
    others = {name: part(seconds) for name, part in PARTS_OF_FIGURE_10.items()}
    least = min(others, key=lambda name: others[name])
    return Ordering(
        text=f"either half of the quantiser is smaller than all other parts, {servers}",
        expected=(f"the smallest other ({least})", "the larger half of the quantiser"),
        ours=(others[least], max(seconds.decode, seconds.codec - seconds.decode)),
    )  # fmt: skip
