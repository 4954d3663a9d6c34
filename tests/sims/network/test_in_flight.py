"""Many staggered flows in flight: their arrays grow and are reused while flows drain."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import simpy

from sims.network import FluidNetwork
from sims.network._completions import same_time
from sims.network._in_flight import Batch, InFlight
from sims.network._routes import RouteTable
from tests.support.exact_flows import ExactFlow, exact_finish

LINKS = 6


def begin(env: simpy.Environment, network: FluidNetwork, starts: np.ndarray, add: list[tuple[np.ndarray, ...]]) -> None:
    def process() -> Iterator[simpy.Event]:
        for start, batch in zip(starts, add, strict=True):
            yield env.timeout(start - env.now)
            network.add(*batch)

    env.process(process())


def oracle(
    capacity: np.ndarray, routes: np.ndarray, nbytes: np.ndarray, start: np.ndarray, latency: np.ndarray
) -> np.ndarray:
    """When each flow ends, by rational arithmetic."""
    columns = (array.tolist() for array in (routes, nbytes, start, latency))
    flows = [ExactFlow(route, *map(Fraction, rest)) for route, *rest in zip(*columns, strict=True)]
    return np.asarray([float(time) for time in exact_finish([Fraction(c) for c in capacity.tolist()], flows)])


@pytest.mark.parametrize("apart", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("batch", [1, 7])
def test_many_that_begin_one_after_the_other_end_as_planned(apart: float, batch: int) -> None:
    """One group counts all flows, so most completions end no group; each tenth batch has a group of its own."""
    rng, count = np.random.default_rng(batch), 210
    capacity = rng.integers(1, 5, LINKS) * 1e6
    routes = np.stack([rng.permutation(LINKS)[:2] for _ in range(count)]).astype(np.int32)
    nbytes, latency = rng.integers(1, 10**6, count).astype(float), rng.uniform(0, 1e-2, count)
    starts = np.sort(rng.uniform(0, apart, count // batch)) if apart else np.zeros(count // batch)
    expected = oracle(capacity, routes, nbytes, np.repeat(starts, batch), latency)
    env = simpy.Environment()
    network = FluidNetwork(env, capacity, exact_flows=10**6)
    everyone, done = network.group(count)
    ends, adds = {}, []
    for number, part in enumerate(np.split(np.arange(count), count // batch)):
        own = -1
        if number % 10 == 0:
            own, ended = network.group(batch)
            assert ended.callbacks is not None
            ended.callbacks.append(lambda _, number=number: ends.setdefault(number, env.now))
        groups = np.stack([np.full(batch, everyone), np.full(batch, own)], axis=1)
        adds.append((routes[part], nbytes[part], latency[part], groups))
    begin(env, network, starts, adds)
    env.run(done)
    assert env.now == pytest.approx(expected.max(), rel=1e-9)
    assert ends == {
        number: pytest.approx(expected[number * batch : (number + 1) * batch].max(), rel=1e-9)
        for number in range(0, count // batch, 10)
    }


def test_finish_times_are_recorded_for_who_watches() -> None:
    """Finish times are those of each busy period, for any number of transfers."""
    found: list[np.ndarray] = []

    class Watch:
        def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
            pass

        def ended(self, finish: np.ndarray) -> None:
            found.append(finish.copy())

    env, capacity = simpy.Environment(), np.full(LINKS, 100.0)
    network = FluidNetwork(env, capacity)
    network.watch = Watch()
    for period, flows in enumerate((3, 150, 1)):
        group, done = network.group(flows)
        groups = np.stack([np.full(flows, group), np.full(flows, -1)], axis=1)
        network.add(np.zeros((flows, 1), np.int32), np.full(flows, 100.0), np.zeros(flows), groups)
        env.run(done)
        network.report()
        assert len(found[-1]) == flows and found[-1] == pytest.approx(env.now), period
        env.run(env.timeout(1.0))


@pytest.mark.parametrize("exact_flows", [10**6, 50])
def test_groups_that_a_change_does_not_concern_make_no_difference(exact_flows: int) -> None:
    """A network that is never idle keeps the groups of all epochs; with windows (50 flows) and without."""
    count, capacity = 400, np.full(LINKS, 1e6)
    rng = np.random.default_rng(0)
    routes = np.stack([rng.permutation(LINKS)[:2] for _ in range(count)]).astype(np.int32)
    nbytes = rng.integers(1, 10**6, count).astype(float)
    owners = np.stack([np.arange(count) // 8, np.full(count, -1)], axis=1)

    def play(groups: int) -> list[tuple[float, list[int]]]:
        table, pending = RouteTable(capacity, None), np.zeros(groups, np.int64)
        pending[: count // 8] = 8
        flight = InFlight(table, pending, 0.01, exact_flows)
        heads = table.intern(routes)
        batch = Batch(heads, np.zeros(count, np.int32), nbytes, np.zeros(count), owners)
        ends = []
        flight.add(0.0, -np.inf, 0.0, batch)
        while flight.next_time < np.inf:
            now = flight.next_time
            ends.append((now, flight.run_to(now, same_time(now, 0.0), -np.inf)))
        return ends

    ends = play(count)
    assert play(1 << 16) == ends, "and nothing that was counted is left"
    assert {group for _, ended in ends for group in ended} == set(range(count // 8))
