"""The launcher: environment of ranks, messages when they fail, and no process left behind.

The ranks here are one-line scripts without torch, which start quickly.
"""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from harness.config import RunConfig
from harness.errors import InputError
from harness.machine import Claim, core_count, large_blocks
from harness.running import prepare, run, threads_per_rank
from harness.running.results import RankEpoch, RankResult
from harness.running.summary import notes_of
from real.launch import ERROR_PREFIX, launch
from real.launch import _fork_server as fork_server
from real.launch import _launcher as launching
from real.launch._child import Exit
from real.launch._execute import LaunchOutcome
from real.launch._fork_server import ForkServer
from real.launch._launcher import RankFailed
from real.rank.health import Words, leave_words
from tests.conftest import REPOSITORY

SLEEP = "import time; time.sleep(60)"


def script(*by_rank: str) -> list[str]:
    """Arguments that run another line on every rank; the last one serves the rest."""
    cases = "".join(f"if rank == {rank}:\n    {line}\n    raise SystemExit\n" for rank, line in enumerate(by_rank[:-1]))
    return ["-c", f"import os, sys\nrank = int(os.environ['RANK'])\n{cases}{by_rank[-1]}"]


def test_ranks_are_told_who_they_are(tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "EXTRA")
    line = f"open('{tmp_path}/' + str(rank), 'w').write(' '.join(os.environ[n] for n in {names}))"
    said, beats = io.StringIO(), []
    hello = "print('hello from', rank); print('on stderr', file=sys.stderr); " + line
    launch(script(hello), 3, threads=2, env={"EXTRA": "x"}, echo=said, poll=lambda: beats.append(1), deadline_s=60)
    assert [(tmp_path / str(r)).read_text() for r in range(3)] == [f"{r} {r} 3 127.0.0.1 lo 2 x" for r in range(3)]
    assert sorted(said.getvalue().splitlines()) == ["hello from 0", "on stderr"]
    assert beats


def test_cores_are_shared_by_default(tmp_path: Path) -> None:
    launch(script(f"open('{tmp_path}/t', 'w').write(os.environ['OMP_NUM_THREADS'])"), 1, deadline_s=60)
    assert (tmp_path / "t").read_text() == str(core_count())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_cores_that_may_not_be_used_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that keeps to some of them counts those of all ranks, as its launcher does and the simulator."""
    monkeypatch.setattr("harness.machine._cores.CLAIMS", f"haloscope-test-{os.getpid()}")
    tell = "from harness.machine import usable_cores as n; print(os.sched_getaffinity(0), n(), file=open(OUT, 'w'))"
    line = tell.replace("OUT", f"'{tmp_path}/' + str(rank)")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert core_count() == threads_per_rank(RunConfig.of(parts=1)) == 1
        launch(script(line), 1, deadline_s=60, env={"PYTHONPATH": str(REPOSITORY)})
    finally:
        os.sched_setaffinity(0, before)
    assert (tmp_path / "0").read_text() == f"{{{min(before)}}} [{min(before)}]\n"
    launch(script(line), len(before), threads=1, deadline_s=60, env={"PYTHONPATH": str(REPOSITORY)})
    assert (tmp_path / "0").read_text() == f"{{{min(before)}}} {sorted(before)}\n"


def test_first_failure_is_raised_and_ends_the_others() -> None:
    said = io.StringIO()
    begin = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        launch(script(SLEEP, f"print('{ERROR_PREFIX}no such thing'); sys.exit(1)", SLEEP), 3, grace_s=0.5, echo=said)
    assert str(caught.value) == "rank 1: no such thing"
    assert time.monotonic() - begin < 0.5 + launching.KILL_S + 10
    assert said.getvalue() == ""


def test_who_failed_first_is_blamed_whenever_the_ends_were_noticed() -> None:
    """Ranks that fail within one look of the launcher: the store counted their last words."""
    store = HashStore()
    for rank in (2, 1):
        leave_words(store, Words(rank, "failed", f"error {rank}", "ValueError"))

    def ended(rank: int) -> Any:
        process = SimpleNamespace(returncode=1)
        said = {"last_line": lambda: f"error {rank}", "exit": lambda: Exit(rank, 1, 0.0, ""), "fate": lambda: ""}
        return SimpleNamespace(
            rank=rank, failed=rank > 0, killed=False, stopped=False, ended_at=float(rank), process=process, **said
        )  # fmt: skip

    with pytest.raises(RankFailed, match="rank 2: error 2") as caught:
        launching._raise_failure([ended(rank) for rank in range(3)], store)
    assert caught.value.rank == 2


def test_a_ranks_error_is_not_echoed_as_well() -> None:
    said = io.StringIO()
    with pytest.raises(InputError, match="^bad file$"):
        launch(script(f"print('before'); print('{ERROR_PREFIX}bad file', file=sys.stderr); sys.exit(2)"), 2, echo=said)
    assert said.getvalue().splitlines() == ["before"]


def test_a_killed_rank_is_named() -> None:
    with pytest.raises(RankFailed, match="rank 1 was killed by SIGSEGV in start-up; last line of rank 1: deep in it"):
        launch(script(SLEEP, "print('deep in it', flush=True); os.kill(os.getpid(), 11)"), 2, grace_s=0.2)


def test_a_rank_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "KILL_S", 0.5)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"
    said = io.StringIO()
    with pytest.raises(RankFailed, match="rank 0 did not end within 3 s"):
        launch(script(deaf), 1, deadline_s=3, echo=said)
    assert said.getvalue() == "deaf\n"


def test_interrupt_ends_the_ranks() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch(script(SLEEP), 2, poll=interrupt)  # the fixture of conftest.py sees that no process is left
    assert time.monotonic() - begin < 20


@pytest.mark.processes
def test_ranks_follow_a_launcher_that_is_killed(tmp_path: Path) -> None:
    program = f"""
