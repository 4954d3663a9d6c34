"""The fluid network: small scenarios, a rational oracle to compare with, and the properties of max-min fairness."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from sims.network import FluidNetwork, RouteTable, call_late, fair_shares, route_table, run_flows
from sims.network._completions import FlowProgress, drain, plan
from sims.network._fair_share import fill, refill, rise
from sims.network._flow_index import flow_routes, make_index, take_out
from tests.support.exact_flows import ExactFlow, exact_finish

GBIT = 125e6


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[int], list[tuple[list[int], int, int]]]:
    """Capacities, and flows as (route, bytes, activation time)."""
    capacity = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    links = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=3, unique=True)
    flow = st.tuples(links, st.integers(0, 30), st.integers(0, 4))
    return capacity, draw(st.lists(flow, min_size=1, max_size=7))


Network = tuple[list[int], list[tuple[list[int], int, int]]]


def exact_finish_of(network: Network) -> list[float]:
    """Finish times by the oracle."""
    capacity, flows = network
    exact = [ExactFlow(route, Fraction(nbytes), Fraction(start)) for route, nbytes, start in flows]
    return [float(time) for time in exact_finish([Fraction(c) for c in capacity], exact)]


def finish_of(network: Network, scale: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
    capacity, flows = network
    routes = route_table([route for route, _, _ in flows])
    nbytes, start = (np.asarray([f[i] for f in flows], float) for i in (1, 2))
    return run_flows(np.asarray(capacity, float) * bandwidth, routes, nbytes * scale, start)


@settings(deadline=None, max_examples=50)
@given(networks())
def test_finish_times_are_exact(network: Network) -> None:
    assert finish_of(network) == pytest.approx(exact_finish_of(network), rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(networks(), st.data())
def test_flows_that_follow_others_are_exact(network: Network, data: st.DataObject) -> None:
    """Each flow follows some of those before it, with its own start and a latency; in any order."""
    capacity, flows = network
    after = [sorted(data.draw(st.sets(st.integers(0, at - 1), max_size=3))) if at else [] for at in range(len(flows))]
    latency = [data.draw(st.integers(0, 3)) for _ in flows]
    exact = [
        ExactFlow(route, Fraction(nbytes), Fraction(start), Fraction(late), before)
        for (route, nbytes, start), late, before in zip(flows, latency, after, strict=True)
    ]
    expected = [float(time) for time in exact_finish([Fraction(c) for c in capacity], exact)]
    order = data.draw(st.permutations(range(len(flows))))
    place = {flow: at for at, flow in enumerate(order)}
    nbytes, start = (np.asarray([flows[f][i] for f in order], float) for i in (1, 2))
    found = run_flows(
        np.asarray(capacity, float), route_table([flows[f][0] for f in order]), nbytes, start,
        np.asarray([latency[f] for f in order], float), [[place[other] for other in after[f]] for f in order],
    )  # fmt: skip
    assert found == pytest.approx([expected[f] for f in order], rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(networks())
def test_rates_are_max_min_fair(network: Network) -> None:
    """No link carries more than it can; every flow has a full link on which no other is faster."""
    capacity, flows = network
    routes = [route for route, _, _ in flows]
    rate = fair_shares(np.asarray(capacity, float), route_table(routes))
    load = [sum(r for r, route in zip(rate, routes, strict=True) if link in route) for link in range(len(capacity))]
    assert all(have <= can * (1 + 1e-9) for have, can in zip(load, capacity, strict=True))
    for flow, route in enumerate(routes):
        assert any(
            load[link] >= capacity[link] * (1 - 1e-9)
            and rate[flow] >= max(r for r, other in zip(rate, routes, strict=True) if link in other) * (1 - 1e-9)
            for link in route
        )


@settings(deadline=None, max_examples=40)
@given(networks(), st.randoms(use_true_random=False))
def test_makespan_scale_and_order(network: Network, random: Any) -> None:
    """The makespan is at least that of every link; doubling bytes equals halving bandwidth; order is irrelevant."""
    capacity, flows = network
    finish = finish_of(network)
    for link, can in enumerate(capacity):
        assert finish.max() >= sum(b for route, b, _ in flows if link in route) / can * (1 - 1e-12)
    assert finish_of(network, scale=2.0) == pytest.approx(finish_of(network, bandwidth=0.5), rel=1e-9)
    order = list(range(len(flows)))
    random.shuffle(order)
    shuffled = finish_of((capacity, [flows[i] for i in order]))
    assert shuffled == pytest.approx(finish[order], rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(networks(), st.booleans())
def test_the_clocked_network_is_exact(network: Network, last: bool) -> None:
    """One group per flow, added when it starts; bytes per link follow from the routes.

    `last`: added after all other events of the instant, so that latencies may end without a wake.
    """
    capacity, flows = network
    env = simpy.Environment()
    fluid = FluidNetwork(env, np.asarray(capacity, float))
    finish = np.full(len(flows), np.nan)

    def sender(flow: int, route: list[int], nbytes: int, start: int) -> Any:
        # Half of the start is an event of the simulation, half is latency.
        yield env.timeout(start / 2)
        group, done = fluid.group(1)
        batch = np.asarray([nbytes]), np.asarray([start / 2]), np.asarray([[group, -1]])
        row, no_tail = fluid.segment(route_table([route])), np.zeros(1, np.int32)
        if last:
            call_late(env, lambda _: fluid.add_by_segments(row, no_tail, *batch, last=True))
        else:
            fluid.add_by_segments(row, no_tail, *batch)
        yield done
        finish[flow] = env.now

    for number, flow in enumerate(flows):
        env.process(sender(number, *flow))
    env.run()
    assert finish == pytest.approx(exact_finish_of(network), rel=1e-9, abs=1e-12)
    for link in range(len(capacity)):
        assert fluid.link_bytes[link] == sum(b for route, b, _ in flows if link in route)


def test_latencies_that_nothing_meets_end_without_a_wake() -> None:
    """Two transfers of one group with overlapping latencies; another event in between wakes the network."""
    waits, times = np.asarray([0.1, 0.2]), {}
    for between in (None, 0.15):
        env = simpy.Environment()
        fluid = FluidNetwork(env, np.asarray([10.0, 10.0]))
        group, done = fluid.group(2)
        rows, groups = fluid.segment(route_table([[0], [1]])), np.full((2, 2), [group, -1])
        batch = rows, np.zeros(2, np.int32), np.asarray([10, 10]), waits, groups
        call_late(env, lambda _, fluid=fluid, batch=batch: fluid.add_by_segments(*batch, last=True))
        if between is not None:
            env.timeout(between)
        woken = 0
        while not done.processed:
            env.step()
            woken += 1
        times[between] = env.now
        # the call, the wake at the end, its event; then also the other event, and the latency that ends behind it
        assert woken == (3 if between is None else 5)
    assert times[None] == times[0.15] == pytest.approx(1.2)


def test_a_latency_that_ends_with_another_transfer_loses_nobody() -> None:
    """Both end at exactly the same time, when no rounding is tolerated: both events are triggered."""
    env = simpy.Environment()
    fluid, ends = FluidNetwork(env, np.asarray([25139300.0, 25139300.0])), []
    groups, events = zip(*(fluid.group(1) for _ in range(2)), strict=True)
    batch = np.asarray([744413, 744413]), np.asarray([0.01330185595293265, 0.04291338053794496])
    rows, pairs = fluid.segment(route_table([[0], [1]])), np.asarray([[group, -1] for group in groups])
    call_late(env, lambda _: fluid.add_by_segments(rows, np.zeros(2, np.int32), *batch, pairs, last=True))
    for event in events:
        assert event.callbacks is not None
        event.callbacks.append(lambda _: ends.append(env.now))
    env.run()
    assert ends == pytest.approx(batch[1] + 744413 / 25139300)


@settings(deadline=None, max_examples=60)
@given(networks(), st.integers(0, 10), st.randoms(use_true_random=False))
def test_rates_after_some_have_ended_are_those_from_scratch(network: Network, ended: int, random: Any) -> None:
    """Only flows at least as fast as the slowest of those that ended get new rates."""
    capacity, flows = network
    table = RouteTable(np.asarray(capacity, float))
    head = table.intern(route_table([route for route, _, _ in flows]))
    fabric, nothing = table.fabric(), np.zeros(len(capacity))
    crossed = flow_routes(fabric, head, np.zeros(len(flows), np.int32))
    rate = np.full(len(flows), -1.0)
    fill(fabric, crossed, rate, nothing)
    gone = np.asarray(random.sample(range(len(flows)), min(1 + ended, len(flows))))
    scratch = np.where(np.isin(np.arange(len(flows)), gone), 0.0, -1.0)
    fill(fabric, crossed, scratch, nothing)
    slowest, rate[gone] = rate[gone].min(), 0.0
    refill(fabric, crossed, rate, slowest)
    assert rate == pytest.approx(scratch, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(networks(), st.floats(1.0, 1.5))
def test_links_that_saturate_almost_together_are_almost_fair(network: Network, same: float) -> None:
    """No link is over its capacity, and every flow has one that is full, and on which none is faster, to a factor."""
    capacity, flows = network
    table = RouteTable(np.asarray(capacity, float))
    head = table.intern(route_table([route for route, _, _ in flows]))
    fabric, crossed = table.fabric(), flow_routes(table.fabric(), head, np.zeros(len(flows), np.int32))
    make_index(crossed, np.full(len(flows), -1.0))
    rate = rise(fabric, crossed.index, np.zeros(len(capacity)), same)[head]
    rates_on = [[rate[at] for at, (route, _, _) in enumerate(flows) if link in route] for link in range(len(capacity))]
    for rates, can in zip(rates_on, capacity, strict=True):
        assert sum(rates) <= can * (1 + 1e-9)
    for own, (route, _, _) in zip(rate, flows, strict=True):
        assert not route or any(
            sum(rates_on[link]) * same >= capacity[link] * (1 - 1e-9) and own * same >= max(rates_on[link]) * (1 - 1e-9)
            for link in route
        )


@settings(deadline=None, max_examples=50)
@given(networks(), st.lists(st.booleans(), min_size=1, max_size=30))
def test_flows_taken_out_of_an_index_no_longer_rise(network: Network, stays: list[bool]) -> None:
    """The shares are those of an index that never had them; taking one out twice changes nothing."""
    capacity, flows = network
    table = RouteTable(np.asarray(capacity, float))
    head = table.intern(route_table([route for route, _, _ in flows]))
    fabric, nothing = table.fabric(), np.zeros(len(capacity))
    rate = np.where(np.resize(stays, len(flows)), -1.0, 0.0)
    crossed, fresh = (flow_routes(fabric, head, np.zeros(len(flows), np.int32)) for _ in range(2))
    make_index(crossed, np.full(len(flows), -1.0))
    for flow in np.repeat(np.flatnonzero(rate == 0.0), 2):
        take_out(crossed, flow)
    make_index(fresh, rate)
    assert crossed.index.rising.tolist() == fresh.index.rising.tolist()
    assert rise(fabric, crossed.index, nothing, 1.0).tolist() == rise(fabric, fresh.index, nothing, 1.0).tolist()


@settings(deadline=None, max_examples=50)
@given(networks(), st.floats(0.01, 100.0), st.booleans())
def test_a_window_moves_no_more_than_its_links_can(network: Network, window: float, stale: bool) -> None:
    """Flows that end in the window and flows that do not, together; a flow moves at most its remaining bytes."""
    capacity, flows = network
    table = RouteTable(np.asarray(capacity, float))
    head = table.intern(route_table([route for route, _, _ in flows]))
    fabric, remaining = table.fabric(), np.asarray([nbytes for _, nbytes, _ in flows], float)
    crossed = flow_routes(fabric, head, np.zeros(len(flows), np.int32))
    rate = np.full(len(flows), np.nan)
    progress = FlowProgress(remaining, rate)
    if stale:  # as the step before left it
        plan(fabric, crossed, progress, 0.0, False, False)
    step, last, ending, solves = plan(fabric, crossed, progress, window, stale, stale)
    coalesced, rate = len(ending) > 0, rate.copy()
    assert step <= window or not coalesced
    assert last == pytest.approx((remaining / rate).max()) and step <= last
    assert 1 <= solves <= 2
    moved = np.minimum(remaining, rate * step)
    for link, can in enumerate(capacity):
        load = sum(m for m, (route, _, _) in zip(moved, flows, strict=True) if link in route)
        assert load <= can * (window if coalesced else step) * (1 + 1e-9) + 1e-9
    before = remaining.copy()
    ended, after = drain(progress, step, 0.0)
    assert sorted(ended) == np.flatnonzero(remaining < 0).tolist() and (after <= step).all()
    assert not coalesced or set(ended) <= set(ending)
    kept = remaining >= 0
    assert (before - remaining)[kept] == pytest.approx(moved[kept])
    assert before[ended] == pytest.approx(np.where(after > 0, rate[ended] * after, 0.0), abs=1e-9)


def test_incast() -> None:
    """n hosts send to one: its link is shared evenly, and smaller transfers end first."""
    capacity, *_ = star(9)
    routes = route_table([[i, 9 + 8] for i in range(8)])
    equal = run_flows(capacity, routes, np.full(8, 1e6), 0.0, 1e-4)
    assert equal == pytest.approx(np.full(8, 1e-4 + 8e6 / GBIT))
    nbytes = np.arange(1, 9) * 1e5
    waits = [sum(min(b, own) for b in nbytes) / GBIT for own in nbytes]
    assert run_flows(capacity, routes, nbytes) == pytest.approx(waits)


def test_equal_routes_are_kept_once() -> None:
    """Padding does not make another segment; an empty route is segment 0; segments may be given initially."""
    table = RouteTable(np.ones(4), np.asarray([[-1, -1], [0, 1]]))
    assert table.intern(np.asarray([[0, 1, -1], [-1, 2, 3], [2, -1, 3], [-1, -1, -1]])).tolist() == [2, 3, 3, 0]
    assert table.intern(np.asarray([[2, 3], [3, 2]])).tolist() == [3, 4]
    assert [links[links >= 0].tolist() for links in table.fabric().segments] == [[], [0, 1], [0, 1], [2, 3], [3, 2]]
    many = np.asarray([[a, b, c] for a in range(4) for b in range(4) for c in range(4)])
    numbers = table.intern(many)
    assert len(set(numbers.tolist())) == 64 and (table.intern(many) == numbers).all()
    assert (table.fabric().segments[numbers] == many).all()


def star(hosts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A full-duplex 1 Gb/s star: capacities, sources, destinations and routes of all ordered pairs."""
    src, dst = np.nonzero(~np.eye(hosts, dtype=bool))
    return np.full(2 * hosts, GBIT), src, dst, np.stack([src, hosts + dst], axis=1).astype(np.int32)


