"""Draws of boundary nodes on the host: how many, of whom, how often, and what a model charges for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.kernels.boundary import draw_rows, host_select_columns
from harness.kernels.columns import select_columns
from harness.kernels.work import declared_work
from tests.support.conformance import make_parts
from tests.support.graphs import owners, random_graph

COUNTS = [7, 0, 1, 120, 33]


def drawn(p: float, fixed: bool, key: int) -> np.ndarray:
    found: np.ndarray = draw_rows(torch.empty(sum(COUNTS), dtype=torch.int64), COUNTS, p, fixed, key, 0).numpy()
    return found


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.99, 1.0])
def test_a_fixed_number_of_each_owners_nodes_is_kept(p: float) -> None:
    bounds = np.concatenate([[0], np.cumsum(COUNTS)])
    for key in range(20):
        kept = drawn(p, True, key)
        assert (np.diff(kept) > 0).all()
        assert np.diff(np.searchsorted(kept, bounds)).tolist() == [int(p * count) for count in COUNTS]


@pytest.mark.parametrize("fixed", [True, False])
def test_every_node_of_an_owner_is_kept_equally_often(fixed: bool) -> None:
    times, rounds, p = np.zeros(sum(COUNTS)), 2000, 0.3
    for key in range(rounds):
        kept = drawn(p, fixed, key)
        assert (np.diff(kept) > 0).all()
        times[kept] += 1
    shares = np.repeat([int(p * c) / max(c, 1) if fixed else p for c in COUNTS], COUNTS)
    spread = np.sqrt(rounds * shares * (1 - shares))
    assert (np.abs(times - rounds * shares) <= 4.5 * spread).all()
    assert np.array_equal(drawn(p, fixed, 5), drawn(p, fixed, 5)) and not np.array_equal(
        drawn(p, fixed, 5), drawn(p, fixed, 6)
    )


def test_the_host_selects_the_columns_that_the_device_does() -> None:
    graph = random_graph(60, 240, seed=4)
    halo = make_parts(graph, owners(graph, 3, "hash"), 3)[0].graph.halo
    arrays, columns = (halo.indptr, halo.indices, halo.t_indptr, halo.t_indices), torch.arange(0, halo.num_cols, 3)
    for ours, theirs in zip(host_select_columns(*arrays, columns), select_columns(*arrays, columns), strict=True):
        assert torch.equal(ours, theirs)


def test_the_host_is_charged_for_what_it_writes() -> None:
    """4 bytes for every random number, and what comes out."""
    draw, select = (declared_work(f"haloscope::{name}") for name in ("draw_rows", "host_select_columns"))
    assert draw is not None and select is not None
    nodes, kept = torch.empty(1000, dtype=torch.int64), torch.empty(100, dtype=torch.int64)
    work = draw((nodes,), [nodes], [kept])
    assert (work.kind, work.nbytes) == ("host", 4 * 1000 + 8 * 100)
    blocks = [torch.empty(size, dtype=torch.int32) for size in (11, 50, 101, 50)]
    assert select((), [nodes], blocks).nbytes == 4 * (11 + 50 + 101 + 50)
