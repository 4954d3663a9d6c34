"""EC-Graph, Fig. 9 and 10: end to end on ogbn-products, and ogbn-papers100M. Fig. 11 is in `_machines`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.numbers import DASH
from reports.core.context import Context
from reports.core.load import text
from reports.core.null_models import Null
from reports.core.predict import Seconds
from reports.core.table import Ordering, Plot, Row
from reports.core.train import Trained
from reports.draw.drawing import AS_PRINTED, panels
from reports.draw.figures import METHOD_COLOURS
from reports.ec_graph._accuracy import NEAR, depth_of, reached_at, trained
from reports.ec_graph._fits import Timing
from reports.ec_graph._metis import METIS_COUNTS
from reports.ec_graph._rivals import (
    LEFT_OUT,
    MACHINES_OF_RIVALS,
    PARTS_OF_RIVALS,
    RIVALS,
    SAMPLED_BY,
    rival_config,
    rival_method,
    rival_seconds,
)
from reports.ec_graph._table4 import DEEPER, GRAPH_OF_PAPERS, cell_claim, printed_fanouts
from reports.ec_graph._times import (
    DATASETS,
    DISTGNN,
    LAYERS,
    NON_CP,
    Machines,
    cell,
    ec_graph,
    tuner_note,
)

PRODUCTS, PAPERS = "ogbn-products", "ogbn-papers100m"
FEWER_BYTES = "the same products and sums, and fewer bytes"
FEWER_ROWS = "DistGNN is Non-cp with fewer rows"
OURS_OVER = {"Non-cp": "EC-Graph", "DistGNN": "EC-Graph", **dict.fromkeys(RIVALS, "EC-Graph-S")}
"""What a system of Fig. 9 is compared with."""


def figure9(context: Context) -> Plot:
    """End to end: preprocessing and epochs to convergence, EC-Graph against the systems of its code base."""
    paths, timing = context.figure_paths("ec-graph/figure9"), Timing.fitted(context, "DGL")
    beds = {layers: timing.machines(PRODUCTS, layers) for layers in LAYERS}
    slow, rivals = timing.libraries["DGL"], RIVALS
    fanouts = {n: printed_fanouts(PRODUCTS, n) for n in LAYERS}
    epoch = {
        "EC-Graph": {layers: bed.seconds(ec_graph(PRODUCTS)) for layers, bed in beds.items()},
        "Non-cp": {layers: bed.seconds(NON_CP) for layers, bed in beds.items()},
        "DistGNN": {layers: bed.seconds(DISTGNN) for layers, bed in beds.items()},
        "EC-Graph-S": {layers: bed.sampled(fanouts[layers]).epoch for layers, bed in beds.items()},
        **{
            system: {n: rival_seconds(bed, system, fanouts[n], library=slow).epoch for n, bed in beds.items()}
            for system in rivals
        },
    }  # fmt: skip
    methods = {"Non-cp": NON_CP, "EC-Graph": ec_graph(PRODUCTS), "DistGNN": DISTGNN}
    kept = printed_fanouts(PRODUCTS, depth_of(context, PRODUCTS))
    sampled = {"EC-Graph-S": f"{ec_graph(PRODUCTS, 'ec-graph-s')}:fanouts={kept}"}
    sampled |= {system: rival_method(system, kept) for system in rivals}
    run = trained(context, PRODUCTS, methods | sampled, 1.0)
    epochs, last = to_convergence(run), run.curve("Non-cp")[0][-1]
    needed = epochs_charged({name: epochs[name] for name in methods}, last)
    needed |= epochs_charged({name: epochs[name] for name in sampled}, last, "EC-Graph-S")
    prepared = _prepared()
    total = {name: {n: prepared + needed[name] * by_depth[n] for n in LAYERS} for name, by_depth in epoch.items()}
    gains = {
        system: [total[system][n] / total[OURS_OVER[system]][n] for n in LAYERS]
        for system in ("Non-cp", "DistGNN", *rivals)
    }  # fmt: skip
    _draw_gains(paths, gains)
    return Plot(
        key="ec-graph/figure9", title="EC-Graph, Fig. 9: time on ogbn-products", paths=paths,
        caption="Bars: ratios of end-to-end times, by depth. Printed: ends of ranges over unnamed settings.",
        rows=tuple(_gain_rows(gains, run.data)), orderings=tuple(_implied(epoch)),
        assumptions=(
            "constants of Table IV", SAMPLED_BY, PARTS_OF_RIVALS, METIS_COUNTS, MACHINES_OF_RIVALS,
            f"end to end: {prepared:g} s of preprocessing (the printed time of EC-Graph's hash partition; no other is "
            "printed, and it is charged to all systems), and epochs to convergence times the predicted epoch",
            f"epochs to convergence, to within {NEAR:g} point of Non-cp's best test accuracy, from training: "
            f"{', '.join(f'{name} {count or DASH}' for name, count in epochs.items())} ({run.summary})",
            "a system that does not converge in the epochs trained is charged all of them; where EC-Graph, or "
            "EC-Graph-S, does not, every system that it is compared with is charged as many, and the speed-up is that "
            "of an epoch",
        ),
        commands=(
            *run.commands,
            *context.texts_of(
                config for bed in beds.values()
                for config in map(bed.config, methods.values())
            ),
            *context.texts_of(bed.sampled_config(fanouts[n]) for n, bed in beds.items()),
            *context.texts_of(
                rival_config(bed, system, fanouts[n], library=slow) for n, bed in beds.items() for system in rivals
            ),
        ),
    )  # fmt: skip


def to_convergence(run: Trained) -> dict[str, int | None]:
    """Epochs until a curve is within `NEAR` of Non-cp's best accuracy."""
    target = max(run.curve("Non-cp")[1]) - NEAR
    return {label: reached_at(*run.curve(label), target) for label in run.records}


