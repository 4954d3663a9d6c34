"""EC-Graph, Fig. 9 to 11: end to end, ogbn-papers100M, and more machines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from harness.partition.edge import assign, quality
from reports.core.context import SHAPES, Context
from reports.core.load import text
from reports.core.predict import Seconds
from reports.core.table import Ordering, Plot
from reports.draw.drawing import AS_PRINTED, panels
from reports.draw.figures import METHOD_COLOURS, method_colours
from reports.ec_graph._table4 import printed_fanouts
from reports.ec_graph._times import (
    DATASETS,
    DELAYED,
    LAYERS,
    NON_CP,
    PERIOD,
    SPREADS,
    Machines,
    cell,
    ec_graph,
    gcn,
    on_disk,
    published_counts,
)

PRODUCTS, PAPERS = "ogbn-products", "ogbn-papers100m"
MACHINES = (2, 4, 6, 9, 12)
HASH, METIS, SAMPLED = "EC-Graph, Hash", "EC-Graph, METIS", "EC-Graph-S, Hash"
SAMPLE = "amazon_computers"  # the graph on which METIS is compared with hash
SAMPLE_ELSEWHERE = "synthetic:nodes=4000,degree=30"


def figure9(context: Context) -> Plot:
    """Speed-up of EC-Graph over the systems whose time per epoch is known, ogbn-products."""
    paths = context.figure_paths("ec-graph/figure9")
    beds = {layers: Machines(context, PRODUCTS, layers) for layers in LAYERS}
    shown: Any = {"color": METHOD_COLOURS["ec-graph"], "label": "simulated, per epoch"}
    ours = {layers: bed.seconds(ec_graph(PRODUCTS)) for layers, bed in beds.items()}
    slower: dict[str, dict[int, float]] = {
        "Non-cp": {layers: bed.seconds(NON_CP) for layers, bed in beds.items()},
        "DistGNN": {layers: bed.distgnn().epoch + bed.software() for layers, bed in beds.items()},
    }
    with panels(paths, len(slower), columns=2) as axes:
        for panel, (system, seconds) in zip(axes, slower.items(), strict=True):
            ratios = [seconds[n] / ours[n] for n in LAYERS]
            panel.bar(list(map(str, LAYERS)), ratios, 0.55, **shown)
            for value in _printed(system):
                panel.scatter([-0.55], [value], **AS_PRINTED, label="printed ends of the range, end to end")
            panel.axhline(1.0, color="#808080", linewidth=0.6)
            panel.set_title(f"over {system}", loc="left")
            panel.set_xlabel("layers")
            panel.set_ylabel("speed-up of EC-Graph")
            panel.set_ylim(0)
    most = tuple(max(seconds[n] / ours[n] for n in LAYERS) for seconds in slower.values())
    best = Ordering(text="largest speed-up: over Non-cp > over DistGNN", expected=tuple(slower), ours=most)
    orderings = tuple(  # DistGNN's by depth are Table IV's
        Ordering(
            text=f"{layers} layers: Non-cp takes longer than EC-Graph", expected=("Non-cp", "EC-Graph"),
            ours=(slower["Non-cp"][layers], ours[layers]),
        )
        for layers in LAYERS
    )  # fmt: skip
    return Plot(
        key="ec-graph/figure9", title="EC-Graph, Fig. 9: time on ogbn-products", paths=paths,
        caption="Bars: ratios of epoch times. Printed: end to end, with preprocessing and the epochs to convergence, "
        "which are not published.",
        orderings=(*orderings, best),
        assumptions=(
            "constants of Table IV; DistGNN modelled as there, fitted on its row of two layers",
            "the baselines that sample are not built",
        ),
        commands=context.texts_of(
            config for bed in beds.values()
            for config in (bed.config(NON_CP), bed.config(NON_CP, faster=DELAYED), bed.config(ec_graph(PRODUCTS)))
        ),
    )  # fmt: skip


def _printed(system: str) -> list[float]:
    """Ends of the printed range of EC-Graph's end-to-end speed-up on ogbn-products."""
    frame = text("ec-graph")
    mine = frame[(frame["dataset"] == PRODUCTS) & (frame["baseline"] == system) & (frame["metric"] == "speedup")]
    return [float(value) for value in mine[mine["setting"].str.startswith("end to end")]["value"]]


