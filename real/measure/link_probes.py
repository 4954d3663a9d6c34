"""Times every collective between the ranks of a run, through the real driver.

Seconds of a collective = alpha + bytes x beta, where alpha is all of its software (Python, the library, wake-ups)
and beta the time of a byte that one rank sends while all ranks send. Between two collectives ranks compute, as in
training: the data sent are new, other data have passed through the caches, and ranks do not arrive at the same moment.
The longer they compute, the more of what the software needs has left the caches, so that the same small collective
takes up to four times as long; how its cost grows is measured too (`Probed.resting`).
A collective is timed from the arrival of its last rank to the mean of its ends: what earlier ranks wait for the last
one is no cost of the collective, and models get it from what ranks compute. Where ranks outnumber cores, a rank whose
collective has ended leaves its core to the others for a while: the wait for a core that another rank computes on is no
cost of the collective either, and models get it from how a system deals its cores. In a broadcast or a pair only the
ranks count that a rank waits for (`awaited`). All ranks run on one machine and read one clock.
The seconds that a rank's threads run on cores for a collective are measured beside it: ranks that outnumber cores wait
for one another's. Costs are fitted in `_lines`, operators measured in `_probes`.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from harness.effects import Effect, Rows
from harness.machine import usable_cores
from harness.rank import Rank
from real.measure._lines import CERTAIN, FEWEST_TIMED, LinePoint
from real.rank import run_program
from real.rank.connection import connect
from real.rank.health import end_process

SIZES = tuple(4**k for k in range(5, 13))
"""Bytes: 1 KiB to 16 MiB, where a thread that waits milliseconds for a core hardly changes the rate any more."""

LARGEST_MESSAGE = SIZES[-1]
"""Bytes that a rank sends to another one at most."""

WARM_UP = 2
"""Repetitions before those, which are not timed."""

BRIEF_SIZES, BRIEF_FEWEST = SIZES[1::2], 6
"""Of a calibration that takes seconds."""

KINDS = ("all_to_all", "counted", "all_reduce", "ring", "broadcast", "pair", "started")
"""all_to_all sends that many bytes to every other rank; counted is the same where only the sender has the counts;
all_reduce adds in rank order, ring is the library's own; broadcast has every rank as its root in turn; pair is a send
and its receive, from even ranks to odd ones; started is what an all-to-all costs a rank that hides it behind
compute, in seconds of its cores."""

APART = ("broadcast", "pair")
"""Kinds in which a rank does not wait for all others: without an all-reduce before the compute, ranks would run ahead
of each other and take cores from those that are timed."""

FOLLOWING_SIZES = SIZES[:4]
"""Bytes, up to 64 KiB, of collectives that are timed without compute in between too, as small exchanges that follow one
another: threads and caches are warm then, and software decides. One that is started is waited for at once."""

PASSES = 3
"""How often all kinds and sizes are gone through, each time with a share of the repetitions: a virtual machine changes
its pace for seconds, in which others would be measured than those that they are compared with."""

LEAST_S = 1e-6
"""Seconds that a collective takes at least: a difference of long times may be none, or less."""

RESTED_S = 20e-3
"""Seconds that ranks compute between two collectives, as between exchanges of a training."""

SWEPT, PIECE = 16 << 20, 1 << 18
"""Elements, fp32, that this compute passes over, piece after piece of so many: 64 MiB, more than caches hold."""

RESTING_MS = (2, 5, 10, 40, 80)
"""Further stretches of compute, milliseconds, after which small collectives are timed."""

RESTING_KINDS, RESTING_BYTES = ("all_to_all", "all_reduce"), 16 << 10
"""These collectives, of so many bytes; the costs of others grow alike."""

ASIDE_S = 4e-3
"""Seconds that a rank sleeps after a collective of up to 4 MiB, and for every 4 MiB of a larger one, where ranks
outnumber cores: longer than ranks end apart."""

HIDING_S, HIDING_MIB_S = 8e-3, 5e-3
"""Seconds of compute behind a started all-to-all: the second for every MiB, and the first at least. That is longer than
the exchange takes, but not by much: the compute's own noise grows with it."""

_RESTING_S = tuple(ms * 1e-3 for ms in RESTING_MS)

CollectiveTiming = tuple[str, int, float]
"""A kind, its bytes, and the seconds of compute before it."""

Repetition = tuple[float, float, float]
"""When a rank began and ended, and the seconds that its threads ran on cores in between."""


