"""Sylvie's figures of time: 1, 2, 5, 6, 7 and 10."""

from __future__ import annotations

from dataclasses import replace

from reports import load
from reports.charts import colours_of, grouped, split, stacked
from reports.context import Context
from reports.drawing import panels
from reports.graphs import NAMES, bed_of, built, commands, ratio, sage, select, value
from reports.predict import Fit, Seconds, Testbed
from reports.sylvie_scores import MODELS, settings
from reports.sylvie_times import CLUSTER, FITTED, GRAPHS, METHODS, SETTING, Case, case, speed_ups
from reports.table import Ordering, Plot
from reports.train import accuracies

ONE = f"{CLUSTER}:hosts.count=1"
BOUNDARY = "one server: boundary nodes of BNS-GCN's METIS parts (its Table 8; 8 parts of Reddit, 10 of the others)"
SYSTEMS = {"DGL": "DGL", "Sylvie-S": "Sylvie-S", "Sylvie-A": "Sylvie-A"}


def single(context: Context, name: str, model: str = "GraphSAGE") -> Testbed:
    """A graph on one server of 8 GPUs."""
    frame = load.published("bns-gcn-table8")
    halo = value(frame, dataset=name, setting="METIS partition", metric="boundary_nodes")
    layer0 = "cache" if model == "GAT" else "precompute"
    changed = {**sage(name), "model": MODELS[model], "layer0": layer0}
    return bed_of(context, ONE, name, 8, halo=halo, model=changed)


def single_fit(context: Context) -> Fit:
    """One server's bandwidth: Yelp's FP32 epoch (Sec. 4.3)."""
    frame = select(load.text("sylvie"), dataset="yelp", setting="fp32", metric="epoch_time")
    return single(context, "yelp").fitted("vanilla", value(frame), source="Yelp's FP32 epoch on one server (Fig. 9)")


def gcn(made: Case) -> Testbed:
    """The same graph and servers with GCN."""
    return replace(made.bed, model={**made.bed.model, "model": "gcn"})


def figure1(context: Context) -> Plot:
    """GCN on two servers: epochs in their parts, and accuracy."""
    key, names = "sylvie/figure1", ("ogbn-products", "reddit")
    paths, texts, orderings = context.figure_paths(key), list[str](), []
    printed = select(load.published("sylvie-table2"), model="GCN", metric="test_accuracy")
    methods = {name: METHODS[name] for name in SYSTEMS}
    colours, fits = colours_of(methods), []
    with panels(paths, 4, columns=2) as axes:
        for at, name in enumerate(names):
            made = case(context, name)
            bed, epochs = gcn(made), {}
            for system in SYSTEMS:
                epochs[system] = bed.seconds(METHODS[system], made.fit)
            stacked(axes[2 * at], {system: split(seconds) for system, seconds in epochs.items()})
            axes[2 * at].set_title(NAMES[name], loc="left")
            run = accuracies(
                context, name, methods, parts=8, model=settings(context, name, "GCN"), epochs=1000, share=0.5
            )  # fmt: skip
            ours = {system: [run.mean(system)] for system in SYSTEMS}
            theirs = {system: [value(printed, dataset=name, method=system)] for system in SYSTEMS}
            grouped(axes[2 * at + 1], [run.data or name], ours, colours, theirs)
            axes[2 * at + 1].set_ylabel("test accuracy (%)")
            times = tuple(seconds.epoch for seconds in epochs.values())
            orderings.append(Ordering(text=f"epoch time, {NAMES[name]}", expected=tuple(SYSTEMS), ours=times))
            texts += commands(bed, methods.values(), made.fit)
            fits += [made.fit.text(), run.said]
    return Plot(
        key=key, title="Sylvie Fig. 1: epoch time and accuracy, GCN on 2 x 8 GPUs",
        caption="Simulated epochs in their parts, and accuracy of stand-ins beside the printed one.",
        paths=paths, orderings=tuple(orderings), commands=tuple(texts),
        assumptions=("the two graphs are not named", FITTED, SETTING, *fits),
    )  # fmt: skip


