"""Rank programs of three ranks with errors in groups of them, which some ranks detect; for `programs`."""

from __future__ import annotations

import os
import signal

import torch

from harness.rank import Rank


async def killed_in_group(rank: Rank) -> None:
    """Rank 1 dies in its third epoch, where rank 0 waits for it in a group of two, and rank 2 for both."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        if epoch == 2 and rank.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank.index < 2:
            await rank.all_reduce(torch.ones(4), label="rows", group=(0, 1))
        await rank.all_reduce(torch.ones(4), label="gradients")
        rank.clock.end_epoch()


async def other_members(rank: Rank) -> None:
    """Ranks 0 and 1 name different groups, so that each waits for the other."""
    if rank.index < 2:
        await rank.all_reduce(torch.ones(2), label="row", group=((0, 1), (1, 2))[rank.index])
    await rank.all_reduce(torch.ones(2), label="all")


async def other_shape_in_group(rank: Rank) -> None:
    """In an epoch in which shapes are not compared one by one."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        if rank.index > 0:
            await rank.broadcast(torch.ones(1), root=1, label="first", group=(1, 2))
            shape = (2, 3) if epoch == 1 and rank.index == 1 else (3, 2)
            await rank.broadcast(torch.ones(shape), root=1, label="same bytes", group=(1, 2))
        await rank.all_reduce(torch.ones(1), label="all")
        rank.clock.end_epoch()


async def one_call_less(rank: Rank) -> None:
    """In its second epoch rank 0 waits for rank 1 in a group, rank 1 for rank 0 in a collective of all."""
    for epoch in range(2):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        if rank.index == 0 or (rank.index == 1 and epoch == 0):
            await rank.all_reduce(torch.ones(1), label="rows", group=(0, 1))
        await rank.all_reduce(torch.ones(1), label="all")
        rank.clock.end_epoch()
