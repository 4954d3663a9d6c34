"""Rank programs that tell which tensors of exchanges outlive them; run in processes by `tests.support.programs`."""

from __future__ import annotations

import gc
import time
import weakref

import torch
from torch import Tensor

from harness.effects import Rows
from harness.rank import Rank
from tests.support.background import halved
from tests.support.messages import counts, rows

LONG = 100_003
"""Elements of a sum, as many as no other tensor of a test program has."""


async def freed(rank: Rank) -> list[int]:
    """Tensors of background exchanges that are still alive after the wait, without the help of the cycle collector."""
    alive = []
    gc.collect()
    gc.disable()
    for rank.epoch in range(3):
        send, recv = counts(rank, 1)
        seen: list[weakref.ref[Tensor]] = []
        rank.clock.begin_epoch()
        handles = [
            await halved(rank, rows(rank, int(send.sum()), 3), send, recv, label=f"rows {k}", seen=seen)
            for k in range(3)
        ]
        for handle in handles:
            await rank.wait(handle)
        rank.clock.end_epoch()
        await rank.all_reduce(torch.ones(1), label="later")
        assert len(seen) == 15
        # The second thread may hold a finished exchange for an instant after the wait; a cycle would hold it for ever.
        patience = time.monotonic() + 5.0
        while any(each() is not None for each in seen) and time.monotonic() < patience:
            time.sleep(0.001)
        alive.append(sum(each() is not None for each in seen))
    gc.enable()
    return alive


async def let_go(rank: Rank) -> list[list[str]]:
    """Tensors of exchanges that are still alive when the program refers to them no more and computes, by epoch."""
    found = []
    gc.collect()
    gc.disable()
    for rank.epoch in range(3):
        send, recv = counts(rank, 1)
        rank.clock.begin_epoch()
        sent = rows(rank, int(send.sum()), 3)
        received = await rank.all_to_all([Rows(sent, send, recv)], label="rows")
        seen = {"sent": weakref.ref(sent), "received": weakref.ref(received.tensors[0])}
        del sent, received
        alive = [name for name, each in seen.items() if each() is not None]
        sent = rows(rank, int(send.sum()), 3)
        handle = await rank.start(rank.all_to_all([Rows(sent, send, recv)], label="later"))
        received = await rank.wait(handle)
        seen = {"sent later": weakref.ref(sent), "received later": weakref.ref(received.tensors[0])}
        del sent, received, handle
        alive += [name for name, each in seen.items() if each() is not None]
        total = await rank.all_reduce(rows(rank, 7), label="sum")
        seen = {"sum": weakref.ref(total)}
        del total
        alive += [name for name, each in seen.items() if each() is not None]
        rank.clock.end_epoch()
        found.append(alive)
    gc.enable()
    return found


async def left_of_sums(rank: Rank) -> list[int]:
    """Tensors as large as a sum over ranks that are alive behind it, when the program refers to none any more."""
    found = []
    for rank.epoch, started in enumerate((False, True)):
        rank.clock.begin_epoch()
        summed = rank.all_reduce(rows(rank, LONG), label="sum")
        total = await rank.wait(await rank.start(summed)) if started else await summed
        assert total.numel() == LONG
        del summed, total
        rank.clock.end_epoch()
        deadline = time.monotonic() + 2.0  # gloo's own thread lets its work go a moment after the work is done
        while (alive := _as_large_as_a_sum()) and time.monotonic() < deadline:
            time.sleep(0.01)
        found.append(alive)
    return found


def _as_large_as_a_sum() -> int:
    held = [each for each in gc.get_objects() if type(each) is Tensor]
    return sum(abs(each.untyped_storage().nbytes() - 4 * LONG) < 100 for each in held)
