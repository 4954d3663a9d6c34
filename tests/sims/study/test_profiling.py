"""Profiling of operators: timed operators, the overhead of Python, and device files with both."""

from __future__ import annotations

import itertools
import math
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from harness.config import RunConfig
from harness.errors import HaloscopeError
from harness.methods.registry import METHODS
from harness.running.results import Result
from sims.cluster._load import CLUSTERS
from sims.device import LiveMemory, OperatorCost, Work, load_device, save_device
from sims.engine import SimClock
from sims.study import _profiling as profiling
from sims.study import calibrated, real_runs
from sims.study._profiling import (
    SKIPPED_EPOCHS,
    Epoch,
    Observed,
    observe,
    observe_blocks,
    observe_idling,
)
from sims.units import SPREADS, Quantity

SMALL = RunConfig.of(
    dataset="synthetic:nodes=300,degree=6,classes=4,features=8", hidden=8, parts=2, threads=1,
    epochs=SKIPPED_EPOCHS + 3, eval_every=-1, method="sylvie-s:bits=2",
)  # fmt: skip


def test_operators_of_counted_epochs_are_timed() -> None:
    found = observe([SMALL])
    (epoch,) = found.epochs
    calls = sum(len(times) for works in found.samples.values() for times in works.values())
    assert calls == epoch.operators * SMALL.cut.parts * 3  # the first epochs are not counted
    assert 0 < epoch.inside < epoch.seconds
    assert epoch.effects > 0 and epoch.fresh > 0
    assert {"mm", "haloscope::gather_sum", "haloscope::quantize_rows:2", "_fused_adam_"} <= set(found.samples)
    for name, works in found.samples.items():
        assert all(work.name == name for work in works)
        assert all(seconds >= 0 for times in works.values() for seconds in times)
    costs = found.costs()
    work, times = next(iter(found.samples["_fused_adam_"].items()))
    assert len(found.samples["_fused_adam_"]) == 1, "one size: the fit is its median, as far as it is written out"
    assert costs["_fused_adam_"].seconds(work) == pytest.approx(median(times), rel=1e-3)


@given(step=st.floats(0, 1e-3), launch=st.floats(0, 2e-5), effect=st.floats(0, 1e-3), byte=st.floats(0, 1e-10))
def test_what_is_left_is_told_apart(step: float, launch: float, effect: float, byte: float) -> None:
    sizes = [(50, 3, 10**6), (60, 4, 10**7), (300, 9, 10**7), (150, 4, 9 * 10**7), (40, 12, 10**5)]
    epochs = [Epoch(o, e, f, 1e-3 + step + launch * o + effect * e + byte * f, 1e-3) for o, e, f in sizes]
    found = Observed(epochs=epochs).overheads()
    assert found == pytest.approx((step, launch, effect, byte), rel=1e-6, abs=1e-14)


def test_ranks_wait_at_every_counted_effect_and_the_wait_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(profiling.time, "sleep", lambda seconds: slept.append(seconds))
    monkeypatch.setattr(profiling, "_clock", lambda config: lambda: time.perf_counter() + 100 * sum(slept))
    busy, waiting = observe_idling(SMALL, (0.0, 0.25))
    assert slept == [0.25] * (waiting.effects * SMALL.cut.parts * 3)  # the first epochs are not counted
    assert busy.effects == waiting.effects > 0
    assert waiting.seconds < 1, "none of the hundred times that a wait moves the clock by"


