"""Every method with the operators' GPU kernels, interpreted on CPU tensors: the same bytes, losses to rounding.

The kernels that decide anything (dropout, codes, choices, samples) are those of the CPU bit for bit; sums are not. On a
GPU, `tests.real.rank.test_cuda_rows` compares whole runs.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.kernels import _quantize_cuda as quantize_cuda
from harness.kernels import neighbour_sum_cuda
from harness.nn import _layers
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.kernel_devices import INTERPRETED, KernelDevice, small_tiles
from tests.support.settings import SETTINGS, label

DATASET = "synthetic:nodes=36,degree=5,classes=3,features=4,seed=1"

MORE = {"ec-graph": {"epochs": 5, "dataset": DATASET.replace("36", "60"), "hidden": 6}}
"""What a method needs to come to all of its kernels, and to get over values that are sent in another form."""

ROWS = {"ec-graph": [row for row in SETTINGS["ec-graph"] if "period=4:bits=1" in label(row) or "element" in label(row)]}
"""Rows that come to all kernels of a method, where those are not its first two; all would take too long."""

ATTENTION = (
    {"method": "vanilla", "model": "gat", "layers": 2},
    {"method": "bns-gcn:p=0.4", "model": "gat", "layers": 2, "layer0": "cache"},
)


def _agree(row: dict[str, Any], attends: bool = False) -> None:
    """Train with the kernels of CPUs and with those of GPUs; layers attend by one operator if `attends`."""
    setting = config(**{"dataset": DATASET, "epochs": 2, "hidden": 4, "eval_every": -1, **row})
    expected = run(setting)
    with KernelDevice("interpreted").kernels(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_layers, "fuses", lambda x, attention: attends)
        found = run(setting)
    for ours, theirs in zip(found.epochs, expected.epochs, strict=True):
        near = 0.02 if theirs["observed"] else 0  # where values decide what is sent, rounding may decide otherwise
        rounding = 1e-3 if row.get("precision") == "bf16" else 1e-5  # interpreted kernels cut bits of bf16 off
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=max(near, rounding)), label(row)
        for kind in ("forward", "backward", "reduce", "other"):
            assert ours["bytes"][kind] == pytest.approx(theirs["bytes"][kind], rel=near), (label(row), kind)


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")
@pytest.mark.parametrize("method", SETTINGS)
def test_methods_train_with_the_kernels_of_gpus(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbour sums by their kernel in one method only: it takes a program for every node, and is tested elsewhere."""
    small_tiles(monkeypatch, quantize_cuda)
    if method != "vanilla":
        monkeypatch.setattr(neighbour_sum_cuda, "sums_rows", lambda *_: False)
    for row in ROWS.get(method, SETTINGS[method][:2]):
        _agree({**row, **MORE.get(method, {})})


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")
@pytest.mark.parametrize("row", ATTENTION, ids=label)
def test_attention_trains_as_one_operator(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As layers choose it on GPUs; the kernels take a program for every node, which interpreting takes long for."""
    small_tiles(monkeypatch, quantize_cuda)
    _agree({**row, "epochs": 1}, attends=True)