def epochs_charged(epochs: Mapping[str, int | None], trained_for: int, ours: str = "EC-Graph") -> dict[str, int]:
    """Epochs that every system is charged: those to convergence, or all that were trained."""
    if epochs[ours] is None:
        return dict.fromkeys(epochs, trained_for)
    return {name: trained_for if count is None else count for name, count in epochs.items()}


def _prepared() -> float:
    """Printed seconds of EC-Graph's logical partition of ogbn-products."""
    frame = text("ec-graph")
    return float(frame[frame["metric"] == "partition_time"]["value"].iloc[0])


def _draw_gains(paths: Any, gains: Mapping[str, list[float]]) -> None:
    shown: Any = {"color": METHOD_COLOURS["ec-graph"], "label": "ours, end to end"}
    with panels(paths, max(len(gains), 1), columns=2) as axes:
        for panel, (system, ratios) in zip(axes, gains.items(), strict=False):
            panel.bar(list(map(str, LAYERS)), ratios, 0.55, **shown)
            for line in _printed(system):
                panel.scatter([-0.55], [line["value"]], **AS_PRINTED, label="printed ends of the range, end to end")
            panel.axhline(1.0, color="#808080", linewidth=0.6)
            panel.set_title(f"over {system}", loc="left")
            panel.set_xlabel("layers")
            panel.set_ylabel(f"speed-up of {OURS_OVER[system]}")
            panel.set_ylim(0)


def _printed(system: str) -> list[dict[str, Any]]:
    """The ends of a printed range of end-to-end speed-ups on ogbn-products, the smaller first."""
    frame = text("ec-graph")
    mine = frame[(frame["dataset"] == PRODUCTS) & (frame["baseline"] == system) & (frame["metric"] == "speedup")]
    lines = mine[mine["setting"].str.startswith("end to end")].to_dict("records")
    return sorted(
        ({str(k): v for k, v in line.items()} for line in lines), key=lambda line: str(line["bound"]) != "min"
    )


