"""The fluid network on a clock: agreement with the exact schedule, windows, and recurring busy periods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.cluster import Placement, load_cluster, place
from sims.network import EXACT_FLOWS, FluidNetwork, call_late, route_table, schedule
from sims.network import _busy_periods as busy_periods
from sims.network._completions import WINDOW

CLUSTER = """
[hosts]
count = 8
devices = 6
device = "a800-80gb"
per_rack = 4

[links.bus]
bandwidth = "22.7 GB/s"
latency = "5 us"

[links.nic]
bandwidth = "8.27 GB/s"
latency = "10 us"

[links.rack]
bandwidth = "20 GB/s"
latency = "3 us"

[transport]
kind = "nccl"
"""


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Placement:
    """48 ranks in two racks."""
    path: Path = tmp_path_factory.mktemp("cluster") / "cluster.toml"
    path.write_text(CLUSTER)
    return place(load_cluster(path), 48)


class Sender:
    """Sends transfers over a network and records when each ends."""

    def __init__(self, network: FluidNetwork) -> None:
        self.network, self.env = network, network.env
        self.finish: dict[Any, float] = {}

    def send(self, name: Any, routes: Sequence[Sequence[int]], nbytes: Sequence[int], latency: float = 0.0) -> None:
        """Begin some transfers now, each with its own group."""
        groups = [self.network.group(1) for _ in routes]
        numbers = np.asarray([[number, -1] for number, _ in groups])
        self.network.add(route_table(routes), np.asarray(nbytes), np.full(len(routes), latency), numbers)
        for at, (_, event) in enumerate(groups):
            self.env.process(self._note((name, at), event))

    def _note(self, key: Any, event: simpy.Event) -> Iterator[simpy.Event]:
        yield event
        self.finish[key] = self.env.now

    def at(self, time: float, *args: Any) -> None:
        """`send` later."""

        def later() -> Iterator[simpy.Event]:
            yield self.env.timeout(time - self.env.now)
            self.send(*args)

        self.env.process(later())


def all_to_all(placement: Placement, network: FluidNetwork, nbytes: np.ndarray, arrival: np.ndarray) -> np.ndarray:
    """The time at which each rank has received all; the transfer of a pair begins when both ranks have arrived."""
    env, size = network.env, placement.size
    begin, done = env.now, np.full(size, np.nan)
    groups = [network.group(2 * (size - 1)) for _ in range(size)]
    numbers = np.asarray([number for number, _ in groups])

    def rank(own: int) -> Iterator[simpy.Event]:
        yield env.timeout(arrival[own])
        order = np.lexsort((np.arange(size), arrival))
        before = order[: int(np.flatnonzero(order == own)[0])]
        src = np.concatenate([np.full(len(before), own), before])
        dst = np.concatenate([before, np.full(len(before), own)])
        head, tail = placement.segments_of(src, dst)
        pairs = np.stack([numbers[src], numbers[dst]], axis=1)
        network.add_by_segments(head, tail, nbytes[src, dst], placement.route_latencies(head, tail), pairs)
        yield groups[own][1]
        done[own] = env.now - begin

    env.run(until=env.all_of([env.process(rank(own)) for own in range(size)]))
    return done


def exact_all_to_all(placement: Placement, nbytes: np.ndarray, arrival: np.ndarray) -> np.ndarray:
    """The same by the exact schedule, transfer by transfer [ranks, ranks]."""
    src, dst = np.nonzero(~np.eye(placement.size, dtype=bool))
    routes = placement.routes(src, dst)
    start = np.maximum(arrival[src], arrival[dst])
    finish = np.zeros(nbytes.shape)
    found = schedule(placement.capacity, routes, nbytes[src, dst], start, placement.latencies(routes))
    finish[src, dst] = found.finish_s
    assert found.window_s == 0
    return finish


def sizes(kind: str, size: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if kind == "uniform":
        return generator.integers(1, 300_000, (size, size))
    if kind == "lognormal":
        return np.exp(generator.normal(11, 1.5, (size, size))).astype(np.int64)
    return (1 + (7 * np.arange(size)[:, None] + 13 * np.arange(size)) % 17) * 20_000  # 17 sizes


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "17 sizes"])
@pytest.mark.parametrize("late", [0.0, 1e-3])
def test_windows_move_no_rank_far(placement: Placement, kind: str, late: float) -> None:
    """Few flows are exact; many are coalesced: the makespan within 0.5 %, every rank and transfer within 3 %."""
    nbytes = sizes(kind, placement.size)
    arrival = np.random.default_rng(1).uniform(0, late, placement.size) if late else np.zeros(placement.size)
    exact = exact_all_to_all(placement, nbytes, arrival)
    done = np.maximum(exact.max(axis=0), exact.max(axis=1))
    for few, rel in ((10**6, 1e-9), (0, 0.03)):
        network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=few)
        found = all_to_all(placement, network, nbytes, arrival)
        assert found == pytest.approx(done, rel=rel)
        assert found.max() == pytest.approx(done.max(), rel=min(rel, 0.005))
        assert (network.facts()["network_window_s"] > 0) == (few == 0)
    assert network.facts()["network_window_s"] <= WINDOW * network.facts()["network_bound_s"] * (1 + 1e-12)
    assert network.facts()["network_bound_s"] <= exact.max() * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "17 sizes"])
def test_coalesced_schedule(placement: Placement, kind: str) -> None:
    nbytes, nobody_late = sizes(kind, placement.size, 3), np.zeros(placement.size)
    exact = exact_all_to_all(placement, nbytes, nobody_late)
    src, dst = np.nonzero(~np.eye(placement.size, dtype=bool))
    routes = placement.routes(src, dst)
    found = schedule(
        placement.capacity, routes, nbytes[src, dst], 0.0, placement.latencies(routes), window=WINDOW, exact_flows=0
    )
    assert found.finish_s == pytest.approx(exact[src, dst], rel=0.03)
    assert found.finish_s.max() == pytest.approx(exact.max(), rel=0.005)
    assert found.finish_s.max() >= found.bound_s * (1 - WINDOW) and found.window_s <= WINDOW * found.finish_s.max() * (
        1 + WINDOW
    )


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "17 sizes"])
def test_windows_shrink_towards_the_last_completion(placement: Placement, kind: str) -> None:
    """In the last window of a link nothing takes over what its flows leave: with whole windows until the end the
    makespan is up to 0.4 % late."""
    nbytes, nobody_late = sizes(kind, placement.size), np.zeros(placement.size)
    exact = exact_all_to_all(placement, nbytes, nobody_late)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=0)
    found = all_to_all(placement, network, nbytes, nobody_late)
    assert found.max() == pytest.approx(exact.max(), rel=0.0015)


def test_windows_do_not_shrink_while_ranks_arrive(placement: Placement) -> None:
    """They are a share of the whole period, also when few bytes are in flight because ranks arrive over twice L."""
    nbytes, arrival = sizes("uniform", placement.size), np.linspace(0, 0.01, placement.size)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=0)
    found = all_to_all(placement, network, nbytes, arrival)
    exact = exact_all_to_all(placement, nbytes, arrival)
    assert found == pytest.approx(np.maximum(exact.max(axis=0), exact.max(axis=1)), rel=0.005)
    assert network.solves < 900  # more than 1200 with windows that are a share of the bytes in flight alone
    assert network.facts()["network_window_s"] <= WINDOW * exact.max()


def test_a_busy_period_does_not_inherit_the_windows_of_the_last(placement: Placement) -> None:
    """Whatever came before, a period takes as many computations of rates and as long as the first one."""
    nbytes, nobody_late = sizes("lognormal", placement.size), np.zeros(placement.size)
    alone = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=0)
    expected = all_to_all(placement, alone, nbytes, nobody_late)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=0)
    all_to_all(placement, network, 100 * sizes("uniform", placement.size), nobody_late)
    before = network.solves
    assert all_to_all(placement, network, nbytes, nobody_late) == pytest.approx(expected, rel=1e-6)
    assert network.solves - before == pytest.approx(alone.solves, rel=0.05)


def test_one_size_is_exact_and_quick_however_many_transfers(placement: Placement) -> None:
    nbytes = np.full((placement.size, placement.size), 64_000)
    nobody_late = np.zeros(placement.size)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=0)
    found = all_to_all(placement, network, nbytes, nobody_late)
    exact = exact_all_to_all(placement, nbytes, nobody_late)
    assert found == pytest.approx(np.maximum(exact.max(axis=0), exact.max(axis=1)), rel=1e-9)
    assert network.facts()["network_window_s"] == 0 and network.solves < 12
    assert placement.size * (placement.size - 1) < EXACT_FLOWS


def test_bytes_are_counted_once_by_routes_segments_and_account(placement: Placement) -> None:
    src, dst = np.nonzero(~np.eye(placement.size, dtype=bool))
    routes, nbytes = placement.routes(src, dst), sizes("uniform", placement.size)[src, dst]
    counted = np.zeros(len(placement.capacity), np.int64)
    for route, each in zip(routes, nbytes, strict=True):
        counted[route[route >= 0]] += each
    nobody, still = np.full((len(src), 2), -1), np.zeros(len(src))
    for use in ("add", "account", "add_by_segments"):
        network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments)
        if use == "account":
            network.account(routes, nbytes)
        elif use == "add":
            network.add(routes, nbytes, still, nobody)
        else:
            network.add_by_segments(*placement.segments_of(src, dst), nbytes, still, nobody)
        assert network.link_bytes.tolist() == counted.tolist(), use


# -- periods that come back ------------------------------------------------------------------------------------------

Plan = list[tuple[int, list[list[int]], list[int]]]  # (start, routes, bytes) of every batch


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    links = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
    batch = st.lists(st.tuples(links, st.integers(0, 9)), min_size=1, max_size=4)
    batches = draw(st.lists(st.tuples(st.integers(0, 6), batch), min_size=1, max_size=4))
    return [(start, [f[0] for f in flows], [f[1] for f in flows]) for start, flows in batches]


CAPACITY = np.asarray([1.0, 2.0, 3.0, 5.0])


def play(network: FluidNetwork, plan: Plan) -> dict[Any, float]:
    """Send a plan and wait until the network is idle; returns when each transfer ended, relative to the beginning."""
    begin = network.env.now
    sender = Sender(network)
    for number, (start, routes, nbytes) in enumerate(plan):
        sender.at(begin + start, number, routes, nbytes, 0.25)
    network.env.run()
    network.env.run(until=network.env.now + 100)
    return {key: time - begin for key, time in sender.finish.items()}


@settings(deadline=None, max_examples=60)
@given(plans(), plans(), st.lists(st.integers(0, 3), min_size=2, max_size=6))
def test_a_network_with_a_past_behaves_like_a_new_one(first: Plan, second: Plan, order: list[int]) -> None:
    """Plans that repeat, share a beginning, end early or continue differently give the times of a new network."""
    variants = [first, first + second, first[:1] + second, second]
    network = FluidNetwork(simpy.Environment(), CAPACITY)
    for choice in order:
        fresh = play(FluidNetwork(simpy.Environment(), CAPACITY), variants[choice])
        assert play(network, variants[choice]) == pytest.approx(fresh, rel=1e-9, abs=1e-9)
        flows = sum(len(routes) for _, routes, _ in variants[choice])
        assert len(fresh) == flows


@pytest.mark.parametrize("few", [0, 10**6])
def test_the_second_epoch_is_remembered(placement: Placement, few: int) -> None:
    """Also with late ranks; a rank that arrives at another time is detected, and later times are computed."""
    nbytes = sizes("uniform", placement.size)
    arrival = np.random.default_rng(2).uniform(0, 5e-4, placement.size)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments, exact_flows=few)
    epochs, solves = [], []
    for late in (0.0, 0.0, 1e-4, 0.0, 1e-4):
        moved = arrival.copy()
        moved[np.argmax(arrival)] += late
        epochs.append(all_to_all(placement, network, nbytes, moved))
        solves.append(network.solves)
        network.env.run(until=network.env.now + 1.0)
    assert epochs[1] == pytest.approx(epochs[0], rel=1e-9) and epochs[3] == pytest.approx(epochs[0], rel=1e-9)
    assert epochs[4] == pytest.approx(epochs[2], rel=1e-9) and not np.allclose(epochs[2], epochs[0], rtol=1e-6)
    assert solves[0] == solves[1] < solves[2] == solves[3] == solves[4]


def test_what_is_too_long_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Periods with many transfers, and more events than the limit, are not kept; times stay the same."""
    long: Plan = [(0, [[0], [0, 1]], [3, 4]), (1, [[2]], [5]), (2, [[1, 2]], [6])]
    other: Plan = [(0, [[3]], [9])]
    fresh = [play(FluidNetwork(simpy.Environment(), CAPACITY), plan) for plan in (long, other)]
    for limit, room, again in (("MOST_FLOWS", 2, [True, False]), ("MOST_EVENTS", 8, [True, True])):
        monkeypatch.setattr(busy_periods, limit, room)
        network, solved = FluidNetwork(simpy.Environment(), CAPACITY), []
        for plan, expected in zip([long, other, long, other], fresh * 2, strict=True):
            before = network.solves
            assert play(network, plan) == pytest.approx(expected, rel=1e-9)
            solved.append(network.solves > before)
        assert solved[2:] == again, limit
        monkeypatch.undo()


