"""Observers: the calls of all hooks, no influence on the simulation, no calls of hooks that are not overridden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.effects import Background, Effect
from harness.rank import Rank
from sims.cluster import load_cluster, place
from sims.device import Work
from sims.engine import Ledger, Observer, SimClock, Simulation, simulate
from tests.support.simulated import everyone_sends, gpus, plain, work

SIZE, LATENCY, ROW_S = 2, 1e-3, 1e-3  # of the plain cluster: 250 rows of 4 bytes at 1 MB/s


class Diary(Observer):
    """Overrides every hook and records its calls."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def rank_added(self, rank: int, clock: SimClock, ledger: Ledger) -> None:
        assert ledger.meter is clock
        self.entries.append(("rank added", rank))

    def epoch_began(self, rank: int, now: float) -> None:
        self.entries.append(("epoch began", rank, now))

    def epoch_ended(self, rank: int, seconds: dict[str, float]) -> None:
        self.entries.append(("epoch ended", rank, seconds["epoch"]))

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        assert seconds > 0
        self.entries.append(("charged", rank, component, work.name))

    def converting(self, rank: int, effect: Background, received: bool, work: Work, seconds: float) -> None:
        assert seconds > 0
        self.entries.append(("converting", rank, effect.tag.label, received, work.name))

    def converted(self, rank: int, effect: Background, start: float, end: float) -> None:
        self.entries.append(("converted", rank, effect.tag.label, start, end))

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        self.entries.append(("issued", rank, effect.kind, effect.tag.label, paused))

    def computed(self, rank: int, component: str, start: float, end: float) -> None:
        self.entries.append(("computed", rank, component, start, end))

    def carried_out(self, rank: int, component: str, effect: Effect, start: float, end: float, nbytes: int) -> None:
        self.entries.append(("carried out", rank, component, effect.tag.label, start, end, nbytes))

    def transfers_began(self, now: float, links: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        self.entries.append(("transfers began", now, links.shape[0], nbytes.tolist()))

    def transfers_ended(self, finish: np.ndarray) -> None:
        self.entries.append(("transfers ended", finish.tolist()))

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        self.entries.append(("copied", finish > start, nbytes))

    def of(self, rank: int) -> list[tuple[Any, ...]]:
        """The calls about a rank, in order, without those of the network."""
        return [
            (name, *rest[1:]) for name, *rest in self.entries if not name.startswith("transfers") and rest[0] == rank
        ]

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [tuple(rest) for kind, *rest in self.entries if kind == name]


async def epoch(rank: Rank) -> None:
    """Two components of compute, a blocking and a started exchange, and one off the clock."""
    rank.epoch = 0
    with rank.off_the_clock():
        torch.ones(4, device=rank.device).exp()
        await rank.all_reduce(torch.ones(4, device=rank.device), label="set-up")
    rank.clock.begin_epoch()
    torch.empty(4, device=rank.device).relu()
    work(rank, 1.0)
    with rank.span("codec"):
        work(rank, 2.0)
    await rank.all_to_all(everyone_sends(rank, 250), label="blocking")
    handle = await rank.start(rank.all_to_all(everyone_sends(rank, 250), label="started"))
    work(rank, 3.0)
    await rank.wait(handle)
    rank.clock.end_epoch()


def observed(tmp_path: Path, *observers: Observer) -> Simulation:
    return simulate(epoch, place(plain(tmp_path), SIZE), shapes_only=True, observers=observers)


def test_what_is_told_of_a_rank_and_in_which_order(tmp_path: Path) -> None:
    diary = Diary()
    observed(tmp_path, diary)
    assert [entry[:1] if entry[0] in ("computed", "carried out") else entry[:4] for entry in diary.of(1)] == [
        ("rank added",),
        ("issued", "AllReduce", "set-up", True),
        ("epoch began", 0.0),
        ("charged", "compute", "relu"),
        ("computed",),
        ("computed",),
        ("issued", "AllToAll", "blocking", False),
        ("carried out",),
        ("issued", "Start", "started", False),
        ("carried out",),
        ("computed",),
        ("issued", "Wait", "started", False),
        ("epoch ended", pytest.approx(6.0 + LATENCY + ROW_S, rel=1e-3)),
    ]


def test_when_compute_passes_and_effects_fly(tmp_path: Path) -> None:
    """Stretches follow each other; a started effect overlaps the compute that hides it; nothing is off the clock."""
    diary = Diary()
    observed(tmp_path, diary)
    stretches = [rest[1:] for rest in diary.named("computed") if rest[0] == 0]
    assert [component for component, *_ in stretches] == ["compute", "codec", "compute"]
    assert stretches[0][1] == 0.0 and stretches[0][2] == stretches[1][1]
    assert [end - start for _, start, end in stretches] == pytest.approx([1.0, 2.0, 3.0], rel=1e-3)
    flights = [rest[1:] for rest in diary.named("carried out") if rest[0] == 0]
    assert [(component, label, nbytes) for component, label, _, _, nbytes in flights] == [
        ("halo", "blocking", 1000), ("halo", "started", 1000),
    ]  # fmt: skip
    assert [end - start for *_, start, end, _ in flights] == pytest.approx([LATENCY + ROW_S] * 2, rel=1e-3)
    assert flights[0][2] == stretches[1][2] and flights[1][2] == stretches[2][1]


def test_transfers_are_told_as_the_network_sees_them(tmp_path: Path) -> None:
    diary = Diary()
    observed(tmp_path, diary)
    assert [nbytes for _, _, sizes in diary.named("transfers began") for nbytes in sizes] == [1000] * 4
    began = [now for now, count, _ in diary.named("transfers began") for _ in range(count)]
    ended = [at for (finish,) in diary.named("transfers ended") for at in finish]
    assert len(ended) == 4 and all(a < b for a, b in zip(began, ended, strict=True))


def test_copies_over_a_bus_of_their_own_are_told(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        await rank.host_copy(torch.empty(1000, device="meta"), to_host=True, label="out")

    diary = Diary()
    simulate(program, place(gpus(tmp_path, "gloo"), 2), shapes_only=True, observers=[diary])
    assert diary.named("copied") == [(True, 4000)] * 2


class Operators(Observer):
    """An observer of one hook, which counts operators by class."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        self.seconds[work.kind] = self.seconds.get(work.kind, 0.0) + seconds


def test_several_observers_each_hear_all_of_it(tmp_path: Path) -> None:
    alone, first, second = Diary(), Diary(), Diary()
    observed(tmp_path, alone)
    operators = Operators()
    simulation = observed(tmp_path, first, operators, second)
    assert alone.entries == first.entries == second.entries
    assert operators.seconds == simulation.class_seconds and operators.seconds


@pytest.mark.parametrize("name", ["ethernet-1g", "cdfgnn-2x8a800"])
def test_looking_on_changes_nothing(name: str) -> None:
    cluster = load_cluster(name)
    plainly, seen = (
        simulate(epoch, place(cluster, SIZE), shapes_only=True, observers=observers) for observers in ([], [Diary()])
    )
    assert seen.makespan_s == plainly.makespan_s and seen.peak_memory == plainly.peak_memory
    assert seen.link_bytes == plainly.link_bytes and seen.class_seconds == plainly.class_seconds


class Refusing(Observer):
    """Fails at the first effect."""

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        raise RuntimeError(f"not {effect.tag.label}")


def test_what_an_observer_raises_ends_the_simulation_as_itself(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not set-up"):
        observed(tmp_path, Refusing())
