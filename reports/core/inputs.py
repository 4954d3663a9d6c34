"""The inputs of the model that are not measured: bandwidths, device speeds, boundary nodes; each can be set off.

An ordering of predicted times says something about a method only if it could have come out otherwise. The report makes
every predicted table again with one input at a time off by `FACTOR` either way (`SET_OFF`): a right ordering that
holds in all of them follows from the inputs that are certain, and is marked as theory (`Ordering.perturbed`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.workloads import is_workload, read_description
from reports.core.clusters import all_faster, hosts_slowed

FACTOR = 2.0
COUNTED = ("boundary", "ratio")  # keys of `[parts]` that say how many boundary nodes an edge cut has


@dataclass(frozen=True)
class Inputs:
    """Factors on the bandwidth of every link, on the speed of every device, and on the boundary nodes of every part."""

    bandwidth: float = 1.0
    compute: float = 1.0
    boundary: float = 1.0

    @property
    def which(self) -> str:
        """The first input that is off; empty without one."""
        named = {"bandwidth": self.bandwidth, "compute": self.compute, "boundary": self.boundary}
        return next((name for name, factor in named.items() if factor != 1.0), "")

    def text(self) -> str:
        """Such as "bandwidth x 2"."""
        named = (("bandwidth", self.bandwidth), ("device speed", self.compute), ("boundary nodes", self.boundary))
        return ", ".join(f"{name} x {factor:g}" for name, factor in named if factor != 1.0) or "as they are"

    def applied(self, config: Mapping[str, Any], keep: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
        """A config with these inputs; the same config where none is off or nothing is simulated.

        Args:
            config: keys of `RunConfig`.
            keep: writes a workload description to a file and returns its path (`Context.workload`).
        """
        changed = dict(config)
        if self == Inputs() or config.get("mode") != "sim":
            return changed
        if cluster := str(config.get("cluster", "")):
            faster = all_faster(cluster, self.bandwidth)
            changed["cluster"] = hosts_slowed(faster, int(config.get("parts", 1)), 1 / self.compute)
        dataset = str(config.get("dataset", ""))
        if self.boundary != 1.0 and is_workload(dataset):
            changed["dataset"] = keep(_with_boundary(_content(dataset), self.boundary))
        return changed


SET_OFF = tuple(
    replace(Inputs(), **{name: factor})
    for name in ("bandwidth", "compute", "boundary")
    for factor in (FACTOR, 1 / FACTOR)
)


def _content(dataset: str) -> dict[str, Any]:
    """A workload's file as it is written."""
    path: Path = read_description(dataset)[0]
    text = path.read_text()
    found: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    return found


def _with_boundary(description: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The description with `factor` times as many boundary nodes; unchanged where a partition itself or a formula says
    how many there are. The replication factor of a vertex cut is 1 without any mirror.
    """
    parts = dict(description.get("parts", {}))
    for name in COUNTED:
        if name in parts:
            parts[name] = _scaled(parts[name], lambda value: factor * value)
    if "replication" in parts:
        parts["replication"] = _scaled(parts["replication"], lambda value: 1 + factor * (value - 1))
    return {**description, "parts": parts}


def _scaled(given: Any, change: Callable[[float], float]) -> Any:
    """A number, numbers of every part, or a distribution of them, changed; with its source where it has one."""
    if isinstance(given, Mapping):
        kept = {name: value for name, value in given.items() if name not in ("value", "quantiles", "mean")}
        changed = {name: _scaled(given[name], change) for name in ("value", "mean") if name in given}
        if "quantiles" in given:
            changed["quantiles"] = [[share, change(value)] for share, value in given["quantiles"]]
        return {**kept, **changed}
    return [change(value) for value in given] if isinstance(given, list) else change(given)
