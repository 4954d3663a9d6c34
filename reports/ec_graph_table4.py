"""EC-Graph, Table IV: seconds of an epoch, on six machines and on one."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from harness.methods.registry import known_methods
from reports.context import Context
from reports.ec_graph_times import (
    ALONE,
    DELAYED,
    LAYERS,
    METHODS,
    NAMES,
    OTHERS,
    Testbed,
    alone_factor,
    cell,
    ec_graph,
)
from reports.load import published
from reports.table import How, Ordering, Row, Table


def table4(context: Context) -> Table:
    """Average time of an epoch."""
    frame = published("ec-graph-table4")
    frame = frame[frame["value"].notna()]
    alone = {(dataset, method): alone_factor(context, dataset, method) for dataset in NAMES for method in ALONE}
    rows = [_row(context, line, alone) for _, line in frame.iterrows()]
    beds = [Testbed(context, dataset, LAYERS[0]) for dataset in NAMES if cell(dataset, LAYERS[0], "DistGNN")]
    said = ", ".join(f"{NAMES[bed.dataset]} {bed.factor():.3g}" for bed in beds)
    return Table(
        key="ec-graph/table4",
        title="EC-Graph, Table IV: average time of an epoch (s)",
        rows=tuple(rows),
        orderings=_orderings(rows),
        assumptions=(
            f"compute factors fitted on the DistGNN rows of {LAYERS[0]} layers, and used at all depths: {said} "
            "(ogbn-papers100M has none); ours is the epoch of its command with compute times the factor",
            f"DistGNN: Non-cp's compute, and 1/{DELAYED:g} of its traffic, none of it hidden (delayed rounds)",
            "DGL and PyG: one device, a compute factor fitted on each one's 2-layer row",
            "codec and network: constants of the cluster files ec-graph and ec-graph-papers, not fitted",
            "bits: those of Fig. 8, since the table prints none; the Bit-Tuner off",
            "hash partitions: real topologies of Cora and Pubmed where on disk, otherwise the closed form with an "
            "assumed spread of the degrees",
            "EC-Graph-S: Cora's sample is drawn where it is on disk; elsewhere expected shares of edges and rows, in "
            "closed form from fan-outs, mean degree, the same spread and hash parts",
            f"rows that are predicted and not sent: shares from training on Cora (Cora, Pubmed) or {OTHERS}",
        ),
    )


def fanouts_of(setting: str, layers: int) -> str:
    """The method option of a printed setting ("sampling; fanout=10,5"); full for all layers where it says so once."""
    printed = setting.partition("fanout=")[2].replace(",", "/")
    return "/".join(["full"] * layers) if printed == "full" else printed


def _unsampled(system: str, setting: str) -> bool:
    return system == "EC-Graph-S" and setting.endswith("fanout=full")


def _row(context: Context, line: pd.Series, alone: Mapping[tuple[str, str], float]) -> Row:
    """One printed cell beside ours."""
    dataset, layers, system = str(line["dataset"]), int(line["layers"]), str(line["method"])
    bed, setting = Testbed(context, dataset, layers), str(line["setting"])
    ours, how, note = _predicted(bed, system, setting, alone)
    return Row(
        label=f"{NAMES[dataset]}, {layers} layers, {system}", quantity="epoch time", unit="s",
        published=float(line["value"]), ours=ours, how=how, note=note,
        conflict="EC6" if (dataset, system) == ("ogbn-papers100m", "EC-Graph") else "",
        judge="none" if _unsampled(system, setting) else "error",
    )  # fmt: skip


def _predicted(
    bed: Testbed, system: str, setting: str, alone: Mapping[tuple[str, str], float]
) -> tuple[float | None, How, str]:
    """Our seconds, where they are from, and a note."""
    method = METHODS[system]
    if system == "DistGNN":
        note = "" if method in known_methods() else "not built; modelled from Non-cp"
        return bed.distgnn().epoch(bed.factor()), "fitted" if bed.layers == LAYERS[0] else "simulated", note
    if method not in known_methods():
        return None, "not built", ""
    if system in ALONE:
        seconds = alone[bed.dataset, system] * bed.clock(method, alone=True).epoch()
        return seconds, "fitted" if bed.layers == LAYERS[0] else "simulated", ""
    if system not in ("EC-Graph", "EC-Graph-S"):
        return bed.seconds(method), "simulated", ""
    if system == "EC-Graph" or _unsampled(system, setting):
        again = "" if system == "EC-Graph" else "the EC-Graph row again"
        said = (again, bed.shortage(ec_graph(bed.dataset)))
        return bed.seconds(ec_graph(bed.dataset)), "simulated", "; ".join(filter(None, said))
    note = "one factor on all compute, also on dense work, of which a sample leaves most"
    return bed.sampled(fanouts_of(setting, bed.layers)), "simulated", note


def _orderings(rows: list[Row]) -> tuple[Ordering, ...]:
    """Who is slower than whom, in each cell where the printed numbers say so; and depth against time."""
    by = {row.label: row for row in rows}

    def ordering(labels: list[str], what: str) -> Ordering:
        ranked = sorted(labels, key=lambda label: -(by[label].published or 0.0))
        short = [label.split(", ")[-1] if "against" in what else label.split(", ")[1] for label in ranked]
        ours = tuple(by[label].ours for label in ranked)
        return Ordering(text=f"{what}: {' > '.join(short)}", expected=tuple(ranked), ours=ours)

    found = []
    for dataset, name in NAMES.items():
        for layers in LAYERS:
            mine = [f"{name}, {layers} layers, {other}" for other in ("DGL", "DistGNN", "EC-Graph")]
            for other in mine[:2]:
                if other in by:
                    text_ = f"{name}, {layers} layers, EC-Graph against {other.split(', ')[-1]}"
                    found.append(ordering([other, mine[2]], text_))
        depth = [f"{name}, {layers} layers, EC-Graph" for layers in LAYERS]
        if dataset != "ogbn-papers100m" and all(label in by for label in depth):
            found.append(ordering(depth, f"{name}, EC-Graph by depth"))
    return tuple(found)
