"""ROC: the losses of vanilla whatever moves, copies by closed form, and less memory on a modelled device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness import loopback
from harness.effects import HostCopy
from harness.errors import InputError
from harness.exchanges import SwapTape
from harness.methods.registry import parse_method
from harness.methods.roc import GB
from harness.nn import training_loss
from harness.rank import Rank
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

MOVED = ("bytes to the host", "bytes from the host")
BUDGETS = (0.0, 2e-6, 5e-6, 1e-5, 2e-5, 1e-3)  # GB
LIKE_ROC: dict[str, Any] = {"order": "linear-first", "layer0": "exchange", "partitioner": "ranges"}


def losses(method: str, **values: Any) -> list[float]:
    return [epoch["loss"] for epoch in run(config(method, epochs=3, **values)).epochs]


@pytest.mark.parametrize("setting", [{"model": "gcn"}, {"layer0": "cache", "order": "aggregate-first"}], ids=str)
def test_no_swap_changes_a_bit(setting: dict[str, Any]) -> None:
    vanilla = losses("vanilla:style=pull", **{**LIKE_ROC, **setting})
    for memory in (0.0, 5e-6, 1e-5):
        assert losses(f"roc:memory={memory}", **setting) == vanilla
    assert losses("roc:rows=neighbours", **setting) == vanilla


@pytest.mark.parametrize("setting", [{"model": "gcn", "norm": "none"}, {"layer0": "precompute"}], ids=str)
def test_more_memory_never_moves_more_and_enough_moves_nothing(setting: dict[str, Any]) -> None:
    runs = [run(config(f"roc:memory={memory}", epochs=1, **setting)).epochs[0]["observed"] for memory in BUDGETS]
    for name in MOVED:
        moved = [observed[name] for observed in runs]
        assert moved == sorted(moved, reverse=True) and len(set(moved)) > 3 and moved[-1] == 0


def test_copies_without_memory_are_the_stated_formula() -> None:
    """GCN, linear map first, with dropout and without norm: n_i (2 f + 10 g) numbers out and n_i (3 f + 11 g) in."""
    setting: dict[str, Any] = {"model": "gcn", "norm": "none", "hidden": 10, "layers": 3, "parts": 3}
    widths, rows = (12, 10, 10, 4), 300 / 3
    observed = run(config("roc", epochs=1, **setting)).epochs[0]["observed"]
    pairs = list(zip(widths, widths[1:], strict=False))
    out = sum(2 * f + 10 * g for f, g in pairs) - widths[0]
    back = sum(3 * f + 11 * g for f, g in pairs) - widths[0] - widths[-1]
    assert observed["bytes to the host"] == pytest.approx(4 * rows * out, rel=1e-12)
    assert observed["bytes from the host"] == pytest.approx(4 * rows * back, rel=1e-12)


@pytest.mark.parametrize("memory", [0.0, 3e-6, 2.5e-5])
def test_copies_are_effects_and_no_more_than_the_capacity_stays(memory: float) -> None:
    """The bytes that are observed are those of the effects, and saved tensors fit the capacity at every cut."""
    graph = random_graph(60, 400, seed=4)
    parts = make_parts(graph, owners(graph, 2, "random"), 2, torch.float64)
    method, seen = parse_method(f"roc:memory={memory}"), []

    async def program(rank: Rank) -> None:
        part, model = parts[rank.index], make_model("gcn", graph, dtype=torch.float64)
        state = await method.setup(rank, part, model)
        tape, copied = method.tape(rank, part, model, state), {True: 0, False: 0}
        assert isinstance(tape, SwapTape)
        made = rank.host_copy

        def host_copy(tensor: Any, *, to_host: bool, label: str) -> HostCopy:
            copied[to_host] += tensor.numel() * tensor.element_size()
            return made(tensor, to_host=to_host, label=label)

        rank.host_copy = host_copy  # type: ignore[method-assign]
        settle, held = tape._settle, []

        async def settled(crossing: tuple[torch.Tensor, ...]) -> None:
            await settle(crossing)
            alive = {t.untyped_storage()._cdata for t in crossing}
            there = sum(t.untyped_storage().nbytes() for t in crossing)
            held.append(sum(h.nbytes for key, h in tape._held.items() if key not in alive) + there)
            assert held[-1] <= max(tape.capacity, there)

        tape._settle = settled  # type: ignore[method-assign]
        loss = training_loss(await method.forward(rank, part, model, state, {}, tape), part)
        await tape.backward(loss)
        observed = rank.take_observed()
        assert [observed[name][0] for name in MOVED] == [copied[True], copied[False]]
        assert not tape._held and not tape._of_segment  # nothing is kept
        seen.append((copied[True], max(held)))

    loopback.run_ranks(program, 2)
    assert all((out > 0) == (memory < 2.5e-5) for out, _ in seen)
    assert memory == 0 or max(most for _, most in seen) > memory * GB / 5


def test_a_modelled_device_needs_less_memory_and_pays_in_swaps() -> None:
    setting: dict[str, Any] = {
        "dataset": "synthetic:nodes=2000,degree=20,features=64", "hidden": 64, "parts": 4, "layers": 4, "model": "gcn",
        "mode": "sim", "cluster": "bns-10x2080ti", "epochs": 2, "norm": "none", "eval_every": -1,
    }  # fmt: skip
    last = {}
    for memory in (0.0, 0.0005, 1.0):
        last[memory] = run(config(f"roc:memory={memory}", **setting)).epochs[-1]
    peak = {memory: max(epoch["peak_memory"]) for memory, epoch in last.items()}
    swap = {memory: epoch["seconds"]["swap"] for memory, epoch in last.items()}
    assert peak[0.0] <= peak[0.0005] < peak[1.0] and peak[0.0] < 0.9 * peak[1.0]
    assert swap[0.0] > 2 * swap[0.0005] > swap[1.0] == 0
    assert last[0.0]["loss"] == last[1.0]["loss"]
    both = sum(last[0.0]["observed"][name] for name in MOVED)
    assert swap[0.0] > both / 16e9  # no faster than the link between a device and its host
    assert run(config("roc", **{**setting, "cluster": "ethernet-1g"})).epochs[-1]["seconds"]["swap"] == 0  # CPU ranks


def test_bytes_of_whole_blocks_and_of_neighbours() -> None:
    setting: dict[str, Any] = {"model": "gcn", "epochs": 1, "layers": 3, "hidden": 10, "parts": 3}
    whole = run(config("roc", **setting)).epochs[0]["bytes"]
    assert whole["forward"] == [4 * 300 * 2 * d for d in (10, 10, 4)] == whole["backward"]
    near = run(config("roc:rows=neighbours", **setting)).epochs[0]["bytes"]
    pull = run(config("vanilla:style=pull", **{**setting, **LIKE_ROC})).epochs[0]["bytes"]
    assert (near["forward"], near["backward"]) == (pull["forward"], pull["backward"])
    assert sum(near["forward"]) < sum(whole["forward"])


@pytest.mark.parametrize(
    ("method", "values", "said"),
    [
        ("roc:memory=-1", {}, "memory is in GB"),
        ("roc", {"model": "gat"}, "aggregation is linear"),
        ("roc:memory=nan", {}, "finite number"),
    ],
)
def test_bad_options_are_one_line(method: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        run(config(method, epochs=1, **values))
    assert "\n" not in str(raised.value)
