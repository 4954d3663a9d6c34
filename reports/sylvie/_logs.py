"""The authors' public logs beside ours: epochs, their components, and peak memory; Sec. 5's memory."""

from __future__ import annotations

from reports.bns_gcn.testbed import AS_CODED, as_coded, logged_host_s
from reports.core import load
from reports.core.context import Context, demand
from reports.core.load import select, value
from reports.core.predict import Fit, Seconds
from reports.core.table import Ordering, PaperTable, Row
from reports.sylvie._programs import (
    LATE,
    PER_PEER,
    RANK_0,
    SAR_MODEL,
    TIMED,
    LoggedComponent,
    beds_for,
    judged_epoch,
    logged_halo,
    logged_reduce,
    of_rank_0,
    system_seconds,
)
from reports.sylvie._testbed import (
    FITTED,
    FOLLOWS,
    GRAPH_NOTES,
    METHOD_OF,
    MIB,
    ON_ONE_SERVER,
    ON_TWO_SERVERS,
    Logged,
    anchor,
    constants,
    logged,
    null_for,
    seconds_claim,
)
from reports.sylvie._times import CROSSING, ROUNDS

TAIL = (
    "the authors' timers wait for the GPU before every exchange and at the all-reduce: what is computed after the last "
    "exchange of an epoch (backwards through the first layer) is in the logged all-reduce, and so here"
)
UNSYNCED = (
    "BNS-GCN's own timers do not wait for the GPU: an exchange's holds the operators before it, compute's only what "
    "the host does meanwhile (48 to 79 ms on two servers, whatever the graph and model); its epochs are judged"
)
MEMORY = "MB of the framework: 2^20 bytes; what is alive at once, without the allocator's blocks and rests"
LAUNCHED = "late rows: the logged halo starts them, the logged all-reduce waits for them (SY5); their sum is judged"
QUANTISER = "logged with the half of the quantiser that makes codes"
AMAZON_WIDTH = (
    "GraphSAGE on Amazon is logged with width 128 on one server, and with 256 on two, whose volume and time "
    "are those of the script's 512"
)
LOGGED_HOST = (
    "of two servers, which hold half as large parts, logged compute is not half as long: what does not halve is most "
    "likely the host of the authors' program (calls of DGL in every layer, a thread per parameter), for which one "
    "constant stands. The logs do not agree on it: if compute halved exactly beside the host, Yelp's GraphSAGE and GCN "
    "would have 11 and 14 ms of it, other models and graphs 17 to 30, ogbn-products 55 to 115 and Amazon's GCN less "
    "than nothing; rank 0 has another part of another size on two servers, of which neither nodes nor edges are printed"
)
GCN_INPUT = (
    "GCN: by the public program its input is summed in every epoch, by which ours takes longer than GraphSAGE; logs "
    "have both about level, on Reddit within 1 %"
)
OWN_HOST = "a row that says what the host of BNS-GCN's program takes"
CODES = "logged: 3 to 4 GB over fp32 on one server, whatever the graph, of buffers that the model does not have"
REPEATED = "repeats the number of another row"


def epochs_logged(context: Context) -> PaperTable:
    """Seconds of an epoch, 8 ranks on two servers and 4 on one."""
    fit, rows = constants(context), list[Row]()
    for log in _all_logs():
        null = null_for(anchor(log.parts).epoch, log.bed(context), log.name, log.system)
        of_host = log.system == "BNS-GCN" and log.compute == logged_host_s(log.parts)
        rows.append(
            Row(label=f"{log.label}, {_where(log)}", quantity="epoch", unit="s", published=log.epoch,
                how="fitted" if log.fitted else "simulated", null=None if log.fitted else null,
                note=ROUNDS if log.system == "SAR" else OWN_HOST * of_host, at=(log.label, _where(log)),
                claim=seconds_claim(log.name, log.model, log.system, log.parts, "epoch"),
                **{"judge": "none" if of_host else "error", **judged_epoch(log.bed(context), fit, log.system)})
        )  # fmt: skip
    return PaperTable(
        key="sylvie/logs-epochs", title="Sylvie's public logs: epochs on two servers of 4 GPUs, and on one (s)",
        rows=tuple(rows), assumptions=_assumptions(fit),
    )  # fmt: skip