def figure2(context: Context) -> Plot:
    """Where the epoch of full-graph training goes on one server."""
    key, fit = "sylvie/figure2", single_fit(context)
    paths, orderings, texts = context.figure_paths(key), [], list[str]()
    bars = {}
    for model in ("GraphSAGE", "GCN"):
        for name in ("reddit", "yelp", "ogbn-products"):
            bed = single(context, name, model)
            seconds = bed.seconds("vanilla", fit)
            bars[f"{NAMES[name]}\n{model}"] = split(seconds)
            ours = (seconds.comm, max(seconds.compute, seconds.reduce))
            text = f"parts of the epoch, {NAMES[name]}, {model}"
            orderings.append(Ordering(text=text, expected=("communication", "any other"), ours=ours))
            texts += commands(bed, ["vanilla"], fit)
    with panels(paths, 2, columns=2) as axes:
        for panel, model in zip(axes, ("GraphSAGE", "GCN"), strict=True):
            mine = {name.partition("\n")[0]: bar for name, bar in bars.items() if name.endswith(model)}
            stacked(panel, mine, share=True)
            panel.set_title(model, loc="left")
    most = value(load.text("sylvie"), metric="comm_share_of_epoch")
    ours_most = max(100 * bar["communication"] / sum(bar.values()) for bar in bars.values())
    return Plot(
        key=key, title="Sylvie Fig. 2: parts of a vanilla epoch on one server",
        caption=f"Simulated shares: up to {ours_most:.0f} % communication; the text prints up to {most:g} %.",
        paths=paths, orderings=tuple(orderings), commands=tuple(texts),
        assumptions=("the three graphs are not named", fit.text(), BOUNDARY, SETTING),
    )  # fmt: skip


def figure5(context: Context) -> Plot:
    """Throughput over DGL on two servers, printed in Table 2."""
    key, printed = "sylvie/figure5", load.published("sylvie-table2")
    paths, orderings, fits = context.figure_paths(key), [], []
    names = [name for name in METHODS if name != "DGL"]
    cases = [case(context, name) for name in GRAPHS]
    fits = [made.fit.text() for made in cases]
    claims = ("Sylvie-A", "Sylvie-S", "BNS-GCN", "PipeGCN", "SAR")
    with panels(paths, len(MODELS), columns=3) as axes:
        for panel, model in zip(axes, MODELS, strict=True):
            found = {made.name: speed_ups(made, names, _changed(made, model)) for made in cases}
            theirs = select(printed, model=model, metric="throughput_normalised")
            series = {name: [found[made.name][name] for made in cases] for name in names}
            marks = {n: [value(theirs, dataset=made.name, method=n) for made in cases] for n in names}
            grouped(panel, [NAMES[made.name].replace("ogbn-", "") for made in cases], series,
                    colours_of({n: METHODS[n] for n in names}), marks)  # fmt: skip
            panel.set_title(model, loc="left")
            panel.set_ylabel("throughput over DGL")
            panel.tick_params(axis="x", labelsize=7)
            for made in cases:
                ours = tuple(found[made.name][n] for n in claims)
                text = f"throughput, {NAMES[made.name]}, {model}"
                orderings.append(Ordering(text=text, expected=claims, ours=ours))
    return Plot(
        key=key, title="Sylvie Fig. 5: throughput over DGL, 2 x 8 GPUs",
        caption="Bars: simulated; hollow: printed in Table 2. Systems without a bar are not built.",
        paths=paths, orderings=tuple(orderings), assumptions=(FITTED, SETTING, *fits),
        commands=commands(cases[0].bed, [METHODS[n] for n in names if built(METHODS[n])], cases[0].fit),
    )  # fmt: skip


def _changed(made: Case, model: str) -> dict[str, object] | None:
    if model == "GraphSAGE":
        return None
    return {**made.bed.model, "model": MODELS[model], "layer0": "cache" if model == "GAT" else "precompute"}


def figure6(context: Context) -> Plot:
    """Amazon on two and on three servers."""
    key, made = "sylvie/figure6", case(context, "amazon")
    names = [name for name in METHODS if name != "DGL" and built(METHODS[name])]
    halo = made.halo * (24 / 16) ** 0.5
    three = bed_of(context, "sylvie-3x8", "amazon", 24, halo=halo, model=made.bed.model)
    paths, found = context.figure_paths(key), {}
    for servers, bed in (("2 servers", made.bed), ("3 servers", three)):
        base = bed.seconds("vanilla", made.fit)
        found[servers] = {name: ratio(base, bed.seconds(METHODS[name], made.fit)) for name in names}
    with panels(paths, 1) as (axes,):
        series = {name: [found[servers][name] for servers in found] for name in names}
        grouped(axes, list(found), series, colours_of({n: METHODS[n] for n in names}))
        axes.set_ylabel("throughput over DGL")
    more = [
        Ordering(text=f"gain of {name} over DGL", expected=("3 servers", "2 servers"),
                 ours=(found["3 servers"][name], found["2 servers"][name]))
        for name in ("Sylvie-S", "Sylvie-A")
    ]  # fmt: skip
    best = [
        Ordering(text=f"throughput, {servers}", expected=("Sylvie-A", "Sylvie-S", "BNS-GCN"),
                 ours=tuple(ours[n] for n in ("Sylvie-A", "Sylvie-S", "BNS-GCN")))
        for servers, ours in found.items()
    ]  # fmt: skip
    return Plot(
        key=key, title="Sylvie Fig. 6: Amazon on two and three servers",
        caption="Simulated throughput over DGL on as many servers.", paths=paths, orderings=(*more, *best),
        assumptions=(FITTED, made.fit.text() + ", on both", "boundary nodes grow with the root of the parts (assumed)"),
        commands=(*commands(made.bed, [METHODS[n] for n in names], made.fit),
                  *commands(three, [METHODS[n] for n in names], made.fit)),
    )  # fmt: skip


