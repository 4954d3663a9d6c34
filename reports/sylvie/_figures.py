"""Sylvie's figures of time: 1, 2, 5, 6, 7 and 10."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reports.core import load
from reports.core.context import Context
from reports.core.predict import Fit, Seconds, Testbed
from reports.core.table import Ordering, Plot, Row
from reports.core.testbeds import TITLES, bed_of, epochs_of, implemented, ratio, sage, select, value, variant
from reports.core.train import accuracies
from reports.draw.charts import colours_of, grouped, paper_parts, stacked
from reports.draw.drawing import panels
from reports.sylvie._scores import parts_of_training, settings
from reports.sylvie._times import CLUSTER, FITTED, GRAPHS, METHOD_OF, MODEL_OF, SETTING, bed_with, case, speed_ups

ONE = f"{CLUSTER}:hosts.count=1"
BOUNDARY = "one server: boundary nodes of BNS-GCN's METIS parts (its Table 8; 8 parts of Reddit, 10 of the others)"
SYSTEMS = {"DGL": "DGL", "Sylvie-S": "Sylvie-S", "Sylvie-A": "Sylvie-A"}


def single(context: Context, name: str, model: str = "GraphSAGE") -> Testbed:
    """A graph on one server of 8 GPUs."""
    frame = load.published("bns-gcn-table8")
    halo = value(frame, dataset=name, setting="METIS partition", metric="boundary_nodes")
    return bed_of(context, ONE, name, 8, halo=halo, model=variant(sage(name), MODEL_OF[model]))


def single_fit(context: Context) -> Fit:
    """One server's bandwidth: Yelp's FP32 epoch (Sec. 4.3)."""
    frame = select(load.text("sylvie"), dataset="yelp", setting="fp32", metric="epoch_time")
    return single(context, "yelp").fitted("vanilla", value(frame), source="Yelp's FP32 epoch on one server (Fig. 9)")


def figure1(context: Context) -> Plot:
    """GCN on two servers: epochs in their parts, and accuracy. Times are judged in Table 2, by the same runs."""
    key, names = "sylvie/figure1", ("ogbn-products", "reddit")
    paths = context.figure_paths(key)
    printed = select(load.published("sylvie-table2"), model="GCN", metric="test_accuracy")
    methods = {name: METHOD_OF[name] for name in SYSTEMS}
    colours, fits, orderings = colours_of(methods), [], []
    with panels(paths, 4, columns=2) as axes:
        for at, name in enumerate(names):
            made = case(context, name)
            bed, epochs = bed_with(made, "GCN"), {}
            for system in SYSTEMS:
                epochs[system] = bed.seconds(METHOD_OF[system], made.fit)
            stacked(axes[2 * at], {system: paper_parts(seconds) for system, seconds in epochs.items()})
            axes[2 * at].set_title(TITLES[name], loc="left")
            orderings.append(_shares(name, epochs))
            run = accuracies(
                context, name, methods, parts=parts_of_training(context), model=settings(context, name, "GCN"),
                epochs=epochs_of(name), share=0.5,
            )  # fmt: skip
            ours = {system: [run.mean(system)] for system in SYSTEMS}
            theirs = {system: [value(printed, dataset=name, method=system)] for system in SYSTEMS}
            grouped(axes[2 * at + 1], [run.data or name], ours, colours, theirs)
            axes[2 * at + 1].set_ylabel("test accuracy (%)")
            fits += [made.fit.text(), run.summary]
    return Plot(
        key=key, title="Sylvie Fig. 1: epoch time and accuracy, GCN on 2 x 8 GPUs",
        caption="Simulated epochs in their parts, and accuracy of stand-ins beside the printed one.",
        paths=paths, orderings=tuple(orderings),
        assumptions=(
            "the two graphs are not named",
            "who is faster, and levels of accuracy: judged in Table 2, by the same runs", FITTED, SETTING, *fits,
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
    key, fit = "sylvie/figure2", single_fit(context)
    paths, orderings, bars = context.figure_paths(key), [], {}
    for model in ("GraphSAGE", "GCN"):
        for name in ("reddit", "yelp", "ogbn-products"):
            bed = single(context, name, model)
            seconds = bed.seconds("vanilla", fit)
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
        assumptions=("the three graphs are not named", fit.text(), BOUNDARY, SETTING),
    )  # fmt: skip


def figure5(context: Context) -> Plot:
    """Throughput over DGL on two servers: Table 2's numbers, judged there."""
    key, printed = "sylvie/figure5", load.published("sylvie-table2")
    paths = context.figure_paths(key)
    names = [name for name in METHOD_OF if name != "DGL"]
    cases = [case(context, name) for name in GRAPHS]
    fits = [made.fit.text() for made in cases]
    everything = dict[tuple[str, str], dict[str, float | None]]()
    with panels(paths, len(MODEL_OF), columns=3) as axes:
        for panel, model in zip(axes, MODEL_OF, strict=True):
            gains = {made.name: speed_ups(made, names, model) for made in cases}
            everything |= {(model, graph): ours for graph, ours in gains.items()}
            theirs = select(printed, model=model, metric="throughput_normalised")
            series = {name: [gains[made.name][name] for made in cases] for name in names}
            marks = {n: [value(theirs, dataset=made.name, method=n) for made in cases] for n in names}
            grouped(panel, [TITLES[made.name].replace("ogbn-", "") for made in cases], series,
                    colours_of({n: METHOD_OF[n] for n in names}), marks)  # fmt: skip
            panel.set_title(model, loc="left")
            panel.set_ylabel("throughput over DGL")
            panel.tick_params(axis="x", labelsize=7)
    return Plot(
        key=key, title="Sylvie Fig. 5: throughput over DGL, 2 x 8 GPUs",
        caption="Bars: simulated; hollow: printed in Table 2, where they are judged. Systems without a bar are not "
        "built.",
        paths=paths, orderings=tuple(_best_of_all(everything.values())), assumptions=(FITTED, SETTING, *fits),
    )  # fmt: skip