def halo_logged(context: Context) -> PaperTable:
    """Exchange of boundary rows; where they are late, with the all-reduce that waits for them."""
    return _component(context, "halo", "exchange of boundary rows", LAUNCHED, UNSYNCED)


def reduce_logged(context: Context) -> PaperTable:
    """All-reduce of weights' gradients; where rows are late it is judged with their exchange."""
    return _component(context, "reduce", "all-reduce", TAIL, UNSYNCED)


def compute_logged(context: Context) -> PaperTable:
    """Computation."""
    return _component(context, "compute", "computation", TAIL, UNSYNCED, LOGGED_HOST, GCN_INPUT)


def _component(context: Context, part: LoggedComponent, title: str, *notes: str) -> PaperTable:
    """One component of all epochs in which it was timed (0 in the logs: it was not)."""
    fit = constants(context)
    rows = [_row_of(context, log, part, fit) for log in _all_logs() if getattr(log, part)]
    sums = [_sum_of(context, log, fit) for log in _all_logs() if log.system in LATE and log.reduce]
    return PaperTable(
        key=f"sylvie/logs-{part}", title=f"Sylvie's public logs: {title} (s)",
        rows=(*rows, *(sums if part == "halo" else ())), assumptions=(*_assumptions(fit), RANK_0, *notes),
    )  # fmt: skip


def _assumptions(fit: Fit) -> tuple[str, ...]:
    late = "PipeGCN is the authors' own code in fp32 with late rows, without smoothing"
    told = (FITTED, PER_PEER, SAR_MODEL, ROUNDS, fit.text(), *GRAPH_NOTES, CROSSING)
    return (*told, "mean epochs of 50 to 2000", AMAZON_WIDTH, late, f"BNS-GCN: {AS_CODED}")


def _all_logs() -> list[Logged]:
    return [*logged(ON_TWO_SERVERS), *logged(ON_ONE_SERVER)]


def _where(log: Logged) -> str:
    return "two servers" if log.parts == ON_TWO_SERVERS else "one server"


def _row_of(context: Context, log: Logged, part: LoggedComponent, fit: Fit) -> Row:
    """A timed component of one logged run, of rank 0; exchange and all-reduce of late rows are judged by their sum."""
    null = null_for(getattr(anchor(log.parts), part), log.bed(context), log.name, log.system)
    fitted = log.fitted and part == "compute"
    follows = log.fitted and part == "halo"
    unjudged = fitted or follows or log.system == "BNS-GCN" or (log.system in LATE and part != "compute")
    return Row(
        label=f"{log.label}, {_where(log)}", quantity=part, unit="s", published=getattr(log, part),
        how="fitted" if fitted else "simulated", null=None if log.fitted else null, note=_note(log, part),
        at=(log.label, _where(log)), claim=seconds_claim(log.name, log.model, log.system, log.parts, part),
        **of_rank_0(_ours(context, log, fit), TIMED[part], judged=not unjudged),
    )  # fmt: skip


def _sum_of(context: Context, log: Logged, fit: Fit) -> Row:
    """Exchange and all-reduce of a run with late rows."""
    base = anchor(log.parts)
    null = null_for(base.halo + base.reduce, log.bed(context), log.name, log.system)
    return Row(
        label=f"{log.label}, {_where(log)}", quantity="halo and reduce", unit="s", published=log.halo + log.reduce,
        how="simulated", null=null, note=LAUNCHED, at=(f"{log.label}, with all-reduce", _where(log)),
        **of_rank_0(_ours(context, log, fit), lambda seconds: logged_halo(seconds) + logged_reduce(seconds)),
    )  # fmt: skip


