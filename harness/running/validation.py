"""Comparison of predictions with measurements: the cells, one record per cell, and the verdict on all records.

A cell is one method on one graph, cluster and number of ranks, run for real and simulated on the same partition. Cells
are run by `harness.commands.validate`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from harness.config import RunConfig, is_lab, parse_lab
from harness.errors import InputError
from harness.machine import FOREIGN, core_count
from harness.methods.registry import parse_method, typical_methods
from harness.running.intervals import left_open, ratio_ends

VALIDATED_COMPONENTS = ("compute", "codec", "halo", "reduce", "epoch")
"""The components that a record compares; an epoch also includes small ones on CPUs (sample, swap, wait)."""

WARM_UP = 5
"""First epochs of a cell, which are excluded: memory, connections and caches warm up."""

MATTERS = 0.05
"""Share of the epoch below which a component is not judged."""

RUN_S, PREDICTION_S = 8.0, 12.0
"""Seconds of a real run of 25 epochs, and of a prediction, before any has been made here."""

WORKLOADS: dict[str, dict[str, Any]] = {
    "heavy": {
        "dataset": "synthetic:nodes=30000,degree=20,classes=16,features=64,signal=0.7",
        "model": "gcn", "layers": 3, "hidden": 128, "partitioner": "hash",
    },
    "balanced": {
        "dataset": "synthetic:nodes=50000,degree=30,classes=16,features=128,signal=0.7,homophily=0.9",
        "model": "sage", "layers": 3, "hidden": 128, "partitioner": "metis-cut",
    },
    "attention": {
        "dataset": "synthetic:nodes=12000,degree=12,classes=16,features=32,signal=0.7,homophily=0.8",
        "model": "gat", "layers": 2, "hidden": 32, "partitioner": "metis-cut",
    },
    "narrow": {
        "dataset": "synthetic:nodes=30000,degree=10,classes=8,features=32,signal=0.7",
        "model": "sage", "layers": 2, "hidden": 32, "partitioner": "hash",
    },
}  # fmt: skip
"""Graphs to validate on: a large cut, so that communication shows; a small cut and dense rows; attention; and small
messages between many boundary nodes."""


def workload_of(dataset: str) -> str:
    """The name of the workload with this graph; the graph's own where it has none."""
    known = {str(values["dataset"]): name for name, values in WORKLOADS.items()}
    return known.get(dataset, dataset)