class Probed(msgspec.Struct, frozen=True):
    """What the ranks measured.

    Attributes:
        points: (bytes that a rank sends, typical seconds, spread: interquartile range in seconds), by kind, and by
            `following` of each.
        cores: the same as points, of the seconds that one rank's threads run on cores for a collective.
        resting: milliseconds of compute before a small collective -> how much of the way its cost has come from that
            of one that follows at once to that of one after RESTED_S.
    """

    points: dict[str, list[LinePoint]] = {}
    resting: dict[int, float] = {}
    cores: dict[str, list[LinePoint]] = {}


def sent(kind: str, nbytes: int, size: int) -> int:
    """Bytes that one rank sends in a collective of this size: the x axis of its line."""
    if kind in ("all_to_all", "counted", "started"):
        return nbytes * (size - 1)
    return 2 * nbytes * (size - 1) // size if kind in ("all_reduce", "ring") else nbytes


def trimmed_mean(times: torch.Tensor) -> float:
    """Mean of all but the fastest and the slowest tenth.

    Not the median: an exchange that has to wait for a core takes milliseconds, others take much less, and an epoch has
    some of both.
    """
    ordered, cut = times.sort().values, len(times) // 10
    return float(ordered[cut : len(times) - cut].mean())


def following(kind: str) -> str:
    """The name of a kind of collective that follows another of its kind at once."""
    return f"{kind} following"


class MemoryPasses:
    """Compute that passes over memory, and so leaves other data in the caches.

    The same work each time, not the same time: as in training, ranks arrive apart by what their times differ.
    """

    def __init__(self) -> None:
        self._pieces, once = itertools.cycle(torch.ones(SWEPT).split(PIECE)), SWEPT // PIECE
        self.over(2 * once)
        self._piece_s = self.over(4 * once) / (4 * once)

    def pieces(self, seconds: float) -> int:
        """Pieces that take about so long."""
        return round(seconds / self._piece_s)

    def over(self, pieces: int) -> float:
        """Pass over so many pieces; returns the seconds that it took."""
        begin = time.perf_counter()
        for piece in itertools.islice(self._pieces, pieces):
            piece.mul_(1.0)
        return time.perf_counter() - begin


async def probe(rank: Rank, budget_s: float, sizes: Sequence[int] = SIZES, fewest: int = FEWEST_TIMED) -> Probed:
    """Time every kind at every size, about `budget_s` with the compute in between, and at least `fewest` times each,
    in PASSES.

    Returns:
        What was measured; it is the same on every rank.
    """
    await rank.all_reduce(torch.zeros(1), label="begin together")
    await pass_checked_epochs(rank)
    rank.clock.begin_epoch()
    memory = MemoryPasses()
    asked = [(kind, nbytes, RESTED_S) for kind in KINDS for nbytes in sizes]
    asked += [(kind, nbytes, 0.0) for kind in KINDS for nbytes in FOLLOWING_SIZES]
    rested = [(kind, RESTING_BYTES, each) for kind in RESTING_KINDS for each in (0.0, RESTED_S, *_RESTING_S)]
    found = await _in_passes(rank, list(dict.fromkeys(asked + rested)), memory, budget_s, fewest)
    points, cores = dict[str, list[LinePoint]](), dict[str, list[LinePoint]]()
    for kind, nbytes, computed_s in asked:
        for of, times in zip((points, cores), found[kind, nbytes, computed_s], strict=True):
            low, high = np.quantile(times.numpy(), (0.25, 0.75)).tolist()
            point = float(sent(kind, nbytes, rank.size)), max(trimmed_mean(times), LEAST_S), high - low
            of.setdefault(kind if computed_s else following(kind), []).append(point)
    rank.clock.end_epoch()
    return Probed(
        points, _resting({(kind, each): trimmed_mean(found[kind, size, each][0]) for kind, size, each in rested}), cores
    )


async def _in_passes(
    rank: Rank, asked: Sequence[CollectiveTiming], memory: MemoryPasses, budget_s: float, fewest: int
) -> dict[CollectiveTiming, tuple[torch.Tensor, torch.Tensor]]:
    """The seconds of every repetition of every timing, and those of cores, as of `_seconds`, over all passes."""
    found = dict[CollectiveTiming, list[tuple[torch.Tensor, torch.Tensor]]]()
    for _ in range(PASSES):
        for timing in asked:
            part = await _seconds(rank, *timing, memory, budget_s / PASSES, math.ceil(fewest / PASSES))
            found.setdefault(timing, []).append(part)
    return {
        timing: (torch.cat([s for s, _ in parts]), torch.cat([r for _, r in parts])) for timing, parts in found.items()
    }


