"""Calibration: files that the model can read, plausible values, and a fit that recovers known costs."""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from harness.cli import main
from harness.errors import InputError
from real.measure import _calibration_files as calibration_files
from real.measure import _probes as probes
from real.measure import calibrate
from real.measure._lines import Line, fit_line
from real.measure._probes import timed
from real.measure.link_probes import (
    BRIEF_SIZES,
    KINDS,
    RESTED_S,
    SIZES,
    WARM_UP,
    awaited,
    following,
    sent,
    since_last_arrival,
    trimmed_mean,
)
from sims.cluster import OPERATIONS, load_cluster
from sims.cluster._software import TransportSpec
from sims.device import DeviceProfile, Operator, load_device, tensors_of
from sims.units import Quantity

MEASURED: dict[str, Any] = {
    "device": {
        "launch": 2.5e-6, "gemm.peak": 1.234e11, "gemm.efficiency": 0.8125, "gemm.bandwidth": 6e9,
        "bandwidth.elementwise": 3e10, "bandwidth.gather": 2e10, "bandwidth.reduction": 1e10, "bandwidth.copy": 4e10,
        "bandwidth.dropout": 5e9, "fresh.bandwidth": 4e9, "fresh.above": 2**25, "codec.1": 1e10, "codec.8": 2e10,
        "spmm.16": 6.3e-11, "spmm.256": 2e-10, "bf16.gemm": 1.812, "bf16.spmm": 1.433, "memory": 2.4e10,
    },
    "jitter": 0.0421,
    "links": {
        ranks: {
            kind: Line(6e-5 * ranks, 1 / rate, 0.07, [(1024.0, 1.01e-4, 1e-5), (4096.0, 1.04e-4, 1e-5)])
            for kind in KINDS
        }
        for ranks, rate in ((2, 1.1e9), (3, 0.9e9), (4, 0.5e9))
    },
    "cores": {
        ranks: {
            kind: Line(4e-5 * ranks, 1 / rate, 0.05, [(1024.0, 9e-5, 1e-5), (4096.0, 9.5e-5, 1e-5)], 0.1)
            for kind in (*KINDS, following("all_to_all"))
        }
        for ranks, rate in ((2, 1.2e9), (3, 1.3e9), (4, 1.4e9))
    },
    "resting": {2: {5: 0.4, 80: 1.4}, 3: {}, 4: {5: 0.6, 80: 1.2}},
    "provenance": {
        "machine": 'A "fine" CPU', "cores": 2, "python": "3.11.7", "torch": "2.13", "date": "2026-01-02",
        "ranks": 2, "threads": 1, "hosts": 1, "seconds": 9.5,
    },
}  # fmt: skip


def files(folder: Path, measured: dict[str, Any]) -> tuple[Any, Any]:
    """Device and cluster as the model reads them from the written files."""
    (folder / "device.toml").write_text(calibration_files.device_toml(measured))
    (folder / "cluster.toml").write_text(calibration_files.cluster_toml(measured))
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
    assert cluster.stragglers.jitter == 0.0421
    transport, loopback = cluster.transport, cluster.links["loopback"]
    assert transport.process is not None and transport.process.value == pytest.approx(1.1e9)
    assert transport.beside is not None and transport.beside.value == pytest.approx(1.1e9)
    assert transport.seconds("started", 2) == pytest.approx(1.2e-4)
    assert {kind: sorted(known) for kind, known in transport.measured.items()} == {
        kind: [2, 3, 4] for kind in OPERATIONS
    }
    assert transport.seconds("ring", 3) == pytest.approx(1.8e-4)
    assert transport.measured["ring"][3].factors == pytest.approx((1 / 1.07, 1.07), rel=1e-4)  # the line's error
    assert transport.seconds("pair", 8) == pytest.approx(4.8e-4)  # on the line of 3 and 4
    assert loopback.bandwidth.value == pytest.approx(5.6e9)  # four ranks: of cores that they need not share, 1.4 GB/s
    assert transport.copying is not None and transport.copying.value == pytest.approx(1.2e9)
    assert transport.copying.factors == pytest.approx((1 / 1.1, 1.1), rel=1e-3)
    assert transport.core_seconds("ring", 3) == pytest.approx(1.2e-4)
    assert transport.core_seconds("ring", 3, following=True) == transport.core_seconds("ring", 3)  # not measured
    assert all(quantity.source == "measured" for _, quantity in cluster.quantities())
    assert transport.rested.value == RESTED_S
    assert {ranks: {ms: q.value for ms, q in of.items()} for ranks, of in transport.resting.items()} == {
        2: {5: 0.4, 80: 1.4}, 4: {5: 0.6, 80: 1.2},
    }  # fmt: skip
    text = (tmp_path / "cluster.toml").read_text()
    assert "2026-01-02" in text and "torch 2.13" in text and "4096: 104" in text and "within 7 %" in text


