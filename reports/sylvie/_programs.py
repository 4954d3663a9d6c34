"""The programs of Sylvie's comparison: their models and inputs, what their hosts take, what their timers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from reports.core.predict import Fit, Seconds, Testbed
from reports.core.testbeds import as_coded, program_host
from reports.sylvie._testbed import METHOD_OF, GraphBed

Component = Literal["epoch", "halo", "reduce", "compute"]
"""What the authors' program times."""

LATE = ("PipeGCN", "Sylvie-A")  # their rows are used an epoch later
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
    hosts = {"BNS-GCN": program_host(), "SAR": (0.0, 0.0)}
    own = fit.of_program(*hosts.get(system, (fit.host, fit.host_per_part)))
    found = bed.seconds(as_coded(METHOD_OF[system]), own)
    hidden = min(found.comm, own.host_s(bed.parts)) if system in LATE else 0.0
    return replace(found, epoch=found.epoch - hidden, comm=found.comm - hidden)


def judged_epoch(bed: Testbed, fit: Fit, system: str, over: float | None = None) -> dict[str, Any]:
    """What a row of a system's epoch has (`Row`): ours, and readings with how they judge where its model is not known.

    `over`: seconds of DGL's epoch, of rows of speed-ups.
    """
    found = [_timed(one, fit, system).epoch for one in beds_for(bed, system)]
    ours, *readings = [over / epoch if over else epoch for epoch in found]
    return {"ours": ours, **({"readings": tuple(readings), "judge": "readings"} if system == "SAR" else {})}


def as_timed(seconds: Seconds) -> dict[Component, float]:
    """An epoch and its components by what the timers of the authors' program hold.

    They wait for the device before exchanges and at the all-reduce, which so holds what follows the last exchange. The
    quantiser runs inside the exchange.
    """
    return {
        "epoch": seconds.epoch, "halo": seconds.comm + seconds.codec, "reduce": seconds.reduce + seconds.tail,
        "compute": seconds.logged,
    }  # fmt: skip


def speed_ups(bed: Testbed, fit: Fit, systems: Sequence[str]) -> dict[str, float]:
    """Epochs per second over DGL's by printed name of the system."""
    base = bed.seconds(METHOD_OF["DGL"], fit).epoch
    return {system: base / system_seconds(bed, fit, system).epoch for system in systems}
