"""CDFGNN, Fig. 5 and 6: seconds of an epoch on two hosts of eight A800, from the cuts of Table 3 as counts.

No time of CDFGNN is printed, so that no constant can be fitted and no predicted time has an error: orderings are
judged. What follows from the printed cuts alone is theory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config import from_mapping
from harness.running import open_run
from reports.cdfgnn._accuracy import MODEL, VARIANTS, observed, watched_run
from reports.cdfgnn._cuts import CUTS, DATASETS, EBV0, EBV1, PRINTED_GPUS, cut_workload, graph_for
from reports.core.context import SHAPES, Context, demand
from reports.core.inputs import Inputs
from reports.core.load import text
from reports.core.table import Ordering, Plot, Row
from reports.core.testbeds import implemented
from reports.draw.drawing import DASHES, panels
from reports.draw.figures import COMPONENT_COLOURS, OTHER_COLOURS
from sims.replay import Replay, record_placed, traced
from sims.study import SimulatedCluster

CLUSTER = "cdfgnn-2x8a800"
COMMUNICATION = "communication, with codec, comparison and waiting"
PRINTED_CUTS = "both cuts are printed: the messages between hosts decide"
PRINTED_BALANCE = "the printed edge imbalance decides"
SHOWN = ("reddit", "ogbn-products")  # in Fig. 6
BARS = {method: (method, "Both") for method in CUTS}
BARS |= {variant: (EBV1, variant) for variant in ("Cache", "Quantify", "Baseline")}
SERVER = VARIANTS["Both"] + ":servers=1"  # Alg. 1, lines 12 and 13


def config(context: Context, dataset: str, method: str, gpus: int, variant: str) -> dict[str, Any]:
    """The run of one variant of CDFGNN on one cut of the paper's graph."""
    rates = {"rates": context.rates("cdfgnn", observed(context, variant, dataset))} if cached(variant) else {}
    return {
        **SHAPES, **MODEL, "dataset": context.workload(cut_workload(context, dataset, method, gpus)), "parts": gpus,
        "method": VARIANTS[variant], **rates, "epochs": 2, "cluster": CLUSTER,
    }  # fmt: skip


def cached(variant: str) -> bool:
    """Whether a variant has the adaptive cache."""
    return variant in ("Both", "Cache")


def shown(context: Context, dataset: str) -> tuple[int, ...]:
    """The smallest and largest number of GPUs of the paper, and that of Table 3, which orderings are judged on."""
    return tuple(sorted({2, PRINTED_GPUS[dataset], 16})) if context.inputs == Inputs() else (PRINTED_GPUS[dataset],)


def figure5(context: Context) -> Plot:
    """Average time of an epoch by the number of GPUs."""
    paths = context.figure_paths("cdfgnn/figure5")
    cases = [(dataset, method, gpus) for dataset in DATASETS for method in CUTS for gpus in shown(context, dataset)]
    configs = [config(context, *case, "Both") for case in cases]
    records = context.runs(configs, "epoch times")
    by_case = dict(zip(cases, map(timed_record, records), strict=True))
    seconds = {case: float(record["summary"]["seconds"]["epoch"]) for case, record in by_case.items()}
    full = [case for case, record in by_case.items() if record["state"] == "out_of_memory"]
    with panels(paths, len(DATASETS), columns=4, height=2.1) as axes:
        for panel, dataset in zip(axes, DATASETS, strict=True):
            for at, method in enumerate(CUTS):
                values = [seconds[dataset, method, gpus] for gpus in shown(context, dataset)]
                style: Any = {
                    "color": OTHER_COLOURS[at],
                    "linestyle": DASHES[at],
                    "marker": "osD^"[at],
                    "markersize": 3,
                }
                panel.plot(shown(context, dataset), values, **style, label=method.replace("_gamma=", ", gamma "))
            over = [case for case in full if case[0] == dataset]
            crossed: Any = {"color": "#202020", "marker": "x", "s": 30, "linewidths": 0.8, "zorder": 4}
            panel.scatter([gpus for *_, gpus in over], [seconds[case] for case in over], **crossed,
                          label="exceeds 80 GB a GPU")  # fmt: skip
            panel.set_title(DATASETS[dataset], loc="left")
            panel.set_xscale("log", base=2)
            panel.set_ylim(0)
            panel.set_xticks(shown(context, dataset), list(map(str, shown(context, dataset))))
            panel.set_xlabel("GPUs")
        axes[0].set_ylabel("epoch (s)")
    return Plot(
        key="cdfgnn/figure5", title="CDFGNN, Fig. 5: average time of an epoch", paths=paths,
        caption="Simulated; the paper prints no epoch time. Crossed out: what would not fit the memory of a GPU, timed "
        "all the same.",
        rows=_others(), orderings=tuple(_faster(seconds)),
        assumptions=(
            "nothing is fitted: device and NCCL constants of the cluster file; one adapter per host",
            "at Table 3's number of GPUs: mirrors inside a host and between hosts as printed (at most what the printed "
            "connections allow, CD2), edges of the fullest GPU as printed; at other numbers both change as in a real "
            "cut of " + ", ".join(f"{graph_for(context, d)[0]} for {DATASETS[d]}" for d in DATASETS),
            "HEP's printed edge imbalance is known at Table 3's number of GPUs only: HEP of this harness has no part "
            "with more than floor(M / P) + 1 edges",
            "shares of rows sent: mean over training on each data set's own stand-in, cut by EBV for Fig. 7's "
            "number of GPUs (CD8); 8 bits (not published)",
        ),
        commands=context.texts_of([*(watched_run(context, "Both", d) for d in DATASETS), *configs]),
    )  # fmt: skip


