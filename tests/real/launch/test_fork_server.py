"""Ranks that are forked are as new interpreters would be; where they cannot be forked, these are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config import RunConfig
from harness.running import drift, run
from real.launch import _fork_server as fork_server
from real.launch import _launcher as launcher
from tests.conformance.test_drivers import comparable, config
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.processes

RANK = """
import os, sys
print("said", *sys.argv[1:], os.environ["RANK"], "LEFT" in os.environ, sorted(os.sched_getaffinity(0)), flush=True)
open_files = len(os.listdir("/proc/self/fd"))
print(os.getpgid(0) == os.getpid(), os.stat("/proc/self/ns/net").st_ino, open_files, flush=True)
if sys.argv[1] == "wait":
    os.read(0, 1)
if sys.argv[1] == "raise":
    raise ValueError("a rank's own")
if sys.argv[1] != "return":
    sys.exit(7)
"""
"""The module that ranks run."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fork_server.ForkServer]:
    """A server whose ranks can run `RANK`, and which no later test meets."""
    (tmp_path / "a_rank.py").write_text(RANK)
    monkeypatch.setenv("LEFT", "yes")
    fork_server.close()
    found = fork_server.server_for({**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)})
    assert found is not None
    yield found
    fork_server.close()


def started(server: fork_server.ForkServer, out: Path, *arguments: str) -> fork_server.ForkedRank:
    with out.open("wb") as stream:
        rank = server.start("a_rank", arguments, {"RANK": "3", "PATH": os.environ["PATH"]}, stream)
    assert rank is not None
    return rank


def test_a_fork_has_what_it_was_sent(server: fork_server.ForkServer, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        rank = started(server, tmp_path / "out", "--flag", "value")
    finally:
        os.sched_setaffinity(0, before)
    assert rank.wait(60) == 7 and rank.poll() == 7
    said, more = (tmp_path / "out").read_text().splitlines()
    assert said == f"said --flag value 3 False [{min(before)}]", "environment, arguments and cores are the launcher's"
    assert more == f"True {os.stat('/proc/self/ns/net').st_ino} 4", "0, 1, 2, and the listing's own"
    rank.stdin.close()


def test_ends_are_told_apart(server: fork_server.ForkServer, tmp_path: Path) -> None:
    waiting, killed, raising, released, returning = (
        started(server, tmp_path / f"out{number}", word)
        for number, word in enumerate(("wait", "wait", "raise", "wait", "return"))
    )
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.05)
    waiting.terminate()
    killed.kill()
    released.stdin.close()  # as when the launcher ends
    assert [each.wait(60) for each in (waiting, killed, raising)] == [-signal.SIGTERM, -signal.SIGKILL, 1]
    assert released.wait(60) == 7 and returning.wait(60) == 0
    assert "ValueError: a rank's own" in (tmp_path / "out2").read_text()
    waiting.kill()  # does nothing: it has ended
    for each in (waiting, killed, raising, returning):
        each.stdin.close()


def test_ranks_of_a_server_that_was_killed_have_ended_when_they_have(
    server: fork_server.ForkServer, tmp_path: Path
) -> None:
    rank = started(server, tmp_path / "out", "wait")
    os.kill(server.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert rank.poll() is None, "it goes on"
    with (tmp_path / "more").open("wb") as stream:
        assert server.start("a_rank", ["x"], {}, stream) is None
    rank.kill()
    assert rank.wait(60) == -signal.SIGKILL
    rank.stdin.close()
    assert fork_server.server_for({**server.key[1]}) is not server, "the next one begins anew"


def test_a_server_with_threads_forks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not started again for the same environment."""
    busy = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    program = f"{busy}\nfrom real.launch import serve\nserve()"
    monkeypatch.setattr(fork_server, "SERVER", (sys.executable, "-c", program))
    fork_server.close()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    refusing = fork_server.server_for(environment)
    assert refusing is not None
    with (tmp_path / "out").open("wb") as stream:
        assert (
            refusing.start("a_rank", ["x"], {}, stream) is None and refusing.start("a_rank", ["x"], {}, stream) is None
        )
    assert fork_server.server_for(environment) is refusing and not refusing.forks
    fork_server.close()


def test_a_server_serves_one_environment(server: fork_server.ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, **dict(server.key[1])}
    same = {**environment, "RANK": "1", "HALOSCOPE_CACHE": "elsewhere", "MASTER_PORT": "17"}
    assert fork_server.server_for(same) is server
    other = fork_server.server_for({**environment, "OMP_NUM_THREADS": "2"})
    assert other is not None and other is not server and not Path(f"/proc/{server.pid}").exists()
    assert fork_server.running_server() is other
    monkeypatch.chdir("/")
    assert fork_server.server_for({**environment, "OMP_NUM_THREADS": "2"}) is not other


def test_a_system_without_process_descriptors_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("no such system call")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert fork_server.server_for({**os.environ, "OMP_NUM_THREADS": "1"}) is None


def test_a_forked_process_begins_its_own(server: fork_server.ForkServer) -> None:
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, b"none" if fork_server.running_server() is None else b"mine")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 4) == b"none"
    os.close(read)
    os.close(write)


def test_a_server_ends_with_its_launcher() -> None:
    code = (
        "import os; from real.launch import _fork_server as f\n"
        "print(f.server_for({**os.environ, 'OMP_NUM_THREADS': '1'}).pid, flush=True); os._exit(0)"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    end = time.monotonic() + 60
    while Path(f"/proc/{int(said.stdout)}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{int(said.stdout)}").exists()


@pytest.fixture
def setting() -> RunConfig:
    return config("sylvie-s:bits=1", parts=2, epochs=4, mode="real")


def test_forked_ranks_train_as_new_interpreters_do(setting: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = run(setting)
    assert fork_server.running_server() is not None
    fork_server.close()
    monkeypatch.setattr(launcher, "server_for", lambda environment: None)
    assert comparable(run(setting)) == comparable(forked)
    assert fork_server.running_server() is None


def test_processor_time_of_forked_ranks_is_not_that_of_others(setting: RunConfig) -> None:
    run(setting)  # starts the server, if there is none
    with drift.watching() as load:
        before = drift._busy()[1]
        run(setting.changed(epochs=40))
    assert drift._busy()[1] - before > 0.1
    assert 0 <= load.foreign <= 1


def test_more_than_one_thread_a_rank_can_be_forked(setting: RunConfig) -> None:
    two = setting.changed(threads=2)
    assert comparable(run(two)) == comparable(run(two.changed(mode="loopback")))
    server = fork_server.running_server()
    assert server is not None and server.forks, "loading has started no thread"
    fork_server.close()
