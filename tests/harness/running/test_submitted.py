"""Cells as jobs of a scheduler, tried with submitit's scheduler for one machine."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.errors import InputError
from harness.machine import Died
from harness.running import submitted

pytest.importorskip("submitit", reason="the extra `slurm` is not installed")

TINY = (
    '[run]\ndataset = "synthetic:nodes=120,degree=6,classes=3,features=8"\nepochs = 2\neval_every = 0\n'
    '[grid]\nmethod = ["single", "vanilla:bogus=1"]\n'
)


def ended(number: int) -> int:
    """A call that returns, or ends its process."""
    if number < 0:
        os._exit(3)
    return number * number


def slow(number: int) -> int:
    """A call that lasts longer than its test unless it is cancelled."""
    time.sleep(600)
    return number


def local(folder: Path) -> Any:
    return submitted.executor("local", folder, {})


@pytest.fixture(autouse=True)
def code_of_this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are fresh interpreters: they must find this tree and these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_every_argument_is_answered_once(tmp_path: Path) -> None:
    """Also if a job dies; arguments that `go_on` refuses are left out."""
    found = dict(submitted.map_on_jobs(ended, [3, -1, 5, 7], 2, lambda n: n != 7, local(tmp_path), 0.1))
    assert set(found) == {3, -1, 5}
    assert (found[3], found[5]) == (9, 25)
    assert isinstance(found[-1], Died)


class _Lost:
    """A job that the scheduler has forgotten."""

    def __init__(self) -> None:
        self.cancelled = 0

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        self.cancelled += 1


class _Forgetful:
    """A submitter whose every job is lost."""

    def __init__(self) -> None:
        self.jobs: list[_Lost] = []

    def submit(self, *_: Any) -> _Lost:
        self.jobs.append(_Lost())
        return self.jobs[-1]


def test_a_job_that_never_ends_is_given_up() -> None:
    submitter = _Forgetful()
    found = dict(submitted.map_on_jobs(ended, [1, 2], 1, lambda _: True, submitter, 0.01, limit_s=0.1))
    assert found == dict.fromkeys((1, 2), Died("its job did not end within 0.1 s of its submission"))
    assert [job.cancelled for job in submitter.jobs] == [1, 1]


@pytest.mark.parametrize("interrupts", [signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def test_jobs_end_with_their_caller(tmp_path: Path, interrupts: Any) -> None:
    """A caller that stops early leaves no process, also as a background job of a shell."""
    before = signal.signal(signal.SIGINT, interrupts)
    try:
        _break_off(tmp_path)
        assert signal.getsignal(signal.SIGINT) is interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _break_off(tmp_path: Path) -> None:
    submitter, begun = local(tmp_path), []
    submit = submitter.submit
    submitter.submit = lambda *given: begun.append(submit(*given)) or begun[-1]
    answers = submitted.map_on_jobs(slow, [1], 1, lambda _: len(begun) == 0, submitter, 0.1)
    with pytest.raises(ZeroDivisionError):
        begun_job_then_fail(answers, begun)
    deadline = time.monotonic() + 30
    while any(job._process.poll() is None for job in begun):
        assert time.monotonic() < deadline, "a job goes on without its caller"
        time.sleep(0.1)


def begun_job_then_fail(answers: Any, begun: list[Any]) -> None:
    """Stop a run of jobs once the first of them runs."""

    def look(_: float) -> None:
        if begun:
            raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.running.submitted.time.sleep", look)
        next(answers)


def test_a_sweep_as_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results, rows and exit code as without a scheduler; a second sweep finds them done."""
    file, out = tmp_path / "grid.toml", tmp_path / "out"
    file.write_text(TINY.replace("vanilla:bogus=1", "bns-gcn:p=0.5"))
    words = ["sweep", str(file), "--out", str(out), "--on", "slurm:cluster=local", "--json", "-"]
    assert cli.main(words) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["method"], row["state"]) for row in rows] == [("single", "done"), ("bns-gcn:p=0.5", "done")]
    assert any((out / "jobs").iterdir())
    before = sorted(path.name for path in (out / "jobs").iterdir())
    assert cli.main(words) == 0
    assert sorted(path.name for path in (out / "jobs").iterdir()) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [("timeout_min", "KEY=VALUE"), ("timeout_min=soon", "whole number"), ("mem_gb=much", "a number")],
)
def test_bad_parameters_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        submitted.options_of(text)


def test_parameters_and_what_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = submitted.options_of("timeout_min=60, mem_gb=1.5,slurm_partition=gpu")
    assert options == {"timeout_min": 60, "mem_gb": 1.5, "slurm_partition": "gpu"}
    with pytest.raises(InputError, match="--on slurm: .*bogus"):
        submitted.executor("local", tmp_path, {"bogus": "1"})
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"pip install 'haloscope\[slurm\]'"):
        submitted.executor("slurm", tmp_path, {})
