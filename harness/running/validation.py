"""Predictions held against measurements: which cells, one record per cell, and what the records say together.

A cell is one method on one graph, cluster and number of ranks, run really and simulated on the same partition. Nothing
here runs anything; `harness.commands.validate` does.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import RunConfig, is_lab, parse_lab
from harness.errors import InputError
from harness.machine import core_count
from harness.methods.registry import parse_method

COMPONENTS = ("compute", "codec", "halo", "reduce", "epoch")
"""What a record compares; an epoch also holds what is small on CPUs (sample, swap, wait)."""

WARM_UP = 5
"""First epochs of a cell, which are not looked at: memory, connections and caches settle."""

FOREIGN = 0.15
"""Share of the machine's cores that others may keep busy before a cell is disturbed, and left out of the verdict."""

METHODS = "vanilla,bns-gcn:p=0.1,sylvie-s,sylvie-a,ec-graph,ec-graph-s:fanouts=10/5/5,subgraph-approximation,cdfgnn"

WORKLOADS: dict[str, dict[str, Any]] = {
    "heavy": {
        "dataset": "synthetic:nodes=30000,degree=20,classes=16,features=64,signal=0.7",
        "model": "gcn", "layers": 3, "hidden": 128, "partitioner": "hash",
    },
    "balanced": {
        "dataset": "synthetic:nodes=50000,degree=30,classes=16,features=128,signal=0.7,homophily=0.9",
        "model": "sage", "layers": 3, "hidden": 128, "partitioner": "metis-cut",
    },
}  # fmt: skip
"""Graphs to validate on: with the worst cut, so that communication shows, and with a good one and dense rows."""


def cells(
    clusters: Sequence[str], workloads: Mapping[str, Mapping[str, Any]], methods: str, parts: int, base: RunConfig
) -> list[RunConfig]:
    """The real run of every cell, cluster by cluster.

    `parts` 0 takes as many ranks as a lab has, two elsewhere. Methods that cut vertices choose their own partitioner.

    Raises:
        InputError: a method, or a lab, that cannot be read.
    """
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InputError("--methods names no method, e.g. --methods vanilla,sylvie-s")
    found = []
    for cluster in clusters:
        ranks = parts or (parse_lab(cluster).ranks if is_lab(cluster) else 2)
        threads = base.run.threads or max(1, core_count() // ranks)
        for values in workloads.values():
            for name in names:
                config = base.changed(**values, cluster=cluster, method=name, parts=ranks, mode="real", threads=threads)
                if parse_method(name, layer0=base.training.layer0).facts.cut == "vertex":
                    config = config.changed(partitioner="auto")
                found.append(config)
    return found


def typical(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds by component of the epochs after the warm-up, and `spread`: their interquartile range."""
    steady = epochs[WARM_UP:]
    found = {name: statistics.median(epoch["seconds"][name] for epoch in steady) for name in COMPONENTS}
    low, high = np.quantile([epoch["seconds"]["epoch"] for epoch in steady], (0.25, 0.75))
    return {**found, "spread": float(high - low)}


def traffic(epochs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What every epoch sent: bytes by direction and layer, and by tier where any crossed it."""
    return [
        {**epoch["bytes"], "tiers": {tier: count for tier, count in epoch["bytes"]["tiers"].items() if count}}
        for epoch in epochs
    ]


def record(
    config: RunConfig, measured: Mapping[str, Any], predicted: Mapping[str, float], same: bool
) -> dict[str, Any]:
    """One cell as the JSON file holds it; `measured` has the components, `spread` and `foreign_load`."""
    seconds = {name: measured[name] for name in (*COMPONENTS, "spread")}
    return {
        "method": config.training.method,
        "dataset": config.data.dataset,
        "model": config.model.name,
        "parts": config.cut.parts,
        "cluster": config.cluster.name,
        "predicted": {name: predicted[name] for name in COMPONENTS},
        "measured": seconds,
        "bytes_equal": same,
        "epochs": config.training.epochs - WARM_UP,
        "partitioner": config.cut.partitioner,
        "foreign_load": measured["foreign_load"],
        "disturbed": measured["foreign_load"] > FOREIGN,
        "error": predicted["epoch"] / measured["epoch"] - 1,
    }


@dataclass(frozen=True)
class Verdict:
    """What all cells say together. Times of cells that others disturbed say nothing; their bytes still count.

    Attributes:
        cells: how many there are.
        disturbed: how many of them were measured while others used the machine, and are left out of what follows.
        median, p90: of the absolute relative errors of epoch times; NaN where no cell is left.
        tau: Kendall's, of the order of methods on the same graph and cluster; mean over those, NaN without pairs.
        tau_apart: the same of pairs whose measured epochs differ by more than their spread, the mean of the two.
        bytes_equal: in every cell.
    """

    cells: int
    disturbed: int
    median: float
    p90: float
    tau: float
    tau_apart: float
    bytes_equal: bool

    def __str__(self) -> str:
        left_out = f", {self.disturbed} of them left out because others kept the machine busy" if self.disturbed else ""
        same = "equal in every cell" if self.bytes_equal else "NOT equal in every cell"
        if self.disturbed == self.cells:
            return f"{self.cells} cells{left_out}: no verdict on times; bytes {same}"
        order, apart = ("unknown" if math.isnan(tau) else f"{tau:.2f}" for tau in (self.tau, self.tau_apart))
        return (
            f"{self.cells} cells{left_out}: error of the epoch time: median {self.median:.1%}, 90th percentile "
            f"{self.p90:.1%}; Kendall's tau of the order of methods {order}, of those further apart than their spread "
            f"{apart}; bytes {same}"
        )


def verdict(records: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on at least one record."""
    quiet = [r for r in records if not r["disturbed"]]
    errors = [abs(r["error"]) for r in quiet] or [math.nan]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for r in quiet:
        groups.setdefault((r["dataset"], r["model"], r["parts"], r["cluster"]), []).append(r)
    tau, apart = (
        statistics.fmean([t for group in groups.values() if (t := kendall(group, far)) is not None] or [math.nan])
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
    )


def kendall(records: Sequence[Mapping[str, Any]], apart: bool = False) -> float | None:
    """Kendall's tau of predicted and measured epoch times; pairs with equal times count as half; None without pairs.

    `apart`: of pairs only whose measured times differ by more than the mean of their spreads.
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


@dataclass
class Load:
    """How busy others kept the machine: mean share of its cores; 0 where the kernel does not tell."""

    foreign: float = 0.0


@contextmanager
def watching() -> Iterator[Load]:
    """Measures the load of others while it is open; what this process and its ended children use is ours."""
    load, busy, ours = Load(), *_busy()
    yield load
    busy_now, ours_now = _busy()
    if busy is not None and busy_now is not None:
        elapsed = busy_now[1] - busy[1]
        load.foreign = max(0.0, (busy_now[0] - busy[0]) - (ours_now - ours)) / elapsed if elapsed > 0 else 0.0


def _busy() -> tuple[tuple[float, float] | None, float]:
    """Core seconds that the machine was busy, and in all, since it started; and core seconds of ours."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ours = sum(usage.ru_utime + usage.ru_stime for usage in used)
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None, ours
    ticks = [int(value) / os.sysconf("SC_CLK_TCK") for value in fields]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle, sum(ticks)), ours