def _resting(seconds: dict[tuple[str, float], float]) -> dict[int, float]:
    """See `Probed.resting`: the mean of RESTING_KINDS; empty where rest makes no difference to them.

    `seconds`: of a kind after so many seconds of compute.
    """
    shares = []
    for kind in RESTING_KINDS:
        at_once, rested = seconds[kind, 0.0], seconds[kind, RESTED_S]
        if (whole := rested - at_once) > CERTAIN * rested:
            shares.append([max(0.0, (seconds[kind, each] - at_once) / whole) for each in _RESTING_S])
    return dict(zip(RESTING_MS, np.mean(shares, axis=0).tolist(), strict=True)) if shares else {}


async def _seconds(
    rank: Rank, kind: str, nbytes: int, computed_s: float, memory: MemoryPasses, budget_s: float, fewest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Seconds of every repetition of one kind and size after so much compute, and those that a rank's threads run on
    cores for it, mean over ranks: float64 [repetitions] each."""
    repeats = _repeats(rank, nbytes, computed_s, budget_s, fewest)
    if kind == "started":
        found = await _hidden(rank, nbytes, repeats, memory, computed_s)
    else:
        found = await _timed(rank, kind, nbytes, repeats, memory, computed_s)
    each = 2 if kind == "pair" else 1  # there and back
    marks = torch.zeros(rank.size, len(found), 3, dtype=torch.float64)
    marks[rank.index] = torch.tensor(found, dtype=torch.float64)
    marks = await rank.all_reduce(marks, label="times")
    seconds = since_last_arrival(marks[..., :2], awaited(kind, rank.size, len(found)))
    return seconds / each, marks[..., 2].nanmean(0) / each


async def pass_checked_epochs(rank: Rank) -> None:
    """Go through the epochs whose every collective the ranks check, which takes time of its own."""
    for _ in range(2):
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.zeros(1), label="begin an epoch")
        rank.clock.end_epoch()


def awaited(kind: str, size: int, repeats: int) -> torch.Tensor:
    """Which ranks (last axis) a rank waits for in every repetition, itself included: bool [repetitions, size, size].

    In a broadcast these are the ranks above it in the library's binomial tree, from which it gets the tensor, and those
    that it sends to, since a message leaves when its receiver is ready; in a pair the other one.
    """
    ranks = torch.arange(size)
    if kind == "broadcast":
        roots = (torch.arange(repeats) + WARM_UP) % size
        places = (ranks - roots[:, None]) % size
        waits = _in_tree(size)[places[:, :, None], places[:, None, :]]
    elif kind == "pair":
        waits = (ranks // 2 == ranks[:, None] // 2)[None]
    else:
        waits = torch.ones(1, size, size, dtype=torch.bool)
    return waits.expand(repeats, size, size)


def _in_tree(size: int) -> torch.Tensor:
    """Which places (last axis) of a binomial tree a place waits for, itself included: bool [size, size]."""
    waits = torch.eye(size, dtype=torch.bool)
    parents = [place - (1 << place.bit_length() - 1) for place in range(1, size)]
    for place, parent in enumerate(parents, 1):
        waits[place] |= waits[parent]  # parents come first
    for place, parent in enumerate(parents, 1):
        waits[parent, place] = True
    return waits


def since_last_arrival(marks: torch.Tensor, awaited: torch.Tensor | None = None) -> torch.Tensor:
    """Seconds of every repetition, [repetitions], of begins and ends [ranks, repetitions, 2], NaN where a rank has no
    part: the mean over ranks of what passes from the begin of the last rank that a rank waits for to its own end.

    `awaited`: as of the function of that name; without it every rank waits for all.
    """
    begins, ends = marks[..., 0].T, marks[..., 1].T
    arrived = begins.nan_to_num(-math.inf)[:, None, :]  # [repetitions, 1, ranks]
    last = arrived if awaited is None else torch.where(awaited, arrived, -math.inf)
    return (ends - last.amax(-1)).nanmean(-1)


def _repeats(rank: Rank, nbytes: int, computed_s: float, budget_s: float, fewest: int) -> int:
    """How often an exchange of this size is timed; ranks agree on it, because it depends on sizes only."""
    moved = nbytes * rank.size * rank.size
    return int(min(100, max(fewest, budget_s / (computed_s + 100e-6 * rank.size + moved / 1.5e9))))


async def _timed(
    rank: Rank, kind: str, nbytes: int, repeats: int, memory: MemoryPasses, computed_s: float
) -> list[Repetition]:
    """Begin and end of every repetition, each after so many seconds of compute, about, and the seconds that the rank's
    threads ran in between; NaN of a rank that has no part in it."""
    make, pieces, times = _effects(rank, kind, nbytes), memory.pieces(computed_s), []
    aside = ASIDE_S * max(1, nbytes >> 22) if pieces and rank.size > len(usable_cores()) else 0.0
    for _ in range(repeats + WARM_UP):
        if kind in APART and pieces:
            await rank.all_reduce(torch.zeros(1), label="compute together")
        memory.over(pieces)
        effects = [build() for build in make[:1]]
        begin, ran = time.perf_counter(), -time.process_time()
        for build in make:
            await (effects.pop() if effects else build())
        end, ran = time.perf_counter(), ran + time.process_time()
        times.append((begin, end, ran) if make else (math.nan, math.nan, math.nan))
        time.sleep(aside)
    return times[WARM_UP:]


async def _hidden(
    rank: Rank, nbytes: int, repeats: int, memory: MemoryPasses, computed_s: float = RESTED_S
) -> list[Repetition]:
    """What an all-to-all costs its rank that is complete before it is waited for: 0, seconds, and seconds, of every
    repetition.

    These are the seconds that the rank's threads run on cores to start it, to carry it and to wait for it, and what the
    compute that hides it runs longer than passes over as much memory just before and after, for `computed_s` each.
    Which of the two it is depends on whether the threads that carry the exchange get their core while it starts or
    later; their sum does not. The latter is a small difference of long times, which may be anything in one repetition,
    below 0 too. All are seconds of cores, not of the clock: where ranks outnumber cores, those in which another rank
    computes are no cost of the exchange.
    """
    (make,), beside, found = _effects(rank, "started", nbytes), memory.pieces(computed_s), list[Repetition]()
    hiding = memory.pieces(max(HIDING_S, HIDING_MIB_S * (nbytes >> 20))) if computed_s else 0
    each, run_s = hiding / max(2 * beside, 1), time.process_time
    for _ in range(repeats + WARM_UP):
        await rank.all_reduce(torch.zeros(1), label="compute together")  # or fast ranks would wait for slow ones below
        alone = -run_s()
        memory.over(beside)
        alone += run_s()
        effect, begin = make(), run_s()
        handle = await rank.start(effect)
        memory.over(hiding)
        await rank.wait(handle)
        end = run_s()
        del effect, handle
        alone -= run_s()
        memory.over(beside)
        alone += run_s()
        seconds = end - begin - alone * each
        found.append((0.0, seconds, seconds))
    return found[WARM_UP:]


def _effects(rank: Rank, kind: str, nbytes: int) -> list[Callable[[], Effect]]:
    """The effects of one repetition, in order, with new tensors each time; a pair sends back too, to time both ways."""
    elements = nbytes // 4
    if kind in ("all_to_all", "counted", "started"):
        counts = np.full(rank.size, elements)
        counts[rank.index] = 0
        receive_counts = None if kind == "counted" else counts
        return [lambda: rank.all_to_all([Rows(torch.ones(int(counts.sum())), counts, receive_counts)], label=kind)]
    if kind in ("all_reduce", "ring"):
        return [lambda: _reduce(rank, torch.ones(elements), kind)]
    if kind == "broadcast":
        roots = itertools.cycle(range(rank.size))
        return [lambda: rank.broadcast(torch.ones(elements), root=next(roots), label=kind)]
    other = rank.index ^ 1
    if other >= rank.size:
        return []
    there: list[Callable[[], Effect]] = [
        lambda: rank.send(torch.ones(elements), to=other, label=kind),
        lambda: rank.recv(torch.ones(elements), source=other, label=kind),
    ]
    return there if rank.index % 2 == 0 else there[::-1]


def _reduce(rank: Rank, tensor: torch.Tensor, kind: str) -> Effect:
    before, rank.deterministic = rank.deterministic, kind == "all_reduce"
    try:
        return rank.all_reduce(tensor, label=kind)
    finally:
        rank.deterministic = before


def _main(result: str, budget: str) -> None:
    with connect() as connection:
        probed: Any = run_program(lambda rank: probe(rank, float(budget)), connection)
    if connection.rank == 0:
        Path(result).write_bytes(msgspec.json.encode(probed))


if __name__ == "__main__":
    _main(*sys.argv[1:])
    end_process(0)
