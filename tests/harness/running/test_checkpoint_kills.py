"""A run of real ranks that is killed at any time resumes from its checkpoints with bit-equal results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import cli, running
from harness.commands.run import stoppable
from harness.config import COMMAND_DEFAULTS, RunConfig
from harness.running import Checkpoints, OpenedRun, results, run, stopping
from harness.running.results import RankEpoch, Result
from real.launch._execute import LaunchOutcome
from tests.conformance.test_drivers import comparable, config
from tests.conftest import REPOSITORY
from tests.harness.running.test_checkpoint import numbers
from tests.support import killing


def killed(what: str, folder: Path) -> list[dict[str, Any]]:
    """The output of `tests.support.killing`."""
    command = [sys.executable, "-m", "tests.support.killing", what, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def result_of(asked: RunConfig, file: Path) -> Result:
    found = msgspec.msgpack.decode(file.read_bytes(), type=LaunchOutcome)
    return running.finish(asked, running.make_job(running.plan_of(asked))[1], found.execution())


@pytest.mark.processes
def test_killed_at_twenty_random_instants(tmp_path: Path) -> None:
    runs = killed("random", tmp_path)
    assert sum(found["kills"] for found in runs) == 20
    resumed = []
    for found in runs:
        asked = killing.setting(found["method"], seed=found["seed"])
        result = result_of(asked, tmp_path / found["outcome"])
        assert result.state == "done" and len(result.epochs) == killing.EPOCHS
        assert comparable(result) == comparable(run(asked.changed(mode="loopback"))), found
        resumed += result.facts["checkpoint"]["resumed"]
    assert resumed, "some of the kills must have met a run that had a checkpoint"


@pytest.mark.processes
def test_killed_inside_the_save(tmp_path: Path) -> None:
    runs = {found["point"]: found for found in killed("points", tmp_path)}
    assert set(runs) == set(killing.POINTS)
    for point, found in runs.items():
        own = f"rank-{found['victim']}.pt"
        assert (own in found["there"]) == (point not in ("file written", "before rename"))
        scratch = any(name.startswith(f".{own}.") for name in found["there"])
        assert scratch == (point in ("file written", "before rename"))
        assert ("complete.json" in found["there"]) == (point == "after marker")
        assert found["home"] == ["epoch-000004", "epoch-000006"], "the newest two, and nothing half done"
        asked = killing.setting("sylvie-a:bits=4", seed=found["seed"], epochs=6)
        result = result_of(asked, tmp_path / found["outcome"])
        assert result.facts["checkpoint"]["resumed"] == [4 if point == "after marker" else 2]
        assert comparable(result) == comparable(run(asked.changed(mode="loopback"))), point


FLAGS = ["--dataset", "synthetic:nodes=120,degree=6,classes=3,features=8", "--threads", "1", "--eval-every", "5"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", ["loopback", "sim"])
def test_a_signal_stops_after_the_epoch(
    number: signal.Signals,
    mode: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    original = running.run_opened
    flags = ["run", *FLAGS, "--mode", mode, "--epochs", "9", "--json", "out.json"]
    assert cli.main([*flags, "--out", "plain"]) == 0
    plain = json.loads(Path("out.json").read_text())

    def signalled(opened: OpenedRun, progress: Any, checkpoints: Checkpoints | None, file: Any = None) -> Result:
        def report(record: RankEpoch) -> None:
            if record.epoch == 4:
                signal.raise_signal(number)

        return original(opened, report, checkpoints, file)

    with monkeypatch.context() as patched:
        patched.setattr(running, "run_opened", signalled)
        assert cli.main([*flags, "--checkpoint", "kept"]) == stopping.EXIT_CODE == 3
    first = json.loads(Path("out.json").read_text())
    assert first["state"] == "interrupted" and len(first["epochs"]) == 5
    assert "asked to stop after epoch 4" in capsys.readouterr().out
    assert cli.main([*flags, "--checkpoint", "kept"]) == 0
    assert "resumed after 5 epochs" in capsys.readouterr().out
    second = json.loads(Path("out.json").read_text())
    assert second["state"] == "done"
    keep = ("loss", "train", "val", "test", "bytes", "observed")
    assert [[e[k] for k in keep] for e in second["epochs"]] == [[e[k] for k in keep] for e in plain["epochs"]]


def test_the_first_signal_is_answered_by_one_rank(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with stoppable(Checkpoints(tmp_path)) as options:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert options is not None and options.stop()
        said.append(capfd.readouterr().err)
    assert said == [f"{stopping.MESSAGE}\n", ""]


def test_a_second_interrupt_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopping.stop_requests() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the same Ctrl-C, passed on by a launcher
        signal.raise_signal(signal.SIGTERM)
        assert asked()
        monkeypatch.setattr(stopping, "TWICE_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.processes
def test_sigterm_to_the_launcher_stops_real_ranks(tmp_path: Path) -> None:
    """The whole command: ranks in processes, a signal to the launcher, exit code 3; then the same command ends it."""
    asked = config("sylvie-a", parts=2, epochs=4000, mode="real", eval_every=0)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in _given(asked).items()]
    command = [sys.executable, "-m", "harness", "run", *flags, "--out", str(tmp_path / "runs"), "--quiet"]
    kept = ["--checkpoint", str(tmp_path / "kept"), "--checkpoint-every", "5"]
    process = subprocess.Popen([*command, *kept], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    try:
        _wait(lambda: any((tmp_path / "kept").glob("*/*/complete.json")), process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == stopping.EXIT_CODE, said
    assert said.splitlines().count(stopping.MESSAGE) == 1
    record = results.load_result(tmp_path / "runs" / f"{asked.run_id()}.json")
    done = len(record["epochs"])
    assert record["state"] == "interrupted" and 5 <= done < 4000
    progress = list[int]()

    def enough(epoch: RankEpoch) -> None:
        progress.append(epoch.epoch)

    options = Checkpoints(tmp_path / "kept", every=0, stop=lambda: len(progress) >= 3)
    rest = run(asked, enough, options)
    assert rest.state == "interrupted" and progress[0] == done, "it went on where it was stopped"
    short = run(
        asked.changed(mode="loopback", eval_every=-1),
        None,
        Checkpoints(tmp_path / "other", stop=_after(len(rest.epochs))),
    )
    assert [e["loss"] for e in rest.epochs] == [e["loss"] for e in short.epochs][: len(rest.epochs)]
    assert len(numbers(rest)) == len(short.epochs)


def _given(asked: RunConfig) -> dict[str, Any]:
    default = COMMAND_DEFAULTS.flat()
    return {name: value for name, value in asked.flat().items() if value != default[name]}


def _after(epochs: int) -> Callable[[], bool]:
    """A stop function that returns True once each of two ranks has called it for the last time."""
    calls = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 2 * (epochs - 1)

    return stop


def _wait(until: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while not until():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
