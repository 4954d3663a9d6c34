"""The index of rising flows, and the drain of a window: both equal what is computed from all flows anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.network import RouteTable
from sims.network._completions import FlowProgress, _ending, drain, drain_window
from sims.network._fair_share import rise
from sims.network._flow_index import FlowRoutes, extend_index, flow_routes, make_index, put_back, take_out
from sims.network._routes import Fabric

SEGMENTS = 5


def crossing(flows: int, seed: int) -> tuple[Fabric, FlowRoutes, FlowRoutes]:
    """Flows over two segments of one link each, or of none, with room for two indices."""
    segments = np.arange(-1, SEGMENTS - 1, dtype=np.int32)[:, None]
    fabric = RouteTable(np.arange(1.0, SEGMENTS), segments).fabric()
    head, tail = np.random.default_rng(seed).integers(0, SEGMENTS, (2, flows)).astype(np.int32)
    return fabric, flow_routes(fabric, head, tail), flow_routes(fabric, head, tail)


def same_index(fabric: Fabric, one: FlowRoutes, other: FlowRoutes) -> None:
    """Equal counts, and equal rates up to rounding: sums are taken in another order."""
    assert one.index.rising.tolist() == other.index.rising.tolist()
    nothing = np.zeros(len(fabric.capacity))
    assert rise(fabric, one.index, nothing, 1.0) == pytest.approx(rise(fabric, other.index, nothing, 1.0))


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(0, 99))
def test_flows_that_begin_later_are_indexed_as_the_others(data: st.DataObject, seed: int) -> None:
    """Flows begin twice after the index was made; in between some end, and some that seemed to end do not."""
    first, second, third = sorted(data.draw(st.lists(st.integers(1, 30), min_size=3, max_size=3)))
    fabric, routes, fresh = crossing(third, seed)
    rate = np.full(third, -1.0)

    def until(flows: int) -> FlowRoutes:
        return FlowRoutes(routes.head[:flows], routes.tail[:flows], routes.index)

    make_index(until(first), rate[:first])
    for known, flows in ((first, second), (second, third)):
        seemed = data.draw(st.sets(st.integers(0, known - 1)))
        ended = data.draw(st.sets(st.sampled_from(sorted(seemed)))) if seemed else set()
        for flow in seemed:
            if rate[flow] < 0.0:
                take_out(until(known), flow)
        rate[list(ended)] = 0.0
        for flow in seemed:
            if rate[flow] < 0.0:
                put_back(until(known), flow)
                put_back(until(known), flow)
        extend_index(until(flows), rate[first:flows], first, known)
    make_index(fresh, rate)
    same_index(fabric, routes, fresh)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_window_or_the_begin_of_one_ends_the_same_flows_as_any_step(share: float) -> None:
    draw = np.random.default_rng(1)
    remaining, rate = draw.uniform(0.0, 3.0, 300), draw.uniform(0.5, 2.0, 300)
    remaining[:30], remaining[30:60] = -1.0, 0.0
    one, other = (FlowProgress(remaining.copy(), rate.copy()) for _ in range(2))
    ending = _ending(one, 1.0)
    (ended, after), (found, when) = drain(one, share, 0.0), drain_window(other, ending, share, 0.0)
    assert 30 <= len(ended) <= len(ending) < 270
    assert found.tolist() == ended.tolist() and when.tolist() == after.tolist()
    assert other.remaining.tolist() == one.remaining.tolist() and other.rate.tolist() == one.rate.tolist()


def test_what_rounding_takes_too_much_of_a_flow_does_not_end_it() -> None:
    """A flow that ends just after its window has no bytes left, and is still there."""
    progress = FlowProgress(np.asarray([1.0]), np.asarray([1.0]))
    drain_window(progress, np.empty(0, np.int64), 1.0 + 1e-15, 0.0)
    assert progress.remaining.tolist() == [0.0]
