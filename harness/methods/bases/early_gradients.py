"""Gradients that are summed over ranks while the backward pass goes on, in place of one all-reduce after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from torch import Tensor

from harness.effects import Handle
from harness.errors import ProgramError
from harness.graphs import Part
from harness.methods.bases.base import Facts, flat_gradients, set_gradients
from harness.methods.bases.edge_cut import EdgeCut
from harness.nn import GNN
from harness.rank import Rank
from harness.tape import Tape


class GradientSum(NamedTuple):
    """An all-reduce that was started: of which parameters, their own gradients, and its handle."""

    parameters: Sequence[Tensor]
    own: Sequence[Tensor | None]
    handle: Handle


class EarlyTape(Tape):
    """A tape that starts to sum gradients over ranks as soon as no segment is left that adds to them.

    Those of the last segment to be differentiated are left: nothing is exchanged after it that they could travel
    beside.

    Attributes:
        begun: the sums on their way.
    """

    def __init__(self, rank: Rank, parameters: Iterable[Tensor]) -> None:
        super().__init__(rank, parameters)
        self.begun: list[GradientSum] = []
        self._left = list(self.parameters)

    async def _after(self, segment: int) -> None:
        await super()._after(segment)
        if not segment:
            return
        later = self.to_come()
        done = [p for p in self._left if p.grad is not None and p not in later]
        self._left = [p for p in self._left if p.grad is None or p in later]
        if done:
            effect = self.rank.all_reduce(flat_gradients(done), label=f"gradients {segment}")
            self.begun.append(GradientSum(done, [p.grad for p in done], await self.rank.start(effect)))

    async def finish(self, divisor: int) -> None:
        """Wait for the sums, and set the gradients to them over `divisor`.

        Raises:
            ProgramError: an exchange has added to a gradient after its sum began.
        """
        for parameters, own, handle in self.begun:
            if any(p.grad is not mine for p, mine in zip(parameters, own, strict=True)):
                raise ProgramError("gradients=early: an exchange adds to gradients that are being summed over ranks")
            set_gradients(parameters, await self.rank.wait(handle) / divisor)


@dataclass(frozen=True, kw_only=True)
class EarlyGradients(EdgeCut):
    """Base of methods whose gradients may be summed over ranks beside the exchanges of the backward pass.

    Options:
        gradients: together sums those of all parameters in one all-reduce after the backward pass; early starts one
            whenever some are complete, beside the exchanges of the layers below, as the programs of BNS-GCN and Sylvie
            do from hooks on parameters. Losses and bytes are the same; only the first layer's are waited for.
    """

    gradients: Literal["together", "early"] = "together"

    def promises(self) -> Facts:
        """Sums on their way are not part of a graph of kernels."""
        facts = super().promises()
        return replace(facts, static=facts.static and self.gradients == "together")

    def tape(self, rank: Rank, part: Part, model: GNN, state: Any) -> Tape:
        if self.gradients == "together" or rank.size == 1:
            return super().tape(rank, part, model, state)
        return EarlyTape(rank, model.parameters())

    async def reduce(self, rank: Rank, part: Part, model: GNN, loss: Tensor, tape: Tape) -> Tensor:
        if not isinstance(tape, EarlyTape):
            return await super().reduce(rank, part, model, loss, tape)
        begun = {p for each in tape.begun for p in each.parameters}
        total = await self.sum_gradients(rank, part, [p for p in model.parameters() if p not in begun], loss)
        await tape.finish(max(part.totals.num_train, 1))
        return total
