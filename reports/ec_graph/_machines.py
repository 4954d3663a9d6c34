"""EC-Graph, Fig. 11: the time of an epoch by the number of machines, for hash and METIS partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.workloads import hash_boundary
from reports.core.context import Context
from reports.core.table import Ordering, Plot
from reports.draw.drawing import panels
from reports.draw.figures import method_colours
from reports.ec_graph._fits import Timing
from reports.ec_graph._metis import METIS_COUNTS, cut_by_metis, metis_workload
from reports.ec_graph._table4 import printed_fanouts
from reports.ec_graph._times import (
    DATASETS,
    TOPOLOGIES,
    Machines,
    ec_graph,
    on_disk,
    timed_counts,
    tuner_note,
)

PRODUCTS, CUT = "ogbn-products", "pubmed"
MACHINES = (2, 4, 6, 9, 12)
HASH, METIS = "EC-Graph, Hash", "EC-Graph, METIS"
SAMPLED_HASH, SAMPLED_METIS = "EC-Graph-S, Hash", "EC-Graph-S, METIS"
FEWER_NODES = "a machine's own nodes and edges fall in proportion to the machines"
SMALLER_CUT = "METIS is given the volume of a cut that is smaller"

Curves = Mapping[str, Mapping[int, float]]


def figure11(context: Context) -> Plot:
    """Time of an epoch by the number of machines, for hash and METIS partitions, and sampled."""
    paths, timing = context.figure_paths("ec-graph/figure11"), Timing.fitted(context)
    beds = [timing.machines(PRODUCTS, 3, p) for p in MACHINES]
    made = by_machines(beds)
    shown: dict[str, Curves] = {DATASETS[PRODUCTS]: {name: seconds for name, (seconds, _) in made.items()}}
    configs = [config for _, each in made.values() for config in each]
    if on_disk(TOPOLOGIES[CUT]):
        cut = {name: _on_its_graph(timing, name) for name in (HASH, METIS)}
        shown[DATASETS[CUT]] = {name: seconds for name, (seconds, _) in cut.items()}
        configs += [config for _, each in cut.values() for config in each]
    _draw(paths, shown)
    return Plot(
        key="ec-graph/figure11", title="EC-Graph, Fig. 11: scalability", paths=paths,
        caption="Simulated: ogbn-products, three layers of 256, and Pubmed, two layers of 16. The paper names "
        "neither data sets nor machine counts.",
        orderings=tuple(_orderings(shown)),
        assumptions=(
            "constants of Table IV",
            "Pubmed: both partitions are made on its own graph, so that METIS may lose; EC-Graph-S is not drawn there, "
            "because Pubmed's features are not on disk. Its messages grow with the machines, so that more of them need "
            "not be faster; the paper names no data set, and this is not judged",
            METIS_COUNTS,
            "ogbn-products, boundary nodes of METIS over those of hash: "
            + ", ".join(f"{_share(bed):.2f} at {bed.parts}" for bed in beds),
            "EC-Graph-S: expected shares of edges and rows, as in Table IV; with METIS the same shares of its boundary",
            tuner_note("EC-Graph", False),
        ),
        commands=context.texts_of(configs),
    )  # fmt: skip


def _share(bed: Machines) -> float:
    """Boundary of METIS' parts over that of hash parts in closed form."""
    return cut_by_metis(bed).boundary / hash_boundary(timed_counts(bed.dataset)["vertices"], bed.degrees(), bed.parts)


def _draw(paths: Any, shown: Mapping[str, Curves]) -> None:
    colours = dict(
        zip(
            (HASH, METIS, SAMPLED_HASH, SAMPLED_METIS),
            method_colours(("ec-graph:hash", "ec-graph:metis", "ec-graph-s:hash", "ec-graph-s:metis")).values(),
            strict=True,
        )
    )
    with panels(paths, len(shown), columns=2) as axes:
        for panel, (where, curves) in zip(axes, shown.items(), strict=True):
            for name, seconds in curves.items():
                marker = "soD^"[list(colours).index(name)]
                values = [seconds[p] for p in MACHINES]
                panel.plot(MACHINES, values, marker + "-", color=colours[name], markersize=3.5, label=name)
            panel.set_title(where, loc="left")
            panel.set_xlabel("machines")
            panel.set_ylabel("epoch (s)")
            panel.set_ylim(0)
            panel.set_xticks(MACHINES)


def _orderings(shown: Mapping[str, Curves]) -> list[Ordering]:
    """METIS against hash, judged where both are made on the graph; fewer machines take longer."""
    found = []
    for where, curves in shown.items():
        measured = where != DATASETS[PRODUCTS]
        for own, other in ((HASH, METIS), (SAMPLED_HASH, SAMPLED_METIS)):
            if own in curves and other in curves:
                found += [
                    Ordering(
                        text=f"{where}, {p} machines: {own} takes longer than METIS", expected=(own, other),
                        ours=(curves[own][p], curves[other][p]), theory="" if measured else SMALLER_CUT,
                    )
                    for p in MACHINES
                ]  # fmt: skip
        if measured:
            continue  # of so small a graph messages take most of the time, and no claim names it
        found += [
            Ordering(
                text=f"{where}, {name}: fewer machines take longer",
                expected=tuple(map(str, MACHINES)),
                ours=tuple(seconds[p] for p in MACHINES),
                theory=FEWER_NODES,
            )
            for name, seconds in curves.items()
        ]
    return found


def by_machines(beds: list[Machines]) -> dict[str, tuple[dict[int, float], list[dict[str, Any]]]]:
    """Seconds of an epoch of ogbn-products by system and number of machines, and the runs behind them."""
    fanouts, text = printed_fanouts(PRODUCTS, 3), ec_graph(PRODUCTS)
    made = {
        HASH: [bed.config(text) for bed in beds],
        METIS: [{**bed.config(text), "dataset": metis_workload(bed)} for bed in beds],
        SAMPLED_HASH: [bed.sampled_config(fanouts) for bed in beds],
        SAMPLED_METIS: [{**bed.sampled_config(fanouts), "dataset": metis_workload(bed)} for bed in beds],
    }
    return {name: (_seconds(beds, configs), configs) for name, configs in made.items()}


def _on_its_graph(timing: Timing, name: str) -> tuple[dict[int, float], list[dict[str, Any]]]:
    """EC-Graph on a graph on disk, in partitions made of it."""
    beds = [timing.machines(CUT, 2, p) for p in MACHINES]
    configs = [bed.config(ec_graph(CUT)) for bed in beds]
    if name == METIS:
        configs = [{**config, "dataset": metis_workload(bed)} for bed, config in zip(beds, configs, strict=True)]
    return _seconds(beds, configs), configs


def _seconds(beds: list[Machines], configs: list[dict[str, Any]]) -> dict[int, float]:
    """Seconds of an epoch by the number of machines."""
    return {bed.parts: bed.timed(config, "machines").epoch for bed, config in zip(beds, configs, strict=True)}
