"""Calibration: files the model reads back, figures that make sense, and a fit that finds what it should."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from real import calibrate
from real.probes import timed
from sims.device import load_device
from sims.topology import load_cluster

MEASURED: dict[str, Any] = {
    "device": {
        "launch": 2.5e-6, "gemm.peak": 1.234e11, "gemm.efficiency": 0.8125, "gemm.bandwidth": 6e9,
        "bandwidth.elementwise": 3e10, "bandwidth.gather": 2e10, "bandwidth.reduction": 1e10, "bandwidth.copy": 4e10,
        "bandwidth.dropout": 5e9, "fresh.bandwidth": 4e9, "fresh.above": 2**25, "codec.1": 1e10, "codec.8": 2e10,
        "spmm.16": 6.3e-11, "spmm.256": 2e-10, "memory": 2.4e10,
    },
    "link": {
        "operation": 6e-5, "round": 4e-5, "bandwidth": 1.1e9, "error": 0.07, "reduce": 1.4e-4,
        "points": [[1024.0, 1.01e-4], [4096.0, 1.04e-4]],
    },
    "provenance": {
        "machine": 'A "fine" CPU', "cores": 2, "python": "3.11.7", "torch": "2.13", "date": "2026-01-02",
        "ranks": 2, "threads": 1, "seconds": 9.5,
    },
}  # fmt: skip


def files(folder: Path, measured: dict[str, Any]) -> tuple[Any, Any]:
    """Device and cluster as the model reads them from the written files."""
    (folder / "device.toml").write_text(calibrate.device_toml(measured))
    (folder / "cluster.toml").write_text(calibrate.cluster_toml(measured))
    cluster = load_cluster(folder / "cluster.toml")
    return load_device(cluster.device), cluster


def test_files_say_what_was_measured(tmp_path: Path) -> None:
    device, cluster = files(tmp_path, MEASURED)
    expected = MEASURED["device"]
    for key, _, quantity in device.quantities():
        assert quantity.value == pytest.approx(expected[key], rel=1e-3), key
        assert quantity.source == "measured"
    assert len(list(device.quantities())) == len(expected)
    assert (device.kind, device.cores, cluster.cores, cluster.hosts) == ("cpu", 1, 2, 1)
    transport, loopback = cluster.transport, cluster.links["loopback"]
    assert transport.operation.value == pytest.approx(6e-5)
    assert transport.process is not None and transport.process.value == pytest.approx(1.1e9)
    assert transport.message.value + loopback.latency.value == pytest.approx(4e-5)
    assert loopback.bandwidth.value == pytest.approx(2.2e9)  # two ranks at once
    assert loopback.bandwidth.source == "measured" and loopback.latency.source == "assumed"
    text = (tmp_path / "cluster.toml").read_text()
    assert "2026-01-02" in text and "torch 2.13" in text and "4096:      104.0" in text


def test_more_cores_than_were_busy_is_marked_as_assumed(tmp_path: Path) -> None:
    measured = MEASURED | {"provenance": MEASURED["provenance"] | {"cores": 16}}
    _, cluster = files(tmp_path, measured)
    assert cluster.links["loopback"].bandwidth.source == "assumed"
    assert cluster.links["loopback"].bandwidth.value == pytest.approx(16 * 1.1e9)


@settings(deadline=None, max_examples=50)
@given(
    operation=st.floats(1e-6, 1e-3),
    one_round=st.floats(1e-6, 1e-3),
    bandwidth=st.floats(1e7, 1e11),
    noise=st.booleans(),
)
def test_fit_finds_costs_and_its_own_error(operation: float, one_round: float, bandwidth: float, noise: bool) -> None:
    one_round = min(max(one_round, 0.2 * operation), 5 * operation)
    points = [[float(n), operation + one_round + n / bandwidth] for n in calibrate.SIZES]
    if noise:
        points = [[n, seconds * (1.05 if at % 2 else 0.95)] for at, (n, seconds) in enumerate(points)]
    found = calibrate.fit(points, operation + 2 * one_round)
    assert found["error"] < (0.12 if noise else 1e-3)
    if not noise:
        alpha = found["operation"] + found["round"]
        assert alpha == pytest.approx(operation + one_round, rel=0.01)
        assert found["round"] == pytest.approx(one_round, rel=0.05, abs=0.02 * alpha)
        if calibrate.SIZES[-1] / bandwidth > alpha:
            assert found["bandwidth"] == pytest.approx(bandwidth, rel=0.01)


def test_only_cpus_are_measured() -> None:
    with pytest.raises(InputError, match="CPU"):
        calibrate.calibrate(device="cuda")


def test_a_folder_that_cannot_be_made_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make folder"):
        calibrate.calibrate_to(tmp_path / "file" / "in")


def test_timed_is_not_fooled_by_a_slow_call() -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        time.sleep(0.05 if len(calls) in (1, 3) else 0.001)

    assert 0.001 <= timed(call, 0.0) < 0.05
    assert len(calls) == 5


@pytest.mark.processes
def test_this_machine(tmp_path: Path) -> None:
    """The whole way, quickly: figures within what any machine that runs torch can do."""
    path = calibrate.calibrate_to(tmp_path / "calibration")
    cluster = load_cluster(path)
    device = load_device(cluster.device)
    assert {file.name for file in path.parent.iterdir()} == {"cluster.toml", "device.toml"}
    assert 1e9 < device.gemm_peak.value < 1e14
    assert 0 < device.gemm_efficiency.value <= 1
    assert all(1e7 < q.value < 1e12 for q in (*device.bandwidth.values(), *device.codec.values()))
    assert all(1e-13 <= q.value < 1e-7 for q in device.spmm.values())
    assert 1e-7 < device.launch.value < 1e-3
    assert 1e7 < cluster.links["loopback"].bandwidth.value < 1e12
    assert 1e-6 < cluster.transport.operation.value + cluster.transport.message.value < 1e-1
    assert len(calibrate.SIZES) >= 6
    rows = [line for line in path.read_text().splitlines() if line.startswith("#   ")]
    assert [int(row[1:].split(":")[0]) for row in rows] == list(calibrate.SIZES)
    assert tomllib.loads(path.read_text())["hosts"]["device"] == "device.toml"