def _others() -> tuple[Row, ...]:
    """The systems that CDFGNN is compared with."""
    frame = text("cdfgnn")
    (line,) = frame[frame["metric"] == "epoch_time_reduction"].itertuples()
    less = Row(
        label="EBV_gamma=0.1 against SANCUS, mean over the cases of Fig. 5", quantity="reduction of the epoch time",
        unit="%", published=float(line.value), ours=None, how="not built", conflict="CD4",
        note="the cases that are averaged are not listed",
    )  # fmt: skip
    absent = [name for name, method in {"SANCUS": "sancus", "CAGNET": "cagnet"}.items() if not implemented(method)]
    return less, *(
        Row(label=name, quantity="epoch time", unit="s", published=None, ours=None, how="not built") for name in absent
    )


def timed_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a run that has times, also where it exceeds memory. Raises InputError where it failed."""
    return record if record["state"] == "out_of_memory" else demand(record)


def _faster(seconds: Mapping[tuple[str, str, int], float]) -> list[Ordering]:
    """The claims of Sec. 7.2 on the partitioners."""
    orderings = []
    for dataset, name in DATASETS.items():
        gpus = PRINTED_GPUS[dataset]
        for slower in (EBV0, "HEP", "DNE"):
            if (dataset, slower) == ("reddit", "HEP"):
                continue  # on which the paper reports good results of HEP
            labels = (slower, EBV1)
            values = tuple(seconds[dataset, label, gpus] for label in labels)
            claim = f"{name}, {gpus} GPUs: {slower} takes longer than {EBV1}"
            claim += " (CD3: it sends fewer messages)" if slower == "HEP" else ""
            orderings.append(
                Ordering(text=claim, expected=labels, ours=values, theory=PRINTED_CUTS if slower == EBV0 else "")
            )
    return orderings


def figure6(context: Context) -> Plot:
    """Computation and communication of every GPU, for every partitioner and for cache and quantisation alone."""
    paths = context.figure_paths("cdfgnn/figure6")
    cases = [(dataset, bar) for dataset in SHOWN for bar in BARS]
    configs = [config(context, dataset, BARS[b][0], PRINTED_GPUS[dataset], BARS[b][1]) for dataset, b in cases]
    records = context.runs(configs, "parts of an epoch")
    times = {case: _split(timed_record(record)) for case, record in zip(cases, records, strict=True)}
    as_it_is = context.inputs == Inputs()  # otherwise only the orderings of the means are looked at
    busy = {case: per_gpu(wanted) if as_it_is else [Busy(*times[case])]
            for case, wanted in zip(cases, configs, strict=True)}  # fmt: skip
    with panels(paths, len(SHOWN), columns=1, height=2.2) as axes:
        for panel, dataset in zip(axes, SHOWN, strict=True):
            _bars(panel, {bar: busy[dataset, bar] for bar in BARS}, {bar: sum(times[dataset, bar]) for bar in BARS})
            panel.set_title(f"{DATASETS[dataset]}, {PRINTED_GPUS[dataset]} GPUs", loc="left")
            panel.set_ylabel("epoch (ms)")
    return Plot(
        key="cdfgnn/figure6", title="CDFGNN, Fig. 6: computation and communication", paths=paths,
        caption="Simulated, a bar for every GPU; the dash is the mean epoch. Cache, Quantify and Baseline are on EBV, "
        "gamma 0.1.",
        rows=_served(context, times),
        orderings=(
            *_communication({case: parts[1] for case, parts in times.items()}),
            *_spread({case: [gpu.compute for gpu in gpus] for case, gpus in busy.items()}),
        ),
        assumptions=("as Fig. 5", "the paper prints no time"),
        commands=context.texts_of(
            [*(watched_run(context, v, d) for v in ("Both", "Cache") for d in SHOWN), *configs]
        ),
    )  # fmt: skip


def _bars(panel: Any, gpus: Mapping[str, list[Busy]], epochs: Mapping[str, float]) -> None:
    """A group of bars for every variant, a bar for every GPU, and a dash at the mean epoch."""
    for at, (bar, parts) in enumerate(gpus.items()):
        width = 0.8 / len(parts)
        x = [at - 0.4 + (gpu + 0.5) * width for gpu in range(len(parts))]
        compute = [1e3 * part.compute for part in parts]
        panel.bar(x, compute, 0.85 * width, color=COMPONENT_COLOURS["compute"], label="computation")
        panel.bar(x, [1e3 * part.communication for part in parts], 0.85 * width, compute,
                  color=COMPONENT_COLOURS["halo"], label=COMMUNICATION)  # fmt: skip
        panel.plot([at - 0.42, at + 0.42], [1e3 * epochs[bar]] * 2, color="#202020", linewidth=0.8, linestyle="--")
    panel.set_xticks(range(len(gpus)), [bar.replace("_gamma=", " ") for bar in gpus], fontsize=7)


@dataclass(frozen=True)
class Busy:
    """Seconds of computation of one GPU in an epoch, and all other seconds of it."""

    compute: float
    communication: float


def per_gpu(wanted: Mapping[str, Any]) -> list[Busy]:
    """Every GPU's epoch in a simulated run, mean over its epochs."""
    run = from_mapping(wanted)
    opened = open_run(run)
    assert isinstance(opened.driver, SimulatedCluster)
    timeline = traced(Replay(record_placed(opened.plan, opened.driver.placement)), opened.driver.cluster)
    epochs, end = run.training.epochs, timeline.end_s
    compute = [0.0] * run.cut.parts
    for span in timeline.spans:
        if span.component == "compute":
            compute[span.rank] += span.end_s - span.start_s
    return [Busy(seconds / epochs, (end - seconds) / epochs) for seconds in compute]


