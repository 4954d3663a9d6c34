"""Push and pull with the sums over own neighbours computed while halo rows travel; bit-equal to both without that.

Own and halo neighbours are separate blocks, so an exchange is started, the own block is summed, and the halo block once
its rows have arrived. AdaQP divides rows instead, by whether they have any remote neighbour (`_mixed_pull`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from torch import Tensor

from harness.exchanges._push_pull import HaloPull, HaloPush, ship
from harness.graphs import LocalGraph
from harness.nn import Aggregation
from harness.rank import Rank

T = TypeVar("T")


class _Computed(Generic[T]):
    """The result of a function that is called while an exchange travels."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function

    def __call__(self) -> None:
        self.value = self._function()


@dataclass(frozen=True, eq=False)
class OverlappedPush:
    """Own rows -> their aggregation over own and halo rows, and the own rows themselves where they are read again.

    Forwards halo rows travel while own neighbours are summed, backwards their gradients while those of own neighbours
    are. Keeps no halo row for the backward pass.

    Attributes:
        push: the exchange, which sends its rows at once.
        own: whether the own rows are an output.
    """

    push: HaloPush
    graph: LocalGraph
    aggregation: Aggregation
    own: bool

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        """x [n_own, d] -> (z [n_own, d],) or (z, x)."""
        begun = _Computed(lambda: self.aggregation.begin(self.graph, x))
        halo = await replace(self.push, ship=partial(ship, beside=begun)).fetched(rank, x)
        z = self.aggregation.finish(self.graph, begun.value, halo)
        return (z, x) if self.own else (z,)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) or (g_z, g_x) -> g_x [n_own, d]."""
        g_z, *direct = gradients
        scaled, g_halo = self.aggregation.halo_gradient(self.graph, g_z)
        summed = _Computed(lambda: self.aggregation.own_gradient(self.graph, scaled))
        returned = await replace(self.push, ship=partial(ship, beside=summed)).returned(rank, g_halo)
        own = summed.value.add_(direct[0]) if direct else summed.value
        return self.push.route.add_back(own, returned)


@dataclass(frozen=True, eq=False)
class OverlappedPull(HaloPull):
    """A pull whose rows travel while own neighbours are summed, in both directions."""

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x [n_own, d] -> (z [n_own, d],), z = A [x; halo]."""
        begun = _Computed(lambda: self.aggregation.begin(self.graph, x))
        halo = await self._halo(rank, x, self.codec, "forward", "h", begun)
        return (self.aggregation.finish(self.graph, begun.value, halo),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(g_z [n_own, d],) -> g_x = A^T [g_z; halo of g_z]."""
        (g_z,) = gradients
        begun = _Computed(lambda: self.aggregation.begin(self.graph, g_z, adjoint=True))
        halo = await self._halo(rank, g_z, self.backward_codec, "backward", "g", begun)
        return self.aggregation.finish(self.graph, begun.value, halo, adjoint=True)
