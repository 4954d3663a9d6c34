"""The cut tape: a forward pass recorded as local autograd segments joined by exchanges, and its backward pass.

At every exchange the autograd graph is cut: its inputs belong to the segment before it, its outputs are new
leaves. `backward` differentiates segment by segment with `torch.autograd.grad` and runs each exchange's adjoint in
between, so gradients can cross ranks although autograd itself never suspends.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from harness.errors import ProgramError
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


_Key = tuple[Node, int]
"""A tensor as a result of autograd: its node, and which of the node's results."""


@dataclass
class _Leaf:
    """A tensor after a cut, without the tensor: that lives as long as its users need it.

    Attributes:
        edge: None for integers, which have no gradient.
    """

    edge: GradientEdge | None
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @property
    def key(self) -> _Key | None:
        """Of its gradient."""
        return None if self.edge is None else (self.edge.node, self.edge.output_nr)

    def gradient(self, gradients: dict[_Key, Tensor]) -> Tensor:
        """Its gradient, taken out of `gradients`; zeros where nothing used the tensor."""
        found = None if self.key is None else gradients.pop(self.key, None)
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device) if found is None else found


@dataclass
class _Cut:
    exchange: Exchange
    sources: list[GradientEdge | None]  # inputs: x, then the kept tensors; None for one that needs no gradient
    leaves: list[_Leaf]  # of the exchange's outputs, then of the kept tensors
    num_outputs: int
    holder: Tensor  # without elements; holds the node of the leaves


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
        self._anchor = torch.empty(0, requires_grad=True)  # lets tensors after a cut have gradients

    async def apply(self, exchange: Exchange, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
        """Run `exchange` on `x`; returns its outputs and then the `keep` tensors, all as leaves after the cut.

        A tensor of an earlier segment that is used later without being kept still gets its exact gradient; its
        segment is then traversed twice. When `x` needs no gradient the exchange is not recorded.
        """
        outputs = await exchange.forward(self.rank, x.detach())
        if not x.requires_grad:
            return (*outputs, *keep)
        *after, holder = _Start.apply(self._anchor, [*outputs, *keep])
        leaves = [
            _Leaf(GradientEdge(holder.grad_fn, at) if t.requires_grad else None, t.shape, t.dtype, t.device)
            for at, t in enumerate(after)
        ]
        self._cuts.append(_Cut(exchange, [_edge(t) for t in (x, *keep)], leaves, len(outputs), holder))
        return tuple(after)

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
        value, outputs, seeds = loss.detach(), [_edge(loss)], [torch.ones_like(loss)]
        del loss
        gradients = dict[_Key, Tensor]()
        while True:
            await self._before(len(self._cuts))
            self._differentiate(outputs, seeds, gradients)
            await self._after(len(self._cuts))
            if not self._cuts:
                return value
            outputs, seeds = await self._cross(self._cuts.pop(), gradients)

    async def _before(self, segment: int) -> None:
        """Called before a segment is differentiated, the one behind so many cuts."""

    async def _after(self, segment: int) -> None:
        """Called when it has been."""

    def to_come(self) -> set[Tensor]:
        """Parameters that segments use which are still to be differentiated. What exchanges use inside is not seen."""
        return {
            node.variable  # type: ignore[attr-defined]
            for cut in self._cuts
            for node in _nodes(cut.sources, leaves=True)
            if hasattr(node, "variable")
        }

    async def _cross(self, cut: _Cut, gradients: dict[_Key, Tensor]) -> tuple[list[GradientEdge | None], list[Tensor]]:
        """Run one exchange's adjoint; returns the outputs of the segment before it and their gradients."""
        filled = [leaf.gradient(gradients) for leaf in cut.leaves]
        kept = filled[cut.num_outputs :]
        adjoint = cut.exchange.adjoint(self.rank, *filled[: cut.num_outputs])
        del filled  # the adjoint decides how long it needs the gradients
        return cut.sources, [await adjoint, *kept]

    def _differentiate(
        self, outputs: list[GradientEdge | None], seeds: list[Tensor], gradients: dict[_Key, Tensor]
    ) -> None:
        """Add the gradients of one segment to its leaves and to the parameters."""
        leaves = {leaf.key: leaf.edge for cut in self._cuts for leaf in cut.leaves if leaf.key and leaf.edge}
        found = [(edge, seed) for edge, seed in zip(outputs, seeds, strict=True) if edge is not None]
        seeds.clear()
        if not found or not (leaves or self.parameters):
            return
        # Where a tensor skipped a cut, its own segment is traversed again later, so its graph must be kept.
        mine = _nodes(outputs)
        again = any(not mine.isdisjoint(_nodes(cut.sources)) for cut in self._cuts)
        del mine
        outputs.clear()
        grads = torch.autograd.grad(
            [edge for edge, _ in found],
            [*leaves.values(), *self.parameters],  # type: ignore[arg-type]
            [seed for _, seed in found],
            allow_unused=True,
            retain_graph=again,
        )
        del found
        for key, gradient in zip(leaves, grads, strict=False):
            if gradient is not None:
                earlier = gradients.get(key)
                gradients[key] = gradient if earlier is None else earlier + gradient
        for parameter, gradient in zip(self.parameters, grads[len(leaves) :], strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


class _Start(torch.autograd.Function):
    """Tensors after a cut, as results of a node where gradients end and which does not hold them.

    Leaves of autograd would: their node keeps each until its gradient is asked for, so that every halo row would live
    until the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        """Tensors that share the memory of the given ones, and the anchor; integers have no gradient.

        Autograd does not look into the list, so what is before the cut is not connected to what is after it.
        """
        ctx.after_cut = True  # `_nodes` stops here, as at parameters
        after = tuple(tensor.detach() for tensor in tensors)
        ctx.mark_non_differentiable(*[tensor for tensor in after if not tensor.is_floating_point()])
        return (*after, anchor.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        """Raises ProgramError: what is before a cut is differentiated by its own call."""
        raise ProgramError("differentiated through a cut")


def _edge(tensor: Tensor) -> GradientEdge | None:
    return get_gradient_edge(tensor) if tensor.requires_grad else None


def _nodes(outputs: list[GradientEdge | None], *, leaves: bool = False) -> set[Node]:
    """The autograd nodes behind `outputs` up to the last cut; `leaves`: with those that segments may share, too."""
    stack, seen = [edge.node for edge in outputs if edge is not None], set[Node]()
    while stack:
        node = stack.pop()
        if node not in seen and (leaves or not hasattr(node, "variable")) and not hasattr(node, "after_cut"):
            seen.add(node)
            stack.extend(following for following, _ in node.next_functions if following is not None)
    return seen
