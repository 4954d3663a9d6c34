"""Every method on ranks that share a GPU, over gloo and over NCCL, against the CPU: same bytes, losses to rounding."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.methods.registry import parse_method
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.real_rows import run_in_turn
from tests.support.settings import SETTINGS, label

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


BACKENDS = os.environ.get("HALOSCOPE_TEST_BACKENDS", "gloo,nccl").split(",")
"""Where time on a GPU is short, one of them."""


@pytest.mark.parametrize("method", SETTINGS)
def test_gpu_ranks_train_as_cpu_ranks_do(method: str, tmp_path: Path) -> None:
    settings = [config(**row) for row in SETTINGS[method]]
    expected = [run(setting) for setting in settings]
    for backend in BACKENDS:
        (tmp_path / backend).mkdir()
        on_gpus = [s.changed(mode="real", device="cuda", backend=backend) for s in settings]
        for row, real, cpu in zip(SETTINGS[method], run_in_turn(on_gpus, tmp_path / backend), expected, strict=True):
            lossy = not parse_method(row["method"]).promises().exact
            _compare(f"{backend}: {label(row)}", real.epochs, cpu.epochs, lossy)


def _compare(what: str, real: list[dict[str, Any]], cpu: list[dict[str, Any]], lossy: bool) -> None:
    """Epochs on GPU ranks beside those of loopback on CPU tensors.

    Sums are rounded otherwise on a GPU. What a codec makes of a row is the same bit for bit, but a value that lies
    between two codes may then be rounded to the other one, which moves losses by up to some 1e-5.
    """
    for ours, theirs in zip(real, cpu, strict=True):
        near = 0.02 if theirs["observed"] else 0  # where values decide what is sent, rounding may decide otherwise
        rounding = 5e-3 if "bf16" in what else 1e-4 if lossy else 1e-5
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=max(near, rounding)), what
        for kind in ("forward", "backward", "reduce", "other"):
            assert ours["bytes"][kind] == pytest.approx(theirs["bytes"][kind], rel=near), (what, kind)
    assert min(v for epoch in real for v in epoch["seconds"].values()) >= 0
    assert all(peak > 0 for peak in real[-1]["peak_memory"])