def cells(
    clusters: Sequence[str],
    workloads: Mapping[str, Mapping[str, Any]],
    methods: str | None,
    parts: int,
    base: RunConfig,
) -> list[RunConfig]:
    """The real run of every cell, cluster by cluster.

    `methods` None takes every built-in method of several ranks, as it is typical of the workload's depth. `parts` 0
    takes as many ranks as a lab has, two elsewhere. Methods that cut vertices choose their own partitioner.

    Raises:
        InputError: a method or a lab that cannot be parsed.
    """
    named = [name.strip() for name in (methods or "").split(",") if name.strip()]
    if methods is not None and not named:
        raise InputError("--methods names no method, e.g. --methods vanilla,sylvie-s")
    found = []
    for cluster in clusters:
        ranks = parts or (parse_lab(cluster).ranks if is_lab(cluster) else 2)
        threads = base.run.threads or max(1, core_count() // ranks)
        for values in workloads.values():
            for name in named or typical_methods(values.get("layers", base.model.layers)):
                config = base.changed(**values, cluster=cluster, parts=ranks, mode="real", threads=threads)
                found.append(with_method(config, name))
    return found


def with_method(config: RunConfig, method: str) -> RunConfig:
    """The config with another method; one that cuts vertices chooses its own partitioner."""
    if parse_method(method, layer0=config.training.layer0).facts.cut == "vertex":
        return config.changed(method=method, partitioner="auto")
    return config.changed(method=method)


def seconds_left(done: Sequence[tuple[RunConfig, float]], rest: Sequence[RunConfig], first: float) -> float:
    """Expected seconds of the runs `rest`, from the seconds of those that are done.

    A run is expected to take as long as its method did on the same graph, in the mean, or else on any graph, or else
    as all did; before the first one, `first`.
    """
    total = 0.0
    for cell in rest:
        method, dataset = cell.training.method, cell.data.dataset
        alike = [[s for c, s in done if c.training.method == method and c.data.dataset == dataset]]
        alike += [[s for c, s in done if c.training.method == method], [s for _, s in done]]
        nearest = next((seconds for seconds in alike if seconds), [first])
        total += statistics.fmean(nearest)
    return total


def typical(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds by component of the epochs after the warm-up, and `spread`: their interquartile range.

    An epoch is the mean over ranks of what it took each, which is `epoch` less `wait` of a result: ranks do not begin
    an epoch together, so that the longest of these times is more than the time after which epochs follow each other.
    """
    times = [each["seconds"] for each in epochs[WARM_UP:]]
    steady = [{**seconds, "epoch": seconds["epoch"] - seconds["wait"]} for seconds in times]
    found = {name: statistics.median(seconds[name] for seconds in steady) for name in VALIDATED_COMPONENTS}
    low, high = np.quantile([seconds["epoch"] for seconds in steady], (0.25, 0.75))
    return {**found, "spread": float(high - low)}


def over_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is typical of several runs of one cell, without those that other programs disturbed if not all were.

    Medians of the components, of the `reference` beside them and of the `foreign_load`; `spread`: the interquartile
    range of a run's epochs, in the median, or of the runs if that is more; and `runs`: epoch and reference of every
    one.
    """
    quiet = [run for run in runs if run["foreign_load"] <= FOREIGN] or list(runs)
    found: dict[str, Any] = {
        name: statistics.median(run[name] for run in quiet)
        for name in (*VALIDATED_COMPONENTS, "spread", "foreign_load", "reference")
    }
    low, high = np.quantile([run["epoch"] for run in quiet], (0.25, 0.75))
    found["spread"] = max(found["spread"], float(high - low))
    return found | {"runs": [{name: run[name] for name in ("epoch", "reference")} for run in quiet]}


def traffic(epochs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Bytes of every epoch by direction and layer, and by tier if any crossed it."""
    return [
        {**epoch["bytes"], "tiers": {tier: count for tier, count in epoch["bytes"]["tiers"].items() if count}}
        for epoch in epochs
    ]


def validation_record(
    config: RunConfig, measured: Mapping[str, Any], predicted: Mapping[str, Any], same: bool
) -> dict[str, Any]:
    """The record of one cell in the JSON file; `measured` is what `over_runs` returns, `predicted` has the components,
    and where there are some their 90 % intervals in `interval`, the epoch's draws in `ratios`, and how much the
    calibration measured in `depth`."""
    seconds = {name: measured[name] for name in (*VALIDATED_COMPONENTS, "spread")}
    return {
        "method": config.training.method,
        "dataset": config.data.dataset,
        "model": config.model.name,
        "precision": config.model.precision,
        "parts": config.cut.parts,
        "cluster": config.cluster.name,
        "predicted": {name: predicted[name] for name in VALIDATED_COMPONENTS},
        "measured": seconds,
        "runs": measured["runs"],
        "interval": {name: list(ends) for name, ends in predicted.get("interval", {}).items()},
        "ratios": list(predicted.get("ratios", [])),
        "depth": predicted.get("depth", ""),
        "bytes_equal": same,
        "epochs": config.training.epochs - WARM_UP,
        "partitioner": config.cut.partitioner,
        "foreign_load": measured["foreign_load"],
        "disturbed": measured["foreign_load"] > FOREIGN,
        "error": predicted["epoch"] / measured["epoch"] - 1,
    }


@dataclass(frozen=True)
class SpeedupCoverage:
    """What intervals of speed-ups said about pairs of methods in one place.

    Attributes:
        pairs: those with draws of the same inputs.
        inside: of these, how many measured ratios of epochs lie in the 90 % interval.
        told_apart: pairs of which one method was said to be faster.
        rightly: of these, how many were measured so.
    """

    pairs: int
    inside: int
    told_apart: int
    rightly: int

    def __str__(self) -> str:
        return (
            f"of {self.pairs} pairs of methods in one place 90 % intervals hold {self.inside} measured ratios of "
            f"epochs ({self.inside / self.pairs:.0%}); {self.told_apart} are told apart, {self.rightly} of them rightly"
        )


@dataclass(frozen=True)
class Verdict:
    """The verdict on all cells. Times of disturbed cells are excluded; their bytes count.

    Attributes:
        cells: number of cells.
        disturbed: cells that were measured while other programs used the machine; excluded from the values below.
        median, p90: of the absolute relative errors of epoch times; NaN without cells.
        tau: Kendall's tau of the order of methods, mean over graphs and clusters; NaN without pairs.
        tau_apart: the same for pairs whose measured epochs differ by more than the mean of their spreads.
        bytes_equal: whether bytes are equal in every cell.
        covered: cells whose measured epoch lies in the 90 % interval of the prediction, of `with_interval`.
        speedups: the same of speed-ups.
    """

    cells: int
    disturbed: int
    median: float
    p90: float
    tau: float
    tau_apart: float
    bytes_equal: bool
    covered: int = 0
    with_interval: int = 0
    speedups: SpeedupCoverage = SpeedupCoverage(0, 0, 0, 0)

    def __str__(self) -> str:
        left_out = f", {self.disturbed} of them left out because others kept the machine busy" if self.disturbed else ""
        same = "equal in every cell" if self.bytes_equal else "NOT equal in every cell"
        if self.disturbed == self.cells:
            return f"{self.cells} cells{left_out}: no verdict on times; bytes {same}"
        order, apart = ("unknown" if math.isnan(tau) else f"{tau:.2f}" for tau in (self.tau, self.tau_apart))
        return (
            f"{self.cells} cells{left_out}: error of the epoch time: median {self.median:.1%}, 90th percentile "
            f"{self.p90:.1%}; Kendall's tau of the order of methods {order}, of those further apart than their spread "
            f"{apart}; bytes {same}{self._coverage()}"
        )

    def _coverage(self) -> str:
        if not self.with_interval:
            return ""
        share = self.covered / self.with_interval
        return f"; 90 % intervals hold {self.covered} of {self.with_interval} measured epochs ({share:.0%})" + (
            f"; {self.speedups}" if self.speedups.pairs else ""
        )


def verdict(records: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on at least one record."""
    quiet = [r for r in records if not r["disturbed"]]
    errors = [abs(r["error"]) for r in quiet] or [math.nan]
    groups = _by_place(quiet)
    tau, apart = (
        statistics.fmean([t for group in groups if (t := kendall(group, far)) is not None] or [math.nan])
        for far in (False, True)
    )
    return Verdict(
        len(records),
        len(records) - len(quiet),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        tau,
        apart,
        all(r["bytes_equal"] for r in records),
        *coverage(quiet),
        speedup_coverage(quiet),
    )


def _by_place(records: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Records by what they share beside the method."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for r in records:
        groups.setdefault((r["dataset"], r["model"], r["precision"], r["parts"], r["cluster"]), []).append(r)
    return list(groups.values())


def speedup_coverage(records: Sequence[Mapping[str, Any]]) -> SpeedupCoverage:
    """What intervals of speed-ups said about all pairs of records in one place."""
    known = inside = told_apart = rightly = 0
    for a, b in (pair for group in _by_place(records) for pair in combinations(group, 2)):
        if not a.get("ratios") or len(a["ratios"]) != len(b.get("ratios", [])):
            continue
        drawn = [np.asarray(each["ratios"]) * each["predicted"]["epoch"] for each in (a, b)]
        low, high = ratio_ends(drawn[0] / drawn[1], left_open(a.get("depth", "")))
        measured = a["measured"]["epoch"] / b["measured"]["epoch"]
        known, inside = known + 1, inside + (low <= measured <= high)
        if low > 1 or high < 1:
            told_apart, rightly = told_apart + 1, rightly + ((measured > 1) == (low > 1))
    return SpeedupCoverage(known, inside, told_apart, rightly)


def coverage(records: Sequence[Mapping[str, Any]], name: str = "epoch", *, at_pace: bool = False) -> tuple[int, int]:
    """Records whose measured seconds of a component lie in the interval of the prediction, and those with one.

    `at_pace`: in the same interval around the prediction at the machine's pace beside the cell.
    """
    known = [r for r in records if name in r.get("interval", {}) and (not at_pace or "at_pace" in r)]

    def moved(record: Mapping[str, Any]) -> float:
        predicted = record["predicted"][name]
        return float(record["at_pace"][name] / predicted) if at_pace and predicted else 1.0

    inside = [r for r in known if r["interval"][name][0] <= r["measured"][name] / moved(r) <= r["interval"][name][1]]
    return len(inside), len(known)


def kendall(records: Sequence[Mapping[str, Any]], apart: bool = False) -> float | None:
    """Kendall's tau of predicted and measured epoch times; pairs with equal times count as half; None without pairs.

    `apart`: only for pairs whose measured times differ by more than the mean of their spreads.
    """
    agree = total = 0
    for a, b in combinations(records, 2):
        here, there = a["measured"], b["measured"]
        if apart and abs(here["epoch"] - there["epoch"]) <= (here["spread"] + there["spread"]) / 2:
            continue
        signs = [np.sign(a[side]["epoch"] - b[side]["epoch"]) for side in ("predicted", "measured")]
        agree += int(signs[0] * signs[1])
        total += 1
    return agree / total if total else None