def test_where_noise_hides_the_cost_of_bytes_the_files_can_be_read(tmp_path: Path) -> None:
    """Brief calibrations on a busy machine: exchanges of 1 MiB that happen to take less time than those of 1 KiB."""
    line = fit_line([(1024.0, 4e-3, 2e-3), (65536.0, 3e-3, 2e-3), (1048576.0, 1e-3, 2e-3)])
    links = {size: {**by_kind, "started": line} for size, by_kind in MEASURED["links"].items()}
    beside = files(tmp_path, {**MEASURED, "links": links})[1].transport.beside
    assert beside is not None and beside.value > 1e14 and beside.factors == pytest.approx((0.1, 10), rel=1e-3)


def test_files_say_what_collectives_cost_that_follow_others(tmp_path: Path) -> None:
    links = {
        size: {**by_kind, following("ring"): msgspec.structs.replace(by_kind["ring"], alpha=4e-5)}
        for size, by_kind in MEASURED["links"].items()
    }
    transport = files(tmp_path, {**MEASURED, "links": links})[1].transport
    assert transport.seconds("ring", 3, following=True) == pytest.approx(4e-5)
    assert transport.seconds("pair", 3, following=True) == transport.seconds("pair", 3)


def test_ranks_that_outnumber_cores_move_bytes_at_the_rate_of_a_core_each(tmp_path: Path) -> None:
    """What an all-to-all of four ranks on two cores takes is what they wait for: their cores, which the model has."""
    only_four = {name: {4: MEASURED[name][4]} for name in ("links", "cores")}
    for cores, rate in ((2, 1.4e9), (4, 0.5e9)):
        about = MEASURED["provenance"] | {"cores": cores}
        cluster = files(tmp_path, {**MEASURED, **only_four, "provenance": about})[1]
        process, copying = cluster.transport.process, cluster.transport.copying
        assert process is not None and process.value == pytest.approx(rate)
        assert copying is not None and copying.value == pytest.approx(1.4e9)
        assert cluster.links["loopback"].bandwidth.value == pytest.approx(4 * rate)


def test_where_cores_are_not_measured_all_of_a_collective_runs_on_them() -> None:
    spec = TransportSpec("gloo", Quantity(7e-5), measured={"ring": {2: Quantity(1e-4)}})
    assert spec.core_seconds("ring", 2) == 1e-4 and spec.core_seconds("pair", 2) == 7e-5


def test_between_measured_numbers_of_ranks_costs_are_between() -> None:
    known = {2: Quantity(1e-4), 4: Quantity(5e-4)}
    spec = TransportSpec("gloo", Quantity(7e-5), Quantity(0.0), measured={"ring": known})
    assert [spec.seconds("ring", ranks) for ranks in (2, 3, 4, 5)] == pytest.approx([1e-4, 3e-4, 5e-4, 7e-4])
    assert spec.seconds("ring", 1) == pytest.approx(1e-4)  # never less than anything measured
    assert spec.seconds("pair", 3) == 7e-5  # not measured
    one = TransportSpec("gloo", Quantity(0.0), Quantity(0.0), measured={"ring": {3: Quantity(2e-4)}})
    assert [one.seconds("ring", ranks) for ranks in (2, 3, 9)] == [2e-4] * 3


