"""Returned rows are added to those that they were sent from."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.exchanges import Route
from harness.graphs import HaloPlan


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.integers(0, 60), st.integers(1, 40), st.integers(0, 2**31))
def test_rows_are_added_where_they_were_sent_from(num_own: int, sent: int, width: int, seed: int) -> None:
    """In the order of sending, to sums that begin with zero; neither argument is written to."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.integers(0, num_own, sent))
    own, returned = (torch.from_numpy(rng.standard_normal((n, width)).astype(np.float32)) for n in (num_own, sent))
    before = own.clone(), returned.clone()
    route = Route.of(HaloPlan(rows, np.array([sent]), np.array([0])), num_own)
    found = route.add_back(own, returned)
    sums = torch.zeros_like(own)
    for at, row in enumerate(rows.tolist()):
        sums[row] += returned[at]
    assert torch.equal(found, own + sums)
    assert torch.equal(own, before[0]) and torch.equal(returned, before[1])
