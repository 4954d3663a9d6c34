"""Failed ranks are restarted from the last checkpoint, as often as allowed, except for errors that would recur."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import cli
from harness.config import COMMAND_DEFAULTS
from harness.errors import REPEATED, InputError
from harness.running import Checkpoints, Job, make_job, plan_of, results, run
from harness.running.results import RankEpoch
from real.launch._launcher import RankFailed
from real.launch._supervisor import supervise
from tests.conformance.test_drivers import comparable, config
from tests.conftest import REPOSITORY

SMALL = "synthetic:nodes=60,degree=4,classes=3,features=5"


def job_of(options: Checkpoints | None) -> Job:
    return make_job(plan_of(config("vanilla", dataset=SMALL, parts=2)), None, options)[0]


def failing(*failures: Exception) -> tuple[Callable[[], None], list[int]]:
    """An attempt that raises the given failures in turn, then succeeds; and the number of attempts."""
    left, attempts = list(failures), list[int]()

    def attempt() -> None:
        attempts.append(1)
        if left:
            raise left.pop(0)

    return attempt, attempts


def test_attempts_go_on_until_one_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = [RankFailed(1, "rank 1 was killed by SIGKILL"), RankFailed(0, "rank 0 waits", "RankLost")]
    attempt, attempts = failing(*lost)
    said = supervise(attempt, job_of(Checkpoints(tmp_path, restarts=2)))
    assert said == ["rank 1 was killed by SIGKILL; resumed after 0 epochs", "rank 0 waits; resumed after 0 epochs"]
    assert len(attempts) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "haloscope: rank 1 was killed by SIGKILL; resumed after 0 epochs (1 restart left)",
        "haloscope: rank 0 waits; resumed after 0 epochs (0 restarts left)",
    ]


def test_no_more_attempts_than_allowed(tmp_path: Path) -> None:
    for options, most in ((None, 1), (Checkpoints(tmp_path), 1), (Checkpoints(tmp_path, restarts=2), 3)):
        attempt, attempts = failing(*(RankFailed(0, f"failure {n}") for n in range(9)))
        with pytest.raises(RankFailed, match=f"failure {most - 1}"):
            supervise(attempt, job_of(options))
        assert len(attempts) == most


@pytest.mark.parametrize("error", [*(RankFailed(0, "again", kind) for kind in REPEATED), InputError("bad")], ids=str)
def test_what_would_fail_again_is_not_tried_again(error: Exception, tmp_path: Path) -> None:
    attempt, attempts = failing(error)
    with pytest.raises(type(error)):
        supervise(attempt, job_of(Checkpoints(tmp_path, restarts=5)))
    assert len(attempts) == 1


def test_what_a_rank_met_is_the_state_of_the_run() -> None:
    """A rank leaves the class name of its error; the launcher's error has that error's state."""
    states = {
        kind: RankFailed(0, "met", kind).state for kind in ("Diverged", "InputError", "ProgramError", "KeyError", "")
    }
    assert states.pop("Diverged") == "diverged" and set(states.values()) == {"failed"}


def test_a_run_that_was_asked_to_stop_is_not_started_again(tmp_path: Path) -> None:
    attempt, attempts = failing(RankFailed(0, "killed"))
    with pytest.raises(RankFailed):
        supervise(attempt, job_of(Checkpoints(tmp_path, restarts=5, stop=lambda: True)))
    assert len(attempts) == 1


def children_of_rank(rank: int) -> list[int]:
    """Process ids of this rank among the descendants."""
    found, waiting = [], [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                waiting += map(int, (task / "children").read_text().split())
                if (task / "comm").read_text().strip() == f"rank{rank}":
                    found.append(int(task.parent.parent.name))
    return sorted(set(found))


@pytest.mark.processes
def test_killed_ranks_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting, killed = config("ec-graph:period=4:bits=1", parts=2, epochs=30, mode="real"), list[int]()

    def kill_once(record: RankEpoch) -> None:
        if record.epoch >= 8 and not killed:
            killed.extend(children_of_rank(1))
            os.kill(killed[0], signal.SIGKILL)

    result = run(setting, kill_once, Checkpoints(tmp_path, every=4, resume=False, restarts=1))
    assert len(killed) == 1 and result.state == "done"
    assert comparable(result) == comparable(run(setting.changed(mode="loopback")))
    resumed = result.facts["checkpoint"]["resumed"]
    assert len(resumed) == 1 and resumed[0] >= 8
    assert len(result.facts["restarts"]) == 1
    assert "rank 1 was killed by SIGKILL" in result.facts["restarts"][0]
    assert f"resumed after {resumed[0]} epochs (0 restarts left)" in capsys.readouterr().err


RANK = """
import os, signal, sys
from harness.running._checkpoint import Saver
from real.__main__ import main
from real.rank.health import end_process

save = Saver.save

async def deadly(self, carried):
    await save(self, carried)
    if len(carried.records) == 4:
        os.kill(os.getpid(), signal.SIGKILL)

if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    Saver.save = deadly
end_process(main(sys.argv[1:]))
"""


@pytest.mark.processes
def test_restarts_by_torchrun_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    """Also with --no-resume, which applies to the first start, not to restarts."""
    (tmp_path / "rank.py").write_text(RANK)
    setting = config("sylvie-a", parts=2, epochs=7, mode="real")
    default = COMMAND_DEFAULTS.flat()
    given = {key: value for key, value in setting.flat().items() if value != default[key]}
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--standalone"]
    kept = ["--checkpoint", "kept", "--checkpoint-every", "2", "--no-resume", "--out", "runs", "--quiet"]
    done = subprocess.run(
        [sys.executable, *torchrun, "rank.py", *flags, *kept],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    record = results.load_result(tmp_path / "runs" / f"{setting.run_id()}.json")
    assert record["state"] == "done" and record["facts"]["checkpoint"]["resumed"] == [4]
    expected = run(setting.changed(mode="loopback"))
    assert [e["loss"] for e in record["epochs"]] == [e["loss"] for e in expected.epochs]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--restarts", "2"], "--restarts needs --checkpoint DIR"),
        (["--resume"], "--resume needs --checkpoint DIR"),
        (["--checkpoint-every", "3"], "--checkpoint-every needs --checkpoint DIR"),
        (["--checkpoint", "kept", "--restarts", "2"], "--restarts is for --mode real"),
        (["--checkpoint", "kept", "--checkpoint-every", "-3"], "--checkpoint-every: must be from 0"),
        (["--checkpoint", "/proc/kept"], "cannot keep checkpoints in /proc/kept"),
    ],
)
def test_flags_that_make_no_sense(
    flags: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "--dataset", SMALL, *flags]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "something was half-written"