def test_one_flow() -> None:
    assert run_flows(np.asarray([GBIT]), route_table([[0]]), np.asarray([1e6]), 0.0, 50e-6) == pytest.approx([8.05e-3])


def test_staggered_flows_and_an_empty_one() -> None:
    """On one link: 1 MB at 0, 2 MB at 2 ms, 0.5 MB at 5 ms, nothing at 1 ms; 50 us latency each."""
    start = np.asarray([0, 2e-3, 5e-3, 1e-3])
    finish = run_flows(np.asarray([GBIT]), route_table([[0]] * 4), np.asarray([1e6, 2e6, 5e5, 0]), start, 50e-6)
    assert finish == pytest.approx([18.05e-3, 28.05e-3, 17.05e-3, 1.05e-3], rel=1e-9)


def test_parking_lot_ignores_latency_in_its_shares() -> None:
    """A long flow over three links beside one flow on each; its latency is three times as long."""
    routes = route_table([[0, 1, 2], [0], [1], [2]])
    latency = np.asarray([150e-6, 50e-6, 50e-6, 50e-6])
    finish = run_flows(np.full(3, GBIT), routes, np.asarray([1e6, 1e6, 2e6, 4e6]), 0.0, latency)
    assert finish == pytest.approx([16.15e-3, 15.95e-3, 24.05e-3, 40.05e-3], rel=1e-9)


