"""What every method says that it does about input features is what it sends."""

from __future__ import annotations

import pytest

from harness.config import RunConfig
from harness.errors import InputError
from harness.methods.registry import METHODS
from harness.running import run

BASE = RunConfig.of(
    dataset="synthetic:nodes=160,degree=8,classes=3,features=8", model="sage", hidden=8, parts=2, epochs=3,
    eval_every=-1, partitioner="auto",
)  # fmt: skip
COUNTED_OTHERWISE = {
    "single": "sends nothing",
    "subgraph-approximation": "reads copies, which are its own",
    **dict.fromkeys(("graphsage-ns", "distdgl", "fastgcn", "ladies", "as-gcn"), "input rows are counted with no layer"),
    "vr-gcn": "counts rows of the layer above with layer 0",
}
"""Methods whose bytes of layer 0 do not tell, and why."""


@pytest.mark.parametrize("name", sorted(METHODS.names()))
def test_what_is_said_is_what_is_sent(name: str) -> None:
    """Input rows travel after the first epoch if, and only if, the method exchanges them; every treatment it takes."""
    for layer0 in ("auto", "precompute", "cache", "exchange"):
        config = BASE.changed(method=name, layer0=layer0, parts=1 if name == "single" else 2)
        try:
            result = run(config)
        except InputError as error:
            assert layer0 != "auto" and "layer0" in str(error)
            continue
        said, last = result.facts["layer0"], result.epochs[-1]["bytes"]
        assert said in (None, layer0) or layer0 == "auto" or not hasattr(METHODS.find(name), "layer0")
        if name in COUNTED_OTHERWISE:
            continue
        assert (last["forward"][0] > 0) == (said == "exchange"), (layer0, said, last)
        if not hasattr(METHODS.find(name), "layer0"):
            break


@pytest.mark.parametrize(
    ("settings", "orders"),
    [
        ({"method": "vanilla", "layer0": "exchange", "order": "linear-first"}, ["linear-first", "linear-first"]),
        ({"method": "vanilla", "order": "linear-first"}, ["aggregate-first", "linear-first"]),
        ({"method": "cagnet", "order": "linear-first"}, ["aggregate-first", "aggregate-first"]),
        ({"method": "single", "parts": 1, "layer0": "cache"}, ["aggregate-first", "linear-first"]),
        ({"method": "vanilla"}, ["aggregate-first", "aggregate-first"]),
    ],
)
def test_orders_are_recorded(settings: dict[str, object], orders: list[str]) -> None:
    assert run(BASE.changed(**settings, epochs=1)).facts["orders"] == orders
