"""Running means of what an exchange delivers, so that rows of one epoch are smoothed over those of earlier ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.codecs import Codec
from harness.effects import Counts, Direction
from harness.exchanges._memory import Memory
from harness.exchanges._pipeline import Late
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Late rows, of some directions as their running mean E := gamma E + (1 - gamma) F, E = 0 before the first.

    Means are in the memory beside the payloads, one entry per smoothed label, of the size of what arrives.

    Args:
        late: delivers the rows F of the epoch before.
        directions: those that are smoothed.
        gamma: weight of the mean so far, from 0 (no smoothing) to 1 (what arrives is never used).
        debias: divide by 1 - gamma^t in epoch t, the total weight of what has arrived; it makes up for the zero start.
    """

    late: Late
    directions: Collection[Direction]
    gamma: float
    debias: bool

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
        """As `Late.ship`: [sum(recv), d], smoothed if its direction is."""
        arrived = await self.late.ship(rank, rows, send, recv, codec, label=label, direction=direction, layer=layer)
        if direction not in self.directions or not rank.epoch:  # nothing has arrived in epoch 0
            return arrived
        memory: Memory = self.late.memory
        name = f"mean {label}"
        before = memory.get(name)
        mean = torch.zeros_like(arrived) if before is None else before
        mean = mean.mul(self.gamma).add_(arrived, alpha=1 - self.gamma)
        memory[name] = mean
        return mean / (1 - self.gamma**rank.epoch) if self.debias else mean
