"""Bit-equal losses and equal bytes in all three drivers, for every method of the registry."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig, from_mapping
from harness.methods.registry import METHODS
from harness.running import prepare, run
from harness.running.results import Result
from tests.support.real_rows import run_in_turn
from tests.support.settings import SETTINGS, label, rows

ROWS_PER_LAUNCH = 32  # ranks take longer to start than to train a row
ROW_EPOCHS = 7  # more than any period, delay or staleness of the rows, which are all used at least once
DATASET = "synthetic:nodes=300,degree=8,classes=4,features=12,seed=1"


def config(method: str, **values: object) -> RunConfig:
    base = {
        "dataset": DATASET,
        "model": "sage",
        "layers": 3,
        "hidden": 10,
        "dropout": 0.3,
        "norm": "layer",
        "epochs": 10,
    }
    return from_mapping({**base, "parts": 3, "method": method, "threads": 1, "eval_every": 5, **values})


def comparable(result: Result) -> list[tuple[object, ...]]:
    """Losses, accuracies and bytes of every epoch; tiers, which depend on the driver, are left out."""
    kept = ("forward", "backward", "reduce", "other")
    return [
        (e["loss"], e["train"], e["val"], e["test"], {k: e["bytes"][k] for k in kept}, e["observed"])
        for e in result.epochs
    ]


def row_config(row: dict[str, Any], **values: object) -> RunConfig:
    """The config of a row of settings."""
    return config(**{"epochs": ROW_EPOCHS, **row, **values})


@cache
def in_loopback(setting: RunConfig) -> list[tuple[object, ...]]:
    """What the other drivers are compared with, run once by every process of the suite."""
    result = run(setting)
    assert result.state == "done"
    return comparable(result)


def test_every_registered_method_has_rows() -> None:
    assert set(SETTINGS) == set(METHODS.builtin), "give every registered method a row in tests/settings.py"
    assert all(row["method"].split(":")[0] == name for name, found in SETTINGS.items() for row in found)
    assert all(SETTINGS.values())


@pytest.mark.parametrize("row", rows(), ids=label)
def test_loopback_and_sim_agree_bit_for_bit(row: dict[str, Any]) -> None:
    sim = run(row_config(row, mode="sim", cluster="ethernet-1g"))
    assert comparable(sim) == in_loopback(row_config(row))
    assert sim.state == "done"
    for epoch in sim.epochs:
        seconds = epoch["seconds"]
        parts = sum(v for k, v in seconds.items() if k not in ("epoch", "hidden"))
        assert parts == pytest.approx(seconds["epoch"], rel=1e-9)
        assert seconds["compute"] > 0
        assert (
            sum(epoch["bytes"]["tiers"].values())
            == sum(epoch["bytes"]["forward"])
            + sum(epoch["bytes"]["backward"])
            + epoch["bytes"]["reduce"]
            + epoch["bytes"]["other"]
        )


def launches() -> dict[str, list[dict[str, Any]]]:
    """All rows by number of ranks, so many at a time as share one start of their ranks, by a name for the test."""
    by_ranks: dict[int, list[dict[str, Any]]] = {}
    for row in [
        *rows(),
        {"method": "vanilla", "parts": 4, "model": "gcn"},
        {"method": "vanilla", "parts": 2, "model": "gat"},
    ]:
        by_ranks.setdefault(row_config(row).cut.parts, []).append(row)
    found = {}
    for ranks, mine in by_ranks.items():
        for at in range(0, len(mine), ROWS_PER_LAUNCH):
            few = mine[at : at + ROWS_PER_LAUNCH]
            names = dict.fromkeys(row["method"].partition(":")[0] for row in few)
            found[f"{ranks} ranks: {', '.join(names)}"] = few
    return found


@pytest.mark.processes
@pytest.mark.parametrize("few", launches().values(), ids=launches())
def test_real_gloo_ranks_agree_with_loopback_bit_for_bit(few: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = [row_config(row) for row in few]
    results = run_in_turn([setting.changed(mode="real") for setting in settings], tmp_path)
    for row, setting, real in zip(few, settings, results, strict=True):
        assert comparable(real) == in_loopback(setting), label(row)
        for epoch in real.epochs:
            seconds = epoch["seconds"]
            assert sum(v for k, v in seconds.items() if k not in ("epoch", "hidden")) == pytest.approx(seconds["epoch"])
            assert min(v for v in seconds.values()) >= 0
    # The ranks run all rows one after the other: a later one may find room in memory that an earlier one has left.
    assert all(peak > 0 for peak in results[0].epochs[-1]["peak_memory"])


@pytest.mark.processes
@pytest.mark.parametrize("threads", [2, 4])
def test_drivers_agree_bit_for_bit_with_several_threads(threads: int, tmp_path: Path) -> None:
    """On a graph that is large enough for kernels to divide their work among threads."""
    settings = [
        config(
            method, parts=2, threads=threads, epochs=3, hidden=64,
            dataset="synthetic:nodes=4000,degree=30,classes=4,features=64,seed=1",
        )
        for method in ("vanilla", "sylvie-a")
    ]  # fmt: skip
    results = run_in_turn([setting.changed(mode="real") for setting in settings], tmp_path)
    for setting, real in zip(settings, results, strict=True):
        loop = in_loopback(setting)
        assert comparable(run(setting.changed(mode="sim", cluster="ethernet-1g"))) == loop
        assert comparable(real) == loop


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_losses_of_exact_methods_do_not_depend_on_the_number_of_parts(parts: int) -> None:
    """Dropout is keyed by node, so even with dropout only rounding differs."""
    whole = run(config("single", parts=1, layer0="cache"))
    split = run(config("vanilla", parts=parts, layer0="cache", partitioner="hash"))
    for a, b in zip(whole.epochs, split.epochs, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=2e-3)
    assert split.epochs[0]["loss"] == pytest.approx(whole.epochs[0]["loss"], rel=1e-6)


@pytest.mark.parametrize("method", ["vanilla", "bns-gcn:p=0.5", "sylvie-s"])
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_shapes_only_runs_the_same_methods_without_numbers(method: str, model: str) -> None:
    full = run(config(method, mode="sim", model=model, cluster="ethernet-1g"))
    shapes = run(config(method, mode="sim", model=model, cluster="ethernet-1g", shapes_only=True))
    assert all(e["loss"] is None and e["test"] is None for e in shapes.epochs)
    ours, theirs = shapes.epochs[-1], full.epochs[-1]
    if method != "bns-gcn:p=0.5":  # a sample's size is its expectation there
        assert {k: ours["bytes"][k] for k in ("forward", "backward", "reduce")} == {
            k: theirs["bytes"][k] for k in ("forward", "backward", "reduce")
        }
        assert ours["seconds"]["epoch"] == pytest.approx(theirs["seconds"]["epoch"], rel=0.02)
    else:
        assert sum(ours["bytes"]["forward"]) == pytest.approx(sum(theirs["bytes"]["forward"]), rel=0.2)


def test_more_bandwidth_never_slows_a_synchronous_method() -> None:
    slow = run(config("vanilla", mode="sim", cluster="ethernet-1g")).summary()["epoch_seconds"]
    fast = run(config("vanilla", mode="sim", cluster="ethernet-10g")).summary()["epoch_seconds"]
    assert fast < slow


def test_inductive_training_never_sees_other_nodes() -> None:
    prepared = prepare(config("vanilla", protocol="inductive"))
    seen, whole = prepared.training(0).totals, prepared.evaluation(0).totals
    assert seen.num_nodes == seen.num_train == whole.num_train < whole.num_nodes == 300
    result = run(config("vanilla", protocol="inductive"))
    assert result.epochs[-1]["loss"] < result.epochs[0]["loss"]
    assert result.epochs[-1]["test"] is not None


def test_a_diverging_run_is_a_result_not_a_crash() -> None:
    result = run(config("sylvie-s", lr=1e30, norm="none"))
    assert result.state == "diverged" and result.message
    assert all(e["loss"] is None or math.isfinite(e["loss"]) for e in result.epochs)
