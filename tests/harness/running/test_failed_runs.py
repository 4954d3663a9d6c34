"""Runs that fail leave a result that says so, with the epochs before; a full disk is noticed before the training."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import cli
from harness.commands.shared.cells import FinishedRun, run_or_reuse
from harness.config import RunConfig
from harness.errors import HaloscopeError, InputError, ProgramError
from harness.machine import Reserved, Terminated
from harness.running import Checkpoints, open_run, prepare, results
from harness.running._opened import OpenedRun
from harness.running._recorded import RecordedEpochs
from harness.running.results import AHEAD_OF_EPOCHS, RankEpoch, ResultFile
from real.launch._launcher import RankFailed
from tests.conformance.test_drivers import config
from tests.real.launch.test_supervisor import children_of_rank

SMALL = "synthetic:nodes=60,degree=4,classes=3,features=5"
DIVERGING = {"dataset": SMALL, "parts": 2, "layers": 2, "epochs": 9, "lr": 1e30, "eval_every": -1}


def carried_out(setting: RunConfig, out: Path, opened: OpenedRun | None = None, **more: Any) -> FinishedRun:
    return run_or_reuse(opened or open_run(setting), out, quiet=True, **more)


def only_result(out: Path) -> dict[str, Any]:
    (path,) = out.iterdir()  # and nothing beside it
    return results.load_result(path)


def test_values_that_cannot_be_sent_keep_the_epochs_before(tmp_path: Path) -> None:
    record = carried_out(config("sylvie-s", **DIVERGING), tmp_path).record
    assert record["state"] == "diverged" and "holds nan or inf" in record["message"]
    assert [e["epoch"] for e in record["epochs"]] == [0] and record["epochs"][0]["loss"] > 0
    assert record["summary"]["bytes_per_epoch"] > 0
    exact = carried_out(config("vanilla", **{**DIVERGING, "lr": 0.01, "epochs": 1}), tmp_path / "other").record
    assert len(record["epochs"][0]["peak_memory"]) == len(exact["epochs"][0]["peak_memory"]) == 2


@pytest.mark.processes
def test_a_killed_rank_leaves_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every epoch that both ranks had recorded, also those of an earlier attempt's checkpoint."""
    monkeypatch.chdir(tmp_path)
    setting = config("vanilla", dataset=SMALL, parts=2, epochs=2000, eval_every=-1, mode="real")
    opened = open_run(setting)

    def kill_late(record: RankEpoch) -> None:
        if record.epoch == 20:
            os.kill(children_of_rank(1)[0], signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr("harness.commands.shared.cells.progress_of", lambda *_: _passing(kill_late))
        with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"):
            carried_out(setting, tmp_path / "out", opened, checkpoints=Checkpoints(tmp_path / "kept", every=10))
    record = only_result(tmp_path / "out")
    assert record["state"] == "killed" and "rank 1 was killed by SIGKILL" in record["message"]
    assert 20 <= len(record["epochs"]) < 2000
    assert [e["epoch"] for e in record["epochs"]] == list(range(len(record["epochs"])))
    assert cli.main(["collect", "out", "--to", "all.csv"]) == 0


@contextmanager
def _passing(value: Any) -> Iterator[Any]:
    yield value


class _Fails:
    """A driver whose ranks record some epochs and then fail."""

    def __init__(self, error: BaseException, epochs: int) -> None:
        self.error, self.epochs = error, epochs

    def check(self) -> None: ...

    def reads(self) -> dict[str, str]:
        return {}

    def execute(self, job: Any) -> Any:
        for rank in range(2):
            for epoch in range(self.epochs + rank):
                job.keep(rank, _record(epoch))
        raise self.error


def _record(epoch: int, loss: float = 1.0) -> RankEpoch:
    return RankEpoch(epoch, loss, {}, {"forward": {0: 8}}, np.asarray([0, 8]).tobytes(), None, 1)


@pytest.mark.parametrize(
    ("error", "epochs", "state"),
    [
        (ProgramError("rank 1: deadlock\nin layer 2"), 0, "failed"),
        (ZeroDivisionError("oh"), 3, "failed"),
        (MemoryError(), 1, "failed"),
        (InputError("cannot write checkpoint"), 3, "failed"),
        (InputError("no such thing"), 0, None),
    ],
    ids=str,
)
def test_every_failure_is_a_result(error: Exception, epochs: int, state: str | None, tmp_path: Path) -> None:
    """Except for bad input that is noticed before the first epoch, which leaves nothing, not even the folder."""
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2)
    opened = OpenedRun(open_run(setting).plan, _Fails(error, epochs))
    with pytest.raises(type(error)):
        carried_out(setting, tmp_path / "deep" / "out", opened)
    if state is None:
        assert not list(tmp_path.iterdir())
        return
    record = only_result(tmp_path / "deep" / "out")
    assert record["state"] == state and len(record["epochs"]) == epochs
    assert "\n" not in record["message"] and str(error).split("\n")[0] in record["message"]


def test_a_failed_result_is_not_used_again(tmp_path: Path) -> None:
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2, epochs=1)
    with pytest.raises(HaloscopeError):
        carried_out(setting, tmp_path, OpenedRun(open_run(setting).plan, _Fails(HaloscopeError("lost"), 1)))
    assert only_result(tmp_path)["state"] == "failed"
    assert not carried_out(setting, tmp_path).reused
    assert only_result(tmp_path)["state"] == "done"


