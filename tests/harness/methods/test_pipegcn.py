"""PipeGCN: rows one epoch old, running means of them, and what follows with weights that stand still."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.errors import InputError
from harness.exchanges import HaloPush
from harness.methods.pipegcn import PipeGCN
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import run
from tests.conformance.test_drivers import comparable, config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(60, 240, seed=4)
P = 3
PARTS = make_parts(GRAPH, owners(GRAPH, P, "random"), P, torch.float32)
EPOCHS = 6
STILL = {"lr": 1e-12, "dropout": 0.0, "layer0": "cache", "epochs": 8}


def received(method: PipeGCN) -> list[list[tuple[Tensor, Tensor]]]:
    """Per rank and epoch: the halo of layer 1, and what is added to the gradients of own rows, all of ones sent."""
    model = make_model("sage", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> list[tuple[Tensor, Tensor]]:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        found = []
        for rank.epoch in range(EPOCHS):
            push = method.exchange(1, model, state, await method.begin(rank, part, state, memory))
            assert isinstance(push, HaloPush) and part.x is not None
            _, halo = await push.forward(rank, torch.ones_like(part.x))
            found.append((halo, await push.adjoint(rank, torch.zeros_like(part.x), torch.ones_like(halo))))
        await method.settle(rank, memory)
        return found

    return loopback.run_ranks(program, P, seed=2)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95, 1.0])
def test_constant_rows_arrive_with_the_weight_of_what_has_arrived(gamma: float) -> None:
    plain = received(PipeGCN())
    for ours, whole in zip(received(PipeGCN(smooth="both", gamma=gamma)), plain, strict=True):
        for epoch in range(EPOCHS):
            for smoothed, exact in zip(ours[epoch], whole[epoch], strict=True):
                torch.testing.assert_close(smoothed, (1 - gamma**epoch) * exact)


def test_debiased_means_of_constant_rows_are_those_rows() -> None:
    for ours, whole in zip(received(PipeGCN(smooth="both", debias=True)), received(PipeGCN()), strict=True):
        for smoothed, exact in zip(ours, whole, strict=True):
            torch.testing.assert_close(smoothed[0], exact[0])
            torch.testing.assert_close(smoothed[1], exact[1])


@pytest.mark.parametrize(("smooth", "changed"), [("features", (True, False)), ("gradients", (False, True))])
def test_only_the_named_direction_is_smoothed(smooth: str, changed: tuple[bool, bool]) -> None:
    method = parse_method(f"pipegcn:smooth={smooth}:gamma=0.5")
    assert isinstance(method, PipeGCN)
    ours, plain = received(method)[0][2], received(PipeGCN())[0][2]
    assert tuple(not torch.equal(a, b) for a, b in zip(ours, plain, strict=True)) == changed


def test_gamma_of_0_is_no_smoothing_bit_for_bit() -> None:
    assert comparable(run(config("pipegcn:smooth=both:gamma=0"))) == comparable(run(config("pipegcn")))


def test_gamma_of_1_never_uses_what_arrives() -> None:
    """Losses are those of parts that see zeros in place of their halo, in every epoch."""
    setting = {**STILL, "lr": 0.05}
    never = run(config("pipegcn:smooth=both:gamma=1", **setting))
    first = run(config("pipegcn", **setting))
    assert [e["loss"] for e in never.epochs[:1]] == [e["loss"] for e in first.epochs[:1]]
    assert never.epochs[2]["loss"] != first.epochs[2]["loss"]
    still = run(config("pipegcn:smooth=both:gamma=1", **STILL))
    assert len({e["loss"] for e in still.epochs}) == 1


def test_with_frozen_weights_losses_are_exact_after_as_many_epochs_as_layers_exchange() -> None:
    exact = run(config("vanilla", **STILL)).epochs[0]["loss"]
    losses = [e["loss"] for e in run(config("pipegcn", **STILL)).epochs]
    assert losses[2:] == pytest.approx([exact] * 6, rel=1e-6)  # layers 1 and 2 exchange; layer 0 is cached
    assert all(abs(loss / exact - 1) > 1e-4 for loss in losses[:2])


def test_smoothing_approaches_it_by_gamma_an_epoch() -> None:
    setting = {**STILL, "layers": 2, "epochs": 10}
    exact = run(config("vanilla", **setting)).epochs[0]["loss"]
    smoothed = [e["loss"] for e in run(config("pipegcn:smooth=features:gamma=0.5", **setting)).epochs]
    gaps = [abs(loss - exact) for loss in smoothed]
    assert gaps[9] < 0.02 * gaps[0] and all(0.3 < later / before < 0.7 for before, later in pairwise(gaps[2:]))


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_every_epoch_sends_the_bytes_of_vanilla(model: str) -> None:
    late, now = run(config("pipegcn:smooth=both", model=model)), run(config("vanilla", model=model))
    assert [e["bytes"]["forward"] for e in late.epochs] == [e["bytes"]["forward"] for e in now.epochs]
    assert [e["bytes"]["backward"] for e in late.epochs] == [e["bytes"]["backward"] for e in now.epochs]


def test_one_part_is_one_device() -> None:
    setting = {"parts": 1, "order": "aggregate-first"}
    late, whole = run(config("pipegcn:smooth=both", **setting)), run(config("single", **setting))
    assert [e["loss"] for e in late.epochs] == [e["loss"] for e in whole.epochs]


def test_the_exchange_is_hidden_behind_compute() -> None:
    setting = {"mode": "sim", "cluster": "ethernet-1g", "hidden": 64}
    now, late = (run(config(m, **setting)).summary()["seconds"] for m in ("vanilla", "pipegcn"))
    assert late["halo"] < 0.7 * now["halo"] and late["hidden"] > 0 and late["epoch"] < now["epoch"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("pipegcn:gamma=1.5", "gamma must be from 0 to 1"), ("pipegcn:gamma=1:debias=true", "debias needs gamma below 1")],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)