def test_what_a_wait_costs_is_from_large_graphs_and_the_factor_from_the_smallest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waits, effects = tmp_path / "device.toml", calibrated.WAITS, 3
    save_device(load_device("cpu-epyc-1core"), path)

    def timed(what: str, configs: Sequence[RunConfig], copies: int) -> Observed:
        assert what == "idling:0.0,0.002,0.01,0.05,0.3" and len(configs) == 3
        usual = (1.5e-3, 30e-3, 60e-3)
        costs = ((0, 0.1e-3, 0.5e-3, 1e-3, 2e-3), (0, -1e-3, 1e-3, 2e-3, 4e-3), (0, 0.1e-3, 2e-3, 3e-3, 6e-3))
        each = [Epoch(0, effects, 0, u + effects * c, 0.0) for u, of in zip(usual, costs, strict=True) for c in of]
        return Observed(epochs=each * copies)

    monkeypatch.setattr(calibrated, "measure_operators", timed)
    calibrated.add_idling(path, threads=1)
    made = load_device(path)
    assert {wait: cost.value for wait, cost in made.idle.items()} == pytest.approx(
        {2: 0.05e-3, 10: 1.5e-3, 50: 2.5e-3, 300: 5e-3}
    ), "the mean of the two larger graphs; what was measured faster after a wait counts as no loss"
    assert list(made.idle) == [round(1e3 * wait) for wait in waits[1:]]
    assert made.idle_factor.value == pytest.approx(1 + 2e-3 / (1.5e-3 / effects), rel=1e-3)


def test_what_shared_cores_cost_is_the_time_of_twice_as_many_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cores, asked = tmp_path / "device.toml", calibrated.core_count(), list[int]()
    save_device(load_device("cpu-epyc-1core"), path)

    def timed(what: str, configs: Sequence[RunConfig], copies: int) -> Observed:
        drift = 1 + 0.1 * len(asked)  # the machine slows down meanwhile
        asked.append(copies)
        longer = (1.2, 1.2, 1.2) if copies == 2 * cores else (1.0, 1.0, 1.0)
        return Observed(epochs=[Epoch(0, 3, 0, drift * factor, 0.0) for factor in longer] * copies)

    monkeypatch.setattr(calibrated, "measure_operators", timed)
    calibrated.add_sharing(path, threads=1)
    made = load_device(path).sharing
    assert asked == [cores * number for number in calibrated.SHARING_TURNS]
    assert made.value == pytest.approx(1.2) and made.source == "measured"
    assert made.factors == pytest.approx((1 / SPREADS["measured"], SPREADS["measured"]), rel=1e-3)
    before = path.read_bytes()
    calibrated.add_sharing(path, threads=2)
    assert path.read_bytes() == before, "of several threads the time cannot be told from their turns"