@given(alpha=st.floats(1e-5, 1e-2), rate=st.floats(1e7, 1e11), noise=st.floats(0, 0.1))
def test_fit_finds_a_line_and_its_own_error(alpha: float, rate: float, noise: float) -> None:
    signs = [1 if at % 2 else -1 for at in range(len(SIZES))]
    points = [(float(n), (alpha + n / rate) * (1 + s * noise), 0.0) for n, s in zip(SIZES, signs, strict=True)]
    line = fit_line(points)
    assert line.error <= 2.5 * noise + 1e-6
    assert line.alpha == pytest.approx(alpha, rel=3 * noise + 1e-3, abs=3 * noise * SIZES[0] / rate + 1e-7)
    if SIZES[-1] / rate > alpha:
        assert 1 / line.beta == pytest.approx(rate, rel=6 * noise + 1e-3)
    assert line.points == points


def test_bytes_that_a_rank_sends() -> None:
    assert [sent(kind, 600, 3) for kind in KINDS] == [1200, 1200, 800, 800, 600, 600, 1200]


def test_files_of_gpus_say_what_was_measured(tmp_path: Path) -> None:
    expected = {k: v for k, v in MEASURED["device"].items() if not k.startswith("fresh")}
    expected |= {"overlap.compute": 1.25, "overlap.communication": 1.0}
    about = {"machine": 'A "fine" GPU', "gpus": 2, "cuda": "13.0", "triton": "3.6.0", "seconds": 9.5, "torch": "2.13"}
    copies = {"to_host": 53e9, "from_host": 50e9, "latency": 8e-6}
    measured = {"device": expected, "copies": copies, "provenance": {**about, "date": "2026-01-02"}}
    (tmp_path / "device.toml").write_text(calibration_files.gpu_device_toml(measured))
    (tmp_path / "cluster.toml").write_text(calibration_files.gpu_cluster_toml(measured))
    cluster = load_cluster(tmp_path / "cluster.toml")
    device = load_device(cluster.device)
    assert device.kind == "gpu" and device.slowdown("compute") == 1.25
    for key, _, quantity in device.quantities():
        assert quantity.value == pytest.approx(expected[key], rel=1e-3), key
        assert quantity.source == "measured"
    assert (cluster.hosts, cluster.devices, cluster.transport.kind) == (1, 2, "nccl")
    assert cluster.links["bus"].bandwidth.value == pytest.approx(50e9)
    assert "53 GB/s to the host, 50 GB/s back" in cluster.links["bus"].bandwidth.note


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_no_gpu_is_an_input_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "calibration")
    assert main(["calibrate", "--device", "cuda", "--out", out]) == 2
    assert "no GPU is visible here" in capsys.readouterr().err
    assert main(["calibrate", "--device", "cuda", "--lab", "lab:2x1gbit", "--out", out]) == 2
    assert "--lab has none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_this_gpu(tmp_path: Path) -> None:
    """Values in the range of any GPU that runs torch."""
    cluster = load_cluster(calibrate.calibrate_gpu_to(tmp_path))
    device = load_device(cluster.device)
    assert 1e11 < device.gemm_peak.value < 1e15 and 0 < device.gemm_efficiency.value <= 1
    assert all(1e9 < q.value < 1e14 for q in (*device.bandwidth.values(), *device.codec.values()))
    assert all(1e-14 < q.value < 1e-9 for q in device.spmm.values())
    assert 1 <= device.slowdown("compute") < 10 and 1 <= device.slowdown("communication") < 10
    assert 1e8 < cluster.links["bus"].bandwidth.value < 1e12


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


class Known(TorchDispatchMode):
    """The seconds that a known device would take for the operators that are called."""

    def __init__(self, device: DeviceProfile) -> None:
        super().__init__()
        self.device, self.seconds = device, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = tensors_of(result if type(result) in (list, tuple) else (result,))
        inputs = tensors_of((*args, *(kwargs or {}).values()))
        self.seconds += self.device.seconds(Operator(func).work(args, inputs, outputs))
        return result