def test_ring_of_dependent_flows() -> None:
    """Ring all-reduce of 4 MB over 8 hosts: step k of host i follows its own step k-1 and its neighbour's."""
    capacity, *_ = star(8)
    routes = route_table([[i, 8 + (i + 1) % 8] for _ in range(14) for i in range(8)])
    after = [[(k - 1) * 8 + i, (k - 1) * 8 + (i - 1) % 8] if k else [] for k in range(14) for i in range(8)]
    finish = run_flows(capacity, routes, np.full(112, 5e5), 0.0, 100e-6, after)
    assert finish.max() == pytest.approx(57.4e-3, rel=1e-9)


def test_a_flow_that_follows_itself_is_refused() -> None:
    with pytest.raises(InputError, match="flow 0 follows itself"):
        run_flows(np.ones(1), route_table([[0], [0]]), np.ones(2), after=[[1], [0]])


def test_equal_transfers_take_few_solves() -> None:
    """A uniform all-to-all is one activation and one completion however many transfers it has."""
    capacity, src, dst, routes = star(24)
    env = simpy.Environment()
    fluid = FluidNetwork(env, capacity)
    groups = [fluid.group(2 * 23) for _ in range(24)]
    ends = np.asarray([number for number, _ in groups])
    for rank in range(24):  # rank by rank, as they arrive
        mine = src == rank
        pairs = np.stack([ends[src[mine]], ends[dst[mine]]], axis=1)
        fluid.add(routes[mine], np.full(23, 1_000_000), np.full(23, 1e-4), pairs)
    env.run(until=env.all_of([event for _, event in groups]))
    assert env.now == pytest.approx(1e-4 + 23 * 8e-3, rel=1e-9)
    assert fluid.solves <= 3
