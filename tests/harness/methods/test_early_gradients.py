"""Gradients that are summed over ranks beside the backward pass: the same losses and bytes, and less to wait for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.errors import ProgramError
from harness.methods.bases.early_gradients import EarlyTape
from harness.methods.registry import METHODS, parse_method
from harness.rank import Rank
from harness.running import run
from harness.running.results import Result
from tests.conformance.test_drivers import comparable, config

TAKE_IT = sorted(name for name in METHODS.builtin if hasattr(parse_method(name), "gradients"))


def both(**values: Any) -> list[Result]:
    """A run with all gradients together, and with early ones."""
    method = values.pop("method")
    return [run(config(method=f"{method}:gradients={how}", **values)) for how in ("together", "early")]


def test_methods_that_take_it() -> None:
    assert TAKE_IT == ["bns-gcn", "pipegcn", "sylvie-a", "sylvie-s", "vanilla"]
    for name in TAKE_IT:
        early, together = (parse_method(f"{name}:gradients={how}").promises() for how in ("early", "together"))
        assert not early.static and early.exact == together.exact


@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize("method", [*TAKE_IT, "vanilla:style=pull", "vanilla:overlap=true", "bns-gcn:p=0.0"])
def test_losses_and_bytes_are_the_same(method: str, model: str) -> None:
    together, early = (comparable(each) for each in both(method=method, model=model, mode="sim", dropout=0.3))
    assert early == together


def test_real_ranks_agree() -> None:
    together, early = (comparable(each) for each in both(method="sylvie-a", mode="real", epochs=3))
    assert early == together


def test_only_the_first_layer_is_waited_for_where_exchanges_take_long() -> None:
    """Wide layers on slow links: gradients travel beside the exchanges below, which take longer by as much."""
    values = {"mode": "sim", "cluster": "ethernet-1g", "hidden": 256, "dataset": "synthetic:nodes=3000,degree=20"}
    values |= {"partitioner": "hash", "epochs": 3}
    together, early = (each.summary()["seconds"] for each in both(method="vanilla", **values))
    assert early["reduce"] < 0.6 * together["reduce"] and early["epoch"] == pytest.approx(together["epoch"], rel=0.01)


class Scaled:
    """x -> w x, which adds the gradient of w by itself, as exchanges do that apply parameters."""

    def __init__(self, w: Tensor) -> None:
        self.w = w

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        return (self.w.detach() * x,)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        own = self.w.grad
        self.w.grad = gradients[0] if own is None else own + gradients[0]
        return gradients[0] * self.w.detach()


@pytest.mark.parametrize("inside", [False, True])
def test_sums_begin_when_no_segment_is_left_that_adds(inside: bool) -> None:
    """Three segments: `low` is used in the first, `both` in the first and the last, `top` in the last alone; a gradient
    to which an exchange adds later is refused."""

    async def program(rank: Rank) -> list[list[int]]:
        low, both, top = (torch.full((2,), value, requires_grad=True) for value in (2.0, 3.0, 5.0))
        tape = EarlyTape(rank, [low, both, top])
        (h,) = await tape.apply(Scaled(torch.ones(2)), low * both)
        (h,) = await tape.apply(Scaled(top if inside else torch.ones(2)), 2 * h)
        await tape.backward((h * both * top).sum())
        found = [[at for at, p in enumerate((low, both, top)) if any(p is q for q in each.parameters)]
                 for each in tape.begun]  # fmt: skip
        await tape.finish(1)
        assert low.grad is not None and low.grad.tolist() == [90.0] * 2, "2 (3 x 3 x 5): its own, not summed"
        assert top.grad is not None and top.grad.tolist() == [2 * 2 * 2.0 * 3 * 3] * 2, "summed over two ranks"
        return found

    if inside:
        with pytest.raises(ProgramError, match="adds to gradients that are being summed"):
            loopback.run_ranks(program, 2)
    else:
        assert loopback.run_ranks(program, 2) == [[[2]]] * 2
