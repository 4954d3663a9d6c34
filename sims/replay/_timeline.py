"""A recorded run as a timeline: spans of every rank, transfers between ranks, and the utilisation of every link."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

import numpy as np

from harness.effects import Background, Effect, HostCopy
from harness.running.trace import Message, Span, Steps, Stream, Trace
from sims.cluster import Cluster, Placement
from sims.engine import Observer
from sims.replay._replay import Replay

MOST_RANKS = 128  # with more, single transfers are left out: their number grows with the square of the ranks


def traced(replay: Replay, cluster: Cluster) -> Trace:
    """Time the run on a cluster and collect its timeline. Raises InputError as `Replay.time`."""
    timeline = Timeline()
    simulator = replay.simulator(cluster, observers=[timeline])
    simulator.run()
    placement = simulator.placement
    trace = Trace(placement.host.tolist())
    trace.spans = timeline.spans
    trace.messages = timeline.messages(placement)
    trace.links = timeline.links(placement)
    return trace


class Timeline(Observer):
    """Spans of compute and of effects, rank by rank, and every transfer of the network.

    Attributes:
        spans: in order of their ends, without those of zero duration.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._begun: defaultdict[int, list[float]] = defaultdict(list)  # rank -> when its epochs began
        self._routes: list[np.ndarray] = []
        self._nbytes, self._start, self._latency, self._finish = ([np.empty(0)] for _ in range(4))  # of many at a time
        self._copies: list[tuple[float, float, int, int, float]] = []

    def epoch_began(self, rank: int, now: float) -> None:
        """See `Observer`."""
        self._begun[rank].append(now)

    def computed(self, rank: int, component: str, start: float, end: float) -> None:
        """See `Observer`."""
        self._span(rank, "copy" if component == "swap" else "compute", component, component, start, end, 0, {})

    def carried_out(self, rank: int, component: str, effect: Effect, start: float, end: float, nbytes: int) -> None:
        """See `Observer`."""
        stream: Stream = "copy" if isinstance(effect, HostCopy) else "communication"
        details = {"kind": effect.kind, "direction": effect.tag.direction, "layer": effect.tag.layer}
        self._span(rank, stream, component, effect.tag.label, start, end, nbytes, details)

    def converted(self, rank: int, effect: Background, start: float, end: float) -> None:
        """See `Observer`."""
        details = {"direction": effect.tag.direction, "layer": effect.tag.layer}
        self._span(rank, "background", "codec", effect.tag.label, start, end, 0, details)

    def _span(
        self, rank: int, stream: Stream, component: str, label: str, start: float, end: float, nbytes: int,
        details: dict[str, Any],
    ) -> None:  # fmt: skip
        if end > start:
            epoch = bisect.bisect_right(self._begun[rank], start) - 1
            self.spans.append(Span(rank, stream, component, label, start, end, nbytes, {"epoch": epoch, **details}))

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """See `Observer`."""
        self._copies.append((start, finish, link, nbytes, latency))

    def transfers_began(self, now: float, links: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """See `Observer`."""
        self._routes.append(links)
        self._nbytes.append(np.asarray(nbytes, np.float64))
        self._start.append(np.full(len(links), now))
        self._latency.append(np.broadcast_to(np.asarray(latency, np.float64), len(links)))

    def transfers_ended(self, finish: np.ndarray) -> None:
        """See `Observer`."""
        self._finish.append(finish.copy())

    def messages(self, placement: Placement) -> list[Message]:
        """Transfers from rank to rank, without copies and transfers whose links do not identify the ranks."""
        if placement.size > MOST_RANKS:
            return []
        pairs = _pairs(placement)
        found = []
        finish = np.concatenate(self._finish)
        flat = zip(self._routes, self._nbytes[1:], self._start[1:], strict=True)
        rows = ((route, size, begin) for table in flat for route, size, begin in zip(*table, strict=True))
        for (route, size, begin), end in zip(rows, finish, strict=True):
            pair = pairs.get(tuple(route[route >= 0].tolist()))
            if pair is not None:
                found.append(Message(*pair, float(begin), float(end), int(size)))
        return found

    def links(self, placement: Placement) -> dict[str, Steps]:
        """Share of capacity in use over time, by link: every transfer's bytes spread evenly over its duration."""
        changes: dict[int, list[tuple[float, float]]] = defaultdict(list)
        finish, begin = np.concatenate(self._finish), np.concatenate(self._start) + np.concatenate(self._latency)
        rate = np.concatenate(self._nbytes) / np.maximum(finish - begin, 1e-12)
        first = 0
        for routes in self._routes:
            flow, hop = np.nonzero(routes >= 0)
            for at, link in zip((flow + first).tolist(), routes[flow, hop].tolist(), strict=True):
                changes[link] += ((float(begin[at]), rate[at]), (float(finish[at]), -rate[at]))
            first += len(routes)
        for start, end, link, nbytes, latency in self._copies:
            pace = nbytes / max(end - start - latency, 1e-12)
            changes[link] += ((start + latency, pace), (end, -pace))
        return {
            placement.names[link]: _steps(found, float(placement.capacity[link]))
            for link, found in sorted(changes.items())
        }


def _pairs(placement: Placement) -> dict[Any, tuple[int, int]]:
    """Links of a route -> (from, to), where only one pair of ranks has that route."""
    src, dst = np.nonzero(~np.eye(placement.size, dtype=bool))
    found: dict[Any, tuple[int, int] | None] = {}
    for route, a, b in zip(placement.routes(src, dst), src.tolist(), dst.tolist(), strict=True):
        key = tuple(route[route >= 0].tolist())
        found[key] = None if key in found else (a, b)
    return {key: pair for key, pair in found.items() if pair is not None}


def _steps(changes: list[tuple[float, float]], capacity: float) -> Steps:
    """Changes of a rate, B/s, as a step function of its share of a capacity."""
    order = sorted(changes)
    times, total = np.asarray([time for time, _ in order]), np.cumsum([change for _, change in order])
    last = np.append(np.diff(times) > 0, True)  # changes of one instant count together
    share = np.clip(total[last] / capacity, 0.0, 1.0)
    share[share < 1e-9] = 0.0
    return Steps(times[last].tolist(), share.tolist())
