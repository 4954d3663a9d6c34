"""Parameter servers: ranks 0..m-1 each own an even share of every parameter, and optimise it for all.

Workers push gradients and pull parameters (EC-Graph, Sec. III-A, Alg. 1 line 4, Alg. 2 lines 1 to 3 and 15). Every rank
is a worker. The numbers are those of an all-reduce that adds in rank order; only the messages differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from harness.effects import Rows, chunk_sizes
from harness.nn import adam
from harness.rank import Rank
from harness.rendezvous import add_in_rank_order


@dataclass(frozen=True)
class ParameterServers:
    """`count` servers; every parameter tensor, flattened, is cut into as many contiguous ranges of equal length.

    Bytes per epoch over all ranks: 2 (P - 1) (parameters + 1) x 4, half of them pushed and half pulled; the one more
    value is the loss, which server 0 adds up. That is what an all-reduce moves, but P - 1 of every P bytes that are
    received, or sent, are a server's.
    """

    count: int

    def optimizer(self, rank: Rank, model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """Adam over this rank's own ranges, in one flat parameter; an empty one where the rank is not a server."""
        owned = self._owned(rank, model).clone()
        return adam([nn.Parameter(owned)], lr, weight_decay)

    async def update(
        self, rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, num_train: int
    ) -> Tensor:
        """Push gradients, step on the servers, pull parameters; returns the loss of all ranks."""
        (owned,) = optimizer.param_groups[0]["params"]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        summed = await self._push(rank, gradients, loss)
        total = summed[:1]
        if rank.index < self.count:
            with torch.no_grad():
                owned.copy_(self._owned(rank, model))
            first = 1 if rank.index == 0 else 0
            owned.grad = summed[first:] / max(num_train, 1)
            optimizer.step()
        return await self._pull(rank, model, owned.detach(), total)

    def _ranges(self, tensors: Sequence[Tensor], server: int) -> list[Tensor]:
        """The pieces of flattened tensors that a server owns."""
        return [t.detach().reshape(-1).split(chunk_sizes(t.numel(), self.count).tolist())[server] for t in tensors]

    def _owned(self, rank: Rank, model: nn.Module) -> Tensor:
        """This rank's ranges of the model's parameters in one flat tensor; empty on ranks that are not servers."""
        parameters = list(model.parameters())
        if rank.index >= self.count:
            return parameters[0].detach().new_empty(0)
        return torch.cat(self._ranges(parameters, rank.index))

    def _sizes(self, rank: Rank, tensors: Sequence[Tensor]) -> np.ndarray:
        """Values of every server, the loss with server 0, int64 [P]."""
        sizes = np.zeros(rank.size, np.int64)
        sizes[: self.count] = sum(chunk_sizes(t.numel(), self.count) for t in tensors)
        sizes[0] += 1
        return sizes

    async def _push(self, rank: Rank, gradients: list[Tensor], loss: Tensor) -> Tensor:
        """Send gradients to their servers; returns the sums of this rank's ranges, on server 0 after that of losses."""
        sizes = self._sizes(rank, gradients)
        pieces = [piece for server in range(self.count) for piece in self._ranges(gradients, server)]
        flat = torch.cat([loss.detach().reshape(1), *pieces])
        mine = int(sizes[rank.index])
        got = await rank.all_to_all(
            [Rows(flat, sizes, np.full(rank.size, mine, np.int64))], label="push", direction="reduce"
        )
        return add_in_rank_order(list(got.tensors[0].split([mine] * rank.size)))

    async def _pull(self, rank: Rank, model: nn.Module, owned: Tensor, loss: Tensor) -> Tensor:
        """Write parameters from their servers into the model; returns the loss from server 0."""
        parameters = list(model.parameters())
        sizes = self._sizes(rank, parameters)
        mine = torch.cat([loss, owned]) if rank.index == 0 else owned
        send = np.full(rank.size, len(mine), np.int64)
        got = await rank.all_to_all([Rows(mine.repeat(rank.size), send, sizes)], label="pull", direction="reduce")
        pieces: list[Tensor] = list(got.tensors[0].split([1, *self._lengths(parameters)]))
        pulled = pieces[1:]
        with torch.no_grad():
            for at, parameter in enumerate(parameters):
                parameter.copy_(torch.cat(pulled[at :: len(parameters)]).view_as(parameter))
        return pieces[0][0]

    def _lengths(self, parameters: list[nn.Parameter]) -> list[int]:
        """Lengths of all ranges: those of server 0, then of server 1, ..."""
        cuts = [chunk_sizes(p.numel(), self.count) for p in parameters]
        return [int(cut[server]) for server in range(self.count) for cut in cuts]
