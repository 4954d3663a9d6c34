"""Times every collective between the ranks of a run, through the real driver, and fits what a message costs.

Seconds of a collective = alpha + bytes x beta, where alpha holds all software of it (Python, the library, waking up)
and beta what a byte that one rank sends takes while all ranks send. Operators are measured in `real.probes`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from scipy.optimize import nnls

from harness.effects import Effect, Rows
from harness.rank import Rank
from real.connection import connect
from real.driver import run
from real.health import end_process

SIZES = tuple(4**k for k in range(5, 12))
"""Bytes: 1 KiB to 4 MiB."""

KINDS = ("all_to_all", "counted", "all_reduce", "ring", "broadcast", "pair")
"""all_to_all sends so many bytes to every other rank; counted does when only the sender knows how many; all_reduce adds
in rank order, ring is the library's own; pair is a send and its receive, from even ranks to odd ones."""


class Line(msgspec.Struct, frozen=True):
    """One kind of collective among so many ranks.

    Attributes:
        alpha: seconds without bytes.
        beta: seconds per byte that a rank sends.
        error: relative error of the fit, the largest of all sizes.
        points: (bytes that a rank sends, median seconds, spread: interquartile range in seconds).
    """

    alpha: float
    beta: float
    error: float
    points: list[tuple[float, float, float]]


def fit(points: list[tuple[float, float, float]]) -> Line:
    """The line through points (bytes, seconds, spread): least squares of the relative error, neither cost negative."""
    nbytes, seconds, _ = np.asarray(points, np.float64).T
    design = np.stack([np.ones_like(nbytes), nbytes], axis=1) / seconds[:, None]
    (alpha, beta), _ = nnls(design / design.max(0), np.ones_like(seconds))
    alpha, beta = np.asarray([alpha, beta]) / design.max(0)
    alpha, beta = max(float(alpha), 1e-7), max(float(beta), 1e-15)
    error = float(np.abs((alpha + beta * nbytes) / seconds - 1).max())
    return Line(alpha, beta, error, points)


def sent(kind: str, nbytes: int, size: int) -> int:
    """Bytes that one rank sends in a collective of this size: the x axis of its line."""
    if kind in ("all_to_all", "counted"):
        return nbytes * (size - 1)
    return 2 * nbytes * (size - 1) // size if kind in ("all_reduce", "ring") else nbytes


async def probe(rank: Rank, budget_s: float) -> dict[str, list[tuple[float, float, float]]]:
    """Every kind at every size, about `budget_s` each; answers the points by kind, as this rank saw them."""
    await rank.all_reduce(torch.zeros(1), label="begin together")
    for _ in range(2):  # every collective of the first epoch is checked
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.zeros(1), label="begin an epoch")
        rank.clock.end_epoch()
    rank.clock.begin_epoch()
    found: dict[str, list[tuple[float, float, float]]] = {}
    for kind in KINDS:
        for nbytes in SIZES:
            times = await _timed(rank, kind, nbytes, budget_s)
            low, middle, high = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
            found.setdefault(kind, []).append((float(sent(kind, nbytes, rank.size)), middle, high - low))
    rank.clock.end_epoch()
    return found


async def _timed(rank: Rank, kind: str, nbytes: int, budget_s: float) -> list[float]:
    """Seconds of every repetition; ranks agree on how many, because it depends on sizes only."""
    moved = nbytes * rank.size * rank.size
    repeats = int(min(100, max(9, budget_s / (100e-6 * rank.size + moved / 1.5e9))))
    make, times = _effects(rank, kind, nbytes), []
    for _ in range(repeats + 2):
        effects = [build() for build in make[:1]]
        begin = time.perf_counter()
        for build in make:
            await (effects.pop() if effects else build())
        times.append((time.perf_counter() - begin) / max(len(make), 1))
    return times[2:]


def _effects(rank: Rank, kind: str, nbytes: int) -> list[Callable[[], Effect]]:
    """What one repetition awaits, in turn; a pair answers, so that both ways count."""
    tensor = torch.ones(nbytes // 4)
    if kind in ("all_to_all", "counted"):
        counts = np.full(rank.size, nbytes // 4)
        counts[rank.index] = 0
        rows = Rows(torch.ones(int(counts.sum())), counts, counts if kind == "all_to_all" else None)
        return [lambda: rank.all_to_all([rows], label=kind)]
    if kind in ("all_reduce", "ring"):
        return [lambda: _reduce(rank, tensor, kind)]
    if kind == "broadcast":
        return [lambda: rank.broadcast(tensor, root=0, label=kind)]
    other = rank.index ^ 1
    if other >= rank.size:
        return []
    there: list[Callable[[], Effect]] = [
        lambda: rank.send(tensor, to=other, label=kind),
        lambda: rank.recv(tensor, source=other, label=kind),
    ]
    return there if rank.index % 2 == 0 else there[::-1]


def _reduce(rank: Rank, tensor: torch.Tensor, kind: str) -> Effect:
    before, rank.deterministic = rank.deterministic, kind == "all_reduce"
    try:
        return rank.all_reduce(tensor, label=kind)
    finally:
        rank.deterministic = before


def lines(found: dict[str, list[tuple[float, float, float]]]) -> dict[str, Line]:
    """The fitted lines by kind."""
    return {kind: fit(points) for kind, points in found.items()}


def copying_rate(by_ranks: dict[int, dict[str, Line]]) -> tuple[float, float]:
    """Bytes/s that one process moves when two talk, and that all together move at most."""
    rates = {ranks: 1 / found["all_to_all"].beta for ranks, found in by_ranks.items()}
    return rates[min(rates)], max(ranks * rate for ranks, rate in rates.items())


def _main(result: str, budget: str) -> None:
    with connect() as connection:
        found: Any = run(lambda rank: probe(rank, float(budget)), connection)
    if connection.rank == 0:
        Path(result).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
    end_process(0)