def _served(context: Context, times: Mapping[tuple[str, str], tuple[float, float]]) -> tuple[Row, ...]:
    """Algorithm 1's parameter server beside the all-reduce with which all times are predicted."""
    served = [{**config(context, dataset, EBV1, PRINTED_GPUS[dataset], "Both"), "method": SERVER} for dataset in SHOWN]
    records = context.runs(served, "parameter servers")
    rows = list[Row]()
    for dataset, record in zip(SHOWN, records, strict=True):
        both = {
            "gradients by an all-reduce": sum(times[dataset, EBV1]),
            "parameter server (Alg. 1)": sum(_split(timed_record(record))),
        }
        rows += [
            Row(label=f"{DATASETS[dataset]}, {EBV1}, {name}", quantity="epoch", unit="ms", published=None,
                ours=1e3 * seconds, how="simulated", judge="none")
            for name, seconds in both.items()
        ]  # fmt: skip
    return tuple(rows)


def _split(record: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of computation and of everything that the paper counts as communication."""
    seconds = record["summary"]["seconds"]
    return seconds["compute"], seconds["epoch"] - seconds["compute"]


def _communication(comm: Mapping[tuple[str, str], float]) -> list[Ordering]:
    """The claims of Sec. 7.3 on communication time."""
    claims = []
    pairs = [(EBV0, EBV1), ("Baseline", "Cache"), ("Baseline", "Quantify"), ("Cache", EBV1), ("Quantify", EBV1)]
    for dataset in dict.fromkeys(dataset for dataset, _ in comm):
        last = ("Cache", "Quantify") if dataset == "reddit" else ("Quantify", "Cache")
        for labels in (*pairs, last):
            claim = f"{DATASETS[dataset]}: {labels[0]} communicates longer than {labels[1]}"
            values = tuple(comm[dataset, label] for label in labels)
            theory = PRINTED_CUTS if labels == (EBV0, EBV1) else ""
            claims.append(Ordering(text=claim, expected=labels, ours=values, theory=theory))
    return claims


def _spread(compute: Mapping[tuple[str, str], list[float]]) -> list[Ordering]:
    """HEP and DNE are limited by unbalanced work (Sec. 7.3): the longest computation over the mean."""
    claims = []
    for dataset in dict.fromkeys(dataset for dataset, _ in compute):
        peak = {bar: max(compute[dataset, bar]) * len(compute[dataset, bar]) / sum(compute[dataset, bar])
                for bar in CUTS}  # fmt: skip
        claims.append(
            Ordering(
                text=f"{DATASETS[dataset]}: computation is less balanced with HEP and DNE than with EBV",
                expected=("least of HEP and DNE", "most of EBV"),
                ours=(min(peak["HEP"], peak["DNE"]), max(peak[EBV0], peak[EBV1])), theory=PRINTED_BALANCE,
            )
        )  # fmt: skip
    return claims