def figure10(context: Context) -> Plot:
    """Epochs of ogbn-papers100M on the second cluster, divided into their parts."""
    paths = context.figure_paths("ec-graph/figure10")
    methods = {"Non-cp": NON_CP, "EC-Graph": ec_graph(PAPERS)}
    beds = {layers: Machines(context, PAPERS, layers) for layers in LAYERS}
    clocks = {name: {n: bed.clock(method) for n, bed in beds.items()} for name, method in methods.items()}
    with panels(paths, 1, height=2.8) as (panel,):
        _stack(panel, clocks)
        printed = {n: cell(PAPERS, n, "EC-Graph") or 0.0 for n in LAYERS}
        panel.scatter([at * 3 + 1 for at in range(len(LAYERS))], [printed[n] for n in LAYERS], **AS_PRINTED,
                      label="printed (Table IV)")  # fmt: skip
        panel.set_ylim(0)
        panel.set_ylabel("epoch (s)")
    return Plot(
        key="ec-graph/figure10", title="EC-Graph, Fig. 10: ogbn-papers100M on six machines", paths=paths,
        caption="Bars: simulated epoch of Non-cp (left) and EC-Graph (right). The printed times are below what Gigabit "
        "Ethernet allows with the stated settings (EC6).",
        orderings=(
            Ordering(text="EC-Graph by depth (Table IV)", expected=tuple(f"{n} layers" for n in reversed(LAYERS)),
                     ours=tuple(clocks["EC-Graph"][n].epoch for n in reversed(LAYERS)), conflict="EC6"),
        ),
        assumptions=("no baseline row is printed: no constant is fitted", "4 bits both ways, as in Fig. 8",
                     *_shortages(beds, methods)),
        commands=context.texts_of(bed.config(m) for bed in beds.values() for m in methods.values()),
    )  # fmt: skip


def _stack(panel: Any, clocks: Mapping[str, Mapping[int, Seconds]]) -> None:
    """Two bars for every depth, side by side, and how much of each is exchange."""
    for which, (name, by_depth) in enumerate(clocks.items()):
        places = [at * 3 + which for at in range(len(LAYERS))]
        colour = METHOD_COLOURS["single" if name == "Non-cp" else "ec-graph"]
        panel.bar(places, [by_depth[n].epoch for n in LAYERS], 0.9, color=colour, label=f"{name}, simulated")
        exchange = [by_depth[n].comm - by_depth[n].wait for n in LAYERS]
        panel.bar(
            places, exchange, 0.9, color="none", edgecolor="#202020", hatch="////", linewidth=0.4,
            label="of which exchange",
        )  # fmt: skip
    panel.set_xticks([at * 3 + 0.5 for at in range(len(LAYERS))], [f"{n} layers" for n in LAYERS])


def _shortages(beds: Mapping[int, Machines], methods: Mapping[str, str]) -> list[str]:
    """Notes on methods that do not fit the machines' memory."""
    shortages = {f"{n} layers, {name}": bed.shortage(m) for n, bed in beds.items() for name, m in methods.items()}
    return [f"{what}: {said}" for what, said in shortages.items() if said]