def _ours(context: Context, log: Logged, fit: Fit) -> Seconds:
    """A modelled epoch of a logged run."""
    return system_seconds(log.bed(context), fit, log.system)


def _note(log: Logged, part: LoggedComponent) -> str:
    if log.system == "BNS-GCN":
        return UNSYNCED
    if log.system in LATE and part in ("halo", "reduce"):
        return LAUNCHED
    if part == "halo":
        return FOLLOWS if log.fitted else QUANTISER if log.system == "Sylvie-S" else ""
    if part == "reduce":
        return ""
    return GCN_INPUT if log.model == "GCN" else LOGGED_HOST


def memory_logged(context: Context) -> PaperTable:
    """Peak memory of a rank."""
    rows, seen = list[Row](), {round(row.published or 0.0) for row in _footprint(context)}
    for log in _all_logs():
        if not log.memory_mb:
            continue
        repeated, seen = round(log.memory_mb) in seen, {*seen, round(log.memory_mb)}
        codes = log.system in ("Sylvie-S", "Sylvie-A") and log.parts == ON_ONE_SERVER
        ours = peak_mib(context, log, as_coded(METHOD_OF[log.system]))
        rows.append(
            Row(label=f"{log.label}, {_where(log)}", quantity="peak memory", unit="MB", published=log.memory_mb,
                ours=ours, how="simulated", judge="none" if repeated else "error",
                note="; ".join([REPEATED] * repeated + [CODES] * codes), at=(log.label, _where(log)))
        )  # fmt: skip
    return PaperTable(
        key="sylvie/logs-memory", title="Sylvie's public logs: peak memory of a rank (MB)", rows=tuple(rows),
        assumptions=(*GRAPH_NOTES, MEMORY),
    )  # fmt: skip


def section5(context: Context) -> PaperTable:
    """Sec. 5's peak memory by the width of messages."""
    rows = _footprint(context)
    ours = {row.label: row.ours for row in rows}
    order = tuple(row.label for row in sorted(rows, key=lambda row: -(row.published or 0.0)))
    return PaperTable(
        key="sylvie/section5", title="Sylvie Sec. 5: peak memory, GraphSAGE on ogbn-products", rows=tuple(rows),
        orderings=(
            Ordering(text="peak memory", expected=order, ours=tuple(ours[name] for name in order)),
        ),
        assumptions=(
            *GRAPH_NOTES, MEMORY, "the number of GPUs is not printed: 6882 MB are the logs' for 4 on one server",
        ),
    )  # fmt: skip


def _footprint(context: Context) -> list[Row]:
    """GraphSAGE on ogbn-products with messages of three widths."""
    (log,) = [row for row in logged(ON_ONE_SERVER) if row.label == "ogbn-products, GraphSAGE, DGL"]
    printed = select(load.text("sylvie"), metric="gpu_memory_max")
    cases = {
        "FP32": ("fp32", METHOD_OF["DGL"], ""), "FP16": ("fp16", "vanilla:dtype=fp16", ""),
        "1 bit": ("1-bit", METHOD_OF["Sylvie-S"], "the logs have 9401 MB for the same run"),
    }  # fmt: skip
    return [
        Row(label=name, quantity="peak memory", unit="MB", published=value(printed, setting=setting),
            ours=peak_mib(context, log, method), how="simulated", note=note, at=("peak memory (MB)", name))
        for name, (setting, method, note) in cases.items()
    ]  # fmt: skip


def peak_mib(context: Context, log: Logged, method: str) -> float:
    """The largest peak of a rank, in MiB."""
    bed = beds_for(log.bed(context), log.system)[0]
    (record,) = context.runs([bed.config(method, constants(context))])
    return float(max(demand(record)["epochs"][-1]["peak_memory"])) / MIB