def test_blocks_of_every_rank_are_timed_both_ways() -> None:
    found = observe_blocks(SMALL, repeats=2)
    works = found.samples["haloscope::gather_sum"]
    assert {work.width for work in works} == {4, 8}  # classes and hidden
    blocks = 2 * SMALL.cut.parts  # own and halo
    assert sum(map(len, works.values())) == blocks * 2 * 2 * 2  # widths, directions, repeats
    entries = {work.entries // work.width for work in works}
    assert len(entries) <= blocks and min(entries) > 0


def test_a_device_file_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = tmp_path / "device.toml", load_device("cpu-epyc-1core")
    save_device(plain, path)
    path.write_text("# measured by hand\n" + path.read_text())
    monkeypatch.setattr(calibrated, "workloads", lambda *_: [SMALL])
    monkeypatch.setattr(calibrated, "core_count", lambda: 1)
    calibrated.add_operators(path, threads=1)
    made = load_device(path)
    assert path.read_text().startswith("# measured by hand\n")
    product = Work("gemm", 50_000, flops=10**6, width=8, name="mm")
    assert made.operators["mm"].seconds(product) > 0
    assert 0 < made.launch.value < 1e-2 and made.launch.source == "measured"
    assert made.gemm_peak == plain.gemm_peak
    calibrated.with_blocks(path, SMALL, tmp_path / "blocks.toml")
    other = load_device(tmp_path / "blocks.toml")
    differs = {name for name in made.operators if made.operators[name] != other.operators[name]}
    assert differs == set(calibrated.SUMS)


@pytest.mark.parametrize(("factor", "wobble"), [(1.2, 1.0), (0.9, 1.3)])
def test_what_real_runs_take_longer_is_told_apart(
    factor: float, wobble: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit recovers a factor and 0.3 ms per effect in real runs; the rest of the file is unchanged. The machine is
    slower in the first pass over them and faster in the last, which widens the range alone."""
    trained = tuple(
        itertools.product(("vanilla", "sylvie-s", "cdfgnn"), (calibrated.Made(400, 8), calibrated.Made(4_000, 32)))
    )
    save_device(load_device("cpu-epyc-1core"), tmp_path / "device.toml")
    text = '[hosts]\ncount = 1\nranks_per_host = 4\ndevice = "device.toml"\n[links.loopback]\nbandwidth = "1 GB/s"\n'
    (tmp_path / "cluster.toml").write_text(text + 'latency = "1 us"\n[transport]\nkind = "gloo"\n')
    before, real = load_device(tmp_path / "device.toml"), real_runs.running.run
    noise = iter([pace * each for pace in (wobble, 1.0, 1 / wobble) for each in (1.02, 1 / 1.02) * 3])
    missing = replace(before, crowding=Quantity(factor), effect=Quantity(before.effect.value + 3e-4))
    on_the_files = str(tmp_path / "cluster.toml")

    def run(config: RunConfig) -> Result:
        if config.run.mode == "sim":
            return real(config)
        save_device(missing, tmp_path / "device.toml")
        try:
            result = real(config.changed(mode="sim", cluster=on_the_files))
        finally:
            save_device(before, tmp_path / "device.toml")
        longer = next(noise)
        for epoch in result.epochs:
            epoch["seconds"]["compute"] *= longer
        return result

    monkeypatch.setattr(real_runs.running, "run", run)
    real_runs.add_contention(tmp_path, threads=1, trained=trained)
    assert next(noise, None) is None
    made = load_device(tmp_path / "device.toml")
    assert made.crowding.value == pytest.approx(factor, rel=0.1)
    low, high = made.crowding.factors  # of the runs' compute around the fit
    off = 1.645 * math.log(1.02) * math.sqrt(6 / 4)  # of six runs, two constants
    assert low == pytest.approx(1 / high) and made.crowding.range is not None
    another = max(math.log(SPREADS["measured"]), 1.645 * math.log(wobble))
    assert high == pytest.approx(math.exp(math.hypot(off, another)), rel=0.05)
    assert made.effect.value - before.effect.value == pytest.approx(3e-4, rel=0.2)
    assert made.effect.source == "measured" and "6 real runs of 2 ranks, 3 times each" in made.effect.note
    assert made.gemm_peak == before.gemm_peak


def test_the_cost_of_effects_does_not_explain_compute_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose seconds go with their effects alone, which are as many as their compute is long but for noise."""
    save_device(load_device("cpu-epyc-1core"), tmp_path / "device.toml")
    known = [(1e-3, 3, 3.1e-3), (2e-3, 5, 4.9e-3), (3e-3, 9, 9.0e-3)]  # compute, effects, measured seconds
    timed, measured = iter(known), itertools.cycle(known)
    monkeypatch.setattr(real_runs.running, "run", lambda config: None)
    monkeypatch.setattr(real_runs, "_computing", lambda result: next(measured)[2])

    def simulated(*_: object) -> list[float]:
        compute, effects, _seconds = next(timed)
        return [compute, compute + effects * real_runs.STEP_S]

    monkeypatch.setattr(real_runs, "_simulated", simulated)
    real_runs.add_contention(tmp_path, threads=1, trained=[("vanilla", calibrated.Made(100, 8))] * 3)
    made = load_device(tmp_path / "device.toml")
    assert made.crowding.value == pytest.approx(real_runs.LEAST_FACTOR, rel=1e-3)


def test_a_watching_process_that_fails_says_why() -> None:
    bad = RunConfig.of(dataset="no-such-graph", threads=1)
    with pytest.raises(HaloscopeError, match="no-such-graph"):
        calibrated.measure_operators("epochs", [bad], 1)


@pytest.mark.parametrize("quick", [True, False])
def test_workloads_run_every_method(quick: bool) -> None:
    found = calibrated.workloads(1, quick)
    assert {config.training.method.partition(":")[0] for config in found} == set(METHODS.builtin) - {"single"}
    assert {config.model.name for config in found} == {"gcn", "sage", "gat"}
    assert all(config.training.epochs > profiling.SKIPPED_EPOCHS and config.run.eval_every == -1 for config in found)
    assert len(found) == len(set(found))


def test_what_a_host_takes_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are "real" on a host of 20 us per operator, 100 us around an effect, 70 us for a graph, of a fast GPU,
    with an operator that takes the host 50 us."""
    slow = OperatorCost(Quantity(1e-6), {}, {}, Quantity(0.1), host=Quantity(30e-6))
    gpu = replace(load_device("h100-80gb-vm"), operators={"mm": slow})
    there = (CLUSTERS / "h100-1.toml").read_text().replace('"h100-80gb-vm"', '"device.toml"')
    truth = tmp_path / "truth"
    truth.mkdir()
    for folder, device in (
        (tmp_path, gpu),
        (truth, replace(gpu, launch=Quantity(20e-6), effect=Quantity(100e-6), graph=Quantity(70e-6))),
    ):
        (folder / "device.toml").write_text("")
        save_device(device, folder / "device.toml")
        (folder / "cluster.toml").write_text(there)

    def run(config: RunConfig) -> Result:
        if config.run.mode == "real":
            assert config.run.device == "cuda" and config.cut.parts == 1
            config = config.changed(mode="sim", device="cpu", cluster=str(truth / "cluster.toml"))
        return simulated(config)

    simulated = real_runs.running.run
    monkeypatch.setattr(real_runs.running, "run", run)
    real_runs.add_host(tmp_path)
    found = load_device(tmp_path / "device.toml")
    assert found.launch.value == pytest.approx(20e-6, rel=0.01) and found.launch.source == "measured"
    assert found.effect.value == pytest.approx(100e-6, rel=0.05)
    assert "6 real runs within 0 %" in found.launch.note
    assert found.graph is not None and found.graph.source == "measured"
    assert found.graph.value == pytest.approx(70e-6, rel=0.1)


@pytest.mark.parametrize(("device", "host_s"), [("h100-80gb-vm", 0.0), ("cpu-epyc-1core", 0.3)])
def test_a_programs_own_seconds_pass_beside_a_gpu(device: str, host_s: float) -> None:
    """A GPU that is busy for longer hides them; a CPU does not."""
    profile, env = load_device(device), simpy.Environment()
    clock = SimClock(env, LiveMemory(), launch_s=profile.host_launch)
    clock.begin_epoch()
    clock.charge(1.0, 1)
    clock.charge_host(0.3)
    assert clock.end_epoch()["compute"] == pytest.approx(1.0 + host_s)
    clock.begin_epoch()
    clock.charge(0.1, 1)
    clock.charge_host(0.3)
    assert clock.end_epoch()["compute"] == pytest.approx(0.1 + 0.3 if host_s else 0.3 + profile.launch.value)


def test_measuring_processes_end_with_a_command_that_was_killed_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are still importing then, and have not asked yet who their parent is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the folder that a killed command leaves
    command = os.fork()
    if not command:
        try:
            calibrated.measure_operators("epochs", [SMALL.changed(epochs=1_000_000)], 1)
        finally:
            os._exit(0)
    children = Path(f"/proc/{command}/task/{command}/children")
    deadline = time.monotonic() + 60
    while not (started := children.read_text().split()):
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.01)
    os.kill(command, signal.SIGKILL)
    os.waitpid(command, 0)
    (process,) = map(int, started)
    deadline = time.monotonic() + 120
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    left = Path(f"/proc/{process}").exists()
    if left:
        os.kill(process, signal.SIGKILL)
    assert not left, "a process went on measuring for nobody"
