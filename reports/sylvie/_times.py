"""Sylvie's Table 3: volumes and seconds of an epoch on two servers."""

from __future__ import annotations

from typing import Any

from reports.bns_gcn.testbed import TITLES
from reports.core import load
from reports.core.context import Context
from reports.core.load import select, value
from reports.core.rows import seconds_row
from reports.core.table import Ordering, PaperTable, Row
from reports.sylvie._programs import PER_PEER, RANK_0, logged_halo, of_rank_0, system_seconds
from reports.sylvie._testbed import (
    FIT_GRAPH,
    FITTED,
    FOLLOWS,
    GRAPH_NOTES,
    GRAPHS,
    SIDE_BYTES,
    Case,
    case,
    null_for,
    seconds_claim,
)

IDENTITY = "a 32nd of DGL's volume, which the boundary nodes come from"
VOLUME = "an input: the boundary nodes come from it"
CROSSING = "4 of 7 rows cross between the servers here; which parts of a METIS partition share more rows is not printed"
WAITS = "DGL's printed remainder outside communication is all-reduce that waits for ranks with more boundary rows (SY5)"
QUANTISER = "the communication holds the half of the quantiser that makes codes"
ROUNDS = (
    "SAR exchanges the input layer too, and fetches one remote part after the other; the barrier that its code has "
    "over gloo after every part is not priced"
)
COLUMNS = ("Main Data (MB)", "Error-compensated (MB)", "Total (s)", "Comm. (s)")


def throughput_claim(name: str, model: str) -> str:
    """Identity of the claim which system is faster on two servers: Tables 2 and 3 and Fig. 5 and 6 make it."""
    return f"sylvie: throughput on two servers, {name}, {model}"


def table3(context: Context) -> PaperTable:
    """Volumes and seconds of an epoch, DGL against one bit."""
    rows: list[Row] = []
    orderings: list[Ordering] = []
    cases = [case(context, name) for name in GRAPHS]
    for made in cases:
        mine, epochs = case_rows(made)
        rows += mine
        orderings.append(
            Ordering(text=f"epoch time, {TITLES[made.name]}", expected=("DGL", "Sylvie-S"), ours=epochs,
                     claim=throughput_claim(made.name, "GraphSAGE"))
        )  # fmt: skip
    frame = select(load.published("sylvie-table3"), method="Sylvie-S", metric="epoch_time")
    printed = sorted(GRAPHS, key=lambda name: -value(frame, dataset=name))
    ours = {r.label: r.ours for r in rows if r.quantity == "epoch time"}
    orderings.append(
        Ordering(
            text="epoch of Sylvie-S by graph",
            expected=tuple(TITLES[name] for name in printed),
            ours=tuple(ours[f"{TITLES[name]}, Sylvie-S"] for name in printed),
        )
    )
    return PaperTable(
        key="sylvie/table3",
        title="Sylvie Table 3: volume and time of an epoch, GraphSAGE on 2 x 4 GPUs",
        rows=tuple(rows),
        orderings=tuple(orderings),
        assumptions=(
            FITTED,
            cases[0].fit.text(),
            *GRAPH_NOTES,
            CROSSING,
            WAITS,
            RANK_0,
            PER_PEER,
            f"{SIDE_BYTES} bytes of side information per row, read off the four printed scales (SY2)",
        ),
    )


def case_rows(made: Case) -> tuple[list[Row], tuple[float, float]]:
    """A graph's rows of Table 3 and the two epochs."""
    frame = select(load.published("sylvie-table3"), dataset=made.name)
    rows, epochs = [], []
    for printed in ("DGL", "Sylvie-S"):
        ours = system_seconds(made.bed, made.fit, printed)
        epochs.append(ours.epoch)
        label, mine = f"{TITLES[made.name]}, {printed}", select(frame, method=printed)
        rows += _volumes(made, printed, label, mine)
        total, comm = (value(mine, metric=metric) for metric in ("epoch_time", "epoch_time_comm"))
        first, fitted = printed == "DGL", made.name == FIT_GRAPH and printed == "DGL"
        places = [(label, column) for column in COLUMNS[2:]]
        rows += [
            seconds_row(label, "epoch time", total, ours.epoch, fitted=fitted, at=places[0],
                        claim=seconds_claim(made.name, "GraphSAGE", printed, made.bed.parts, "epoch"),
                        null=null_for(_anchor("epoch_time"), made.bed, made.name, printed),
                        note=CROSSING if first else QUANTISER),
            seconds_row(label, "communication", comm, at=places[1],
                        claim=seconds_claim(made.name, "GraphSAGE", printed, made.bed.parts, "halo"),
                        null=null_for(_anchor("epoch_time_comm"), made.bed, made.name, printed),
                        note=FOLLOWS if fitted else WAITS if first else QUANTISER,
                        **of_rank_0(ours, logged_halo, judged=not fitted)),
        ]  # fmt: skip
    return rows, (epochs[0], epochs[1])


def _volumes(made: Case, printed: str, label: str, frame: Any) -> list[Row]:
    """Main data and scales: DGL's are the input, those of one bit follow from them; nothing of it is judged."""
    first, sent = printed == "DGL", made.halo * made.exchanges
    main, side = (value(frame, metric=f"epoch_comm_volume_{kind}") for kind in ("main", "error_compensated"))
    volume = sent * int(made.bed.model["hidden"]) * (4 if first else 1 / 8) / load.MB
    scales = 0.0 if first else sent * SIDE_BYTES / load.MB
    return [
        Row(label=label, quantity="volume, main data", unit="MB", published=main, ours=volume, judge="none",
            how="quoted" if first else "closed form", note=VOLUME if first else IDENTITY, at=(label, COLUMNS[0])),
        Row(label=label, quantity="volume, scales", unit="MB", published=side, ours=scales, judge="none",
            how="quoted" if first else "fitted", at=(label, COLUMNS[1])),
    ]  # fmt: skip


def _anchor(metric: str) -> float:
    """The printed number of the row that the constants are fitted on."""
    return value(load.published("sylvie-table3"), dataset=FIT_GRAPH, method="DGL", metric=metric)
