"""Measures a lab's links over sockets, and checks what this machine can build. All traffic is bounded."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.config import PAYLOAD_SHARE
from harness.errors import HaloscopeError, InputError
from real.lab import _hosts as lab
from real.lab import _namespaces as namespaces
from real.lab._hosts import Lab

SECONDS = 0.5  # of one transfer
ALL_SECONDS = 30.0  # of all transfers of a lab together
MOST_BYTES = 1 << 30  # of one transfer
PINGS = 50
PATIENCE_S = 30.0  # limit of one transfer
_CHUNK = 256 << 10

Flow = tuple[int, int]  # from host, to host


@dataclass(frozen=True)
class Measured:
    """One direction between two hosts, or all others to one (`source` None), in payload bytes/s.

    Attributes:
        asked: payload rate that the links' settings allow; None where they are not shaped.
        rate: the measured rate.
        round_trip: median seconds of one byte there and back; None where all send.
    """

    source: int | None
    target: int
    asked: float | None
    rate: float
    round_trip: float | None


class Ability(NamedTuple):
    """One thing a lab needs or can use; `good` is None where it is optional and absent."""

    what: str
    found: str
    good: bool | None


def links(built: Lab) -> Iterator[Measured]:
    """Every ordered pair of hosts, one after the other, then all others to each host at once."""
    count = built.spec.hosts
    seconds = min(SECONDS, ALL_SECONDS / max(1, count * count))
    for source in range(count):
        for target in range(count):
            if source != target:
                limit = _payload(built.spec.rate_between(source, target))
                rate = throughput(built, [(source, target)], seconds)
                yield Measured(source, target, limit, rate, round_trip(built, source, target))
    for target in range(count if count > 2 else 0):
        rate = throughput(built, [(host, target) for host in range(count) if host != target], seconds)
        yield Measured(None, target, _payload(_incast(built, target)), rate, None)


def throughput(built: Lab, flows: Sequence[Flow], seconds: float = SECONDS) -> float:
    """Payload bytes/s of TCP connections that all send at once for about so many seconds, together.

    Raises:
        HaloscopeError: a transfer did not end in half a minute.
    """
    ends: list[
        tuple[float, float, int]
    ] = []  # first and last arrival of each connection, and its bytes after the first

    def receive(connection: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        connection.recv_into(buffer)
        begun = now = time.perf_counter()
        total = 0
        while got := connection.recv_into(buffer):
            now, total = time.perf_counter(), total + got
        ends.append((begun, now, total))

    def send(connection: socket.socket, most: int) -> None:
        chunk, deadline, sent = bytes(_CHUNK), time.perf_counter() + seconds, 0
        while sent < most and time.perf_counter() < deadline:
            sent += connection.send(chunk[: most - sent])
        connection.shutdown(socket.SHUT_WR)

    with _connected(built, flows) as pairs:
        work: list[Callable[[], None]] = []
        for flow, (sender, receiver) in zip(flows, pairs, strict=True):
            limit = built.spec.rate_between(*flow)
            most = int(min(MOST_BYTES, MOST_BYTES if limit is None else limit * seconds))
            work += [lambda c=receiver: receive(c), lambda c=sender, m=most: send(c, m)]  # type: ignore[misc]
        _together(work)
    begun, ended = min(e[0] for e in ends), max(e[1] for e in ends)
    return sum(e[2] for e in ends) / max(ended - begun, 1e-9)


def round_trip(built: Lab, source: int, target: int, pings: int = PINGS) -> float:
    """Median seconds of one byte to a host and back."""
    times: list[float] = []

    def ask(connection: socket.socket) -> None:
        for _ in range(pings):
            begun = time.perf_counter()
            connection.sendall(b"?")
            connection.recv(1)
            times.append(time.perf_counter() - begun)

    def answer(connection: socket.socket) -> None:
        for _ in range(pings):
            connection.sendall(connection.recv(1))

    with _connected(built, [(source, target)]) as [(near, far)]:
        _together([lambda: ask(near), lambda: answer(far)])
    return median(times)


def ahead(built: Lab, source: int, target: int, sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Messages of so many bytes, one after the other over one connection: seconds after which the sender of each is
    done, and after which its receiver has it."""
    times: list[tuple[float, float]] = []
    buffer, done = bytearray(1 << 20), [0.0, 0.0]

    def send(connection: socket.socket, nbytes: int) -> None:
        connection.sendall(bytes(nbytes))
        done[0] = time.perf_counter()

    def receive(connection: socket.socket, nbytes: int) -> None:
        while nbytes:
            nbytes -= connection.recv_into(buffer, min(nbytes, len(buffer)))
        done[1] = time.perf_counter()

    with _connected(built, [(source, target)]) as [(near, far)]:
        for nbytes in sizes:
            begun = time.perf_counter()
            _together([lambda n=nbytes: send(near, n), lambda n=nbytes: receive(far, n)])  # type: ignore[misc]
            times.append((done[0] - begun, done[1] - begun))
    return times


