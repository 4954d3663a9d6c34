"""A short form of `benchmarks.chaos`: faults of every kind in runs of one process; and that its oracle can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import Broken, Ended, Plan, Trial, plan_of
from benchmarks.chaos_faults import FAULTS, Fault, damage
from tests.conftest import REPOSITORY

SEEDS = 4


def test_runs_keep_their_promises_under_faults() -> None:
    """In a process of its own, which forks: this one has computed."""
    argv = ["-m", "benchmarks.chaos", "--seed", "1", "--trials", str(SEEDS), "--modes", "loopback,sim"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *argv], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=600
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == SEEDS + 1 and lines[-1] == f"{SEEDS} trials from seed 1, 0 broken"


def test_a_trial_follows_from_its_seed() -> None:
    plans = [plan_of(seed, ("loopback", "sim", "real")) for seed in range(300)]
    assert plans == [plan_of(seed, ("loopback", "sim", "real")) for seed in range(300)]
    assert {plan.fault.name for plan in plans} == set(FAULTS)
    assert all(plan.mode in FAULTS[plan.fault.name] for plan in plans)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(1, 1.0, ["haloscope: error: KeyError: 'x' (a defect; HALOSCOPE_DEBUG=1 shows where)"]),
        Ended(2, 1.0, ["haloscope: error: one", "haloscope: error: two"]),
        Ended(1, 1.0, ["Traceback (most recent call last):", "haloscope: error: one"]),
        Ended(2, 1.0, []),
        Ended(-11, 1.0, []),
        Ended(99, 1.0, []),
    ],
    ids=str,
)
def test_ends_that_are_not_explained_are_broken(ended: Ended, tmp_path: Path) -> None:
    trial = Trial(plan_of(1, ("loopback",)), tmp_path)
    with pytest.raises(Broken):
        trial.check(ended)
    trial.check(Ended(2, 1.0, ["haloscope: error: no space left on device"]))
    trial.check(Ended(-9, 1.0))


def test_a_library_may_end_a_run_without_memory_if_it_says_so(tmp_path: Path) -> None:
    plans = {name: next(p for p in map(_here, range(300)) if p.fault.name == name) for name in ("memory", "clock")}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    short, plenty = Trial(plans["memory"], tmp_path / "a"), Trial(plans["clock"], tmp_path / "b")
    aborted = Ended(-6, 1.0, ["terminate called after throwing an instance of 'std::bad_alloc'"])
    short.check(aborted)
    for trial, ended in ((plenty, aborted), (short, Ended(-6, 1.0, ["double free"])), (short, Ended(-11, 1.0))):
        with pytest.raises(Broken):
            trial.check(ended)


def _here(seed: int) -> Plan:
    return plan_of(seed, ("loopback", "sim"))


def test_what_is_left_is_broken(tmp_path: Path) -> None:
    trial = Trial(plan_of(1, ("loopback",)), tmp_path)
    trial.nothing_left()
    (tmp_path / "temporary" / "mine").touch()
    with pytest.raises(Broken, match="left behind: .*mine"):
        trial.nothing_left()
    before = trial.state()
    (tmp_path / "clean" / "result.json").touch()
    assert trial.state() != before


def test_damage_changes_one_file(tmp_path: Path) -> None:
    for seed in range(40):
        (tmp_path / "runs").mkdir(exist_ok=True)
        files = {tmp_path / "runs" / name: bytes(range(100)) for name in ("a", "b")}
        for path, content in files.items():
            path.write_bytes(content)
        assert damage(Fault("damage", 1, None, 0, 0.0, seed), tmp_path)
        changed = [path for path, content in files.items() if not path.exists() or path.read_bytes() != content]
        assert len(changed) == 1
    assert not damage(Fault("SIGKILL", 1, None, 0, 0.0, 1), tmp_path)
