"""Epochs of the steady state are copied: they are what a simulation of them would have been, and only such are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

from harness.effects import Tag
from harness.methods.registry import parse_method
from harness.running import open_run, run, run_opened
from harness.running.results import Result
from harness.traffic import Traffic
from sims.cluster import load_cluster, place
from sims.network import FluidNetwork
from sims.replay import Repeats
from sims.replay._steady import SteadyState
from sims.study import _execute
from tests.conformance.test_drivers import config
from tests.sims.replay.test_repeats import REPEATING, rates_of
from tests.support.observers import Spans
from tests.support.settings import label

OF_EACH_METHOD = list({row["method"].partition(":")[0]: row for row in REPEATING}.values())
"""One row of every method whose epochs repeat."""

SETTLED = 12
"""Epochs after which the times of these small runs have settled."""


def begun(steady: SteadyState, epoch: int, starts: list[float], repeats: bool = True) -> None:
    """All ranks begin an epoch."""
    for rank, now in enumerate(starts):
        steady.begin(rank, epoch, now, repeats=repeats)


def steady(ranks: int, cycle: int = 1, resolution: float = 0.0) -> SteadyState:
    made = SteadyState(cycle, lambda: resolution, lambda: None)
    for _ in range(ranks):
        made.add_rank(shared=False)
    return made


def test_ranks_that_begin_as_an_epoch_before_are_steady() -> None:
    state = steady(2)
    begun(state, 1, [1.0, 1.5], repeats=False)
    begun(state, 2, [3.0, 3.4])
    assert state.since is None and state.source(3) is None, "they are 0.1 s closer"
    begun(state, 3, [5.0, 5.4])
    assert state.since == 3
    assert [state.source(epoch) for epoch in (2, 3, 4, 9)] == [None, 2, 2, 2]


def test_differences_that_the_network_does_not_tell_apart_are_none() -> None:
    for resolution, since in ((0.09, None), (0.11, 2)):
        state = steady(2, resolution=resolution)
        begun(state, 1, [1.0, 1.5])
        begun(state, 2, [3.0, 3.4])
        assert state.since == since


def test_epochs_of_a_cycle_are_compared_with_their_own_kind() -> None:
    state = steady(2, cycle=3)
    for epoch, spread in enumerate([0.1, 0.2, 0.3, 0.1], start=1):
        begun(state, epoch, [epoch, epoch + spread], repeats=False)
    assert state.since is None, "a rank does in epoch 4 what it has not done yet"
    for epoch, spread in enumerate([0.2, 0.3, 0.1], start=5):
        begun(state, epoch, [epoch, epoch + spread])
    assert state.since == 5
    assert [state.source(epoch) for epoch in range(4, 12)] == [None, 2, 3, 4, 2, 3, 4, 2]


def test_the_steady_state_is_told_once() -> None:
    told: list[int | None] = []
    state = SteadyState(1, lambda: 0.0, lambda: told.append(state.since))
    state.add_rank(shared=False)
    for epoch, start in enumerate([0.0, 2.0, 3.0, 4.0], start=1):
        begun(state, epoch, [start], repeats=epoch > 2)
    assert told == [3], "the second one is new"


def test_a_rank_that_runs_ahead_prevents_a_decision() -> None:
    state = steady(2)
    begun(state, 1, [1.0, 1.5])
    state.begin(0, 2, 3.0, repeats=True)
    state.begin(0, 3, 3.2, repeats=True)
    state.begin(1, 2, 3.5, repeats=True)
    assert state.since is None and state.source(3) is None


def test_traffic_adds_up() -> None:
    first, second = Traffic(2), Traffic(2)
    first.add(Tag("request h", "other", 1, 0), np.array([0, 5]))
    second.add(Tag("h", "forward", 1, 0), np.array([0, 7]))
    second.add_all(first)
    copied = second.copy()
    second.add_all(first)
    assert copied.to.tolist() == [0, 12] and second.to.tolist() == [0, 17]
    assert copied.layers == {"other": {1: 5}, "forward": {1: 7}} and copied.others == {"request": 5}


class Kept:
    """Keeps the `Repeats` that runs make, and may forbid them to copy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Repeats] = []
        self.forbid = False
        monkeypatch.setattr(_execute, "Repeats", self)

    def __call__(self, method: Any, *, copying: bool) -> Repeats:
        self.made.append(Repeats(method, copying=copying and not self.forbid))
        return self.made[-1]

    @property
    def copies(self) -> list[list[int]]:
        """Epochs that were copied in the last run, by rank."""
        return self.made[-1].copies


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def shapes(row: dict[str, Any], **values: Any) -> Result:
    return run(config(**{"mode": "sim", "shapes_only": True, "epochs": SETTLED, "eval_every": -1, **row, **values}))