from real.launch import launch
launch(["-c", '''
import os, time
from real.rank.health import follow_launcher
follow_launcher()
open("{tmp_path}/pid", "w").write(str(os.getpid()))
time.sleep(60)
'''], 1)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # where it leaves the folder that it cannot remove any more
    launcher = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, env=env)
    deadline = time.monotonic() + 50
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline and launcher.poll() is None
        time.sleep(0.05)
    rank = int((tmp_path / "pid").read_text())
    launcher.kill()
    launcher.wait()
    try:
        while _alive(rank):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        if _alive(rank):
            os.kill(rank, signal.SIGKILL)


def _alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_records_survive_the_way_home() -> None:
    """Also for a loss of nan, which marks a diverged run."""
    epoch = RankEpoch(3, math.nan, {"epoch": 1.0}, {"forward": {0: 5, -1: 2}}, np.asarray([0, 7]).tobytes(), None, 11)
    outcome = LaunchOutcome([RankResult(0, [epoch], {"layer0": "cache"})] * 2, [0, 1], "gloo", "cpu")
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=LaunchOutcome).execution()
    assert math.isnan(back.ranks[0].epochs[0].loss or 0.0)
    assert back.ranks[1].epochs[0].layers == {"forward": {0: 5, -1: 2}}
    assert back.ranks[1].epochs[0].to == epoch.to
    assert (back.tiers, back.tier_of.tolist()) == (["loopback", "ethernet"], [[0, 1], [1, 0]])
    assert back.facts == {"backend": "gloo", "device": "cpu"}