@settings(deadline=None, max_examples=60)
@given(plans(), st.floats(0, 20), st.booleans(), st.sampled_from([0, EXACT_FLOWS]))
def test_a_network_without_times_ends_flows_as_they_begin(plan: Plan, stop: float, known: bool, few: int) -> None:
    """Those in flight end when the times stop; also those of a period that is followed, and of one in windows."""
    timed = play(FluidNetwork(simpy.Environment(), CAPACITY, exact_flows=few), plan)
    network = FluidNetwork(simpy.Environment(), CAPACITY, exact_flows=few)
    if known:
        play(network, plan)
    before = network.link_bytes.copy()
    call_late(network.env, lambda _: network.stop_timing(), stop)
    found = play(network, plan)
    expected = {key: end if end < stop else max(stop, plan[key[0]][0]) for key, end in timed.items()}
    assert found == pytest.approx(expected, rel=1e-9)
    assert (network.link_bytes - before).tolist() == [
        sum(b for _, routes, nbytes in plan for route, b in zip(routes, nbytes, strict=True) if link in route)
        for link in range(len(CAPACITY))
    ]


def test_a_watched_network_tells_every_transfer(placement: Placement) -> None:
    """With a watch every period is computed, with the same times as without."""

    class Watch:
        def __init__(self) -> None:
            self.seen: list[np.ndarray] = []
            self.flows = 0

        def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
            self.flows += len(nbytes)

        def ended(self, finish: np.ndarray) -> None:
            self.seen.append(finish)

    nbytes, arrival = sizes("17 sizes", placement.size), np.zeros(placement.size)
    network = FluidNetwork(simpy.Environment(), placement.capacity, placement.segments)
    network.watch = watch = Watch()
    for epoch in (1, 2):
        start = network.env.now
        done = all_to_all(placement, network, nbytes, arrival)
        network.report()
        assert watch.flows == epoch * placement.size * (placement.size - 1)
        assert np.concatenate(watch.seen).max() - start == pytest.approx(done.max(), rel=1e-9)
        network.env.run(until=network.env.now + 1.0)
