"""Which of linear map and aggregation comes first: what a run states is what it sent and summed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config import RunConfig
from harness.errors import InputError
from harness.running import run

BASE = RunConfig.of(
    dataset="synthetic:nodes=120,degree=6,classes=3,features=20", model="gcn", layers=3, hidden=10, epochs=2, parts=2,
    mode="loopback", eval_every=-1, threads=1,
)  # fmt: skip
"""Widths 20, 10, 10, 3: mapped first, rows of layers 0 and 2 are narrower."""

FIXED = (
    "vanilla", "sar", "sylvie-s", "pipegcn", "bns-gcn:p=1", "roc", "cagnet", "sancus",
    "cdfgnn:quantise=false:cache=false", "distgnn:delay=0", "ec-graph:wire=product:fp=exact:bp=exact",
)  # fmt: skip
"""Methods whose bytes depend on widths alone."""


def trained(method: str, order: str) -> tuple[list[str], list[int]]:
    """Stated orders, and bytes forwards by layer in the last epoch."""
    result = run(BASE.changed(method=method, order=order))
    assert result.state == "done", result.message
    return result.facts["orders"], result.epochs[-1]["bytes"]["forward"]


@pytest.mark.parametrize("method", FIXED)
def test_the_order_that_is_stated_was_trained(method: str) -> None:
    """A layer sends narrower rows than aggregation first would, exactly where it says that it maps them first."""
    reference = trained(method, "aggregate-first")
    assert set(reference[0]) == {"aggregate-first"}
    for order in ("auto", "method"):
        stated, sent = trained(method, order)
        for l in (0, 2):
            if reference[1][l]:
                assert (sent[l] < reference[1][l]) == (stated[l] == "linear-first"), (order, l, stated)
        assert stated[1] == "aggregate-first" or order == "method", "widths 10 and 10"


@pytest.mark.parametrize("method", ["vanilla", "sylvie-s", "roc", "cdfgnn"])
def test_auto_maps_first_where_rows_get_narrower(method: str) -> None:
    assert trained(method, "auto")[0][2] == "linear-first"


@pytest.mark.parametrize(
    "method", ["sylvie-s:dropout=after", "sylvie-a:dropout=after", "pipegcn:dropout=after", "distgnn:layer0=precompute"]
)
def test_auto_aggregates_first_where_the_method_must(method: str) -> None:
    assert trained(method, "auto")[0][0] == "aggregate-first"
    with pytest.raises(InputError, match="aggregat"):
        run(BASE.changed(method=method, order="linear-first"))


@pytest.mark.parametrize("method", ["vr-gcn", "cagnet"])
def test_methods_of_one_order_state_it(method: str) -> None:
    found: list[Any] = [trained(method, order) for order in ("auto", "linear-first", "aggregate-first")]
    assert found[0][0] == found[1][0] == found[2][0] == ["aggregate-first"] * 3
    assert found[0][1] == found[1][1] == found[2][1]


@pytest.mark.parametrize("method", ["vanilla", "sylvie-s:dropout=after", "cdfgnn:layer0=precompute", "roc"])
def test_the_simulator_has_the_same_losses_and_bytes(method: str) -> None:
    """Under the default of the commands."""
    results = [run(BASE.changed(method=method, order="auto", mode=mode)) for mode in ("loopback", "sim")]
    assert [r.state for r in results] == ["done", "done"]
    first, second = ([(e["loss"], e["bytes"]["forward"], e["bytes"]["backward"]) for e in r.epochs] for r in results)
    assert first == second and results[0].facts["orders"] == results[1].facts["orders"]
