"""The timeline of a run: spans of every rank, in memory and as a file for Perfetto (ui.perfetto.dev) or
chrome://tracing.

Drivers fill a `Trace`. Times are seconds here, microseconds in the file. A process of the file is a host, its threads
are the streams of its ranks; a stream has several lanes if exchanges overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from harness.machine import write_atomically

Stream = Literal["compute", "communication", "copy", "background"]
STREAMS: tuple[Stream, ...] = ("compute", "communication", "copy", "background")
MOST_ARROWS = 5_000  # messages drawn as arrows; more make viewers slow


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of one rank.

    Attributes:
        component: the component of time that it belongs to (`harness.rank.COMPONENTS`).
        name: the exchange's label, or the component.
        nbytes: bytes this rank sends in it.
        details: further properties (epoch, layer, direction).
    """

    rank: int
    stream: Stream
    component: str
    name: str
    start_s: float
    end_s: float
    nbytes: int = 0
    details: dict[str, Any] = field(default_factory=dict, hash=False)


class Message(NamedTuple):
    """One transfer from rank to rank, from the moment it could begin to its last byte."""

    source: int
    to: int
    start_s: float
    end_s: float
    nbytes: int


class Steps(NamedTuple):
    """A quantity that is constant between changes: `values[i]` from `times[i]` on."""

    times: list[float]
    values: list[float]


@dataclass
class Trace:
    """A traced run.

    Attributes:
        hosts: host of every rank.
        links: directed link -> share of its capacity in use; simulated runs only.
        facts: description of the run (method, cluster, whether times were measured).
    """

    hosts: list[int]
    spans: list[Span] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    links: dict[str, Steps] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """End of the last span."""
        return max((span.end_s for span in self.spans), default=0.0)

    def save(self, path: Path) -> None:
        """Write the trace as Chrome trace events. Raises InputError if it cannot be written."""
        content = {"traceEvents": list(self.events()), "displayTimeUnit": "ms", "otherData": self.facts}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(content))

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event of the file: names of processes and threads, complete spans, arrows, counters."""
        lanes = lanes_of(self.spans)
        threads = _threads(lanes)
        for host in sorted(set(self.hosts)):
            yield _named("process_name", host, 0, f"host {host}")
        for (rank, stream, lane), thread in threads.items():
            name = f"rank {rank} {stream}" + (f" {lane + 1}" if lane else "")
            yield _named("thread_name", self.hosts[rank], thread, name)
            yield {**_event("M", "thread_sort_index", self.hosts[rank], thread), "args": {"sort_index": thread}}
        for span, lane in lanes:
            yield self._complete(span, threads[span.rank, span.stream, lane])
        yield from self._arrows(lanes, threads)
        for link, steps in self.links.items():
            shares = {_us(time): share for time, share in zip(*steps, strict=True)}  # the last of equal rounded times
            for stamp, share in shares.items():
                counter = _event("C", f"{link} %", _owner(link, self.hosts), 0)
                yield {**counter, "ts": stamp, "args": {"%": round(100 * share, 2)}}

    def _complete(self, span: Span, thread: int) -> dict[str, Any]:
        begin, end = _us(span.start_s), _us(span.end_s)
        args = {"component": span.component, "bytes": span.nbytes, **span.details}
        event = _event("X", span.name, self.hosts[span.rank], thread)
        return {**event, "cat": span.stream, "ts": begin, "dur": round(end - begin, 3), "args": args}

    def _arrows(
        self, lanes: Sequence[tuple[Span, int]], threads: dict[tuple[int, Stream, int], int]
    ) -> Iterator[dict[str, Any]]:
        """An arrow per message, between the exchanges it belongs to; at most MOST_ARROWS, the largest messages."""
        flights: dict[int, list[tuple[Span, int]]] = defaultdict(list)
        for span, lane in lanes:
            if span.stream == "communication":
                flights[span.rank].append((span, lane))
        drawn = sorted(self.messages, key=lambda message: -message.nbytes)[:MOST_ARROWS]
        for number, message in enumerate(drawn):
            ends = [_around(flights[rank], message) for rank in (message.source, message.to)]
            if None in ends:
                continue
            times = (message.start_s, message.end_s)
            for phase, rank, end, time in zip("sf", (message.source, message.to), ends, times, strict=True):
                assert end is not None
                event = _event(phase, "message", self.hosts[rank], threads[rank, "communication", end])
                bound = {"bp": "e"} if phase == "f" else {}
                yield {**event, "cat": "message", "id": number, "ts": _us(time), "args": message._asdict(), **bound}


def lanes_of(spans: Iterable[Span]) -> list[tuple[Span, int]]:
    """Every span with its lane, such that spans of a lane are disjoint or nested."""
    open_spans: dict[tuple[int, Stream], list[list[Span]]] = defaultdict(list)
    placed = []
    for span in sorted(spans, key=lambda s: (s.start_s, -s.end_s)):
        stacks = open_spans[span.rank, span.stream]
        for lane, stack in enumerate([*stacks, []]):
            while stack and _us(stack[-1].end_s) <= _us(span.start_s):
                stack.pop()
            if not stack or _us(span.end_s) <= _us(stack[-1].end_s):
                if lane == len(stacks):
                    stacks.append(stack)
                stack.append(span)
                placed.append((span, lane))
                break
    return placed


def _threads(lanes: Iterable[tuple[Span, int]]) -> dict[tuple[int, Stream, int], int]:
    """Thread numbers from 1, by rank, stream and lane."""
    keys = sorted({(span.rank, STREAMS.index(span.stream), lane) for span, lane in lanes})
    return {(rank, STREAMS[stream], lane): at for at, (rank, stream, lane) in enumerate(keys, 1)}


def _around(flights: list[tuple[Span, int]], message: Message) -> int | None:
    """The lane of the exchange that a message belongs to."""
    for span, lane in flights:
        if span.start_s <= message.start_s and message.end_s <= span.end_s:
            return lane
    return None


def _owner(link: str, hosts: Sequence[int]) -> int:
    """The process that shows a link's counter: the host in its name, if any, else the first."""
    name = link.partition(".")[0]
    if name.startswith("rank") and name[4:].isdigit():
        return hosts[int(name[4:])]
    return int(name[4:]) if name.startswith("host") and name[4:].isdigit() else hosts[0]


def _event(phase: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": phase, "name": name, "pid": process, "tid": thread}


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {**_event("M", kind, process, thread), "args": {"name": name}}


def _us(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(seconds * 1e6, 3)
