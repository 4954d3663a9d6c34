"""Published curves predicted by the model of networks and libraries that every simulated run uses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from harness.effects import Rows
from harness.rank import Rank
from sims.cluster import Cluster, place
from sims.engine import simulate
from sims.published._curves import PublishedCurve, machine_of
from sims.transport import LIBRARIES, Library
from sims.units import Quantity

MIB = 1 << 20
_Program = Callable[[Rank], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Prediction:
    """A curve and its predicted seconds, float64 [points]."""

    curve: PublishedCurve
    seconds: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """(predicted - published) / published, float64 [points]."""
        found: np.ndarray = self.seconds / self.curve.seconds - 1
        return found


@dataclass(frozen=True)
class Errors:
    """Relative errors without sign over some points: their number, median and 90th percentile."""

    points: int
    median: float
    most: float


def predict(curve: PublishedCurve, *, library: type[Library] | None = None, queued: bool = True) -> Prediction:
    """Predict every size of a curve on its machine.

    The tests of NCCL queue many operations and divide: a kernel is launched while the ones before it run, so that an
    operation takes as long as it runs, or as the launches of all devices of its process, whichever is more; broadcasts
    overlap. Without `queued` each operation is launched when the one before is over on all ranks.

    Args:
        library: takes the place of the machine's own, for ablations.
    """
    cluster = machine_of(curve)
    launched = curve.launches * cluster.transport.operation.value if queued else 0.0
    taken = type("Queued", (library or LIBRARIES.find(cluster.transport.kind),), {"queued": queued})
    placement = place(_without_launch(cluster) if queued else cluster, curve.ranks)
    programs = (_PROGRAMS[curve.operation](int(n)) for n in curve.nbytes)
    seconds = [
        simulate(program, placement, shapes_only=True, deterministic=False, library=taken).makespan_s
        for program in programs
    ]
    return Prediction(curve, np.maximum(seconds, launched))


def _without_launch(cluster: Cluster) -> Cluster:
    return replace(cluster, transport=replace(cluster.transport, operation=Quantity(0.0)))


def errors_of(predictions: list[Prediction], low: float = 0, high: float = np.inf) -> Errors:
    """Errors over the points of more than `low` and at most `high` bytes."""
    every = [p.error[(p.curve.nbytes > low) & (p.curve.nbytes <= high)] for p in predictions]
    size = np.abs(np.concatenate(every)) if every else np.empty(0)
    if not len(size):
        return Errors(0, np.nan, np.nan)
    return Errors(len(size), float(np.median(size)), float(np.quantile(size, 0.9)))


def _all_reduce(nbytes: int) -> _Program:
    async def program(rank: Rank) -> None:
        await rank.all_reduce(_buffer(nbytes), label="published")

    return program


def _broadcast(nbytes: int) -> _Program:
    async def program(rank: Rank) -> None:
        await rank.broadcast(_buffer(nbytes), root=0, label="published")

    return program


def _all_to_all(nbytes: int) -> _Program:
    async def program(rank: Rank) -> None:
        each = np.ones(rank.size, np.int64)
        rows = torch.empty(rank.size, max(nbytes // rank.size, 1), dtype=torch.uint8, device="meta")
        await rank.all_to_all([Rows(rows, each, each)], label="published")

    return program


def _ring_shift(nbytes: int) -> _Program:
    async def program(rank: Rank) -> None:
        send, receive = np.zeros(rank.size, np.int64), np.zeros(rank.size, np.int64)
        send[(rank.index + 1) % rank.size] = receive[(rank.index - 1) % rank.size] = 1
        await rank.all_to_all([Rows(_buffer(nbytes).reshape(1, -1), send, receive)], label="published")

    return program


def _send_receive(nbytes: int) -> _Program:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.send(_buffer(nbytes), to=1, label="published")
        elif rank.index == 1:
            await rank.recv(_buffer(nbytes), source=0, label="published")

    return program


def _buffer(nbytes: int) -> torch.Tensor:
    width = 4 if nbytes % 4 == 0 else 1
    return torch.empty(nbytes // width, dtype=torch.float32 if width == 4 else torch.uint8, device="meta")


_PROGRAMS: dict[str, Callable[[int], _Program]] = {
    "all-reduce": _all_reduce,
    "broadcast": _broadcast,
    "all-to-all": _all_to_all,
    "ring-shift": _ring_shift,
    "send-receive": _send_receive,
}