def same_epochs(found: Result, simulated: Result, within: float) -> None:
    """Equal but for seconds, which are equal within a share of the epoch."""
    for ours, theirs in zip(found.epochs, simulated.epochs, strict=True):
        seconds, others = ours.pop("seconds"), theirs.pop("seconds")
        assert ours == theirs
        assert seconds.keys() == others.keys()
        for component, value in seconds.items():
            assert value == pytest.approx(others[component], abs=within * others["epoch"])


CLUSTERS = ("sylvie-2x8", "ethernet-1g")
"""GPUs on two hosts, and CPUs."""


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("row", OF_EACH_METHOD, ids=label)
def test_copied_epochs_are_what_simulated_ones_are(
    row: dict[str, Any], cluster: str, tmp_path: Path, kept: Kept
) -> None:
    rates = rates_of(row, tmp_path)
    epochs = max(SETTLED, 3 * parse_method(row["method"]).cycle() + 3)
    found = shapes(row, cluster=cluster, epochs=epochs, rates=rates)
    assert all(each == list(range(each[0], epochs)) for each in kept.copies), "from the steady state to the end"
    assert len({each[0] for each in kept.copies}) == 1, "on all ranks"
    kept.forbid = True
    simulated = shapes(row, cluster=cluster, epochs=epochs, rates=rates)
    assert not any(kept.copies)
    same_epochs(found, simulated, 1e-8)


def test_where_windows_are_used_the_state_is_steady_at_once(kept: Kept) -> None:
    """64 ranks exchange more flows than the network times one by one."""
    values = {"dataset": "workload:papers100m-hash", "parts": 64, "cluster": "bns-32x6v100", "epochs": 8}
    found = shapes({"method": "vanilla"}, **values)
    assert found.facts["network"]["network_window_s"] > 0
    assert kept.copies == [[2, 3, 4, 5, 6, 7]] * 64
    kept.forbid = True
    same_epochs(found, shapes({"method": "vanilla"}, **values), 5e-3)


@pytest.mark.parametrize("cluster", ["sylvie-2x8:stragglers.jitter=0.01", "lab:3x1gbit"])
def test_nothing_is_copied_under_jitter_or_on_shared_cores(kept: Kept, cluster: str) -> None:
    """Of three ranks on two cores another one waits for its turn in every epoch."""
    shapes({"method": "vanilla"}, cluster=cluster)
    assert not any(kept.copies)


def test_nothing_is_copied_before_observers(kept: Kept) -> None:
    values = {"method": "vanilla", "cluster": "sylvie-2x8"}
    opened = open_run(config(mode="sim", shapes_only=True, epochs=SETTLED, eval_every=-1, **values))
    spans = Spans()
    placement = place(load_cluster(opened.config.cluster.name), opened.config.cut.parts)
    run_opened(dataclasses.replace(opened, driver=_execute.SimulatedCluster(placement, [spans])))
    assert not any(kept.copies) and spans.found


def test_exact_times_leave_no_resolution_and_windows_half_of_one() -> None:
    """Two thousand flows over one link, of different sizes."""
    for exact_flows, coarse in ((2500, False), (100, True)):
        network = FluidNetwork(simpy.Environment(), np.ones(1), exact_flows=exact_flows)
        count = 2000
        nbytes = np.random.default_rng(0).uniform(1, 2, count)
        groups = np.full((count, 2), -1, np.int32)
        network.add(np.zeros((count, 1), np.int32), nbytes, np.zeros(count), groups)
        network.env.run()
        assert network.resolution == network.facts()["network_window_s"] / 2
        assert (network.resolution > 0) == coarse
