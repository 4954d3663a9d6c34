"""EC-Graph, Table IV: seconds of an epoch, on six machines and on one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pandas as pd

from reports.core.context import Context
from reports.core.inputs import Inputs
from reports.core.load import GB, MB, published, setup, text
from reports.core.null_models import Null
from reports.core.predict import Seconds
from reports.core.table import How, Ordering, PaperTable, Row
from reports.ec_graph._fits import DEVICE_ON, FIRST, LIBRARY_ON, MESSAGES_ON, NUMBERS_ON, Timing
from reports.ec_graph._metis import METIS_COUNTS
from reports.ec_graph._rivals import (
    BATCH,
    LEFT_OUT,
    MACHINES_OF_RIVALS,
    PARTS_OF_RIVALS,
    RIVALS,
    SAMPLED_BY,
    SUMS_FIRST,
    disk_bytes,
    rival_config,
    rival_method,
    rival_seconds,
)
from reports.ec_graph._times import (
    ALONE,
    DATASETS,
    DELAYED,
    DISTGNN,
    LABELLED,
    LAYERS,
    OTHERS,
    TARGETS,
    Machines,
    alone,
    cell,
    ec_graph,
    memory_alone,
    tuner_note,
)
from reports.ec_graph._unexplained import LARGEST, unexplained

PAIRS = [(own, other) for own in ("EC-Graph", "EC-Graph-S") for other in ("DGL", "PyG", "DistGNN")]
PAIRS += [("EC-Graph", "EC-Graph-S"), *(("EC-Graph-S", rival) for rival in RIVALS)]

DENSE = "the rows of all nodes are multiplied, also of those that no sample reads"
GRAPH_OF_PAPERS = {
    False: f"the labelled nodes only, {LABELLED['vertices']:,} of them, as the authors' configuration has it",
    True: "as printed, 111,059,956 nodes; the same printed cell as the row of the labelled nodes",
}
"""What a row of ogbn-papers100M is timed with, whether or not it is the printed graph."""
CODED = ", by the authors' code"
BATCHED = f", in batches of {BATCH:,}"
DEEPER = "a further layer computes and sends more"
SAID = {
    ("pubmed", "PyG"): "slower than EC-Graph, which the text denies (EC4)",
    ("ogbn-products", "AliGraph-FG"): "with 2 layers ahead of EC-Graph-S, which the text calls best (EC5)",
}
"""Rows that the paper's text contradicts."""
FITTED = {(dataset, "DistGNN") for dataset in (DEVICE_ON, MESSAGES_ON, NUMBERS_ON)} | {
    (dataset, system) for system, dataset in LIBRARY_ON.items()
}
"""Data set and system of the rows of two layers that a constant is fitted on."""

SAME = 0.01
"""Times this close, as a share of the longer one, tie."""


def table4(context: Context) -> PaperTable:
    """Average time of an epoch."""
    frame = published("ec-graph-table4")
    dashes, frame = frame[frame["value"].isna()], frame[frame["value"].notna()]
    timing = Timing.fitted(context, *ALONE)
    rows = [_row(timing, line) for _, line in frame.iterrows()]
    if context.inputs == Inputs():  # other readings of printed cells are in no ordering
        rows += [_row(timing, line, printed=True) for _, line in frame[frame["dataset"] == LARGEST].iterrows()]
        rows += [_row(timing, line, coded=True) for _, line in frame[frame["method"] == "DistGNN"].iterrows()]
        rows += [row for _, line in dashes[dashes["method"].isin(ALONE)].iterrows() for row in _memory(context, line)]
        several = frame[frame["method"].map(lambda name: name in RIVALS[:2])]
        several = several[several["layers"] == FIRST]
        rows += [_row(timing, line, batched=True) for _, line in several.iterrows()]
    return PaperTable(
        key="ec-graph/table4",
        title="EC-Graph, Table IV: average time of an epoch (s)",
        rows=(*rows, *_gains(rows)),
        orderings=_orderings(rows),
        assumptions=(*_basis(), *unexplained(rows), *_worst(rows), _plain_null(rows)),
    )


