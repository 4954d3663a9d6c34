"""Fair shares in special cases; see `tests.sims.network.test_network` for their properties."""

from __future__ import annotations

import numpy as np

from sims.network import RouteTable
from sims.network._fair_share import fill, refill
from sims.network._flow_index import flow_routes


def test_segments_without_links_hold_nobody_back() -> None:
    """Routes of messages that stay on a rank, together with a flow on a link, and after that flow has ended."""
    fabric = RouteTable(np.asarray([10.0]), np.asarray([[-1], [-1], [0]])).fabric()
    routes, rate = flow_routes(fabric, np.asarray([1, 2], np.int32), np.zeros(2, np.int32)), np.full(2, -1.0)
    fill(fabric, routes, rate, np.zeros(1))
    assert rate.tolist() == [np.inf, 10.0]
    rate[1] = 0.0
    refill(fabric, routes, rate, 10.0)
    assert rate.tolist() == [np.inf, 0.0]
