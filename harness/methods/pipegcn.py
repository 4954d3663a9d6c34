"""PipeGCN: boundary rows and their gradients of the epoch before, exchanged while this epoch computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from harness.codecs import Cast
from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import HaloPush, Late, LayerExchange, Memory, Smoothed, drain_pipeline
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.early_gradients import EarlyGradients
from harness.methods.bases.edge_cut import EdgeCutState, message_width
from harness.nn import GNN
from harness.rank import Rank

SMOOTHED: dict[str, tuple[Direction, ...]] = {
    "none": (), "features": ("forward",), "gradients": ("backward",), "both": ("forward", "backward"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PipeGCN(EarlyGradients):
    """Pipelined training: an epoch computes with the halo rows and halo gradients that were sent in the epoch before.

    Rows are exact but one epoch old; the first epoch uses zeros, as the authors' code does, and weights' gradients are
    summed in the epoch they belong to. Bytes of every epoch, the first included, are those of vanilla: halo rows x
    width x 4, in every exchanged layer and direction. A rank keeps one halo payload per layer and direction, and as
    much again per smoothed direction.

    In brief:
        travels: boundary rows and gradients, which are used in the next epoch
        bytes: 4 d a halo row, layer and direction
        memory: vanilla's, the rows and gradients on their way, and as much again for each direction that is smoothed

    Options:
        smooth: none | features | gradients | both (PipeGCN-F, -G, -GF): what arrives is replaced by its running mean
            over epochs, E := gamma E + (1 - gamma) F from E = 0, so the epochs before the last weigh in too.
        gamma: weight of the mean so far; the authors' default.
        debias: divide the mean by 1 - gamma^t, its total weight in epoch t. The authors' code does not: rows are scaled
            by 0.05 in the second epoch and by 0.92 in the 50th.
        dropout: before drops rows before they are sent, so a late row has the mask of its epoch; after drops what has
            arrived, with masks of the reader's own, as the authors do. Bytes are the same.
    """

    smooth: Literal["none", "features", "gradients", "both"] = "none"
    gamma: float = 0.95
    debias: bool = False
    dropout: Literal["before", "after"] = "before"

    name: ClassVar[str] = "pipegcn"
    bf16 = True
    facts = Facts(cut="edge", exact=False, staleness=1, paper="PipeGCN; the comparison of Sylvie and BNS-GCN")

    def validate(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise InputError(f"pipegcn: gamma must be from 0 to 1, not {self.gamma:g}")
        if self.debias and self.gamma == 1:
            raise InputError("pipegcn: debias needs gamma below 1: a mean of weight 0 has no scale")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.dropout == "after" and model.order != "auto" and any(map(model.linear_first, range(model.depth))):
            raise InputError("pipegcn: dropout=after drops what aggregation reads; use order=aggregate-first")

    def lossless(self) -> PipeGCN:
        """Without smoothing, which mixes rows of several epochs."""
        return replace(self, smooth="none")

    def drops_late(self) -> bool:
        return self.dropout == "after"

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 4 * message_width(model, l)

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> Smoothed:
        return Smoothed(Late(memory, synchronous=False), SMOOTHED[self.smooth], self.gamma, self.debias)

    async def settle(self, rank: Rank, memory: Memory) -> None:
        await drain_pipeline(rank, memory)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        return HaloPush(state.route, l, Cast(None), Cast(None), ship=plan.ship)