def _basis() -> tuple[str, ...]:
    """What the predictions rest on."""
    return (
        "EC-Graph's code: three constants for all data sets and depths, fitted on rows of DistGNN with "
        f"{FIRST} layers: a factor on the device (Reddit), one on the software of messages (Cora), and the time of a "
        "vertex number (Pubmed). They serve the second cluster too. The wire has its printed 1 Gbit/s",
        "numbers of vertices: in the authors' code a Python dict of all own and fetched vertices becomes a std::map in "
        "every backward exchange (python/ecgraph/util_python/remote_access.py), and every thread that sends a request "
        "copies the map (core/service/dgnn_client.cc): a time in proportion to these vertices and to exchanges. A map "
        "larger than the cache would take longer per vertex, which is left out",
        "its device sums rows by PyTorch's serial product of a COO matrix (xeon-e3-1226v3-coo, "
        "xeon-silver-4110-2x-coo). DGL is single:style=fused and PyG single:style=gather, which makes a message for "
        "every edge, each with the library's own order of operations, on the same machine (xeon-e3-1226v3) and with "
        "one factor each, for all data sets and depths",
        "memory of DGL and PyG where the table prints '-' without a reason: live tensors of an epoch, of 32 GB (250 GB "
        "for ogbn-papers100M); nothing is fitted",
        f"DistGNN is distgnn-ec, of which every halo row is fetched in one of {DELAYED} rounds, as DistGNN delays. In "
        "the authors' code of October 2021 a fifth of the vertices request in each round and read most rows of a dense "
        "graph: rows 'by the authors' code' beside, of the same printed cells. Which one the table ran is not known",
        "own and fetched rows become one matrix in every layer (Alg. 1, line 7): where a layer multiplies first, the "
        "copy is added at the device's rates, since haloscope's layers make none",
        "a request and its reply are one message, as one remote call; the request's 4 bytes a row are not timed. A "
        "reply says its own length, so that EC-Graph's costs one message too, although only its sender knows how long "
        "it is",
        f"ogbn-papers100M: {GRAPH_OF_PAPERS[False]} (python/ecgraph/context/context.py: 13,649,351 edges, each "
        "counted once); rows 'as printed' have Table III's graph beside. CONSISTENCY's EC6 is of the printed graph",
        "CONSISTENCY's EC7 assumes that the narrower of H and H W travels; by Alg. 1 and 2 it is H forwards and G "
        "backwards, which is timed here (256 + 256 and 256 + 47 values a row for three layers of ogbn-products)",
        "bits: those of Fig. 8, since the table prints none; the Bit-Tuner off",
        "hash partitions, of all systems but DistDGL: real topologies of Cora and Pubmed where on disk, otherwise the "
        "closed form with an assumed spread of the degrees",
        "EC-Graph-S: Cora's sample is drawn where it is on disk; elsewhere expected shares of edges and rows, in "
        "closed form from fan-outs, mean degree, the same spread and hash parts",
        SAMPLED_BY,
        PARTS_OF_RIVALS,
        METIS_COUNTS,
        SUMS_FIRST,
        MACHINES_OF_RIVALS,
        f"rows that are predicted and not sent: shares from training on Cora (Cora, Pubmed) or {OTHERS}",
        "null models: DistGNN's printed time of two layers on the same graph (DGL's and PyG's own), equal, by bytes "
        "and by layers. They read a printed row of every graph, where our three constants read three rows in all",
    )


def fanouts_of(setting: str, layers: int) -> str:
    """The method option of a printed setting ("sampling; fanout=10,5"); a single "full" means all layers."""
    printed = setting.partition("fanout=")[2].replace(",", "/")
    return "/".join(["full"] * layers) if printed == "full" else printed


def printed_fanouts(dataset: str, layers: int) -> str:
    """The method option of the fan-outs that Table IV has for a data set and depth."""
    printed = setup("ec-graph")["baseline_sampling_fanout"][dataset][layers - LAYERS[0]]
    return fanouts_of(f"fanout={printed}", layers)


def cell_claim(dataset: str, layers: int, system: str) -> str:
    """Identity of the claim of a cell, which figures repeat."""
    return f"ec-graph, Table IV: {DATASETS[dataset]}, {layers} layers, {system}"


def _unsampled(system: str, setting: str) -> bool:
    return system == "EC-Graph-S" and setting.endswith("fanout=full")


def _row(timing: Timing, line: pd.Series, *, printed: bool = False, coded: bool = False, batched: bool = False) -> Row:
    """One printed cell beside ours; `printed` for the printed reading of ogbn-papers100M, `coded` for the rounds of the
    authors' code in DistGNN's rows, `batched` for several steps an epoch in those of DistDGL and AGL."""
    dataset, layers, system = str(line["dataset"]), int(line["layers"]), str(line["method"])
    bed, setting = timing.machines(dataset, layers, printed=printed), str(line["setting"])
    other = printed or coded or batched
    ours, how, note = _predicted(timing, bed, system, setting, coded, BATCH if batched else 0)
    notes = [note, SAID.get((dataset, system), ""), tuner_note(system, tuned=False)]
    if dataset == LARGEST and ours is not None:
        notes.append(GRAPH_OF_PAPERS[printed])
    reading = CODED * coded + BATCHED * batched
    return Row(
        label=f"{DATASETS[dataset]}{' as printed' * printed}, {layers} layers, {system}{reading}",
        quantity="epoch time",
        unit="s",
        published=float(line["value"]), ours=ours, how=how, note="; ".join(filter(None, notes)),
        conflict="EC6" if printed and system == "EC-Graph" else "",
        judge="none" if other or _unsampled(system, setting) else "bound" if system in LEFT_OUT else "error",
        null=_null(timing, bed, system, setting) if ours is not None and not coded and not batched else None,
        at=None if other else (system, f"{DATASETS[dataset]}, {layers}-layer"),
        claim="" if other else cell_claim(dataset, layers, system),
    )  # fmt: skip