@contextmanager
def _connected(built: Lab, flows: Sequence[Flow]) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """A TCP connection for each flow, as pairs of its ends."""
    opened: list[socket.socket] = []
    try:
        pairs = []
        for source, target in flows:
            with namespaces.inside(built.hosts[target]):
                listener = socket.create_server((built.addresses[target], 0))
            opened.append(listener)
            listener.settimeout(PATIENCE_S)
            with namespaces.inside(built.hosts[source]):
                near = socket.create_connection(listener.getsockname(), PATIENCE_S)
            opened.append(near)
            far, _ = listener.accept()
            opened.append(far)
            for end in (near, far):
                end.settimeout(PATIENCE_S)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pairs.append((near, far))
        yield pairs
    finally:
        for end in opened:
            end.close()


def _together(work: Sequence[Callable[[], None]]) -> None:
    """Run functions in threads at once. Raises HaloscopeError for the first that failed."""
    failures: list[OSError] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), name="lab-probe") for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise HaloscopeError(f"a transfer inside the lab failed: {failures[0]}")


def _payload(rate: float | None) -> float | None:
    return None if rate is None else rate * PAYLOAD_SHARE


def _incast(built: Lab, target: int) -> float | None:
    """Payload bytes/s that can reach a host from all others; None where they are not limited."""
    own, rates = built.spec.rates[target], [r for h, r in enumerate(built.spec.rates) if h != target]
    shaped = [rate for rate in rates if rate is not None]
    others = sum(shaped) if len(shaped) == len(rates) else None
    return min((limit for limit in (own, others) if limit is not None), default=None)


def abilities() -> Iterator[Ability]:
    """What this machine has for a lab; stops at the first missing requirement of all the rest."""
    for tool in ("ip", "tc"):
        path = shutil.which(tool)
        yield Ability(tool, path or "not installed (package iproute2)", path is not None)
    try:
        namespaces.require()
        kinds = {shaper: lab.available(shaper) for shaper in lab.SHAPERS}
    except InputError as error:
        yield Ability("network namespaces", str(error), False)
        return
    yield Ability("network namespaces", "can be made and removed", True)
    yield Ability(
        "tbf", "links can be shaped" if kinds["tbf"] else "the kernel lacks it: unshaped links only", kinds["tbf"]
    )
    netem = "links can be delayed" if kinds["netem"] else "the kernel lacks it: no delay=TIME"
    yield Ability("netem", netem, kinds["netem"] or None)
    with suppress(OSError):
        folder = Path("/proc/sys/net/ipv4")
        allowed = (folder / "tcp_allowed_congestion_control").read_text().split()
        usual = (folder / "tcp_congestion_control").read_text().strip()
        control = next((name for name in lab.CONTROLS if name in allowed), usual)
        yield Ability(
            "TCP", f"congestion control {control} in a lab, {usual} elsewhere", control in lab.CONTROLS or None
        )
    yield Ability("cores", f"{len(os.sched_getaffinity(0))}, shared by all hosts of a lab", True)
    left = namespaces.stale()
    yield Ability(
        "left behind", f"{len(left)} namespaces of dead processes" + ("; --clean" if left else ""), not left or None
    )
