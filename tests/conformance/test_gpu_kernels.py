"""Every method with the operators' GPU kernels, interpreted on CPU tensors: the same bytes, losses to rounding.

The kernels that decide anything (dropout, codes, choices, samples) are those of the CPU bit for bit; sums are not. On a
GPU, `tests.real.rank.test_cuda_rows` compares whole runs.
"""

from __future__ import annotations

import pytest

from harness.kernels import _quantize_cuda as quantize_cuda
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.kernel_devices import INTERPRETED, KernelDevice, small_tiles
from tests.support.settings import SETTINGS, label

DATASET = "synthetic:nodes=36,degree=5,classes=3,features=4,seed=1"


EPOCHS = {"ec-graph": 5}
"""Methods that need more than 2 epochs to come to all of their kernels."""


@pytest.mark.skipif(not INTERPRETED, reason="kernels are compiled in this process")
@pytest.mark.parametrize("method", SETTINGS)
def test_methods_train_with_the_kernels_of_gpus(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, quantize_cuda)
    for row in SETTINGS[method]:
        epochs = EPOCHS.get(method, 2)
        setting = config(**{**row, "dataset": DATASET, "epochs": epochs, "hidden": 4, "eval_every": -1})
        expected = run(setting)
        with KernelDevice("interpreted").kernels():
            found = run(setting)
        for ours, theirs in zip(found.epochs, expected.epochs, strict=True):
            near = 0.02 if theirs["observed"] else 0
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=max(near, 1e-5)), label(row)
            for kind in ("forward", "backward", "reduce", "other"):
                assert ours["bytes"][kind] == pytest.approx(theirs["bytes"][kind], rel=near), (label(row), kind)
