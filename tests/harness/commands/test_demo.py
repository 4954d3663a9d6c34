"""`haloscope demo` in short: a cluster file as calibration leaves it, one method, simulated beside real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.commands import demo
from harness.running.results import load_result
from tests.real.measure.test_calibrate import MEASURED, files


@pytest.mark.processes
def test_a_demonstration_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(out: Path, **how: Any) -> Path:
        assert how["quick"] and how["ranks"] == (2,)
        files(out, MEASURED)
        return out / "cluster.toml"

    monkeypatch.setattr(demo, "measure", measured)
    monkeypatch.setattr(demo, "METHODS", "sylvie-s:bits=1")
    short = {"epochs": 4, "hidden": 8, "dataset": "synthetic:nodes=300,degree=6,classes=4,features=8"}
    monkeypatch.setattr(demo, "CONFIG", demo.CONFIG.changed(**short))
    out = tmp_path / "demo"
    out.mkdir()
    assert main(["demo", "--out", str(out), "--quiet"]) == 0, capsys.readouterr().err
    records = {record["config"]["mode"]: record for record in map(load_result, (out / "runs").glob("*.json"))}
    assert set(records) == {"sim", "real"} and all(record["state"] == "done" for record in records.values())
    sim, real = (records[mode]["epochs"] for mode in ("sim", "real"))
    assert [epoch["loss"] for epoch in sim] == [epoch["loss"] for epoch in real]
    assert [epoch["bytes"]["forward"] for epoch in sim] == [epoch["bytes"]["forward"] for epoch in real]
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
