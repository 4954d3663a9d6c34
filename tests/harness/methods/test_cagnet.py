"""CAGNET's whole blocks, and SANCUS's blocks of earlier epochs."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.running import run
from tests.conformance.test_drivers import config

WHOLE = {"layer0": "exchange", "dropout": 0.0}
NODES, WIDTHS = 300, [12, 10, 10, 4]  # of the graph and the model of `config`


def losses(method: str, **values: Any) -> list[float]:
    return [epoch["loss"] for epoch in run(config(method, **values)).epochs]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_losses_are_those_of_one_device_to_rounding(model: str, parts: int) -> None:
    setting: dict[str, Any] = {"model": model, "dropout": 0.0}
    whole = losses("single", parts=1, **setting)
    assert losses("cagnet", parts=parts, partitioner="contiguous", **setting) == pytest.approx(whole, rel=1e-3)


def test_bytes_follow_from_nodes_alone() -> None:
    """4 n (P - 1) (f_l + f_(l+1)) summed over layers, whatever the partition and the edges."""
    for partitioner in ("contiguous", "metis-cut"):
        for dataset in (
            "synthetic:nodes=300,degree=8,classes=4,features=12",
            "synthetic:nodes=300,degree=2,classes=4,features=12",
        ):
            found = run(config("cagnet", partitioner=partitioner, dataset=dataset, epochs=1)).epochs[0]["bytes"]
            assert found["forward"] == [4 * NODES * 2 * width for width in WIDTHS[:-1]]
            assert found["backward"] == [4 * NODES * 2 * width for width in WIDTHS[1:]]


def test_order_changes_nothing() -> None:
    assert losses("cagnet", order="linear-first") == losses("cagnet", order="aggregate-first")


@pytest.mark.parametrize("rule", ["age", "change"])
def test_a_bound_of_0_is_cagnet_bit_for_bit(rule: str) -> None:
    assert losses(f"sancus:rule={rule}:bound=0", **WHOLE) == losses("cagnet", **WHOLE)


def test_cached_features_are_exact_without_dropout_and_sent_once() -> None:
    cached = run(config("sancus:bound=0", dropout=0.0))
    assert [e["loss"] for e in cached.epochs] == losses("cagnet", **WHOLE)
    features = [e["bytes"]["forward"][0] for e in cached.epochs]
    assert features == [4 * NODES * 2 * WIDTHS[0], *[0] * 9]
    assert all(e["bytes"]["backward"][0] for e in cached.epochs)  # the weights of layer 0 need it


@pytest.mark.parametrize("rule", ["age:bound=3", "change:bound=0.5", "period:period=4:warmup=1"])
def test_with_frozen_weights_old_blocks_are_new(rule: str) -> None:
    still = {**WHOLE, "lr": 1e-12}
    assert losses(f"sancus:rule={rule}", **still) == pytest.approx(losses("cagnet", **still), rel=1e-6)


def sent(method: str) -> list[int]:
    """Blocks of layer 1 that are broadcast, by epoch."""
    block = 4 * WIDTHS[1] * 2 * NODES // 3
    found = run(config(method, partitioner="contiguous", dropout=0.0))
    return [e["bytes"]["forward"][1] // block for e in found.epochs]


def test_rules_that_count() -> None:
    assert sent("sancus:bound=2") == [3, 0, 0, 3, 0, 0, 3, 0, 0, 3]
    assert sent("sancus:rule=period:period=3:warmup=2") == [3, 3, 3, 0, 0, 3, 0, 0, 3, 0]


def test_a_larger_bound_on_the_change_sends_less() -> None:
    few, some, every = (sum(sent(f"sancus:rule=change:bound={b}")) for b in (0.3, 0.05, 0))
    assert 3 <= few < some < every == 30


def test_decisions_cost_a_byte_to_every_other_rank() -> None:
    other = [e["bytes"]["other"] for e in run(config("sancus:rule=change:bound=0.1")).epochs]
    assert other == [0, *[2 * 3 * 2] * 9]  # two layers decide, three ranks tell two others


def test_every_rank_keeps_all_blocks() -> None:
    """Memory of a modelled rank grows by n x width values a layer."""
    dense = {"dataset": "synthetic:nodes=4000,degree=10,features=64", "hidden": 64, "parts": 8, "dropout": 0.0}
    setting: dict[str, Any] = {**dense, "layer0": "exchange", "mode": "sim", "cluster": "ethernet-10g", "epochs": 3}
    old, new = (max(run(config(m, **setting)).epochs[-1]["peak_memory"]) for m in ("sancus", "cagnet"))
    assert old - new > 0.8 * 4 * 4000 * 64 * 2


@pytest.mark.parametrize("method", ["cagnet", "sancus:bound=2"])
def test_shapes_only_has_the_same_bytes(method: str) -> None:
    setting: dict[str, Any] = {"mode": "sim", "cluster": "ethernet-1g"}
    full, shapes = run(config(method, **setting)), run(config(method, **setting, shapes_only=True))
    for ours, theirs in zip(full.epochs, shapes.epochs, strict=True):
        assert all(ours["bytes"][kind] == theirs["bytes"][kind] for kind in ("forward", "backward", "other", "reduce"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sancus:bound=-1", "bound must be"),
        ("sancus:bound=0.5", "bound must be"),
        ("sancus:rule=period:period=0", "period must be at least 1"),
        ("sancus:layer0=precompute", "cache or exchange"),
    ],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


@pytest.mark.parametrize("method", ["cagnet", "sancus"])
def test_attention_is_refused(method: str) -> None:
    with pytest.raises(InputError, match="linear in rows"):
        run(config(method, model="gat"))
