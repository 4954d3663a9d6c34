"""The end of a rank's program: every rank's record and machine at rank 0.

Records travel in pieces: in one exchange, those of many ranks over thousands of epochs would take gigabytes of rank 0's
device at once.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.effects import Received, Rows
from harness.rank import Rank
from harness.running.results import RankResult
from harness.trampoline import Program
from real.rank import overhead

AT_ONCE = 64 << 20
"""Bytes that rank 0 receives at once from all ranks together."""


def gathered_records(inner: Program, host: int) -> Program:
    """The program, followed by a gather of every rank's record and machine at rank 0 (None elsewhere).

    Args:
        host: index of this rank's machine.
    """

    async def gather(rank: Rank) -> list[tuple[RankResult, int]] | None:
        result = await inner(rank)
        result.facts.update(overhead(rank.clock, rank.device))
        with rank.off_the_clock("the last steps"):
            found = await gather_bytes(rank, packed(result, host), AT_ONCE)
        return None if rank.index else [unpacked(record) for record in found]

    return gather


async def gather_bytes(rank: Rank, data: bytes, at_once: int) -> list[bytes]:
    """Every rank's bytes, in rank order, on rank 0; empty on other ranks.

    Args:
        at_once: bytes that rank 0 receives in one exchange, from all ranks together; at least one from each.
    """
    length = torch.tensor([len(data)], device=rank.device)
    lengths = [int(found) for found in await _to_rank_0(rank, length)]
    piece = max(1, at_once // rank.size)
    told = torch.tensor([math.ceil(max(lengths) / piece) if lengths else 0], device=rank.device)
    rounds = int(await rank.broadcast(told, root=0, label="pieces of records"))
    found: list[list[bytes]] = [[] for _ in lengths]
    for number in range(rounds):
        own = np.frombuffer(data[number * piece : (number + 1) * piece], np.uint8).copy()
        received = await _to_rank_0(rank, torch.from_numpy(own).to(rank.device))
        for pieces, more in zip(found, received, strict=True):
            pieces.append(more.numpy().tobytes())
    return [b"".join(pieces) for pieces in found]


async def _to_rank_0(rank: Rank, rows: Tensor) -> list[Tensor]:
    """What every rank sends to rank 0, in host memory there; empty on other ranks."""
    send = np.zeros(rank.size, np.int64)
    send[0] = len(rows)
    received: Received = await rank.all_to_all([Rows(rows, send, None)], label="records")
    if rank.index != 0:
        return []
    return list(received.tensors[0].cpu().split(received.counts[0].tolist()))


def packed(result: RankResult, host: int) -> bytes:
    """A rank's record and machine; what it sent to every rank, which is often the same in all epochs, is there once."""
    known = {to: number for number, to in enumerate(dict.fromkeys(epoch.to for epoch in result.epochs))}
    lean = [msgspec.structs.replace(epoch, to=b"") for epoch in result.epochs]
    content = (msgspec.structs.replace(result, epochs=lean), list(known), [known[e.to] for e in result.epochs], host)
    return msgspec.msgpack.encode(content)


def unpacked(record: bytes) -> tuple[RankResult, int]:
    """From what `packed` made; epochs that sent the same share it."""
    kind: Any = tuple[RankResult, list[bytes], list[int], int]
    result, known, numbers, host = msgspec.msgpack.decode(record, type=kind)
    epochs = [
        msgspec.structs.replace(epoch, to=known[number]) for epoch, number in zip(result.epochs, numbers, strict=True)
    ]
    return msgspec.structs.replace(result, epochs=epochs), host