def test_recorded_epochs_are_what_all_ranks_have() -> None:
    recorded = RecordedEpochs(2)
    for rank, epoch, loss in (
        (0, 0, 1.0),
        (0, 1, 2.0),
        (0, 2, 3.0),
        (1, 0, 1.0),
        (1, 1, 2.0),
        (1, 3, 4.0),
        (0, 1, 5.0),
    ):
        recorded.add(rank, _record(epoch, loss))
    assert [(e["epoch"], e["loss"]) for e in recorded.epochs(1)] == [(0, 1.0), (1, 5.0)]  # 1 came again after a restart
    assert RecordedEpochs(3).epochs(1) == []


@contextmanager
def files_up_to(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond this: what a full disk does to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_noticed_before_the_training(tmp_path: Path) -> None:
    trained: list[int] = []
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2, epochs=50)
    opened = open_run(setting)
    prepare(setting, opened.plan.cut)

    class Counting(_Fails):
        def execute(self, job: Any) -> Any:
            trained.append(1)

    with files_up_to(4096), pytest.raises(InputError, match=r"cannot write .*: File too large"):
        carried_out(setting, tmp_path / "out", OpenedRun(opened.plan, Counting(MemoryError(), 0)))
    assert not trained and not list(tmp_path.iterdir())


def test_the_space_that_is_taken_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up during the training does not matter then."""
    taken: list[int] = []
    allocate: Callable[[int, int, int], None] = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, at, count: (taken.append(count), allocate(fd, at, count)))
    for epochs, parts, layers in ((1, 1, 1), (30, 2, 2), (3, 8, 5)):
        setting = config("vanilla", dataset=SMALL, parts=parts, layers=layers, epochs=epochs, eval_every=1)
        path = carried_out(setting, tmp_path).path
        assert path.stat().st_size <= taken[-1] == ResultFile(setting, tmp_path)._size(epochs)


def test_space_is_taken_as_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never less than the epochs so far and the next one need, and little more; a full disk keeps those before."""
    taken: list[int] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, at, count: taken.append(count))
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2, epochs=5_000_000)
    with ResultFile(setting, tmp_path) as file:
        for epoch in range(10_000):
            file.make_room(epoch)
            assert file._size(epoch + 1) <= taken[-1] <= file._size(epoch + 1) + AHEAD_OF_EPOCHS
    assert 1 < len(taken) < 10


def test_a_disk_that_fills_up_ends_the_run_with_its_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "AHEAD_OF_EPOCHS", 0)
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2, epochs=50, eval_every=-1)
    with files_up_to(100_000), pytest.raises(InputError, match="File too large; it has the epochs so far"):
        carried_out(setting, tmp_path)
    record = only_result(tmp_path)
    assert record["state"] == "failed" and 2 < len(record["epochs"]) < 50


@pytest.mark.parametrize(
    "mode", ["loopback", "loopback of compare", "sim", pytest.param("real", marks=pytest.mark.processes)]
)
@pytest.mark.parametrize(("number", "code", "how"), [
    (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGINT, 130, "interrupted"),
])  # fmt: skip
def test_a_signal_leaves_a_result(
    mode: str, number: int, code: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Without checkpoints too, and no file beside it; the signal's usual effect is there again afterwards."""

    def end(record: RankEpoch) -> None:
        if record.epoch == 3:
            os.kill(os.getpid(), number)

    monkeypatch.setattr("harness.commands.shared.cells.progress_of", lambda *_: _passing(end))
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # a shell may have started the tests with SIGINT ignored
    request.addfinalizer(lambda: signal.signal(number, before))
    mode, *command = mode.split(" of ")
    argv = ["--dataset", SMALL, "--mode", mode, "--epochs", "3000", "--eval-every", "-1", "--out", str(tmp_path)]
    begun = ["compare", "--methods", "vanilla,cdfgnn", "--jobs", "1"] if command else ["run"]
    assert cli.main([*begun, *argv, "--quiet", "--replays", "0"]) == code
    record = only_result(tmp_path)
    assert record["state"] == "killed" and 3 <= len(record["epochs"]) < 3000
    assert record["message"] == f"{how} after {len(record['epochs'])} epochs"
    assert f"error: {how}; result: {tmp_path}" in capsys.readouterr().err
    assert signal.getsignal(number) is usual


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Terminated()], ids=repr)
def test_a_run_that_is_stopped_at_once_keeps_an_earlier_result(stop: BaseException, tmp_path: Path) -> None:
    setting = config("vanilla", dataset=SMALL, parts=2, layers=2, epochs=1)
    carried_out(setting, tmp_path)
    with pytest.raises(type(stop)):
        carried_out(setting, tmp_path, OpenedRun(open_run(setting).plan, _Fails(stop, 0)), force=True)
    assert only_result(tmp_path)["state"] == "done"


def test_reserved_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("before")
    file = Reserved(path, 10_000)
    (scratch,) = (p for p in tmp_path.iterdir() if p != path)
    assert scratch.stat().st_size == 10_000 and path.read_text() == "before"
    file.write(b"after")
    file.close()
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]
    Reserved(path, 10).close()
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]
    with files_up_to(100), pytest.raises(OSError) as error:
        Reserved(path, 101)
    assert error.value.errno == errno.EFBIG and list(tmp_path.iterdir()) == [path]
