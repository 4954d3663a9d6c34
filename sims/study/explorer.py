"""Recorded runs under any setting of a modelled cluster: links, device speed, library, ranks, options of methods.

Every method is recorded once for each number of ranks; a point is a replay, exact and without tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.config import RunConfig
from harness.errors import InputError, unknown
from sims.cluster import Cluster, varied
from sims.replay import Replay, traced
from sims.study._variants import Variant

MOST_RANKS = 16
"""Ranks of a timeline: the first ones; more cannot be told apart in a picture."""

SPEEDS = (0.05, 20.0)


@dataclass(frozen=True)
class LinkSetting:
    """A setting of the cluster.

    Attributes:
        ranks: one of the recorded numbers of ranks.
        variant: label of a `Variant`; empty for the cluster itself.
        speed: factor on the speed of compute: of all devices, and of the hosts that launch their operators.
        links: kind -> (bandwidth in B/s, latency in s); None, or a kind that is left out, is the cluster's own.
    """

    ranks: int
    variant: str = ""
    speed: float = 1.0
    links: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A method's config and its recording, ready to be timed."""

    config: RunConfig
    replay: Replay


class Explorer:
    """Times recorded runs under any `LinkSetting`, and keeps what it has timed.

    Args:
        runs: of every method at every number of ranks.
        variants: the cluster itself first.
    """

    def __init__(self, runs: Sequence[RecordedRun], variants: Sequence[Variant]) -> None:
        self._runs = {(run.config.cut.parts, run.config.training.method): run for run in runs}
        self._variants = {variant.label: variant for variant in variants}
        self.cluster = variants[0].cluster
        self.methods = list(dict.fromkeys(method for _, method in self._runs))
        self.variants = list(self._variants)
        self.ranks = sorted({ranks for ranks, _ in self._runs})
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def state(self, given: Mapping[str, Any]) -> LinkSetting:
        """The state that a mapping of JSON values describes; what is left out is the cluster's own.

        Raises:
            InputError: an unknown key, a number of ranks that was not recorded, or a value out of range.
        """
        for name in given:
            if name not in ("ranks", "variant", "speed", "links"):
                raise unknown("key of a state", name, ["ranks", "variant", "speed", "links"])
        ranks, variant = given.get("ranks", self.ranks[0]), given.get("variant", "")
        if ranks not in self.ranks or isinstance(ranks, bool):
            raise InputError(f"ranks {ranks!r} were not recorded; these were: {', '.join(map(str, self.ranks))}")
        if not isinstance(variant, str) or variant not in self._variants:
            raise InputError(f"no variant {variant!r}; there are: {', '.join(map(repr, self._variants))}")
        speed = _number(given.get("speed", 1.0), "speed", *SPEEDS)
        links = given.get("links", {})
        if not isinstance(links, Mapping):
            raise InputError("links must be a table of kind -> {bandwidth, latency}")
        return LinkSetting(
            int(ranks), variant, speed, {kind: self._link(kind, values) for kind, values in links.items()}
        )

    def _link(self, kind: str, values: Any) -> tuple[float | None, float | None]:
        if kind not in self.cluster.links:
            raise unknown("link", kind, list(self.cluster.links))
        if not isinstance(values, Mapping) or set(values) - {"bandwidth", "latency"}:
            raise InputError(f"links.{kind} takes bandwidth, in B/s, and latency, in s")
        bandwidth, latency = values.get("bandwidth"), values.get("latency")
        return (
            None if bandwidth is None else _number(bandwidth, f"links.{kind}.bandwidth", 1.0, 1e15),
            None if latency is None else _number(latency, f"links.{kind}.latency", 1e-12, 1e3),
        )

    def cluster_at(self, state: LinkSetting) -> Cluster:
        """The cluster in a state."""
        cluster = self._variants[state.variant].cluster
        for kind, (bandwidth, latency) in state.links.items():
            if bandwidth is not None:
                cluster = varied(cluster, kind, "bandwidth", bandwidth)
            if latency is not None:
                cluster = varied(cluster, kind, "latency", latency)
        if state.speed == 1.0:
            return cluster
        pace = {rank: cluster.stragglers.ranks.get(rank, 1.0) / state.speed for rank in range(state.ranks)}
        return replace(cluster, stragglers=replace(cluster.stragglers, ranks=pace))

    def runs_at(self, ranks: int) -> dict[str, RecordedRun]:
        """Method -> its recorded run on so many ranks."""
        return {method: run for (count, method), run in self._runs.items() if count == ranks}

    def point(self, state: LinkSetting) -> list[dict[str, Any]]:
        """One row per method: seconds by component, bytes and whether it fits, of a typical epoch after the first."""
        return [self._row(state, method) for method in self.methods if (state.ranks, method) in self._runs]

    def _row(self, state: LinkSetting, method: str) -> dict[str, Any]:
        links = tuple(sorted((kind, *values) for kind, values in state.links.items()))
        key = (state.ranks, state.variant, state.speed, links, method)
        if key not in self._known:
            run = self._runs[state.ranks, method]
            timed = run.replay.time(self.cluster_at(state))
            seconds, nbytes = timed.typical(run.config)
            large = timed.simulation.too_large
            self._known[key] = {"method": method, "seconds": seconds, "bytes": nbytes, "too_large": large}
        return self._known[key]

    def timeline(self, state: LinkSetting, method: str) -> dict[str, Any]:
        """The last recorded epoch of a method: spans of the first `MOST_RANKS` ranks, and the mean load of every link.

        Raises InputError for a method that was not recorded.
        """
        run = self._runs.get((state.ranks, method))
        if run is None:
            raise unknown("recorded method", method, self.methods)
        trace = traced(run.replay, self.cluster_at(state))
        last = max(span.details["epoch"] for span in trace.spans)
        shown = [span for span in trace.spans if span.details["epoch"] == last]
        begin, end = min(span.start_s for span in shown), max(span.end_s for span in shown)
        spans = [
            [span.rank, span.stream, span.component, span.name, span.start_s - begin, span.end_s - begin, span.nbytes]
            for span in shown
            if span.rank < MOST_RANKS
        ]
        load = {name: _mean(steps.times, steps.values, begin, end) for name, steps in trace.links.items()}
        return {"hosts": list(trace.hosts), "spans": spans, "seconds": end - begin, "load": load}


def _mean(times: Sequence[float], shares: Sequence[float], begin: float, end: float) -> float:
    """Mean of a step function between two instants."""
    total = 0.0
    for start, stop, share in zip(times, [*times[1:], math.inf], shares, strict=True):
        total += share * max(min(stop, end) - max(start, begin), 0.0)
    return total / max(end - begin, 1e-300)


def _number(value: Any, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
    return float(value)
