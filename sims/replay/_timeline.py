"""A recorded run as a timeline: spans of every rank, transfers between ranks, and how busy every link was."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

import numpy as np

from harness.running.trace import Message, Span, Steps, Stream, Trace
from sims.cluster import Cluster, Placement
from sims.replay._recording import Recording
from sims.replay._replay import Player, Replay

MOST_RANKS = 128  # with more, transfers are not told apart: their number grows with the square


def traced(replay: Replay, cluster: Cluster) -> Trace:
    """Time the run on a cluster and keep what happened when. Raises InputError as `Replay.time`."""
    run = replay.run(cluster)
    placement, players = run.placement, [stepper for stepper in run.steppers if isinstance(stepper, Player)]
    tags = _tags(replay.recording)
    trace = Trace(placement.host.tolist())

    def on_span(rank: int, component: str, label: str, start: float, end: float, nbytes: int) -> None:
        if end > start:
            details = {"epoch": bisect.bisect_right(players[rank].begun, start) - 1, **tags.get(label, {})}
            trace.spans.append(Span(rank, _stream(component, label), component, label, start, end, nbytes, details))

    run.on_span = run.flights.on_span = on_span
    transfers = run.flights.network.watch = Transfers()
    run.run()
    run.flights.network.report()
    trace.messages = transfers.messages(placement)
    trace.links = transfers.links(placement)
    return trace


def _tags(recording: Recording) -> dict[str, dict[str, Any]]:
    """Label of an exchange -> what every exchange of that label is."""
    found: dict[str, dict[str, Any]] = {}
    for exchange in recording.exchanges:
        tag = exchange.tag
        details = {"kind": exchange.kind, "direction": tag.direction, "layer": tag.layer}
        same = found.setdefault(tag.label, details)
        found[tag.label] = {key: value for key, value in same.items() if details[key] == value}
    return found


def _stream(component: str, label: str) -> Stream:
    """Compute spans have their component as label; see `sims.engine.OnSpan`."""
    if label == component and component in ("compute", "codec", "sample"):
        return "compute"
    return "copy" if component == "swap" else "communication"


class Transfers:
    """Every transfer of a network; a `sims.network.Watch`."""

    def __init__(self) -> None:
        self.routes: list[np.ndarray] = []
        self.nbytes, self.start, self.latency, self.finish = ([np.empty(0)] for _ in range(4))  # of many at a time
        self.copies: list[tuple[float, float, int, int, float]] = []

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """Note a copy that has ended."""
        self.copies.append((start, finish, link, nbytes, latency))

    def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Note transfers that begin."""
        self.routes.append(routes)
        self.nbytes.append(np.asarray(nbytes, np.float64))
        self.start.append(np.full(len(routes), now))
        self.latency.append(np.broadcast_to(np.asarray(latency, np.float64), len(routes)))

    def ended(self, finish: np.ndarray) -> None:
        """Note when those noted since the last call ended."""
        self.finish.append(finish.copy())

    def messages(self, placement: Placement) -> list[Message]:
        """Transfers from rank to rank; those whose links do not tell the ranks, and copies, are left out."""
        if placement.size > MOST_RANKS:
            return []
        pairs = _pairs(placement)
        found = []
        finish = np.concatenate(self.finish)
        flat = zip(self.routes, self.nbytes[1:], self.start[1:], strict=True)
        rows = ((route, size, begin) for table in flat for route, size, begin in zip(*table, strict=True))
        for (route, size, begin), end in zip(rows, finish, strict=True):
            pair = pairs.get(tuple(route[route >= 0].tolist()))
            if pair is not None:
                found.append(Message(*pair, float(begin), float(end), int(size)))
        return found

    def links(self, placement: Placement) -> dict[str, Steps]:
        """Share of capacity in use over time, by link: every transfer's bytes spread evenly over its draining."""
        changes: dict[int, list[tuple[float, float]]] = defaultdict(list)
        finish, begin = np.concatenate(self.finish), np.concatenate(self.start) + np.concatenate(self.latency)
        rate = np.concatenate(self.nbytes) / np.maximum(finish - begin, 1e-12)
        first = 0
        for routes in self.routes:
            flow, hop = np.nonzero(routes >= 0)
            for at, link in zip((flow + first).tolist(), routes[flow, hop].tolist(), strict=True):
                changes[link] += ((float(begin[at]), rate[at]), (float(finish[at]), -rate[at]))
            first += len(routes)
        for start, end, link, nbytes, latency in self.copies:
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