def _gain_rows(gains: Mapping[str, list[float]], data: str) -> list[Row]:
    """The printed end-to-end speed-ups beside ours."""
    rows = []
    for system in ("Non-cp", "DistGNN", "AliGraph-FG", "DistDGL", "AGL"):
        for line in _printed(system):
            end, found = "smallest" if line["bound"] == "min" else "largest", gains.get(system)
            rows.append(
                Row(
                    label=f"{DATASETS[PRODUCTS]}, {line['method']} over {system}, {end}",
                    quantity="end-to-end speed-up", unit="x", published=float(line["value"]),
                    ours=(min if end == "smallest" else max)(found) if found else None,
                    how="simulated", data=data, note=tuner_note("EC-Graph", False),
                    judge="bound" if system in LEFT_OUT else "error",
                    null=Null(same=1.0) if found else None, at=(f"over {system}", end),
                )
            )  # fmt: skip
    return rows


def _implied(epoch: Mapping[str, Mapping[int, float]]) -> list[Ordering]:
    """What follows from the volumes: Non-cp takes longest, so EC-Graph gains most over it."""
    longer = [
        Ordering(
            text=f"{n} layers: Non-cp takes longer than EC-Graph", expected=("Non-cp", "EC-Graph"),
            ours=(epoch["Non-cp"][n], epoch["EC-Graph"][n]), theory=FEWER_BYTES,
        )
        for n in LAYERS
    ]  # fmt: skip
    most = tuple(max(epoch[system][n] / epoch["EC-Graph"][n] for n in LAYERS) for system in ("Non-cp", "DistGNN"))
    text_ = "largest speed-up: over Non-cp > over DistGNN"
    return [*longer, Ordering(text=text_, expected=("Non-cp", "DistGNN"), ours=most, theory=FEWER_ROWS)]


def figure10(context: Context) -> Plot:
    """Epochs of ogbn-papers100M on the second cluster, divided into their parts."""
    paths, timing = context.figure_paths("ec-graph/figure10"), Timing.fitted(context)
    methods = {"Non-cp": NON_CP, "EC-Graph": ec_graph(PAPERS)}
    beds = {layers: timing.machines(PAPERS, layers) for layers in LAYERS}
    clocks = {name: {n: bed.clock(method) for n, bed in beds.items()} for name, method in methods.items()}
    printed = {n: cell(PAPERS, n, "EC-Graph") or 0.0 for n in LAYERS}
    with panels(paths, 1, height=2.8) as (panel,):
        _stack(panel, clocks)
        panel.scatter([at * 3 + 1 for at in range(len(LAYERS))], [printed[n] for n in LAYERS], **AS_PRINTED,
                      label="printed (Table IV)")  # fmt: skip
        panel.set_ylim(0)
        panel.set_ylabel("epoch (s)")
    rows = [
        Row(
            label=f"{DATASETS[PAPERS]}, {n} layers, EC-Graph", quantity="epoch time", unit="s", published=printed[n],
            ours=clocks["EC-Graph"][n].epoch, how="simulated", claim=cell_claim(PAPERS, n, "EC-Graph"),
            note=f"printed in Table IV; {GRAPH_OF_PAPERS[False]}; {tuner_note('EC-Graph', False)}",
        )
        for n in LAYERS
    ]  # fmt: skip
    deepest = tuple(reversed(LAYERS))
    return Plot(
        key="ec-graph/figure10", title="EC-Graph, Fig. 10: ogbn-papers100M on six machines", paths=paths,
        rows=tuple(rows),
        caption="Bars: simulated epoch of Non-cp (left) and EC-Graph (right) on the labelled nodes. The printed graph "
        "is in Table IV's rows 'as printed' (EC6).",
        orderings=(
            Ordering(text="EC-Graph by depth (Table IV)", expected=tuple(f"{n} layers" for n in deepest),
                     ours=tuple(clocks["EC-Graph"][n].epoch for n in deepest), theory=DEEPER),
        ),
        assumptions=("no baseline row is printed: the constants are those of the first cluster",
                     "4 bits both ways, as in Fig. 8", *_shortages(beds, methods)),
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
