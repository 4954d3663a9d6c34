"""The kernel's kills for want of memory are told apart from those of others, by its counts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from real.launch import _memory_kills as memory
from real.launch._child import Child
from real.launch._launcher import RankFailed, _raise_failure
from real.rank import place
from real.rank.health import read_words

V1 = "9:name=systemd:/\n4:cpu,memory:/job/7\n"
V2 = "0::/job/8\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the kernel's files."""
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OF_PROCESS", tmp_path / "self")
    monkeypatch.setattr(memory, "OF_MACHINE", tmp_path / "vmstat")
    return tmp_path


@pytest.mark.parametrize(
    ("groups", "file"), [(V1, "cgroup/memory/job/7/memory.oom_control"), (V2, "cgroup/job/8/memory.events")]
)
def test_the_counts_of_the_group_and_of_the_machine_are_added(groups: str, file: str, kernel: Path) -> None:
    assert memory.memory_kills() == 0
    (kernel / "vmstat").write_text("pgfault 7\noom_kill 5\n")
    assert memory.memory_kills() == 5
    (kernel / "self").write_text(groups)
    assert memory.memory_kills() == 5
    (kernel / file).parent.mkdir(parents=True)
    (kernel / file).write_text("low 0\noom 9\noom_kill 2\noom_group_kill 1\n")
    assert memory.memory_kills() == 7


def test_an_earlier_kill_of_another_process_does_not_count(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("real.launch._child.COUNT_S", 0.0)
    (kernel / "vmstat").write_text("oom_kill 3\n")
    place.create(kernel / "place")
    (kernel / "log").touch()
    store = HashStore()
    with subprocess.Popen(["sleep", "60"]) as process:
        child = Child(0, process, kernel / "log", kernel / "place")
        (kernel / "vmstat").write_text("oom_kill 4\n")
        child.poll(store)  # two moments of a long run
        child.poll(store)
        process.kill()
        process.wait(10)
        child.poll(store)
    assert child.failed and not child.out_of_memory


@pytest.mark.parametrize(
    ("number", "rises", "says"),
    [
        (signal.SIGKILL, 1, "rank 0 was killed by the kernel for want of memory (SIGKILL) in start-up"),
        (signal.SIGKILL, 0, "rank 0 was killed by SIGKILL in start-up"),
        (signal.SIGTERM, 1, "rank 0 was killed by SIGTERM in start-up"),
    ],
)
def test_a_rank_that_is_killed(number: signal.Signals, rises: int, says: str, kernel: Path) -> None:
    (kernel / "vmstat").write_text("oom_kill 3\n")
    place.create(kernel / "place")
    (kernel / "log").touch()
    store = HashStore()
    process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process, process.stdin:
        child = Child(0, process, kernel / "log", kernel / "place")
        (kernel / "vmstat").write_text(f"oom_kill {3 + rises}\n")
        os.kill(process.pid, number)
        process.wait(10)
        child.poll(store)
    assert str(read_words(store, 0)) == says
    with pytest.raises(RankFailed) as failure:
        _raise_failure([child], store)
    assert str(failure.value).startswith(says) and failure.value.state == "killed"
