"""What an exchange before a layer of an edge cut is given and returns: it declares one of five kinds.

The layer loop reads the declaration alone, so an exchange of another package needs no change of the project.
"""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from torch import Tensor

from harness.errors import ProgramError
from harness.tape import Exchange

Returns = Literal["messages", "rows", "sum", "layer", "attention"]
"""n own nodes, h halo nodes; messages are what a layer aggregates, its input rows after a linear map that comes first.

messages: the own messages [n, d] -> (own messages [n, d], messages of the halo [h, d]); the layer aggregates them.
rows: the layer's input rows [n, d] -> (own rows [n, d], rows of the halo [h, d]); both are mapped afterwards.
sum: the own messages [n, d] -> (their aggregation over own and halo neighbours [n, d],).
layer: the layer's input rows [n, in] -> (rows that are aggregated and mapped [n, out],); the adjoint adds the
    gradients of the layer's weights.
attention: what `input` makes of the layer's input rows -> (the rows that its attention sums [n, heads * width],).
"""


class LayerExchange(Exchange, Protocol):
    """An exchange that can stand before a layer of an edge cut."""

    @property
    def returns(self) -> Returns:
        """What `forward` is given and returns."""
        ...


class AttentionExchange(LayerExchange, Protocol):
    """An exchange whose `returns` is attention."""

    def input(self, h: Tensor) -> Tensor:
        """What `forward` is given, from the layer's input rows [n, in]."""
        ...


def returned_by(exchange: LayerExchange) -> Returns:
    """The kind that an exchange declares.

    Raises:
        ProgramError: it declares none, or none of the known ones.
    """
    kind: Returns | None = getattr(exchange, "returns", None)
    if kind is None or kind not in get_args(Returns):
        declared = "does not declare what it returns" if kind is None else f"declares returns = {kind!r}"
        known = ", ".join(get_args(Returns))
        raise ProgramError(f"exchange {type(exchange).__name__} {declared}; `returns` is one of {known}")
    return kind