def _best_of_all(cases: Collection[Mapping[str, float | None]]) -> list[Ordering]:
    """Sec. 4.1 over all models and graphs: Sylvie beats every other system (DGL where no other is built)."""
    orderings = []
    others = [max((v for name, v in case.items() if v and name not in SYSTEMS), default=1.0) for case in cases]
    for system in ("Sylvie-S", "Sylvie-A"):
        leads = [ours / best for case, best in zip(cases, others, strict=True) if (ours := case[system])]
        text = f"{system} beats all other systems in all {len(cases)} cases"
        labels = ("its least lead (x)", "a tie (x)")
        orderings.append(Ordering(text=text, expected=labels, ours=(min(leads, default=None), 1.0)))
    return orderings


def figure6(context: Context) -> Plot:
    """Amazon on two and on three servers."""
    key, made = "sylvie/figure6", case(context, "amazon")
    names = [name for name in METHOD_OF if name != "DGL" and implemented(METHOD_OF[name])]
    halo = made.halo * (24 / 16) ** 0.5
    three = bed_of(context, "sylvie-3x8", "amazon", 24, halo=halo, model=made.bed.model)
    paths, gains = context.figure_paths(key), {}
    for servers, bed in (("2 servers", made.bed), ("3 servers", three)):
        base = bed.seconds("vanilla", made.fit)
        gains[servers] = {name: ratio(base, bed.seconds(METHOD_OF[name], made.fit)) for name in names}
    with panels(paths, 1) as (axes,):
        series = {name: [gains[servers][name] for servers in gains] for name in names}
        grouped(axes, list(gains), series, colours_of({n: METHOD_OF[n] for n in names}))
        axes.set_ylabel("throughput over DGL")
    more = [
        Ordering(text=f"gain of {name} over DGL", expected=("3 servers", "2 servers"),
                 ours=(gains["3 servers"][name], gains["2 servers"][name]))
        for name in ("Sylvie-S", "Sylvie-A")
    ]  # fmt: skip
    best = [
        Ordering(text=f"throughput, {servers}", expected=("Sylvie-A", "Sylvie-S", "BNS-GCN"),
                 ours=tuple(ours[n] for n in ("Sylvie-A", "Sylvie-S", "BNS-GCN")))
        for servers, ours in gains.items()
    ]  # fmt: skip
    return Plot(
        key=key, title="Sylvie Fig. 6: Amazon on two and three servers",
        caption="Simulated throughput over DGL on as many servers.", paths=paths, orderings=(*more, *best),
        assumptions=(FITTED, made.fit.text() + ", on both", "boundary nodes grow with the root of the parts (assumed)"),
    )  # fmt: skip


