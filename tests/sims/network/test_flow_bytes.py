"""Bytes by link and by segment, counted in compiled code, equal those of numpy for any number of flows."""

from __future__ import annotations

import numpy as np
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sims.network import FluidNetwork, RouteTable
from sims.network._completions import count_by_segment

LINKS = 5
ROUTES = st.lists(st.lists(st.integers(0, LINKS - 1), unique=True, max_size=3), min_size=1, max_size=12)
BYTES = st.floats(0, 1e12)


def padded(routes: list[list[int]]) -> np.ndarray:
    return np.asarray([route + [-1] * (3 - len(route)) for route in routes], np.int32)


@given(routes=ROUTES, data=st.data(), whole=st.booleans())
def test_links_carry_the_bytes_of_their_flows(routes: list[list[int]], data: st.DataObject, whole: bool) -> None:
    """Rounded once per link and batch, so a link is off by at most half a byte."""
    drawn = np.asarray([data.draw(BYTES) for _ in routes])
    nbytes = drawn.astype(np.int64) if whole else drawn
    network = FluidNetwork(simpy.Environment(), np.full(LINKS, 1e9))
    network.account(padded(routes), nbytes)
    asked = [sum(float(n) for n, route in zip(nbytes, routes, strict=True) if link in route) for link in range(LINKS)]
    assert np.abs(network.link_bytes - np.asarray(asked)).max() <= 0.5 + 1e-3
    before = network.link_bytes.copy()
    for route, each in zip(routes, nbytes, strict=True):
        network.account(padded([route]), np.asarray([each]))
    assert np.abs(network.link_bytes - 2 * before).max() <= 0.5 * (len(routes) + 1) + 1e-3
    if whole:
        assert (network.link_bytes == 2 * before).all()


@given(ends=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), BYTES), max_size=12))
def test_segments_wait_for_their_flows_and_then_for_none(ends: list[tuple[int, int, float]]) -> None:
    head, tail = (np.asarray([end[at] for end in ends], np.int32) for at in (0, 1))
    nbytes = np.asarray([np.floor(end[2]) for end in ends])
    by_segment = np.zeros(7)
    count_by_segment(head, tail, nbytes, by_segment)
    assert (by_segment == np.bincount(head, nbytes, 7) + np.bincount(tail, nbytes, 7)).all()
    count_by_segment(head, tail, -nbytes, by_segment)
    assert not by_segment.any()


def test_segments_that_are_added_later_are_counted() -> None:
    """Routes added later do not affect uncounted bytes on earlier ones."""
    env = simpy.Environment()
    network = FluidNetwork(env, np.full(LINKS, 1e3), exact_flows=1)
    for link in range(3):
        group, done = network.group(1)
        network.add(padded([[link]]), np.asarray([1000]), np.asarray([0.5]), np.asarray([[group, -1]]))
    env.run(done)
    assert env.now == 1.5 and network.link_bytes.tolist() == [1000, 1000, 1000, 0, 0]
    assert isinstance(network._table, RouteTable) and not network._flight._state.latent.by_segment.any()
