"""The authors' public logs beside ours: epochs and their components on two servers and on one, and peak memory."""

from __future__ import annotations

from reports.core import load
from reports.core.context import Context, demand
from reports.core.predict import Fit, Seconds
from reports.core.table import How, Ordering, PaperTable, Row
from reports.core.testbeds import TITLES, implemented, select, value
from reports.sylvie._testbed import (
    FITTED,
    HALO_ROWS,
    METHOD_OF,
    PARTS,
    SETTING,
    Logged,
    constants,
    logged,
    null_for,
)

SERVER_PARTS = 4
LATE = ("PipeGCN", "Sylvie-A")  # their rows are used an epoch later
MIB = 2**20  # bytes; what the framework counts its memory in, and calls MB
WAITS = (
    "logged: also the wait for ranks with more boundary rows or edges (SY5); modelled parts differ in boundary rows where "
    "they are printed (Reddit on 8), else they are equal"
)
LAUNCHED = "late rows: the logged halo starts them, the logged all-reduce waits for them (SY5); their sum is judged"
QUANTISER = "logged with the quantiser's kernels, which are priced by their memory traffic"
AMAZON_WIDTH = (
    "GraphSAGE on Amazon is logged with width 128 on one server, and with 256 on two, whose volume and time "
    "are those of the script's 512"
)
SAMPLER = "logged with drawing the sample and telling it to the others, which is not modelled"
EDGES = "logged on one rank, whose share of the edges is its METIS part's; modelled parts have equal shares"
PROFILE = "one factor for dense and sparse operators, fitted where the dense ones prevail"
CODES = "logged: 3 to 4 GB over fp32 on one server, whatever the graph, of buffers that the model does not have"
REPEATED = "repeats the number of another row"


def servers(context: Context) -> PaperTable:
    """8 ranks on two servers."""
    return _components(context, PARTS, "logs-two-servers", "two servers of 4 GPUs")


def server(context: Context) -> PaperTable:
    """4 ranks on one server."""
    return _components(context, SERVER_PARTS, "logs-one-server", "4 GPUs of one server")


def _components(context: Context, parts: int, name: str, where: str) -> PaperTable:
    fit, found = constants(context), logged(parts)
    (anchor,) = [row for row in logged(PARTS) if row.fitted]
    rows = [row for log in found for row in _rows_of(context, log, fit, anchor)]
    return PaperTable(
        key=f"sylvie/{name}", title=f"Sylvie's public logs: epochs and components on {where}", rows=tuple(rows),
        assumptions=(
            FITTED, fit.text(), HALO_ROWS, SETTING,
            "a mean epoch of 50 to 2000; components that were not timed (0 in the logs) have no row",
            AMAZON_WIDTH,
            "PipeGCN is the authors' own code in fp32 with late rows, without smoothing",
        ),
    )  # fmt: skip


def _rows_of(context: Context, log: Logged, fit: Fit, anchor: Logged) -> list[Row]:
    """Epoch and timed components of one logged run."""
    bed, there = log.bed(context), implemented(METHOD_OF[log.system])
    ours = bed.seconds(METHOD_OF[log.system], fit) if there else None
    how: How = "simulated" if there else "not built"
    made = _ours(ours) if ours else dict.fromkeys(("epoch", "halo", "reduce", "compute"))
    rows = []
    for part in ("epoch", "halo", "reduce", "compute"):
        printed = getattr(log, part)
        if not printed:
            continue
        fitted = log.fitted and part in ("epoch", "compute")
        late = log.system in LATE and part in ("halo", "reduce")
        null = null_for(getattr(anchor, part), bed, log.name, log.system)
        rows.append(
            Row(label=log.label, quantity=part, unit="s", published=printed, ours=made[part],
                how="fitted" if fitted else how, judge="none" if late else "error", null=null,
                note=_note(log, part), at=(log.label, part))
        )  # fmt: skip
    if log.system in LATE and log.reduce:
        mine = None if ours is None else (made["halo"] or 0.0) + (made["reduce"] or 0.0)
        null = null_for(anchor.halo + anchor.reduce, bed, log.name, log.system)
        rows.append(
            Row(label=log.label, quantity="halo and reduce", unit="s", published=log.halo + log.reduce, ours=mine,
                how=how, null=null, note=LAUNCHED, at=(log.label, "halo and reduce"))
        )  # fmt: skip
    return rows


