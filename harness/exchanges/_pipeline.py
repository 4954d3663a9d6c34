"""Exchanges that overlap with an epoch of compute: rows sent in one epoch are used in the next.

The staleness of PipeGCN and Sylvie-A. Received payloads and messages in flight are in the method's memory under the
exchange's label: after `settle` it is the received payload, still encoded, so that a resumed run decodes the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.codecs import Codec
from harness.effects import Counts, Direction, Handle, Received, Rows
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import encode_rows
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class Late:
    """Ships rows one epoch late, except in a synchronous epoch.

    Before anything has arrived (epoch 0, unless it is synchronous) received rows are zeros, as in PipeGCN's code.

    Args:
        memory: holds the payloads; one entry per label.
        synchronous: use the rows of this epoch. The message of the epoch before is received first, and the next epoch
            uses the rows of this one.
    """

    memory: Memory
    synchronous: bool

    async def ship(
        self,
        rank: Rank,
        rows: Tensor,
        send: Counts,
        recv: Counts,
        codec: Codec,
        *,
        label: str,
        direction: Direction,
        layer: int,
    ) -> Tensor:
        """As `push_pull.ship`: [sum(recv), d], of this epoch or the last. Raises Diverged as it does."""
        arrived = await _arrived(rank, self.memory, label)
        payload = encode_rows(rank, rows, codec, label=label, direction=direction, layer=layer)
        parts = [Rows(part, send, recv) for part in payload]
        effect = rank.all_to_all(parts, label=label, direction=direction, layer=layer)
        if self.synchronous:
            arrived = (await effect).tensors
            self.memory[label] = _tree(arrived)
        else:
            self.memory[label] = await rank.start(effect)
        if arrived is None:
            return rows.new_zeros(int(recv.sum()), rows.shape[1])
        with rank.span("codec"):
            return codec.decode(arrived, rows.shape[1], rows.dtype)


async def drain_pipeline(rank: Rank, memory: Memory) -> None:
    """Wait for every message in flight; their payloads replace their handles in the memory."""
    for label in list(memory):
        if isinstance(memory[label], Handle):
            received: Received = await rank.wait(memory[label])
            memory[label] = _tree(received.tensors)


async def _arrived(rank: Rank, memory: Memory, label: str) -> tuple[Tensor, ...] | None:
    """The payload last sent under this label, once it has arrived; None before the first."""
    entry = memory.pop(label, None)
    if isinstance(entry, Handle):
        received: Received = await rank.wait(entry)
        return received.tensors
    return None if entry is None else tuple(entry[str(at)] for at in range(len(entry)))


def _tree(payload: tuple[Tensor, ...]) -> dict[str, torch.Tensor]:
    return {str(at): part for at, part in enumerate(payload)}