def test_the_numbers_of_a_known_device_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes whose calls take what a device file says, without noise, return that file. New memory is not among them:
    what a system takes to hand it out shows in no operator's sizes."""
    truth = replace(load_device("cpu-epyc-1core"), fresh=None, release=None, operators={}, crowding=Quantity(1.0))

    def timed_there(call: Callable[[], object], budget_s: float) -> float:
        with Known(truth) as known:
            call()
        return known.seconds

    monkeypatch.setattr(probes, "timed", timed_there)
    found = probes.measure_device(0.0)
    wanted = {f"bandwidth.{kind}": bandwidth.value for kind, bandwidth in truth.bandwidth.items()}
    wanted |= {f"codec.{bits}": truth.codec_rate(bits) for bits in (1, 2, 4, 8)}
    wanted |= {f"spmm.{width}": truth.spmm_cost(width) for width in probes.WIDTHS}
    wanted["gemm.bandwidth"] = truth.gemm_bandwidth.value
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, rel=0.01)
    ordinary = truth.gemm_peak.value * truth.gemm_efficiency.value
    assert found["gemm.peak"] * found["gemm.efficiency"] == pytest.approx(ordinary, rel=0.01)
    truth = replace(truth, launch=Quantity(1e-3))  # beside which the work of tiny tensors is nothing
    assert probes._launch(torch.device("cpu")) == pytest.approx(1e-3, rel=0.01)


NEAR = 30.0
"""How far a figure of this machine may be from one that is measured beside it, while other work may run."""


def quickest(call: Callable[[], object]) -> float:
    """Of the quickest of ten calls."""
    taken = []
    for _ in range(10):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


@pytest.mark.processes
def test_this_machine(tmp_path: Path) -> None:
    """A brief calibration, beside a product and a copy timed here; `test_short_validation` makes a longer one."""
    path = calibrate.calibrate_to(tmp_path / "calibration", brief=True)
    cluster = load_cluster(path)
    device = load_device(cluster.device)
    assert {file.name for file in path.parent.iterdir()} == {"cluster.toml", "device.toml"}
    square, rows = torch.ones(512, 512), torch.ones(1 << 22)
    product = 2 * 512**3 / quickest(lambda: square @ square)
    copy = 2 * 4 * rows.numel() / quickest(rows.clone)
    assert 0 < device.gemm_efficiency.value <= 1
    assert product / NEAR < device.gemm_peak.value * device.gemm_efficiency.value < product * NEAR
    for name, rate in device.bandwidth.items():
        assert copy / (10 * NEAR) < rate.value < copy * NEAR, name  # random numbers of dropout take longer
    for name, rate in device.codec.items():
        assert copy / (10 * NEAR) < rate.value < copy * NEAR, name
    assert set(device.bf16) == {"gemm", "spmm"} and all(1e-3 < faster.value < 100 for faster in device.bf16.values())
    for name, cost in device.spmm.items():  # seconds of an entry and column: a row's value is read and added
        assert 4 / copy / NEAR < cost.value < 4 / copy * NEAR, name
    assert 1e-7 < device.launch.value < 1e-3
    assert copy / (10 * NEAR) < cluster.links["loopback"].bandwidth.value < copy * NEAR
    assert len(SIZES) >= 6 and len(BRIEF_SIZES) >= 3
    for kind in OPERATIONS:
        assert 1e-6 < cluster.transport.seconds(kind, 2) < 1
        row = next(line for line in path.read_text().splitlines() if line.startswith(f"#   2 ranks, {kind}:"))
        assert len(re.findall(r"\d+: \d+", row)) == len(BRIEF_SIZES)
    assert tomllib.loads(path.read_text())["hosts"]["device"] == "device.toml"