@pytest.mark.processes
@pytest.mark.parametrize("tensors", ["small", "large"])
def test_real_mode_equals_loopback(tensors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole run through processes: bit-equal losses, equal bytes, and one progress call per epoch.

    Ranks with large tensors keep large blocks.
    """
    if tensors == "large":
        monkeypatch.setenv("HALOSCOPE_LARGE_BLOCKS", "1")
    config = RunConfig.of(parts=2, epochs=3, eval_every=2, partitioner="hash", threads=1)
    expected = run(config)
    epochs: list[int] = []
    result = run(RunConfig.of(**{**config.flat(), "mode": "real"}), lambda record: epochs.append(record.epoch))
    assert epochs == [0, 1, 2]
    assert result.state == "done"
    for mine, theirs in zip(result.epochs, expected.epochs, strict=True):
        for key in ("loss", "train", "val", "test"):
            assert mine[key] == theirs[key]
        for key in ("forward", "backward", "reduce", "other"):
            assert mine["bytes"][key] == theirs["bytes"][key]
        assert mine["bytes"]["tiers"] == {"loopback": theirs["bytes"]["tiers"]["memory"]}
        assert mine["seconds"]["epoch"] > 0 and min(mine["peak_memory"]) > 1e6


RANK = """
import sys
import real.__main__
from pathlib import Path
from real.launch import _execute
from real.rank.health import end_process
told = Path(sys.argv.pop(1))
_execute.machine.keep_heap = lambda largest: told.write_text(str(largest))
end_process(real.__main__.main(sys.argv[1:]))
"""
"""Writes into a file what `keep_heap` is told."""


@pytest.mark.processes
def test_ranks_keep_blocks_as_large_as_the_rows_of_any_rank(tmp_path: Path) -> None:
    """Also ranks that others start: the largest is that of own rows, halo rows and rows sent, times all heads."""
    config = RunConfig.of(
        parts=3, epochs=1, partitioner="hash", model="gat", heads=8, hidden=64, mode="real", threads=1
    )
    told, asked, outcome = tmp_path / "told", tmp_path / "config.json", tmp_path / "outcome"
    asked.write_bytes(msgspec.json.encode(config.flat()))
    command = [RANK, str(told), "--config", str(asked), "--result", str(outcome), "--progress", str(tmp_path / "lines")]
    launch(["-c", *command], 3, threads=1)
    counts = prepare(config).train.quality.rows()
    most = max(max(part["inner"], part["halo"], part["sent"]) for part in counts)
    assert most > max(part["inner"] for part in counts), "of a hash cut the halo is larger"
    assert int(told.read_text()) == 4 * most * 8 * 64


@pytest.mark.processes
def test_ranks_load_the_library_that_keeps_blocks_whoever_starts_them(tmp_path: Path) -> None:
    if (library := large_blocks()) is None:
        pytest.skip("no C compiler")
    (tmp_path / "telling.py").write_text(TELLING)
    flags = ["--model", "telling:model", "--parts", "1", "--method", "single", "--epochs", "1", "--force"]
    alone = {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    told = tmp_path / "told"
    for words, more in ((["-m", "real", *flags], alone), (["-m", "harness", "run", *flags, "--mode", "real"], {})):
        environment = {**os.environ, "PYTHONPATH": path, "TOLD": str(told), **more}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert told.read_text().endswith(library.name), words
        told.unlink()


TELLING = """
import os
from harness.nn import build_model
from dataclasses import replace

def model(config, inputs, classes):
    with open(os.environ["TOLD"], "w") as file:
        file.write(os.environ.get("LD_PRELOAD", ""))
    return build_model(replace(config, name="gcn"), inputs, classes, 0)
"""
"""A model that writes into a file what is loaded before the process that makes it."""


@pytest.mark.processes
def test_the_process_that_ranks_are_forked_from_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the data is prepared, and so before it is known how large tensors are."""
    config = RunConfig.of(parts=2, epochs=1, partitioner="hash", hidden=4096, layers=2, mode="real", threads=1)
    started: list[ForkServer] = []

    def start(environment: Mapping[str, str]) -> ForkServer:
        started.append(ForkServer(environment))
        return started[-1]

    monkeypatch.setattr(fork_server, "ForkServer", start)
    monkeypatch.setattr("harness.machine._allocator.MAPPED_ABOVE", 0)
    fork_server.close()
    assert run(config).state == "done"
    assert len(started) == 1 and fork_server.running_server() is started[0]


def test_ranks_keep_to_cores_of_their_own_where_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.machine._cores.CLAIMS", f"haloscope-test-{os.getpid()}")
    cores = sorted(os.sched_getaffinity(0))
    tell = "import os; open(os.environ['SAY'] + os.environ['RANK'], 'w').write(str(sorted(os.sched_getaffinity(0))))"
    launch(["-c", tell], len(cores), threads=1, deadline_s=60, env={"SAY": str(tmp_path / "own")})
    assert [(tmp_path / f"own{rank}").read_text() for rank in range(len(cores))] == [str([core]) for core in cores]
    launch(["-c", tell], len(cores) + 1, threads=1, deadline_s=60, env={"SAY": str(tmp_path / "all")})
    assert {(tmp_path / f"all{rank}").read_text() for rank in range(len(cores) + 1)} == {str(cores)}
    assert sorted(os.sched_getaffinity(0)) == cores


def test_runs_at_once_have_cores_of_their_own_or_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("harness.machine._cores.CLAIMS", f"haloscope-test-{os.getpid()}")
    cores = sorted(os.sched_getaffinity(0))
    tell = "import os; open(os.environ['SAY'], 'w').write(str(sorted(os.sched_getaffinity(0))))"
    with Claim(1) as other:
        assert other.cores == cores[:1] and not other.taken
        free = launch(["-c", tell], 1, threads=1, deadline_s=60, env={"SAY": str(tmp_path / "one")})
        if len(cores) > 1:
            assert (tmp_path / "one").read_text() == str(cores[1:2]) and free == ""
        why = launch(["-c", tell], len(cores), threads=1, deadline_s=60, env={"SAY": str(tmp_path / "all")})
        assert why == f"other runs hold 1 of {len(cores)} cores, {len(cores)} are needed"
        assert (tmp_path / "all").read_text() == str(cores), "not pinned"
        assert "times of this run are worth little" in caplog.text
    assert launch(["-c", "pass"], len(cores), threads=1, deadline_s=60) == ""
    assert launch(["-c", "pass"], len(cores) + 1, threads=1, deadline_s=60).endswith(f"share {len(cores)} cores")
    result = run(RunConfig.of(parts=len(cores) + 1, epochs=1, mode="real", threads=1, eval_every=-1))
    words = f"times are worth little: {len(cores) + 1} threads share {len(cores)} cores"
    assert words in notes_of(result.to_dict())
    with Claim(len(cores)) as kept:
        assert kept.cores == cores, "every launch has released its claim"
