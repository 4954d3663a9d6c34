"""What a repetition of a collective times: ranks that leave their cores to others, seconds of cores of a hidden one."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest
import torch

from real.measure import link_probes
from real.measure.link_probes import (
    ASIDE_S,
    PASSES,
    RESTED_S,
    RESTING_KINDS,
    RESTING_MS,
    WARM_UP,
    MemoryPasses,
    _hidden,
    _in_passes,
    _resting,
    _timed,
)

REPEATS = 3


class Pretended:
    """A rank whose effects end at once; starting one spins, and waiting for one sleeps."""

    def __init__(self, size: int = 3, spins: float = 0.0, sleeps: float = 0.0) -> None:
        self.size, self.index, self.spins, self.sleeps = size, 0, spins, sleeps

    async def all_reduce(self, tensor: torch.Tensor, label: str) -> torch.Tensor:
        return tensor

    async def all_to_all(self, rows: Any, label: str) -> None:
        self.spin()
        if self.sleeps:
            time.sleep(self.sleeps)

    async def start(self, effect: Any) -> None:
        effect.close()
        self.spin()

    def spin(self) -> None:
        end = time.process_time() + self.spins
        while time.process_time() < end:
            pass

    async def wait(self, handle: None) -> None:
        time.sleep(self.sleeps)


class Passes(MemoryPasses):
    """Compute that takes nothing."""

    def __init__(self) -> None: ...

    def pieces(self, seconds: float) -> int:
        return math.ceil(seconds / 1e-3)

    def over(self, pieces: int) -> float:
        return 0.0


@pytest.mark.parametrize(("cores", "computed", "nbytes", "aside"), [
    (2, 0.02, 1 << 10, ASIDE_S), (2, 0.02, 16 << 20, 4 * ASIDE_S), (3, 0.02, 1 << 10, 0.0), (2, 0.0, 1 << 10, 0.0),
])  # fmt: skip
def test_ranks_leave_their_cores_to_others_where_there_are_fewer(
    cores: int, computed: float, nbytes: int, aside: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a collective among computing ranks that outnumber cores, the longer the larger it was; else never."""
    slept: list[float] = []
    monkeypatch.setattr(link_probes, "usable_cores", lambda: list(range(cores)))
    monkeypatch.setattr(link_probes.time, "sleep", slept.append)
    rank: Any = Pretended()
    times = asyncio.run(_timed(rank, "all_to_all", nbytes, REPEATS, Passes(), computed))
    assert len(times) == REPEATS and slept == [aside] * (REPEATS + WARM_UP)


@pytest.mark.parametrize("computed", [RESTED_S, 0.0])
@pytest.mark.parametrize(("spins", "sleeps", "low", "high"), [(0.0, 0.03, -0.01, 0.02), (0.03, 0.0, 0.02, 0.05)])
def test_a_hidden_exchange_costs_seconds_of_cores(
    spins: float, sleeps: float, low: float, high: float, computed: float
) -> None:
    """A rank that waits while others compute spends nothing; what it computes itself counts."""
    rank: Any = Pretended(spins=spins, sleeps=sleeps)
    found = asyncio.run(_hidden(rank, 1 << 10, REPEATS, Passes(), computed))
    assert len(found) == REPEATS
    assert all(begin == 0 and low <= end < high and ran == end for begin, end, ran in found)


@pytest.mark.parametrize(("spins", "sleeps", "low", "high"), [(0.0, 0.03, 0.0, 0.01), (0.03, 0.0, 0.03, 0.04)])
def test_seconds_of_cores_of_a_collective_are_not_those_in_which_it_waits(
    spins: float, sleeps: float, low: float, high: float
) -> None:
    rank: Any = Pretended(spins=spins, sleeps=sleeps)
    times = asyncio.run(_timed(rank, "all_to_all", 1 << 10, REPEATS, Passes(), 0.0))
    assert all(end - begin >= 0.03 and low <= ran < high for begin, end, ran in times)


def test_what_is_compared_is_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is slow for one of the passes is so for all kinds and sizes."""
    asked = [("ring", 1 << 10, 0.02), ("pair", 1 << 12, 0.0)]
    timed: list[tuple[Any, ...]] = []

    async def seconds(
        rank: Any, kind: str, nbytes: int, computed: float, memory: Any, budget: float, fewest: int
    ) -> Any:
        timed.append((kind, nbytes, computed))
        assert budget == pytest.approx(0.9 / PASSES) and fewest * PASSES >= 10
        time_s = torch.full((2,), float(len(timed)))
        return time_s, 2 * time_s

    monkeypatch.setattr(link_probes, "_seconds", seconds)
    found = asyncio.run(_in_passes(None, asked, Passes(), 0.9, 10))  # type: ignore[arg-type]
    assert timed == PASSES * asked
    assert found[asked[1]][0].tolist() == [2.0, 2.0, 4.0, 4.0, 6.0, 6.0]
    assert found[asked[0]][1].tolist() == [2.0, 2.0, 6.0, 6.0, 10.0, 10.0]


def test_costs_grow_with_rest_as_the_kinds_do_in_the_mean() -> None:
    """By the way from none to RESTED_S; a kind that needs no rest says nothing."""
    kinds, waits = RESTING_KINDS, (0.0, RESTED_S, *(ms * 1e-3 for ms in RESTING_MS))
    seconds = {(kind, wait): 1.0 + 50 * wait for kind in kinds for wait in waits}
    assert _resting(seconds)[80] == pytest.approx(4.0) and _resting(seconds)[10] == pytest.approx(0.5)
    seconds |= {(kinds[0], wait): 1.0 for wait in waits}
    assert _resting(seconds)[80] == pytest.approx(4.0), "of the other kind alone"
    assert _resting(dict.fromkeys(seconds, 1.0)) == {}