def figure7(context: Context) -> Plot:
    """Throughput over DGL on one server."""
    key, fit = "sylvie/figure7", single_fit(context)
    names = [name for name in METHODS if name != "DGL" and built(METHODS[name])]
    graphs, found, orderings = ("reddit", "yelp", "ogbn-products"), {}, []
    paths, texts = context.figure_paths(key), list[str]()
    for name in graphs:
        bed = single(context, name)
        seconds = bed.all_seconds([(METHODS[n], fit, None) for n in ("DGL", *names)], NAMES[name])
        found[name] = {n: ratio(seconds[0], s) for n, s in zip(names, seconds[1:], strict=True)}
        two = case(context, name)
        both = speed_ups(two, names)
        ours = tuple(found[name][n] for n in ("Sylvie-A", "Sylvie-S", "BNS-GCN"))
        orderings += [
            Ordering(text=f"throughput, {NAMES[name]}", expected=("Sylvie-A", "Sylvie-S", "BNS-GCN"), ours=ours),
            Ordering(text=f"gain of Sylvie-S, {NAMES[name]}", expected=("2 servers", "1 server"),
                     ours=(both["Sylvie-S"], found[name]["Sylvie-S"])),
        ]  # fmt: skip
        texts += commands(bed, [METHODS[n] for n in ("DGL", *names)], fit)
    best = value(load.text("sylvie"), dataset="ogbn-products", metric="speedup")
    with panels(paths, 1) as (axes,):
        series = {n: [found[name][n] for name in graphs] for n in names}
        marks = {"Sylvie-A": [None, None, best]}
        grouped(axes, [NAMES[n] for n in graphs], series, colours_of({n: METHODS[n] for n in names}), marks)
        axes.set_ylabel("throughput over DGL")
    return Plot(
        key=key, title="Sylvie Fig. 7: throughput over DGL on one server, GraphSAGE",
        caption=f"Simulated; hollow: the printed maximum ({best:g}x, variant not said; SY10). Where little is sent the "
        "device profile's compute and quantisation are too quick (Fig. 9 prints 0.09 s outside communication).",
        paths=paths, orderings=tuple(orderings), assumptions=(fit.text(), BOUNDARY, SETTING), commands=tuple(texts),
    )  # fmt: skip


def figure10(context: Context) -> Plot:
    """Shares of the parts of Sylvie-S' epoch on Reddit, one and two servers."""
    key, two, fit = "sylvie/figure10", case(context, "reddit"), single_fit(context)
    one, method = single(context, "reddit"), METHODS["Sylvie-S"]
    seconds: dict[str, Seconds] = {"1 server": one.seconds(method, fit), "2 servers": two.bed.seconds(method, two.fit)}
    paths, text = context.figure_paths(key), load.text("sylvie")
    printed = {m: value(text, metric=f"{m}_share_of_epoch") for m in ("low_bit_module", "allreduce")}
    with panels(paths, 1) as (axes,):
        stacked(axes, {name: split(s) for name, s in seconds.items()}, share=True)
    last = seconds["2 servers"]
    shares = {name: s.comm / s.epoch for name, s in seconds.items()}
    return Plot(
        key=key, title="Sylvie Fig. 10: parts of Sylvie-S' epoch, Reddit",
        caption=(
            f"Simulated shares. Two servers, printed: quantisation {printed['low_bit_module']:g} %, all-reduce "
            f"{printed['allreduce']:g} %; here {100 * last.codec / last.epoch:.1f} % and "
            f"{100 * last.reduce / last.epoch:.1f} %."
        ),
        paths=paths,
        orderings=(
            Ordering(text="two servers", expected=("all-reduce", "quantisation"), ours=(last.reduce, last.codec)),
            Ordering(text="share of communication", expected=("2 servers", "1 server"),
                     ours=(shares["2 servers"], shares["1 server"])),
        ),
        assumptions=(two.fit.text(), fit.text(), BOUNDARY, SETTING,
                     "quantisation costs memory traffic only; a framework's own kernels take longer"),
        commands=(*commands(one, [method], fit), *commands(two.bed, [method], two.fit)),
    )  # fmt: skip
