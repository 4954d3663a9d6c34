"""A short form of `benchmarks.chaos`: faults of every kind in runs of one process; and that its oracle can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import Broken, Ended, Plan, Trial, plan_of
from benchmarks.chaos_faults import FAULTS, HARMLESS, Fault, clock_rank, damage
from benchmarks.chaos_links import Outages
from harness.config import parse_lab
from real.lab import built, made_by
from tests.conftest import REPOSITORY
from tests.support.labs import needs_lab

SEEDS = 4
MODES = ("loopback", "sim", "real", "lab")


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
    plans = [plan_of(seed, MODES) for seed in range(400)]
    assert plans == [plan_of(seed, MODES) for seed in range(400)]
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


def _of(name: str, folder: Path) -> Trial:
    folder.mkdir()
    plans = (plan_of(seed, MODES) for seed in range(1000))
    return Trial(next(plan for plan in plans if plan.fault.name == name and plan.parts > 1), folder)


def test_who_was_struck_must_be_named_and_what_loses_nothing_must_not_end_a_run(tmp_path: Path) -> None:
    said = Ended(1, 1.0, ["haloscope: error: rank 1 was killed by SIGKILL in epoch 2; rank 0 lost it"])
    trial = _of("rank SIGKILL", tmp_path / "a")
    trial.victim = "1"
    trial.check(said)
    trial.victim = "2"
    with pytest.raises(Broken, match="names no rank 2"):
        trial.check(said)
    for name in sorted(HARMLESS):
        trial = _of(name, tmp_path / name.replace(" ", "-"))
        trial.check(Ended(0, 1.0))
        with pytest.raises(Broken, match="though nothing was lost"):
            trial.check(said)


def test_a_clock_jumps_in_one_rank_only(tmp_path: Path) -> None:
    """In an interpreter that is started as a rank, and in no other."""
    fault = Fault("rank clock", 0, 0.0, 10**6, 0.0, seed=3)
    code = (
        f"import os, sys, time\nfrom pathlib import Path\nfrom benchmarks.chaos_faults import Fault, arm\n"
        f"arm({fault!r}, Path(sys.argv[1]), 2)\n"
        "import subprocess\nasked = 'import time; print(round(time.time()))'\nfor rank in '01':\n"
        "    made = subprocess.run([sys.executable, '-c', asked], env={**os.environ, 'RANK': rank}, stdout=-1)\n"
        "    print(int(made.stdout) - round(time.time()))"
    )
    run = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(run, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True)
    right, wrong = map(int, done.stdout.split())
    assert clock_rank(fault, 2) == 1 and abs(right) < 60 and abs(wrong - 10**6) < 60


@pytest.mark.processes
def test_a_link_of_a_lab_goes_down_and_up_again() -> None:
    needs_lab()
    fault = Fault("link flaps", 0, 0.0, 0, 0.2, seed=1)
    with built(parse_lab("lab:2xunshaped")) as lab:
        outages = Outages(fault, os.getpid(), 2)
        where = lab.hosts[outages.host] if outages.at_host else lab.switch
        link, states = "lab0" if outages.at_host else f"port{outages.host}", list[bool]()
        while outages.plan:
            left = len(outages.plan)
            outages.poll()
            if len(outages.plan) < left:
                shown = subprocess.run(["ip", "-n", where, "link", "show", link], capture_output=True, text=True)
                states.append(",UP" in shown.stdout.split(">")[0])
        assert states == [False, True] * outages.count and outages.count >= 2
        assert made_by(os.getpid())
    assert not made_by(os.getpid())


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
