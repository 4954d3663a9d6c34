"""Every method on ranks that share a GPU, over gloo and over NCCL, against the CPU: same bytes, losses to rounding.

EC-Graph's and CDFGNN's rows have not been run yet (docs/gpu.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.real_rows import run_in_turn
from tests.support.settings import SETTINGS, label

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("method", SETTINGS)
def test_gpu_ranks_train_as_cpu_ranks_do(method: str, backend: str, tmp_path: Path) -> None:
    settings = [config(**row) for row in SETTINGS[method]]
    results = run_in_turn([s.changed(mode="real", device="cuda", backend=backend) for s in settings], tmp_path)
    for row, setting, real in zip(SETTINGS[method], settings, results, strict=True):
        for ours, theirs in zip(real.epochs, run(setting).epochs, strict=True):
            near = 0.02 if theirs["observed"] else 0  # where values decide what is sent, rounding may decide otherwise
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=max(near, 1e-5)), label(row)
            for kind in ("forward", "backward", "reduce", "other"):
                assert ours["bytes"][kind] == pytest.approx(theirs["bytes"][kind], rel=near), (label(row), kind)
        assert min(v for epoch in real.epochs for v in epoch["seconds"].values()) >= 0
        assert all(peak > 0 for peak in real.epochs[-1]["peak_memory"])
