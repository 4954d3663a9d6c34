"""Rank programs with errors that all ranks detect at the same place; for `programs`."""

from __future__ import annotations

import numpy as np
import torch

from harness.effects import Conversion, Rows
from harness.errors import ProgramError
from harness.rank import Rank
from harness.trampoline import blame
from real.rank import run_program
from real.rank.connection import Connection
from tests.support.background import halved


async def early_return(rank: Rank) -> None:
    if rank.index == 1:
        return
    await rank.all_reduce(torch.ones(2), label="alone")


async def extra_collective(rank: Rank) -> None:
    if rank.index == 0:
        await rank.broadcast(torch.ones(2), root=0, label="extra")
    await rank.all_reduce(torch.ones(2), label="common")


async def wrong_shape(rank: Rank) -> None:
    await rank.all_reduce(torch.ones(2 + rank.index), label="shape")


async def wrong_dtype(rank: Rank) -> None:
    data = torch.ones(2, 2, dtype=torch.float16 if rank.index else torch.bfloat16)
    ones = np.ones(rank.size, np.int64)
    await rank.all_to_all([Rows(data, ones, ones)], label="dtype", direction="forward", layer=3)


async def wrong_counts(rank: Rank) -> None:
    ones = np.ones(rank.size, np.int64)
    await rank.all_to_all([Rows(torch.ones(2, 2), ones, ones + rank.index)], label="counts")


async def wrong_layer(rank: Rank) -> None:
    ones = np.ones(rank.size, np.int64)
    await rank.start(rank.all_to_all([Rows(torch.ones(2, 2), ones, ones)], label="layer", layer=rank.index))


async def wrong_path(rank: Rank) -> None:
    """Labels differ in an epoch in which they are not compared one by one."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(1), label="first")
        await rank.all_reduce(torch.ones(1), label=f"of rank {rank.index}" if epoch == 1 else "second")
        rank.clock.end_epoch()


async def wrong_late_shape(rank: Rank) -> None:
    """An equal number of bytes with another shape, in an epoch in which shapes are not compared one by one."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(1), label="first")
        shape = (2, 3) if epoch == 1 and rank.index == 1 else (3, 2)
        await rank.all_reduce(torch.ones(shape), label="same bytes")
        rank.clock.end_epoch()


async def wrong_late_counts(rank: Rank) -> None:
    """Rank 1 expects more rows than rank 0 sends, which gloo does not detect, in the last epoch."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(1), label="first")
        ones = np.ones(rank.size, np.int64)
        more = ones + np.asarray([epoch == 2 and rank.index == 1, 0])
        await rank.all_to_all([Rows(torch.ones(2, 2), ones, more)], label="late counts")
        rank.clock.end_epoch()


async def wrong_last_message(rank: Rank) -> None:
    """An equal number of bytes under another name, in the last epoch, after which no message is compared."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        for name in ("first", "second"):
            if rank.index == 0:
                await rank.send(torch.ones(2), to=1, label=name)
            else:
                await rank.recv(torch.ones(2), source=0, label="third" if (epoch, name) == (2, "second") else name)
        rank.clock.end_epoch()


async def written_to(rank: Rank) -> None:
    handle = await rank.start(rank.all_reduce(tensor := torch.ones(4), label="written"))
    tensor.add_(1)
    await rank.wait(handle)


async def beside_written_to(rank: Rank) -> None:
    ones = np.ones(rank.size, np.int64)
    await rank.wait(await halved(rank, torch.ones(2, 2), ones, ones, label="rows", written=True))


async def beside_undeclared(rank: Rank) -> None:
    ones = np.ones(rank.size, np.int64)
    conversion = Conversion(lambda: (torch.ones(2, 3),), lambda received: received.tensors[0], ())
    parts = [Rows(torch.empty(2, 2, device="meta"), ones, ones)]
    await rank.wait(await rank.background(parts, conversion, label="narrow"))


async def beside_on_one(rank: Rank) -> None:
    ones, rows = np.ones(rank.size, np.int64), torch.ones(2, 2)
    if rank.index == 0:
        await halved(rank, rows, ones, ones, label="rows")
    else:
        await rank.start(rank.all_to_all([Rows(rows, ones, ones)], label="rows", direction="forward", layer=1))


async def to_itself(rank: Rank) -> None:
    await rank.send(torch.ones(1), to=rank.index, label="self")


SLIPS = (
    early_return,
    extra_collective,
    wrong_shape,
    wrong_dtype,
    wrong_counts,
    wrong_layer,
    wrong_path,
    wrong_late_shape,
    wrong_late_counts,
    wrong_last_message,
    written_to,
    beside_written_to,
    beside_undeclared,
    beside_on_one,
    to_itself,
)


def slips(connection: Connection) -> dict[str, str]:
    """The error message of every program; the process group stays usable in between."""
    messages = {}
    for program in SLIPS:
        try:
            run_program(program, connection, debug=program in (written_to, beside_written_to))
        except ProgramError as error:
            messages[program.__name__] = blame(error)
    return messages
