"""Copies on a device's own bus: the closed form equals the fluid network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.network import FluidNetwork, run_flows
from sims.transport._buses import Bus

CAPACITY = 10.0

COPIES = st.lists(
    st.tuples(
        st.integers(1, 60), st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0]), st.sampled_from([0.0, 0.25, 3.0]),
        st.sampled_from([0.5, 0.5, 2.0]),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(COPIES)
def test_copies_share_a_bus_as_flows_share_a_link(copies: list[tuple[int, float, float, float]]) -> None:
    """Copies are (bytes, time of the request, delay until they begin, latency of the device)."""
    env = simpy.Environment()
    network = FluidNetwork(env, np.asarray([1.0, CAPACITY]))
    bus, finish = Bus(network, 1), np.full(len(copies), np.nan)

    def copy(number: int, nbytes: int, asked: float, after: float, latency: float) -> Iterator[simpy.Event]:
        yield env.timeout(asked)
        yield from bus.copy(latency, nbytes, after)
        finish[number] = env.now

    for number, each in enumerate(copies):
        env.process(copy(number, *each))
    env.run()
    nbytes, asked, after, latency = np.asarray(copies).T
    expected = run_flows(np.asarray([CAPACITY]), np.zeros((len(copies), 1), np.int32), nbytes, asked + after, latency)
    assert finish == pytest.approx(expected, rel=1e-9)
    assert network.link_bytes.tolist() == [0, nbytes.sum()] and network.solves == 0
