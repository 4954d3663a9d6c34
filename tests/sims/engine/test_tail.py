"""What a rank computes after its last exchange, and for which effects it waits, as the simulated driver reports it."""

from __future__ import annotations

import pytest
import torch

from harness.effects import Rows
from harness.rank import Rank
from sims.cluster import load_cluster, place
from sims.device import Work, load_device
from sims.engine import simulate


async def _work(columns: int) -> None:
    rows = torch.empty(20_000, 1_000 * columns, device="meta")
    rows.relu()


async def program(rank: Rank) -> None:
    """Exchange, 100 thousand columns of work, exchange, 300 columns, all-reduce, 900 columns."""
    each = torch.ones(rank.size, dtype=torch.int64).numpy()
    for columns in (100, 300):
        payload = torch.empty(rank.size, 4, device="meta")
        await rank.all_to_all([Rows(payload, each, each)], label="rows")
        await _work(columns)
    await rank.all_reduce(torch.empty(4, device="meta"), label="sum")
    await _work(900)


async def lonely(rank: Rank) -> None:
    """No rows are exchanged."""
    await _work(300)
    await rank.all_reduce(torch.empty(4, device="meta"), label="sum")


def test_only_work_between_the_last_exchange_and_the_all_reduce_counts() -> None:
    cluster = place(load_cluster("h100-1"), 1)
    price = load_device("h100-80gb-vm").seconds(Work("elementwise", 2 * 4 * 20_000 * 300_000))
    found = simulate(program, cluster, shapes_only=True)
    assert found.tail_s == pytest.approx([price], rel=0.01)
    assert simulate(lonely, cluster, shapes_only=True).tail_s == [0.0]


async def waiting(rank: Rank) -> None:
    """Two epochs of two exchanges and an all-reduce, and an exchange after them."""
    each = torch.ones(rank.size, dtype=torch.int64).numpy()
    for _ in range(2):
        rank.clock.begin_epoch()
        for label in ("rows", "more"):
            payload = torch.empty(rank.size, 1_000_000, device="meta")
            await rank.all_to_all([Rows(payload, each, each)], label=label)
        await rank.all_reduce(torch.empty(4, device="meta"), label="sum")
        rank.clock.end_epoch()
    await rank.all_to_all([Rows(torch.empty(rank.size, 4, device="meta"), each, each)], label="after")


def test_waits_are_told_by_label_for_the_last_epoch_alone() -> None:
    found = simulate(waiting, place(load_cluster("ethernet-1g"), 2), shapes_only=True)
    assert set(found.blocked_s) == {"rows", "more", "sum"}
    assert found.blocked_s["rows"] == pytest.approx(found.blocked_s["more"], rel=0.01)
    assert found.blocked_s["rows"] > 10 * found.blocked_s["sum"] > 0
    assert 3 * found.blocked_s["rows"] < found.makespan_s < 5 * found.blocked_s["rows"], "two epochs of two"
