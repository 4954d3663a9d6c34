"""Parameter servers give the results of an all-reduce, with parameters in even shares on some of the ranks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness import loopback
from harness.exchanges import ParameterServers
from harness.rank import Rank

P, EPOCHS, TRAIN = 4, 6, 10


def model_of(rank: int) -> nn.Module:
    """Equal on every rank; sizes that no number of servers divides."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2, bias=False))


def gradient(rank: int, epoch: int, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(17 * rank + epoch + like.numel())
    return torch.randn(like.shape, generator=generator)


def give_gradients(rank: Rank, model: nn.Module) -> None:
    """One parameter has no gradient on the last rank, as on a rank without rows."""
    for at, parameter in enumerate(model.parameters()):
        missing = at == 0 and rank.index == P - 1
        parameter.grad = None if missing else gradient(rank.index, rank.epoch, parameter)


def served(
    servers: int, *, weight_decay: float = 0.0, stop_at: int = -1
) -> list[tuple[list[Tensor], list[float], Any]]:
    """Parameters, losses and traffic of every rank. After epoch `stop_at` all is saved and restored in new objects."""

    async def program(rank: Rank) -> tuple[list[Tensor], list[float], Any]:
        model, share = model_of(rank.index), ParameterServers(servers)
        optimizer, losses = share.optimizer(rank, model, 0.1, weight_decay), []
        for epoch in range(EPOCHS):
            rank.epoch = epoch
            give_gradients(rank, model)
            loss = torch.tensor(float(rank.index + epoch))
            losses.append(float(await share.update(rank, model, optimizer, loss, TRAIN)))
            if epoch == stop_at:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
                model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2, bias=False))
                model.load_state_dict(saved[0])
                optimizer = share.optimizer(rank, model, 0.1, weight_decay)
                optimizer.load_state_dict(saved[1])
        return [p.detach().clone() for p in model.parameters()], losses, rank.traffic.take()

    return loopback.run_ranks(program, P)


def reduced(weight_decay: float) -> list[Tensor]:
    """Parameters after the same epochs of plain Adam on summed gradients."""

    async def program(rank: Rank) -> list[Tensor]:
        model = model_of(rank.index)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=weight_decay)
        for epoch in range(EPOCHS):
            rank.epoch = epoch
            give_gradients(rank, model)
            for parameter in model.parameters():
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = await rank.all_reduce(mine, label="gradients") / TRAIN
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    found: list[Tensor] = loopback.run_ranks(program, P)[0]
    return found


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_the_numbers_are_those_of_an_all_reduce(servers: int, weight_decay: float) -> None:
    wanted = reduced(weight_decay)
    for parameters, losses, _ in served(servers, weight_decay=weight_decay):
        for found, exact in zip(parameters, wanted, strict=True):
            torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-7)
        assert losses == [sum(r + e for r in range(P)) for e in range(EPOCHS)]


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_bytes_are_those_of_an_all_reduce_and_end_at_the_servers(servers: int) -> None:
    size = sum(p.numel() for p in model_of(0).parameters())
    traffic = [t for _, _, t in served(servers)]
    assert sum(t.to.sum() for t in traffic) == EPOCHS * 2 * (P - 1) * (size + 1) * 4
    assert all(set(t.layers) == {"reduce"} for t in traffic)
    between_workers = [traffic[a].to[b] for a in range(servers, P) for b in range(servers, P)]
    assert not np.any(between_workers)
    # Every worker that is no server pushes all of its gradients and is sent all parameters.
    for worker in range(servers, P):
        assert traffic[worker].to.sum() == EPOCHS * (size + 1) * 4
        assert sum(t.to[worker] for t in traffic) == EPOCHS * (size + 1) * 4


@pytest.mark.parametrize("servers", [1, 3])
def test_a_restored_run_goes_on_bit_for_bit(servers: int) -> None:
    whole, resumed = served(servers), served(servers, stop_at=2)
    for a, b in zip(whole, resumed, strict=True):
        assert a[1] == b[1] and all(torch.equal(x, y) for x, y in zip(a[0], b[0], strict=True))


def test_every_server_owns_an_even_share_of_every_parameter() -> None:
    async def program(rank: Rank) -> Tensor:
        (owned,) = ParameterServers(3).optimizer(rank, model_of(0), 0.1, 0.0).param_groups[0]["params"]
        return owned.detach()

    shares: list[Tensor] = loopback.run_ranks(program, P)
    assert [len(s) for s in shares] == [5 + 2 + 4, 5 + 2 + 3, 5 + 1 + 3, 0]
    weight, bias, second = (p.detach().reshape(-1) for p in model_of(0).parameters())
    assert torch.equal(shares[1], torch.cat([weight[5:10], bias[2:4], second[4:7]]))