def figure7(context: Context) -> Plot:
    """Throughput over DGL on one server."""
    key, fit = "sylvie/figure7", single_fit(context)
    names = [name for name in METHOD_OF if name != "DGL" and implemented(METHOD_OF[name])]
    graphs, gains, orderings = ("reddit", "yelp", "ogbn-products"), {}, []
    paths = context.figure_paths(key)
    for name in graphs:
        bed = single(context, name)
        seconds = bed.all_seconds([(METHOD_OF[n], fit, None) for n in ("DGL", *names)], TITLES[name])
        gains[name] = {n: ratio(seconds[0], s) for n, s in zip(names, seconds[1:], strict=True)}
        two = case(context, name)
        both = speed_ups(two, names)
        ours = tuple(gains[name][n] for n in ("Sylvie-A", "Sylvie-S", "BNS-GCN"))
        orderings += [
            Ordering(text=f"throughput, {TITLES[name]}", expected=("Sylvie-A", "Sylvie-S", "BNS-GCN"), ours=ours),
            Ordering(text=f"gain of Sylvie-S, {TITLES[name]}", expected=("2 servers", "1 server"),
                     ours=(both["Sylvie-S"], gains[name]["Sylvie-S"])),
        ]  # fmt: skip
    best = value(load.text("sylvie"), dataset="ogbn-products", metric="speedup")
    row = Row(
        label="ogbn-products, the better of Sylvie-S and Sylvie-A", quantity="speed-up over DGL", unit="x",
        published=best, ours=max(gains["ogbn-products"][n] for n in ("Sylvie-S", "Sylvie-A")), how="simulated",
        conflict="SY10", note="where little is sent the device profile's compute and quantisation are too quick",
    )  # fmt: skip
    with panels(paths, 1) as (axes,):
        series = {n: [gains[name][n] for name in graphs] for n in names}
        marks = {"Sylvie-A": [None, None, best]}
        grouped(axes, [TITLES[n] for n in graphs], series, colours_of({n: METHOD_OF[n] for n in names}), marks)
        axes.set_ylabel("throughput over DGL")
    return Plot(
        key=key, title="Sylvie Fig. 7: throughput over DGL on one server, GraphSAGE",
        caption="Simulated; hollow: the printed maximum, of a variant that is not said.",
        paths=paths, rows=(row,), orderings=tuple(orderings), assumptions=(fit.text(), BOUNDARY, SETTING),
    )  # fmt: skip


def figure10(context: Context) -> Plot:
    """Shares of the parts of Sylvie-S' epoch on Reddit, one and two servers."""
    key, two, fit = "sylvie/figure10", case(context, "reddit"), single_fit(context)
    one, method = single(context, "reddit"), METHOD_OF["Sylvie-S"]
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
            Ordering(text="two servers", expected=("all-reduce", "quantisation"), ours=(last.reduce, last.codec)),
            Ordering(text="share of communication", expected=("2 servers", "1 server"),
                     ours=(shares["2 servers"], shares["1 server"])),
        ),
        assumptions=(two.fit.text(), fit.text(), BOUNDARY, SETTING,
                     "quantisation costs memory traffic only; a framework's own kernels take longer"),
    )  # fmt: skip
