"""Ranks started by torchrun: what differs between hosts is named, and a run that ends early leaves its epochs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.running.results import load_result
from tests.support.torchrun import SMALL, Agents

REAL = ("-m", "real")
FAILING = """
import os, sys
from harness.errors import Diverged
from harness.running import _training
from real.__main__ import main
from real.rank.health import end_process

record = _training._record

def fail_once(rank, epoch, *rest):
    if epoch == {epoch} and rank.index == 1:
        raise {error}
    return record(rank, epoch, *rest)

_training._record = fail_once
end_process(main(sys.argv[1:]))
"""


def result_in(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "runs").glob("*.json")
    assert not list((folder / "runs").glob("*.ranks")), "records of ranks were left"
    return load_result(file)


def until(reached: Callable[[], bool], limit_s: float = 90.0) -> None:
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.processes
def test_hosts_with_other_flags_are_told_which(tmp_path: Path) -> None:
    programs = [(*REAL, *SMALL, "--quiet", "--lr", lr) for lr in ("0.01", "0.02")]
    with Agents(tmp_path, 1, programs) as agents:
        assert 0 not in agents.wait()
        for number in range(2):
            (line,) = agents.said(number)
            assert line.startswith("the ranks do not run the same: --lr is 0.0") and "--seed" not in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.processes
def test_hosts_with_other_data_are_told(tmp_path: Path) -> None:
    """The file has the same name and shapes on both, and another split."""
    rng = np.random.default_rng(0)
    graph = {
        "edge_index": rng.integers(0, 40, (2, 200)),
        "x": rng.normal(size=(40, 5)).astype(np.float32),
        "y": rng.integers(0, 3, 40),
    }
    order = rng.permutation(40)
    env = []
    for number, train in enumerate((order[:20], order[:22])):
        folder = tmp_path / str(number)
        folder.mkdir()
        np.savez(folder / "own.npz", train_idx=train, val_idx=order[22:30], test_idx=order[30:], **graph)
        env.append({"HALOSCOPE_CACHE": str(folder / "cache")})
    words = (*REAL, "--dataset", "./own.npz", *SMALL[2:], "--quiet")
    with Agents(tmp_path, 1, [words, words], env=env) as agents:
        assert 0 not in agents.wait()
        for number in range(2):
            (line,) = agents.said(number)
            assert "the graph (hash of edges, features, labels and split) is" in line and "--dataset" not in line


@pytest.mark.processes
def test_sigterm_ends_a_run_at_once_and_keeps_its_epochs(tmp_path: Path) -> None:
    """torchrun waits for ranks 30 s, then kills them: ranks that leave in an orderly way would not be done by then."""
    words = (*REAL, *SMALL, "--quiet", "--epochs", "1000000")
    with Agents(tmp_path, 2, [words]) as agents:
        until(lambda: any((tmp_path / "runs").glob("*.ranks/1")))
        begun = time.monotonic()
        agents.processes[0].send_signal(signal.SIGTERM)
        agents.wait(60)
        assert time.monotonic() - begun < 20
    record = result_in(tmp_path)
    assert record["state"] == "killed" and record["epochs"]
    assert record["message"] == f"ended by SIGTERM after {len(record['epochs'])} epochs"
    assert record["graph"]["num_nodes"] == 60 and record["environment"]["inputs"]["code"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("error", "state"),
    [("ValueError('made up')", "failed"), ("Diverged('made up')", "diverged")],
    ids=["failed", "diverged"],
)
def test_a_run_that_fails_keeps_its_epochs(error: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(FAILING.format(epoch=4, error=error))
    with Agents(tmp_path, 2, [("rank.py", *SMALL, "--quiet", "--epochs", "9")]) as agents:
        assert agents.wait() == [1]
    record = result_in(tmp_path)
    assert record["state"] == state and "rank 1 failed: " in record["message"] and "made up" in record["message"]
    assert [epoch["epoch"] for epoch in record["epochs"]] == [0, 1, 2, 3]
    assert all(epoch["loss"] > 0 and len(epoch["peak_memory"]) == 2 for epoch in record["epochs"])


@pytest.mark.processes
def test_a_failure_without_epochs_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(FAILING.format(epoch=0, error="ValueError('made up')"))
    with Agents(tmp_path, 2, [(*REAL, *SMALL, "--quiet", "--epochs", "3")]) as agents:
        assert agents.wait() == [0]
    done = result_in(tmp_path)
    assert done["state"] == "done" and len(done["epochs"]) == 3
    with Agents(tmp_path, 2, [("rank.py", *SMALL, "--quiet", "--epochs", "3")]) as agents:
        assert agents.wait() == [1]
    assert json.dumps(result_in(tmp_path)) == json.dumps(done)


REJOINING = """
import os, sys, time
from harness.running import _training
from real.__main__ import main
from real.rank.health import end_process

record = _training._record
first = not os.path.exists("failed")
open("count" + os.environ["RANK"], "w").write(os.environ["TORCHELASTIC_RESTART_COUNT"])

def fail_once(rank, epoch, *rest):
    if epoch == 2 and first:
        if rank.index == 0:
            time.sleep(60)  # healthy, until its agent learns that the other one joins again
        open("failed", "w").close()
        raise ValueError("made up")
    return record(rank, epoch, *rest)

_training._record = fail_once
end_process(main(sys.argv[1:]))
"""


@pytest.mark.processes
def test_agents_that_count_restarts_differently_meet_again(tmp_path: Path) -> None:
    """The agent of the rank that fails counts a restart; that of a healthy rank joins again without counting."""
    (tmp_path / "rank.py").write_text(REJOINING)
    words = ("rank.py", *SMALL, "--quiet", "--epochs", "4")
    with Agents(tmp_path, 1, [words, words], restarts=2) as agents:
        assert agents.wait(150) == [0, 0]
    assert sorted((tmp_path / f"count{rank}").read_text() for rank in range(2)) == ["0", "1"]
    record = result_in(tmp_path)
    assert record["state"] == "done" and len(record["epochs"]) == 4