def _ours(seconds: Seconds) -> dict[str, float | None]:
    """The logs' components: the quantiser runs inside the exchange."""
    compute = seconds.compute - seconds.codec
    return {
        "epoch": seconds.epoch, "halo": seconds.comm + seconds.codec, "reduce": seconds.reduce, "compute": compute,
    }  # fmt: skip


def _note(log: Logged, part: str) -> str:
    if log.system in LATE and part in ("halo", "reduce"):
        return LAUNCHED
    if part == "halo":
        return {"Sylvie-S": QUANTISER, "BNS-GCN": SAMPLER}.get(log.system, "")
    if part == "reduce":
        return WAITS
    return (EDGES if log.name == "amazon" else PROFILE) if part == "compute" else ""


def memory(context: Context) -> PaperTable:
    """Peak memory of a rank, of the logs on both numbers of servers and of Sec. 5."""
    rows = _footprint(context)
    seen = {round(row.published or 0.0) for row in rows}
    for parts in (PARTS, SERVER_PARTS):
        for log in logged(parts):
            if not log.memory_mb:
                continue
            repeated, seen = round(log.memory_mb) in seen, {*seen, round(log.memory_mb)}
            where = "two servers" if parts == PARTS else "one server"
            there = implemented(METHOD_OF[log.system])
            ours = peak_mib(context, log, METHOD_OF[log.system]) if there else None
            codes = log.system in ("Sylvie-S", "Sylvie-A") and parts == SERVER_PARTS
            notes = [REPEATED] * repeated + [CODES] * codes
            rows.append(
                Row(label=f"{log.label}, {where}", quantity="peak memory", unit="MB", published=log.memory_mb,
                    ours=ours, how="simulated" if there else "not built", judge="none" if repeated else "error",
                    note="; ".join(notes), at=(log.label, where))
            )  # fmt: skip
    five = {row.label.rpartition(", ")[2]: row.ours for row in rows[:3]}
    order = ("1 bit", "FP32", "FP16")
    return PaperTable(
        key="sylvie/logs-memory", title="Sylvie's public logs and Sec. 5: peak memory of a rank", rows=tuple(rows),
        orderings=(
            Ordering(text="peak memory, GraphSAGE on ogbn-products (Sec. 5)", expected=order,
                     ours=tuple(five[name] for name in order)),
        ),
        assumptions=(
            SETTING, HALO_ROWS,
            "MB of the framework: 2^20 bytes; the largest of a rank's epoch, without the allocator's rest",
            "Sec. 5 does not say on how many GPUs: its 6882 MB are the logs' for 4",
        ),
    )  # fmt: skip


def _footprint(context: Context) -> list[Row]:
    """Sec. 5: GraphSAGE on ogbn-products with messages of three widths."""
    found = [row for row in logged(SERVER_PARTS) if (row.name, row.model) == ("ogbn-products", "GraphSAGE")]
    log = next(row for row in found if row.system == "DGL")
    printed = select(load.text("sylvie"), metric="gpu_memory_max")
    cases = {
        "FP32": ("fp32", METHOD_OF["DGL"]),
        "FP16": ("fp16", "vanilla:dtype=fp16"),
        "1 bit": ("1-bit", METHOD_OF["Sylvie-S"]),
    }
    note = {"1 bit": "Sec. 5 prints 6918 MB, the logs 9401"}
    return [
        Row(label=f"Sec. 5, {TITLES[log.name]}, {name}", quantity="peak memory", unit="MB",
            published=value(printed, setting=setting), ours=peak_mib(context, log, method), how="simulated",
            note=note.get(name, ""))
        for name, (setting, method) in cases.items()
    ]  # fmt: skip


def peak_mib(context: Context, log: Logged, method: str) -> float:
    """The largest peak of a rank, in MiB."""
    (record,) = context.runs([log.bed(context).config(method, constants(context))])
    return float(max(demand(record)["epochs"][-1]["peak_memory"])) / MIB