def _memory(context: Context, line: pd.Series) -> list[Row]:
    """What a library needs where the table prints "-", of ogbn-papers100M on both readings of the graph."""
    dataset, layers, system = str(line["dataset"]), int(line["layers"]), str(line["method"])
    rows = []
    for printed in (False, True) if dataset == LARGEST else (False,):
        peak, fits = memory_alone(context, dataset, layers, system, printed=printed)
        notes = ["printed '-', no reason given", "fits the machine" if fits else "out of memory"]
        rows.append(
            Row(
                label=f"{DATASETS[dataset]}{' as printed' * printed}, {layers} layers, {system}, memory",
                quantity="memory of one machine", unit="GB", published=None, ours=peak / 1e9, how="simulated",
                judge="none", note="; ".join(notes + [GRAPH_OF_PAPERS[printed]] * (dataset == LARGEST)),
            )
        )  # fmt: skip
    return rows


def _predicted(
    timing: Timing, bed: Machines, system: str, setting: str, coded: bool, batch: int
) -> tuple[float | None, How, str]:
    """Our seconds, their origin, and a note."""
    first = bed.layers == FIRST and (bed.dataset, system) in FITTED and not coded
    fitted: How = "fitted" if first else "simulated"
    if system == "DistGNN":
        seconds = bed.clock(TARGETS if coded else DISTGNN)
        fetched = f"{100 * bed.requested():.0f} % of the halo rows" if coded else f"1/{DELAYED} of the halo rows"
        return seconds.epoch, fitted, f"{fetched} an epoch; {parts_said(seconds)}"
    if system in ALONE:
        seconds = alone(timing.context, bed.dataset, bed.layers, system, timing.libraries[system])
        return seconds.epoch, fitted, ""
    if system in RIVALS:
        fanouts = fanouts_of(setting, bed.layers)
        seconds = rival_seconds(bed, system, fanouts, batch, timing.libraries["DGL"])
        return seconds.epoch, "simulated", _rival_note(bed, system, fanouts, batch, seconds)
    if system == "EC-Graph" or _unsampled(system, setting):
        again, text_ = "" if system == "EC-Graph" else "the EC-Graph row again", ec_graph(bed.dataset)
        seconds = bed.clock(text_)
        remarks = (again, bed.shortage(text_), parts_said(seconds))
        return seconds.epoch, "simulated", "; ".join(filter(None, remarks))
    seconds = bed.sampled(fanouts_of(setting, bed.layers))
    return seconds.epoch, "simulated", f"{DENSE}; {parts_said(seconds)}"


def _rival_note(bed: Machines, system: str, fanouts: str, batch: int, seconds: Seconds) -> str:
    """The parts of a rival's epoch; of AGL also what it would read from disk, and at what rate in the time left."""
    remarks = [rival_method(system, fanouts, batch), parts_said(seconds)]
    if system == "AGL":
        read, left = disk_bytes(bed, fanouts), (cell(bed.dataset, bed.layers, system) or 0.0) - seconds.epoch
        rate = f", {read / left / MB:.3g} MB/s in the rest of the printed time" if left > 0 else ""
        remarks.append(f"{read / GB:.2g} GB a machine from disk, not timed{rate}")
    return "; ".join(remarks)


def parts_said(seconds: Seconds) -> str:
    """The parts of a predicted epoch, as text."""
    exchange, work = seconds.comm - seconds.wait, seconds.work + seconds.codec
    return f"compute {work:.2g} s, exchange {exchange:.2g} s, parameters {seconds.reduce:.2g} s"


def _null(timing: Timing, bed: Machines, system: str, setting: str) -> Null | None:
    """What DistGNN's (DGL's, PyG's) printed row of two layers on this graph says; of such a row itself, the fitted
    one."""
    baseline = system if system in ALONE else "DistGNN"
    first = bed.layers == FIRST and system == baseline
    dataset = LIBRARY_ON.get(baseline, DEVICE_ON) if first else bed.dataset
    base = cell(dataset, FIRST, baseline)
    if base is None:
        return None
    if system in ALONE:
        return Null(same=base, by_layers=base * bed.layers / FIRST)
    whole = timing.machines(dataset, FIRST).sent(DISTGNN)
    return Null(
        same=base, by_layers=base * bed.layers / FIRST, by_bytes=base * _bytes(timing, bed, system, setting) / whole
    )  # fmt: skip


