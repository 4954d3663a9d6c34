"""The cut tape: a forward pass recorded as local autograd segments joined by exchanges, and its backward pass.

At every exchange the autograd graph is cut: its inputs belong to the segment before it, its outputs are new
leaves. `backward` differentiates segment by segment with `torch.autograd.grad` and runs each exchange's adjoint in
between, so gradients can cross ranks although autograd itself never suspends.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import Node

from harness.rank import Rank


class Exchange(Protocol):
    """A communication step with its adjoint; both are linear and see plain tensors without a graph."""

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        """The outputs for input `x`."""
        ...

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """The gradient of `x` from the gradients of the outputs.

        An exchange that applies parameters adds their gradients to their `.grad` here: the tape does not see inside.
        """
        ...


@dataclass
class _Cut:
    exchange: Exchange
    sources: list[Tensor]  # inputs, still attached to the segment before: x, then the kept tensors
    outputs: list[Tensor]  # leaves for the exchange's outputs
    kept: list[Tensor]  # leaves for tensors that crossed unchanged

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.outputs, *self.kept]


class Tape:
    """Records one forward pass of one rank.

    Args:
        rank: the rank that runs it.
        parameters: tensors whose gradients are wanted; they accumulate into `.grad`.
    """

    def __init__(self, rank: Rank, parameters: Iterable[Tensor] = ()) -> None:
        self.rank = rank
        self.parameters = [p for p in parameters if p.requires_grad]
        self._cuts: list[_Cut] = []

    async def apply(self, exchange: Exchange, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
        """Run `exchange` on `x`; returns its outputs and then the `keep` tensors, all as leaves after the cut.

        A tensor of an earlier segment that is used later without being kept still gets its exact gradient; its
        segment is then traversed twice. When `x` needs no gradient the exchange is not recorded.
        """
        outputs = await exchange.forward(self.rank, x.detach())
        if not x.requires_grad:
            return (*outputs, *keep)
        cut = _Cut(exchange, [x, *keep], [_leaf(t) for t in outputs], [_leaf(t) for t in keep])
        self._cuts.append(cut)
        return tuple(cut.leaves)

    def operator(self) -> AbstractContextManager[None]:
        """Compute inside is one operator of a method that works operator by operator; nothing may be awaited inside."""
        return nullcontext()

    async def pass_on(self, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
        """A result and tensors that are kept, between two operators; a tape that swaps tensors cuts here."""
        return (x, *keep)

    async def backward(self, loss: Tensor) -> Tensor:
        """Add gradients of the summed `loss` to every parameter's `.grad`; returns the loss, detached.

        Pass the forward pass as an expression (`await tape.backward(loss_of(...))`): the last segment is then freed
        as soon as it has been differentiated.
        """
        value = loss.detach()
        outputs, seeds = [loss], [torch.ones_like(loss)]
        del loss
        leaves = [leaf for cut in self._cuts for leaf in cut.leaves]
        gradients: dict[int, Tensor] = {}
        while True:
            await self._before(len(self._cuts))
            self._differentiate(outputs, seeds, leaves, gradients)
            self._after(len(self._cuts))
            if not self._cuts:
                return value
            outputs, seeds = await self._cross(self._cuts.pop(), leaves, gradients)

    async def _before(self, segment: int) -> None:
        """Called before a segment is differentiated, the one behind so many cuts."""

    def _after(self, segment: int) -> None:
        """Called when it has been."""

    async def _cross(
        self, cut: _Cut, leaves: list[Tensor], gradients: dict[int, Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Run one exchange's adjoint; returns the outputs of the segment before it and their gradients."""
        del leaves[len(leaves) - len(cut.leaves) :]
        grads = [gradients.pop(id(leaf), None) for leaf in cut.leaves]
        filled = [torch.zeros_like(t) if g is None else g for t, g in zip(cut.leaves, grads, strict=True)]
        count, kept = len(cut.outputs), filled[len(cut.outputs) :]
        adjoint = cut.exchange.adjoint(self.rank, *filled[:count])
        # The outputs are not needed any more, and of their gradients the adjoint decides when.
        cut.outputs.clear()
        cut.kept.clear()
        del grads, filled
        x_grad = await adjoint
        pairs = zip(cut.sources, [x_grad, *kept], strict=True)
        joined = [(s, g) for s, g in pairs if s.requires_grad]
        return [s for s, _ in joined], [g for _, g in joined]

    def _differentiate(
        self, outputs: list[Tensor], seeds: list[Tensor], leaves: list[Tensor], gradients: dict[int, Tensor]
    ) -> None:
        """Add the gradients of one segment to its leaves and to the parameters."""
        wanted = [*leaves, *self.parameters]
        if not outputs[0].requires_grad or not wanted:
            return
        # Where a tensor skipped a cut, its own segment is traversed again later, so its graph must be kept.
        mine = _nodes(outputs)
        again = any(not mine.isdisjoint(_nodes(cut.sources)) for cut in self._cuts)
        grads = torch.autograd.grad(outputs, wanted, seeds, allow_unused=True, retain_graph=again)
        del mine
        outputs.clear()
        for tensor, gradient in zip(wanted, grads, strict=True):
            if gradient is None:
                continue
            if tensor.is_leaf and any(tensor is p for p in self.parameters):
                tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
            else:
                earlier = gradients.get(id(tensor))
                gradients[id(tensor)] = gradient if earlier is None else earlier + gradient


def _nodes(outputs: list[Tensor]) -> set[Node]:
    """The autograd nodes behind `outputs` up to the last cut; leaves, which segments may share, are left out."""
    stack, seen = [output.grad_fn for output in outputs], set[Node]()
    while stack:
        node = stack.pop()
        if node is not None and node not in seen and not hasattr(node, "variable"):
            seen.add(node)
            stack.extend(following for following, _ in node.next_functions)
    return seen


def _leaf(tensor: Tensor) -> Tensor:
    """A leaf that shares the tensor's memory; integer outputs of an exchange stay as they are."""
    leaf = tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() else leaf