def test_a_typical_time_counts_the_slow_ones_but_no_outlier() -> None:
    times = torch.tensor([1.0] * 10 + [3.0] * 8 + [1e3] * 2, dtype=torch.float64)
    assert trimmed_mean(times[torch.randperm(20)]) == pytest.approx((8 * 1.0 + 8 * 3.0) / 16)
    assert trimmed_mean(torch.tensor([2.0, 4.0], dtype=torch.float64)) == 3.0


@pytest.mark.parametrize("pace", ["steady", "one step", "steps of a second", "a ramp", "interrupted"])
def test_a_pace_that_all_ranks_share_is_no_jitter(pace: str) -> None:
    """Ten seconds of stretches of 20 ms; the interquartile range of the times themselves would be up to 0.4."""
    times, at = np.exp(np.random.default_rng(0).normal(0.0, 0.08, 500)), np.arange(500)
    if pace == "interrupted":
        times[::100] *= 50
    shared = {"one step": 1.0 + 0.5 * (at >= 250), "steps of a second": 1.0 + 0.5 * (at // 50 % 2),
              "a ramp": 1.0 + at / 1000}  # fmt: skip
    assert probes.scatter_of(times * shared.get(pace, 1.0)) == pytest.approx(0.08, rel=0.12)


def test_a_collective_is_timed_from_its_last_arrival() -> None:
    """What the first rank waits for the second is no cost of the exchange; a rank without a part does not count."""
    nan = math.nan
    marks = torch.tensor([[[0.0, 3.5], [7.0, 8.0]], [[3.0, 3.7], [6.0, 8.0]], [[nan, nan], [nan, nan]]])
    assert since_last_arrival(marks.double()).tolist() == pytest.approx([0.6, 1.0])


def test_pairs_that_drift_apart_do_not_wait_for_each_other() -> None:
    """Two pairs, one a minute behind the other: each is timed from the later of its own two begins."""
    marks = torch.tensor([[[0.0, 3.5]], [[3.0, 3.7]], [[60.0, 61.0]], [[60.5, 61.5]]])
    seconds = since_last_arrival(marks.double(), awaited("pair", 4, 1))
    assert seconds.tolist() == pytest.approx([(0.5 + 0.7 + 0.5 + 1.0) / 4])
    assert since_last_arrival(marks.double()).item() < 0  # as if all four were one collective


def test_a_broadcast_waits_for_the_ranks_above_and_the_receivers_below() -> None:
    """Roots take turns; a receiver that is late costs only itself and the rank that sends to it, a late root all."""
    first = WARM_UP % 3  # the root of the first repetition that counts
    marks = torch.zeros(3, 2, 2, dtype=torch.float64)
    marks[:, :, 1] = 1.0
    late = (first + 1) % 3
    marks[late, 0], marks[first, 0, 1] = torch.tensor([5.0, 5.5]), 5.25
    marks[late, 1] = torch.tensor([0.5, 1.0])  # the second repetition's root
    seconds = since_last_arrival(marks, awaited("broadcast", 3, 2))
    assert seconds.tolist() == pytest.approx([(0.5 + 0.25 + 1.0) / 3, 0.5])


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8])
def test_places_of_a_tree_wait_for_those_above_and_their_own_receivers(size: int) -> None:
    """The tree in which a rank that has the tensor sends it 1, 2, 4, ... places on."""
    above = {0: set[int]()}
    for step in (1, 2, 4):
        above |= {place + step: above[place] | {place} for place in range(step) if place + step < size}
    waits = awaited("broadcast", size, size)[-WARM_UP % size]  # where rank 0 is the root
    for place in range(size):
        below = {other for other in range(size) if above[other] and max(above[other]) == place}
        assert set(waits[place].nonzero().flatten().tolist()) == above[place] | below | {place}


def test_a_line_at_another_pace() -> None:
    line = Line(1e-3, 1e-9, 0.1, [(4.0, 1e-3, 0.0)])
    assert (line.times(2.0).alpha, line.times(2.0).beta) == (2e-3, 2e-9) and line.times(2.0).points == line.points
