"""Cells on engines: the same results everywhere, lost workers and drivers cost no cell, and nothing is left running."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.errors import InputError
from harness.running.engines import ENGINES, LocalProcesses, opened_engine

pytest.importorskip("distributed", reason="the extra `dask` is not installed")
pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for workers in /proc")

CODE = Path(cli.__file__).parent.parent
GRID = (
    '[run]\ndataset = "synthetic:nodes=120,degree=6,classes=3,features=8"\nepochs = {epochs}\neval_every = 0\n'
    'mode = "sim"\ncluster = "ethernet-10g"\n[grid]\nmethod = ["vanilla", "sylvie-s"]\nbits = [1, 8]\nseed = [0, 1]\n'
    '[cluster]\nlinks.nic.bandwidth = ["1 Gb/s", "100 Gb/s"]\n'
)
CELLS = 12


@pytest.fixture
def grid(tmp_path: Path) -> Callable[[int], Path]:
    """A sweep of twelve cells, of so many epochs."""

    def written(epochs: int) -> Path:
        path = tmp_path / f"grid-{epochs}.toml"
        path.write_text(GRID.format(epochs=epochs))
        return path

    return written


class Marked:
    """Processes started for a test, which are recognised by a word in their environment."""

    def __init__(self, mark: Path) -> None:
        self.mark = f"MARK={mark}"
        # what a killed driver leaves in the temporary folder is for `doctor --clean`
        folders = {"PYTHONPATH": str(CODE), "TMPDIR": str(mark)}
        self.environment = {**os.environ, "MARK": str(mark), "OMP_NUM_THREADS": "1", **folders}
        self.started = list[subprocess.Popen[str]]()

    def start(self, *argv: object) -> subprocess.Popen[str]:
        """Python with these arguments."""
        words = [sys.executable, *map(str, argv)]
        started = subprocess.Popen(
            words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(started)
        return started

    def reap(self) -> None:
        """End what was started and still runs, and close its pipes, so that no later test meets either."""
        for process in self.started:
            if process.returncode is None:
                process.kill()
                process.communicate()

    def sweep(self, file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
        """`haloscope sweep` of a file, with its rows on stdout."""
        return self.start("-m", "harness", "sweep", file, "--out", out, "--replays", "0", "--json", "-", *more)

    def alive(self) -> dict[int, str]:
        """Process -> command line, of the test's own and all their descendants."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def workers(self) -> list[int]:
        """Processes of Dask workers, which multiprocessing's `spawn` starts, without those that only watch."""
        return [pid for pid, line in self.alive().items() if "spawn_main" in line]


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    found = Marked(tmp_path)
    yield found
    left = dict[int, str]()
    if not _until(lambda: not found.alive(), 20):
        left = found.alive()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found.reap()
    assert not left, f"processes were left: {left}"


def _until(true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def _rows(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-2000:]
    return list(json.loads(out)["rows"])


def _times(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}


def test_workers_compute_what_this_machine_does(
    grid: Callable[[int], Path], marked: Marked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(grid(2)), "--out", str(tmp_path / "here"), "--jobs", "1", "--replays", "0", "--json", "-"]
    assert cli.main(words) == 0
    here = json.loads(capsys.readouterr().out)["rows"]
    there = _rows(marked.sweep(grid(2), tmp_path / "there", "--on", "dask", "--jobs", "2"))
    assert len(here) == len(there) == CELLS
    assert {row["state"] for row in there} == {"done"}
    same = ("run_id", "final_loss", "epoch_seconds", "bytes_per_epoch", "seed", "method")
    assert {"run_id", "epoch_seconds"} <= here[0].keys()
    assert [[row.get(key) for key in same] for row in here] == [[row.get(key) for key in same] for row in there]


def test_lost_workers_and_a_lost_driver_cost_no_cell(
    grid: Callable[[int], Path], marked: Marked, tmp_path: Path
) -> None:
    """Workers are ended by SIGKILL in the middle of a cell, then the driver; the same command goes on."""
    file, out, killed = grid(60), tmp_path / "out", set[int]()
    driver = marked.sweep(file, out, "--on", "dask", "--jobs", "2", "--quiet")
    for wanted in (1, 3):
        assert _until(lambda n=wanted: len(_times(out)) >= n or driver.poll() is not None, 120)  # type: ignore[misc]
        victim = max(set(marked.workers()) - killed)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    assert _until(lambda: len(_times(out)) >= 5 or driver.poll() is not None, 120)
    assert driver.poll() is None, f"it ended before it could be killed: {driver.communicate()[1][-2000:]}"
    driver.kill()
    driver.communicate()
    assert _until(lambda: not marked.alive(), 30), f"workers outlived a killed driver: {marked.alive()}"
    kept = _times(out)
    assert 5 <= len(kept) < CELLS, "the driver was killed too late to tell anything"
    rows = _rows(marked.sweep(file, out, "--on", "dask", "--jobs", "2", "--quiet"))
    assert [row["state"] for row in rows] == ["done"] * CELLS
    after = _times(out)
    assert len(after) == CELLS and {name: after[name] for name in kept} == kept, "a finished cell was run again"
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_a_cluster_elsewhere_is_used_and_left_as_it_is(
    grid: Callable[[int], Path], marked: Marked, tmp_path: Path
) -> None:
    found = tmp_path / "scheduler.json"
    scheduler = marked.start(
        "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
        "--scheduler-file", found,
    )  # fmt: skip
    assert _until(lambda: found.exists() and found.stat().st_size > 0, 60)
    worker = marked.start(
        "-m", "distributed.cli.dask_worker", "--scheduler-file", found, "--nthreads", "1", "--no-nanny",
        "--no-dashboard", "--host", "127.0.0.1", "--local-directory", tmp_path / "scratch",
    )  # fmt: skip
    try:
        rows = _rows(marked.sweep(grid(2), tmp_path / "out", "--on", f"dask:{found}", "--quiet"))
        assert [row["state"] for row in rows] == ["done"] * CELLS
        assert scheduler.poll() is None and worker.poll() is None, "what others started was ended"
    finally:
        # one after the other: a worker whose scheduler was ended at the same time once did not end in a minute
        for process in (worker, scheduler):
            process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:  # how Dask's own programs end is not what this test is about
                process.kill()
                process.communicate()


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("ray", "engine of --on 'ray'"),
        ("local:4", "--jobs N says how many"),
        ("slurm:time", "write KEY=VALUE"),
        ("slurm:cluster=moon", "cluster of --on slurm"),
        ("dask:nowhere", "write dask:HOST:PORT"),
        ("dask:none.json", "no such file"),
    ],
)
def test_engines_that_cannot_be_had_are_said_in_one_line(
    on: str, said: str, tmp_path: Path, grid: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=said), opened_engine(on, 1, tmp_path):
        pass
    assert cli.main(["sweep", str(grid(2)), "--out", str(tmp_path / "out"), "--on", on]) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'haloscope\[dask\]'"), opened_engine("dask", 1, tmp_path):
        pass


def test_every_engine_has_a_description_and_this_machine_room() -> None:
    assert set(ENGINES) == {"local", "slurm", "dask"} and all(ENGINES.values())
    assert LocalProcesses(3).places(2) == 2 and LocalProcesses(3).places() == 3 and LocalProcesses(3).places(0) == 1
