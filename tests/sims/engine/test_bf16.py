"""Modelled epochs in bfloat16: as fast as the device's units for it allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config import from_mapping
from harness.running import run
from sims.device._profile import DEVICES

WIDE = "synthetic:nodes=3000,degree=8,features=512,classes=8,seed=1"


def compute_s(cluster: Path, precision: str) -> float:
    """Seconds of computation in the last of three epochs of wide layers, which are bound by products."""
    settings = {"dataset": WIDE, "method": "single", "parts": 1, "model": "sage", "hidden": 4096, "layers": 2}
    about = {"epochs": 3, "eval_every": -1, "mode": "sim", "shapes_only": True, "cluster": str(cluster)}
    return float(run(from_mapping({**settings, **about, "precision": precision})).epochs[-1]["seconds"]["compute"])


def test_tensor_cores_shorten_epochs_in_bfloat16_alone(tmp_path: Path) -> None:
    text, seconds = (DEVICES / "a100-80gb.toml").read_text(), {}
    plain = text.partition("# In bfloat16,")[0]
    assert "[bf16]" in text and "[bf16]" not in plain
    for name, device in (("with", text), ("without", plain)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "device.toml").write_text(device)
        path = tmp_path / name / "cluster.toml"
        shape = '[hosts]\ncount = 1\ndevices = 2\ndevice = "device.toml"\n[transport]\nkind = "nccl"\n'
        path.write_text(f'{shape}[links.bus]\nbandwidth = "24 GB/s"\nlatency = "1 us"\n')
        seconds |= {(name, precision): compute_s(path, precision) for precision in ("fp32", "bf16")}
    assert seconds["with", "fp32"] == pytest.approx(seconds["without", "fp32"])
    assert seconds["with", "bf16"] < 0.4 * seconds["without", "bf16"] < 0.4 * 1.05 * seconds["with", "fp32"]
