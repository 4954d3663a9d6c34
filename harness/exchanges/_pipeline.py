"""Exchanges that overlap with an epoch of compute: rows sent in one epoch are used in the next.

The staleness of PipeGCN and Sylvie-A. What the next epoch uses is in the method's memory under the exchange's label: a
handle of the exchange in flight, and after `settle` the rows that it has brought, or the received payload where it is
the rank itself that decodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from harness.codecs import Codec
from harness.effects import Conversion, Counts, Direction, Handle, Received, Rows
from harness.exchanges._memory import Memory
from harness.exchanges._push_pull import encode_rows, encoding, ship
from harness.rank import Rank

Quantiser = Literal["background", "inline"]
"""Where a late exchange encodes and decodes: beside the rank's compute with the exchange, or in it."""


@dataclass(frozen=True, eq=False)
class Late:
    """Ships rows one epoch late, except in a synchronous epoch.

    Before anything has arrived (epoch 0, unless it is synchronous) received rows are zeros, as in PipeGCN's code.

    Args:
        memory: holds what the next epoch uses; one entry per label.
        synchronous: use the rows of this epoch. The message of the epoch before is received first, and the next epoch
            uses the rows of this one.
        quantiser: with a codec that costs nothing both are the same; a synchronous epoch is inline in any case.
    """

    memory: Memory
    synchronous: bool
    quantiser: Quantiser = "inline"

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
        """As `push_pull.ship`: [sum(recv), d], of this epoch or the last.

        Raises:
            Diverged: as `push_pull.ship`; of rows that are encoded in the background at the latest in the next epoch.
        """
        width, dtype = rows.shape[1], rows.dtype
        arrived = await _arrived(rank, self.memory.pop(label, None))
        if self.synchronous:
            now = await ship(rank, rows, send, recv, codec, label=label, direction=direction, layer=layer)
            self.memory[label] = now
            return now
        if self.quantiser == "background":
            encode = encoding(rank, rows, codec, label=label, direction=direction, layer=layer)
            conversion = Conversion(encode, lambda found: codec.decode(found.tensors, width, dtype), (rows,))
            parts = [Rows(_shape(rows, *each), send, recv) for each in codec.payload(width, dtype)]
            effect = rank.background(parts, conversion, label=label, direction=direction, layer=layer)
        else:
            payload = encode_rows(rank, rows, codec, label=label, direction=direction, layer=layer)
            parts = [Rows(part, send, recv) for part in payload]
            effect = rank.start(rank.all_to_all(parts, label=label, direction=direction, layer=layer))
        self.memory[label] = await effect
        if arrived is None:
            return rows.new_zeros(int(recv.sum()), width)
        if isinstance(arrived, Tensor):
            return arrived
        with rank.span("codec"):
            return codec.decode(arrived, width, dtype)


async def drain_pipeline(rank: Rank, memory: Memory) -> None:
    """Wait for every message in flight; what they have brought replaces their handles in the memory."""
    for label in list(memory):
        if isinstance(memory[label], Handle):
            arrived = await _arrived(rank, memory[label])
            memory[label] = arrived if isinstance(arrived, Tensor) else _tree(arrived or ())


async def _arrived(rank: Rank, entry: Any) -> Tensor | tuple[Tensor, ...] | None:
    """What an entry of the memory has brought, once it has arrived: rows, or a payload; None where there is none."""
    if isinstance(entry, Handle):
        result: Received | Tensor = await rank.wait(entry)
        return result if isinstance(result, Tensor) else result.tensors
    if entry is None or isinstance(entry, Tensor):
        return entry
    return tuple(entry[str(at)] for at in range(len(entry)))


def _tree(payload: tuple[Tensor, ...]) -> dict[str, torch.Tensor]:
    return {str(at): part for at, part in enumerate(payload)}


def _shape(rows: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """As many rows as `rows`, of other columns and type, on the meta device; without memory in the model either."""
    return torch.empty((1, columns), dtype=dtype, device="meta").expand(rows.shape[0], columns)