def figure11(context: Context) -> Plot:
    """Time of an epoch by the number of machines, for hash and METIS partitions, and sampled."""
    paths, (seconds, configs) = context.figure_paths("ec-graph/figure11"), by_machines(context)
    colours = method_colours(("ec-graph:hash", "ec-graph:metis", "ec-graph-s"))
    with panels(paths, 1) as (panel,):
        for at, (name, colour) in enumerate(zip(seconds, colours.values(), strict=True)):
            values = [seconds[name][p] for p in MACHINES]
            panel.plot(MACHINES, values, "soD"[at] + "-", color=colour, markersize=3.5, label=name)
        panel.set_xlabel("machines")
        panel.set_ylabel("epoch (s)")
        panel.set_ylim(0)
        panel.set_xticks(MACHINES)
    where = SAMPLE if on_disk(SAMPLE) else SAMPLE_ELSEWHERE
    better = [
        Ordering(text=f"{p} machines: Hash takes longer than METIS", expected=("Hash", "METIS"),
                 ours=(seconds[HASH][p], seconds[METIS][p]),
                 theory="METIS is given the volume of a cut that is smaller") for p in MACHINES
    ]  # fmt: skip
    shrink = [
        Ordering(text=f"{name}: fewer machines take longer", expected=tuple(map(str, MACHINES)),
                 ours=tuple(by[p] for p in MACHINES)) for name, by in seconds.items()
    ]  # fmt: skip
    return Plot(
        key="ec-graph/figure11", title="EC-Graph, Fig. 11: scalability", paths=paths,
        caption="ogbn-products, three layers of 256, simulated. The paper names neither data sets nor machine counts.",
        orderings=(*better, *shrink),
        assumptions=(
            "software per layer as in Table IV, its part of the edges in proportion to those of a machine",
            f"METIS: the hash boundary in closed form times the ratio of both on {where}: "
            + ", ".join(f"{metis_share(where, p):.2f} at {p}" for p in MACHINES),
            "EC-Graph-S: expected shares of edges and rows, as in Table IV; hash parts only",
        ),
        commands=context.texts_of(configs),
    )  # fmt: skip


def by_machines(context: Context) -> tuple[dict[str, dict[int, float]], list[dict[str, Any]]]:
    """Seconds of an epoch by system and number of machines, and the runs behind them."""
    beds, fanouts = [Machines(context, PRODUCTS, 3, p) for p in MACHINES], printed_fanouts(PRODUCTS, 3)
    made = {name: [scaled(context, p, cut) for p in MACHINES] for name, cut in ((HASH, "hash"), (METIS, "metis"))}
    seconds = {
        name: {
            bed.parts: Seconds.mean(record).epoch + bed.software()
            for bed, record in zip(beds, context.runs(configs, "machines"), strict=True)
        }
        for name, configs in made.items()
    }
    seconds[SAMPLED] = {bed.parts: bed.sampled(fanouts) for bed in beds}
    return seconds, [*made[HASH], *made[METIS], *(bed.sampled_config(fanouts) for bed in beds)]


def scaled(context: Context, machines: int, cut: str) -> dict[str, Any]:
    """EC-Graph on ogbn-products with any number of machines."""
    bed, c = Machines(context, PRODUCTS, 3, machines), published_counts(PRODUCTS)
    method = ec_graph(PRODUCTS)
    config = bed.config(method)
    if cut == "hash":
        return config
    from harness.workloads import Degrees, hash_boundary

    degrees = Degrees(mean=c["edges"] / c["vertices"], spread=SPREADS[PRODUCTS])
    share = metis_share(SAMPLE if on_disk(SAMPLE) else SAMPLE_ELSEWHERE, machines)
    boundary = share * hash_boundary(c["vertices"], degrees, machines)
    graph = {"nodes": c["vertices"], "edges": c["edges"], "train": c["train"]}
    graph |= {"features": c["features"], "classes": c["classes"]}
    parts = {"boundary": round(boundary)}
    path = context.workload({"name": f"{DATASETS[PRODUCTS]}, METIS", "graph": graph, "parts": parts})
    return {**SHAPES, **gcn(PRODUCTS, 3), **config, "dataset": path, "epochs": PERIOD + 2}


@cache
def metis_share(dataset: str, machines: int) -> float:
    """Boundary of a METIS partition over that of a hash partition of one graph."""
    from harness import datasets

    graph = datasets.load(dataset)
    volumes = [
        quality(graph, assign(graph, partitioner, machines, 0), machines).volume
        for partitioner in ("metis-cut", "hash")
    ]
    return volumes[0] / volumes[1]
