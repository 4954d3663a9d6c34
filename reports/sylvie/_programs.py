"""The programs of Sylvie's comparison: their models and inputs, what their hosts take, what their timers hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from reports.bns_gcn.testbed import as_coded, num_exchanging_layers, with_program_host
from reports.core import load
from reports.core.load import select
from reports.core.predict import Fit, Seconds, Testbed
from reports.core.table import Fitted
from reports.sylvie._testbed import CLUSTER, METHOD_OF, ON_ONE_SERVER, GraphBed, settings_of
from sims.cluster import load_cluster

LoggedComponent = Literal["halo", "reduce", "compute"]
"""What the authors' program times."""

RANK_0 = (
    "components are logged on rank 0, and of its METIS part neither nodes nor edges are printed: a rank with fewer "
    "edges or boundary rows waits for the others, in an exchange or in the all-reduce, for as long as it computes or "
    "sends less (SY5; GCN on Amazon, Sylvie-S, one server: 0.14 s of compute, 0.46 s in exchanges of a 28th of DGL's "
    "bytes; all-reduces of equal gradients take a fifth as long with one bit as with fp32). Ours is the mean over "
    "ranks, and every rank's is a reading: a component is contradicted where it is no rank's. Their sum, the epoch, is "
    "the same on all ranks and judged by its error"
)
LATE = ("PipeGCN", "Sylvie-A")  # their rows are used an epoch later
QUANTISING = ("Sylvie-S", "Sylvie-A")
OPERATORS = 7.5, 4.5  # of rows to codes and back, for a peer in an exchange: means of both directions, by the code
MESSAGES = 3  # to each other rank in an exchange: codes, scales, minima
OF_OPERATOR = "host's time of an operator of the quantiser"
PER_PEER = (
    "Sylvie's program quantises the rows for one other rank after the other (8 operators forwards, 7 backwards), and "
    "turns theirs back in as many calls (3 and 6); codes, scales and minima go in 3 messages. A half of the quantiser "
    "takes as long as its host needs for its operators, or as its memory traffic, whichever is longer. The time of an "
    "operator is fitted on the two halves on one server in Fig. 10 (10.0 ms in 6 exchanges with 3 ranks); on two "
    "servers, with 7, it has them within a tenth. Rows are quantised inside the exchange, and turned back after it, in "
    "what is timed as computation; late rows are quantised beside the epoch, and turned back when they are used"
)
SAR_READINGS: dict[str, dict[str, Any]] = {
    "the scripts' width and depth": {},
    "the scripts' width, their graph layers alone": {"layers": "graph layers"},
    "the example's 3 layers of 256": {"layers": 3, "hidden": 256},
}
"""What SAR's model may have been; the first is that of rows, the others are their readings."""
SAR_MODEL = (
    "SAR: the settings of its example (IntelLabs/SAR, train_homogeneous_graph_advanced.py), which the logs of it do "
    "not contradict: all nodes of the graph in the parts, with boundary nodes in proportion; 2 heads whose mean goes "
    "on; no norm, no dropout, no layers without neighbours. Depth and width are not logged: rows are judged by "
    f"readings ({'; '.join(SAR_READINGS)}), by the first of which are ours"
)


def sar_model(bed: Testbed, reading: str) -> dict[str, Any]:
    """Settings of SAR's model in one of `SAR_READINGS`, for a testbed of Sylvie's program."""
    made = {**bed.model, "norm": "none", "dropout": 0.0, "linear_layers": 0, "layer0": "exchange"}
    if made["model"] == "gat":
        made |= {"heads": 2, "hidden_heads": "mean"}
    changed = SAR_READINGS[reading]
    if changed.get("layers") == "graph layers":
        changed = {"layers": int(bed.model["layers"]) - int(bed.model.get("linear_layers", 0))}
    return {**made, **changed}


def beds_for(bed: Testbed, system: str) -> list[Testbed]:
    """The testbed of a system, and after it those of other readings of what is not logged of it (SAR's model).

    BNS-GCN's program sums GCN's input once (`INPUT`).
    """
    if system == "SAR" and isinstance(bed, GraphBed):
        models = [sar_model(bed, reading) for reading in SAR_READINGS]
        return [bed.whole(model) for at, model in enumerate(models) if model not in models[:at]]
    if system == "BNS-GCN" and bed.model["model"] == "gcn":
        return [replace(bed, model={**bed.model, "layer0": "precompute"})]
    return [bed]


def system_seconds(bed: Testbed, fit: Fit, system: str) -> Seconds:
    """One epoch of a system by its printed name, with the host of its program: BNS-GCN's also with the draws of its
    authors' program (`AS_CODED`). Late rows travel while the host works."""
    return _timed(beds_for(bed, system)[0], fit, system)


