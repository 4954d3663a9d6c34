"""Models of a user's own module, named `module:factory`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from harness.config import ModelConfig, RunConfig
from harness.errors import InputError
from harness.nn import build_model
from harness.running import data_inputs, plan_of, run

MODULE = """
from harness.nn import GNN, SAGEConv

def wide(config, inputs, classes):
    return GNN([SAGEConv(inputs, 12), SAGEConv(12, classes)], [inputs, 12, classes])

def broken(config, inputs, classes):
    return None

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_own_models.py"
    path.write_text(MODULE)
    (tmp_path / "failing_models.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("my_own_models", "failing_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return path


def test_it_trains_and_is_priced(module: Path) -> None:
    """Alike in loopback and on a modelled cluster, where its operators have a price."""
    base = RunConfig.of(
        dataset="synthetic:nodes=200,degree=6,classes=3,features=8", model="my_own_models:wide", epochs=2,
        partitioner="hash", eval_every=-1, threads=1, cluster="ethernet-1g",
    )  # fmt: skip
    here, there = run(base), run(base.changed(mode="sim"))
    assert [e["loss"] for e in here.epochs] == [e["loss"] for e in there.epochs]
    assert there.summary()["epoch_seconds"] > 0


def test_its_content_counts(module: Path) -> None:
    config = RunConfig.of(model="my_own_models:wide")
    before = data_inputs(plan_of(config))
    module.write_text(MODULE + "\n# a comment")
    assert data_inputs(plan_of(config)) == before
    module.write_text(MODULE + "\nCHANGED = True\n")
    importlib.reload(sys.modules["my_own_models"])
    after = data_inputs(plan_of(config))
    assert {name for name in before if before[name] != after[name]} == {"model"}


@pytest.mark.parametrize("layers", [1, 3])
def test_its_depth_is_that_of_the_settings(module: Path, layers: int) -> None:
    with pytest.raises(InputError, match=f"'my_own_models:wide' has 2 layers, not {layers}: pass --layers 2"):
        build_model(ModelConfig(name="my_own_models:wide", layers=layers), 4, 2, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:make", "cannot import nowhere"),
        ("failing_models:make", "ZeroDivisionError"),
        ("my_own_models:missing", "has no function 'missing'"),
        ("my_own_models:number", "has no function 'number'"),
        ("my_own_models:broken", "is a NoneType, not a harness.nn.GNN"),
    ],
)
def test_what_is_no_model_is_refused(module: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        build_model(ModelConfig(name=name), 4, 2, 0)
    assert "\n" not in str(error.value)
