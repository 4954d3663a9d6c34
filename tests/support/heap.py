"""What collectives keep in the heap of the C library, where torch's own records are: Python's tools do not see it."""

from __future__ import annotations

import ctypes
import gc

import torch

from harness.effects import Rows
from harness.rank import Rank

EPOCHS = 300


class _Mallinfo2(ctypes.Structure):
    """<malloc.h> of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    ]  # fmt: skip


def heap_in_use() -> int:
    """Bytes of the main heap that are allocated."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo2
    gc.collect()
    return int(mallinfo2().uordblks)


async def kept_by_collectives(rank: Rank) -> int:
    """Bytes that are more after `EPOCHS` epochs with collectives of several kinds, once as many have gone before."""
    before = 0
    for rank.epoch in range(2 * EPOCHS):
        if rank.epoch == EPOCHS:
            before = heap_in_use()
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(4), label="gradients")
        each = torch.ones(rank.size).numpy().astype("int64")
        await rank.all_to_all([Rows(torch.ones(rank.size, 3), each, each)], label="halo")
        handle = await rank.start(rank.all_reduce(torch.ones(2), label="started"))
        await rank.wait(handle)
        rank.clock.end_epoch()
        rank.traffic.take()
    return heap_in_use() - before