def _timed(bed: Testbed, fit: Fit, system: str) -> Seconds:
    own = fit.of_program(0.0) if system == "SAR" else fit
    if system == "BNS-GCN":
        own = with_program_host(fit, bed.context)
    found = bed.seconds(as_coded(METHOD_OF[system]), own)
    if system in LATE:
        found = found.each(partial(_beside_host, host=own.host_s(bed.parts)))
    return with_quantiser(found, bed, late=system in LATE) if system in QUANTISING else found


def _beside_host(seconds: Seconds, host: float) -> Seconds:
    """An epoch in which rows travel while the host works."""
    hidden = min(seconds.comm, host)
    return replace(seconds, epoch=seconds.epoch - hidden, comm=seconds.comm - hidden)


def with_quantiser(seconds: Seconds, bed: Testbed, *, late: bool = False) -> Seconds:
    """An epoch of Sylvie as its program codes it (`PER_PEER`).

    Args:
        seconds: with the quantiser by its memory traffic alone, and one message to each other rank in an exchange.
        bed: its testbed.
        late: whether rows are an epoch late: they are turned into codes and sent beside the epoch, and turned into
            rows again when they are used.
    """
    exchanges, each = 2 * num_exchanging_layers(bed.model), operator_s()
    calls, source = exchanges * (bed.parts - 1), "the quantiser of Reddit, Sylvie-S, one server (Fig. 10)"
    bed.context.fits[Fitted(testbed=CLUSTER, constant=OF_OPERATOR, value=1e6 * each, unit="us", row=source)] = None
    transport = load_cluster(bed.cluster).transport
    more = (MESSAGES - 1) * (exchanges * transport.operation.value + calls * transport.message.value)

    def coded(found: Seconds) -> Seconds:
        quantise, dequantise = (max(calls * count * each, found.codec / 2) for count in OPERATORS)
        codec, comm = (dequantise, found.comm) if late else (quantise + dequantise, found.comm + more)
        kept = found.epoch - found.codec - found.comm
        return replace(
            found, epoch=kept + codec + comm, comm=comm, compute=found.compute - found.codec + codec, codec=codec,
            decode=dequantise,
        )  # fmt: skip

    return seconds.each(coded)


def operator_s() -> float:
    """Seconds of the host for one operator of Sylvie's quantiser: those of both of its halves on one server in Fig. 10,
    over the operators that they are there."""
    frame = select(load.published("sylvie-notebook"), figure="10", servers="1")
    taken = sum(float(select(frame, part=part)["seconds"].iloc[0]) for part in ("quantise", "dequantise"))
    calls = 2 * num_exchanging_layers(settings_of("reddit")) * (ON_ONE_SERVER - 1)
    return taken / (calls * sum(OPERATORS))


def judged_epoch(bed: Testbed, fit: Fit, system: str, over: float | None = None) -> dict[str, Any]:
    """What a row of a system's epoch has (`Row`): ours, and readings with how they judge where its model is not known.

    `over`: seconds of DGL's epoch, of rows of speed-ups.
    """
    found = [_timed(one, fit, system).epoch for one in beds_for(bed, system)]
    ours, *readings = [over / epoch if over else epoch for epoch in found]
    return {"ours": ours, **({"readings": tuple(readings), "judge": "readings"} if system == "SAR" else {})}


def logged_halo(seconds: Seconds) -> float:
    """The exchange of boundary rows by the timers of the authors' program: rows are quantised inside of it, and made of
    codes again after it."""
    return seconds.comm + seconds.codec - seconds.decode


def logged_reduce(seconds: Seconds) -> float:
    """The all-reduce by these timers. They wait for the device before exchanges and at the all-reduce, which so holds
    what follows the last exchange."""
    return seconds.reduce + seconds.tail


def logged_compute(seconds: Seconds) -> float:
    """Computation by these timers."""
    return seconds.logged + seconds.decode


TIMED: dict[LoggedComponent, Callable[[Seconds], float]] = {
    "halo": logged_halo, "reduce": logged_reduce, "compute": logged_compute,
}  # fmt: skip
"""Components of an epoch by what the timers of the authors' program hold."""


def of_rank_0(seconds: Seconds, value: Callable[[Seconds], float], *, judged: bool = True) -> dict[str, Any]:
    """What a row of a component that was logged on rank 0 has (`Row`, `RANK_0`): its mean over ranks, and every rank's,
    by which it is judged.

    Args:
        seconds: an epoch, with those of all ranks.
        value: the component of one epoch.
        judged: False where the number is shown only.
    """
    if not judged:
        return {"ours": value(seconds), "judge": "none"}
    return {"ours": value(seconds), "readings": tuple(map(value, seconds.ranks)), "judge": "readings"}


def speed_ups(bed: Testbed, fit: Fit, systems: Sequence[str]) -> dict[str, float]:
    """Epochs per second over DGL's by printed name of the system."""
    base = bed.seconds(METHOD_OF["DGL"], fit).epoch
    return {system: base / system_seconds(bed, fit, system).epoch for system in systems}
