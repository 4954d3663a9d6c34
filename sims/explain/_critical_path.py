"""The critical path of a timeline: what would have to be faster for its end to come earlier.

It is followed backwards from the end. A stretch of compute leads to its own start. An exchange leads to whichever of
the rank and those it waited for came to it last, and the path goes on there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from harness.running.trace import Span, Steps, Trace
from sims.study import link_kind

SOFTWARE = "software and latency"
"""What an exchange takes on whose way no link is busy."""

BUSY = 0.5
"""Mean share of a link's capacity above which an exchange is said to take as long as that link does."""

NEAR = 1e-9
"""Relative difference of two times that are one."""


class Step(NamedTuple):
    """A piece of the path: what rank `rank` did, and for an exchange the kind of link that it took as long as."""

    rank: int
    start_s: float
    end_s: float
    component: str
    name: str
    link: str = ""


@dataclass(frozen=True)
class CriticalPath:
    """A critical path, from its begin to its end."""

    steps: list[Step]

    @property
    def seconds(self) -> float:
        """From the begin of the first step to the end of the last."""
        return self.steps[-1].end_s - self.steps[0].start_s if self.steps else 0.0

    @property
    def changes(self) -> int:
        """How often it passes from one rank to another."""
        return sum(a.rank != b.rank for a, b in zip(self.steps, self.steps[1:], strict=False))

    def by(self, name: str) -> dict[str, float]:
        """Seconds by a field of the steps (component, rank, link), the most first; steps without one are left out."""
        found: dict[str, float] = defaultdict(float)
        for step in self.steps:
            if (key := str(getattr(step, name))) != "":
                found[key] += step.end_s - step.start_s
        return dict(sorted(found.items(), key=lambda item: -item[1]))


@dataclass
class _Lane:
    """The spans of one rank, by their ends."""

    spans: list[Span] = field(default_factory=list)
    ends: np.ndarray = field(default_factory=lambda: np.empty(0))

    def before(self, time: float, tolerance: float) -> tuple[list[Span], float]:
        """Spans that end at a time, and the last end up to it."""
        at = int(np.searchsorted(self.ends, time + tolerance, side="right"))
        last = float(self.ends[at - 1]) if at else -np.inf
        first = int(np.searchsorted(self.ends, last - tolerance, side="left")) if at else 0
        return self.spans[first:at], last


def critical_path(trace: Trace, window: tuple[float, float]) -> CriticalPath:
    """The path that ends with the last span of a window, back to the window's begin."""
    begin, end = window
    tolerance = NEAR * max(end, 1e-12)
    lanes = _lanes(trace.spans, end + tolerance)
    meetings = _meetings(trace.spans)
    senders = _senders(trace)
    steps: list[Step] = []
    if not lanes:
        return CriticalPath(steps)
    rank = max(lanes, key=lambda r: lanes[r].ends[-1])
    time = float(lanes[rank].ends[-1])
    after: Span | None = None
    while time > begin + tolerance:
        here, last = lanes[rank].before(time, tolerance)
        if not here or last <= begin:
            steps.append(_gap(rank, begin, time, [], after))
            break
        if last < time - tolerance:
            steps.append(_gap(rank, last, time, here, after))
            time = last
            continue
        span = min(
            here, key=lambda s: (s.stream != "compute", s.stream != "copy", s.stream == "background", -s.start_s)
        )
        since, cause = span.start_s, rank
        if span.stream == "communication":
            for other, start in meetings[_key(span)].items():
                if start > since + tolerance and other in senders.get(rank, meetings[_key(span)]):
                    since, cause = start, other
        since = max(since, begin)
        link = _busiest(trace, since, time) if span.stream == "communication" else ""
        steps.append(Step(rank, since, time, span.component, span.name, link))
        rank, time, after = cause, since, span
    return CriticalPath(steps[::-1])


def _gap(rank: int, start: float, end: float, before: Sequence[Span], after: Span | None) -> Step:
    """A stretch without a span: beside an exchange it is the exchange's, whose software runs on the cores that ranks
    share, or which waits for its turn there (`sims.engine`); elsewhere the rank waits."""
    for span in (after, *before):
        if span is not None and span.stream == "communication":
            return Step(rank, start, end, span.component, span.name, SOFTWARE)
    return Step(rank, start, end, "wait", "wait")


def _lanes(spans: Iterable[Span], until: float) -> dict[int, _Lane]:
    lanes: dict[int, _Lane] = defaultdict(_Lane)
    for span in sorted(spans, key=lambda s: s.end_s):
        if span.end_s <= until:
            lanes[span.rank].spans.append(span)
    for lane in lanes.values():
        lane.ends = np.asarray([span.end_s for span in lane.spans])
    return lanes


_Key = tuple[str, str, int, int, int]


def _key(span: Span) -> _Key:
    about = span.details
    return span.name, about["direction"], about["layer"], about["epoch"], about["turn"]


def _meetings(spans: Sequence[Span]) -> dict[_Key, dict[int, float]]:
    """Exchange -> rank -> when it came to it. Exchanges of one tag are told apart by their order (`turn`)."""
    turns: dict[tuple[int, _Key], int] = defaultdict(int)
    found: dict[_Key, dict[int, float]] = defaultdict(dict)
    for span in sorted((s for s in spans if s.stream == "communication"), key=lambda s: s.start_s):
        span.details["turn"] = 0
        plain = span.rank, _key(span)
        span.details["turn"] = turns[plain]
        turns[plain] += 1
        found[_key(span)][span.rank] = span.start_s
    return found


def _senders(trace: Trace) -> dict[int, set[int]]:
    """Rank -> ranks that ever send to it; empty where transfers were not kept apart."""
    found: dict[int, set[int]] = defaultdict(set)
    for message in trace.messages:
        found[message.to].add(message.source)
    return found


def _busiest(trace: Trace, start: float, end: float) -> str:
    """The kind of the link that is busiest in a stretch of time; SOFTWARE where none is busy."""
    shares = {name: _mean(steps, start, end) for name, steps in trace.links.items()}
    name = max(shares, key=shares.__getitem__, default="")
    return link_kind(name) if name and shares[name] >= BUSY else SOFTWARE


def _mean(steps: Steps, start: float, end: float) -> float:
    """Mean of a step function between two times."""
    if end <= start or not steps.times:
        return 0.0
    times = np.asarray(steps.times)
    edges = np.unique(np.clip(np.concatenate([[start, end], times]), start, end))
    at = np.searchsorted(times, edges[:-1], side="right") - 1
    values = np.where(at >= 0, np.asarray(steps.values)[at], 0.0)
    return float((values * np.diff(edges)).sum() / (end - start))