def _bytes(timing: Timing, bed: Machines, system: str, setting: str) -> float:
    """Bytes of an epoch of a system on the machines."""
    if system == "DistGNN":
        return bed.sent(DISTGNN)
    if system == "EC-Graph" or _unsampled(system, setting):
        return bed.sent(ec_graph(bed.dataset))
    if system in RIVALS:
        fanouts, library = fanouts_of(setting, bed.layers), timing.libraries["DGL"]
        run = bed.record(rival_config(bed, system, fanouts, library=library))
        return float(run["summary"]["bytes_per_epoch"])
    return float(bed.record(bed.sampled_config(fanouts_of(setting, bed.layers)))["summary"]["bytes_per_epoch"])


def _gains(rows: Sequence[Row]) -> list[Row]:
    """The speed-ups over DGL that Sec. V-D prints, from our times."""
    by = {row.label: row.ours for row in rows}
    frame = text("ec-graph")
    gains = []
    for _, line in frame[(frame["baseline"] == "DGL") & (frame["metric"] == "speedup")].iterrows():
        name, most = DATASETS[str(line["dataset"])], line["bound"] == "max"
        pairs = [(by.get(f"{name}, {n} layers, DGL"), by.get(f"{name}, {n} layers, EC-Graph")) for n in LAYERS]
        found = [slow / fast for slow, fast in pairs if slow and fast]
        gains.append(
            Row(
                label=f"{name}, EC-Graph over DGL, {'largest' if most else 'smallest'}", quantity="speed-up", unit="x",
                published=float(line["value"]), ours=(max if most else min)(found, default=None), how="simulated",
                null=Null(same=1.0), note=f"Sec. V-D, over the depths with both times; {tuner_note('EC-Graph', False)}",
            )
        )  # fmt: skip
    return gains


def _worst(rows: Sequence[Row]) -> tuple[str, ...]:
    """The five rows that are furthest off."""
    far = sorted((row for row in rows if row.counts), key=lambda row: -abs(row.error or 0.0))[:5]
    said = ", ".join(f"{row.label} {100 * (row.error or 0.0):+.0f} %" for row in far)
    return (f"furthest off: {said}",) if far else ()


def _plain_null(rows: Sequence[Row]) -> str:
    """The error of DistGNN's two-layer time in proportion to layers on EC-Graph's rows, beside ours."""
    pairs = [
        (abs(row.error), abs(row.null.by_layers / row.published - 1))
        for row in rows
        if row.counts and row.label.endswith(", EC-Graph") and row.null and row.null.by_layers and row.published
        and row.error is not None
    ]  # fmt: skip
    if not pairs:
        return "EC-Graph's own rows have no null model"
    ours, null = (100 * statistics.median(side) for side in zip(*pairs, strict=True))
    return (
        f"EC-Graph's own {len(pairs)} rows: DistGNN's printed time of two layers times layers/2 errs by "
        f"{null:.1f} % in "
        f"the median, ours by {ours:.1f} %: skill {1 - ours / null:+.2f}"
    )


def _orderings(rows: Sequence[Row]) -> tuple[Ordering, ...]:
    """EC-Graph and EC-Graph-S against every other system, where the printed times differ; and time by depth."""
    by = {row.label: row for row in rows if row.ours is not None and row.judge == "error" and not row.conflict}

    def ordering(labels: list[str], what: str, theory: str = "") -> Ordering:
        ranked = sorted(labels, key=lambda label: -(by[label].published or 0.0))
        short = [label.split(", ")[1 if theory else -1] for label in ranked]
        ours = tuple(by[label].ours for label in ranked)
        same = SAME * max(value or 0.0 for value in ours)
        claim = f"{what}: {' > '.join(short)}"
        return Ordering(
            text=claim, expected=tuple(ranked), ours=ours, tolerance=same, ties="not judged", theory=theory,
            claim=f"ec-graph, epoch: {claim}",
        )  # fmt: skip

    orderings = []
    for dataset, name in DATASETS.items():
        for layers in LAYERS:
            for own, other in PAIRS:
                pair = [f"{name}, {layers} layers, {system}" for system in (other, own)]
                if all(label in by for label in pair) and by[pair[0]].published != by[pair[1]].published:
                    orderings.append(ordering(pair, f"{name}, {layers} layers, {own} against {other}"))
        depth = [f"{name}, {layers} layers, EC-Graph" for layers in LAYERS]
        if dataset != LARGEST and all(label in by for label in depth):
            orderings.append(ordering(depth, f"{name}, EC-Graph by depth", DEEPER))
    return tuple(orderings)
