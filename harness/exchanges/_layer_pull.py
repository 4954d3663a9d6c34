"""Pull-style exchange of a whole linear layer: its input rows travel forwards, the gradients of its output backwards.

These are the tensors of EC-Graph's Algorithms 1 and 2 (H and G); whether a rank multiplies by the weights before or
after it aggregates decides nothing about what is sent. `_error_feedback.CompensatedPull` sends the operands of the
aggregation instead.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from harness.errors import ProgramError
from harness.exchanges._error_feedback import Fetch
from harness.exchanges._returns import Returns
from harness.graphs import LocalGraph
from harness.nn import Conv
from harness.rank import Rank


class LayerPull:
    """Own rows H [n_own, in] -> A [H; halo] W [n_own, out], for layers whose aggregation A is linear in rows.

    Backwards, from G = gradient of the output: A^T [G; halo of G] W^T for the rows, and (A [H; halo])^T G for the
    weights, which needs no communication and is added to their `.grad` here, because the cut of the tape lies around
    the weights. A rank multiplies by W first where `linear_first` says so, and takes the gradients in the opposite
    order. One object serves one layer of one epoch.

    Args:
        reverse: the graph whose rows are the readers of the own rows, if it is not the graph itself.
    """

    returns: ClassVar[Returns] = "layer"

    def __init__(
        self,
        layer: Conv,
        graph: LocalGraph,
        forwards: Fetch,
        backwards: Fetch,
        *,
        linear_first: bool,
        reverse: LocalGraph | None = None,
    ) -> None:
        self.layer, self.graph, self.reverse = layer, graph, reverse or graph
        self.forwards, self.backwards, self.linear_first = forwards, backwards, linear_first
        self._out: Tensor | None = None

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, in] -> (aggregated and transformed rows [n_own, out],)."""
        layer, halo = self.layer, await self.forwards(rank, x)
        if self.linear_first:
            self._out = layer.aggregate(self.graph, layer.transform(x), layer.transform(halo))
        else:
            self._out = layer.transform(layer.aggregate(self.graph, x, halo))
        return (self._out.detach(),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(G [n_own, out],) -> the gradient of x [n_own, in]; adds the weights' gradients to them."""
        (g,) = gradients
        halo = await self.backwards(rank, g)
        self._add_to_weights(g)
        return self._rows(g, halo)

    def _add_to_weights(self, g: Tensor) -> None:
        assert self._out is not None
        weights = [p for p in self.layer.parameters() if p.requires_grad]
        found = torch.autograd.grad(self._out, weights, g, allow_unused=True)
        self._out = None
        for weight, gradient in zip(weights, found, strict=True):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient

    @torch.no_grad()
    def _rows(self, g: Tensor, halo: Tensor) -> Tensor:
        layer, aggregation = self.layer, self.layer.aggregation
        assert aggregation is not None
        if self.linear_first:
            return layer.transform_adjoint(aggregation.adjoint(self.reverse, g, halo))
        return aggregation.adjoint(self.reverse, layer.transform_adjoint(g), layer.transform_adjoint(halo))


class HaloFetch:
    """Own rows that need no gradient -> (own rows, halo rows): the input layer, where its rows travel every epoch."""

    returns: ClassVar[Returns] = "rows"

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [n_own, d] -> (x, halo [n_halo, d])."""
        return x, await self.fetch(rank, x)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """Never called: the tape does not record exchanges of rows without a gradient."""
        raise ProgramError("rows that are fetched by HaloFetch must not need a gradient")
