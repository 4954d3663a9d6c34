"""Whole blocks that are broadcast: what a rank holds of them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from harness import loopback
from harness.exchanges import Blocks
from harness.rank import Rank

ROWS, WIDTH, RANKS = 50, 6, 4


def block_of(root: int) -> Tensor:
    return torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH) + 1000 * root


def test_a_rank_holds_one_block_of_others_at_a_time() -> None:
    """And nothing of its size where one is to be received: the driver makes that buffer."""
    alive: list[weakref.ref[Tensor]] = []
    passed: list[int] = []

    async def broadcast(tensor: Tensor, *, root: int, **_: Any) -> Tensor:
        gc.collect()
        assert all(block() is None for block in alive)
        assert tensor.shape == (ROWS, WIDTH)
        if root != 1:
            passed.append(tensor.untyped_storage().nbytes())
        received = block_of(root)
        alive.append(weakref.ref(received))
        return received

    rank: Any = SimpleNamespace(index=1, size=RANKS, broadcast=broadcast)
    places = tuple(torch.tensor([3, 7][: 0 if root == 1 else 2]) for root in range(RANKS))
    found = asyncio.run(Blocks((ROWS,) * RANKS, places).halo_rows(rank, block_of(1), range(RANKS), "forward", 0))
    assert torch.equal(found, torch.cat([block_of(root)[[3, 7]] for root in (0, 2, 3)]))
    assert len(alive) == RANKS and max(passed) < 4 * ROWS


def test_blocks_without_nodes_are_not_sent() -> None:
    async def program(rank: Rank) -> list[Any]:
        blocks = Blocks((2, 0), (torch.tensor([1])[: rank.index], torch.zeros(0, dtype=torch.int64)))
        x = torch.ones(2 - 2 * rank.index, 3) * 5
        halo = await blocks.halo_rows(rank, x, range(2), "forward", 0)
        return [tuple(halo.shape), rank.traffic.take().to.tolist()]

    assert loopback.run_ranks(program, 2) == [[(0, 3), [0, 24]], [(1, 3), [0, 0]]]
