"""Folders of runs name their owners; what the dead left is found and removed, and nothing of the living."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import cli
from harness.machine import RUN_FOLDER_VARIABLE, building, leftovers, run_folder, started
from harness.machine._cache import BUILD_S, half_built
from harness.machine._files import YOUNG_S, hidden_name, take_lock, this_machine
from real.lab import remove, stale
from real.lab._namespaces import FOLDER, name_of, tool
from tests.conftest import REPOSITORY
from tests.support.labs import needs_lab

FOREIGN = f"{int(this_machine(), 16) ^ 1:05x}"
"""Another machine, as names of half-built entries tell it."""

OWNER = """
import sys, time
from harness.machine import building, run_folder
from harness.machine._files import hidden_name
from pathlib import Path
with run_folder() as folder, building(Path(sys.argv[1])):
    half = hidden_name(Path(sys.argv[1]))
    half.mkdir()
    print(folder, half, flush=True)
    time.sleep(60)
"""


def older(path: Path, seconds: float = 2 * YOUNG_S) -> Path:
    """The same path, last changed more than a minute ago."""
    os.utime(path, (time.time() - seconds,) * 2)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of their own for temporary files, the cache and results."""
    for name in ("temporary", "cache", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_has_one_folder(places: Path) -> None:
    with run_folder() as outer:
        assert outer.parent == places / "temporary"
        assert outer.name.startswith(f"haloscope-{os.getpid()}-{started(os.getpid())}-")
        assert f"process {os.getpid()} on {os.uname().nodename}" in (outer / "owner").read_text()
        with run_folder() as inner:
            assert inner.parent == outer
        assert not inner.exists()
        with run_folder(places / "cache") as apart:
            assert apart.parent == places / "cache"
        assert leftovers(places / "runs") == []
    assert not list((places / "temporary").iterdir()) and not list((places / "cache").iterdir())


def test_folders_of_ranks_are_in_that_of_their_launcher(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_FOLDER_VARIABLE, str(places / "temporary"))
    with run_folder() as folder:
        assert folder.parent == places / "temporary" and folder.name.startswith("part-")
    assert not folder.exists()


def test_what_the_dead_left_is_removed(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While the owner lives nothing is named; once it was killed its folder and its half-built entry are."""
    env = {**os.environ, "TMPDIR": str(places / "temporary"), "PYTHONPATH": str(REPOSITORY)}
    entry = places / "cache" / "entry"
    command = [sys.executable, "-c", OWNER, str(entry)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        folder, half = map(Path, owner.stdout.readline().split())
        older(half)
        (places / "runs" / ".young.json.0123456789abcdef").touch()
        older(places / "runs" / ".young.json.0123456789abcdef").touch()  # young again
        assert cli.main(["doctor", "--clean"]) == 0
        assert "nothing is left of dead runs" in capsys.readouterr().out and folder.exists()
        owner.send_signal(signal.SIGKILL)
    scratch = places / "runs" / ".x.json.0123456789abcdef"
    scratch.touch()
    older(scratch)
    assert {left.path for left in leftovers(places / "runs")} == {folder, half, scratch}
    assert cli.main(["doctor"]) == 0 and "3 of dead runs; doctor --clean removes them" in capsys.readouterr().out
    assert folder.exists()
    assert cli.main(["doctor", "--clean"]) == 0
    said = capsys.readouterr().out
    assert f"removed {folder}: temporary folder of process {owner.pid} on " in said
    assert "removed runs/.x.json.0123456789abcdef: half-written file" in said
    assert not folder.exists() and not scratch.exists() and leftovers(places / "runs") == []
    assert (places / "runs" / ".young.json.0123456789abcdef").exists()


def test_namespaces_of_the_dead_are_removed_and_no_others(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lab whose process was killed; this process's own namespace stays."""
    needs_lab()
    code = (
        "from real.lab import _namespaces as made\nname = made.name_of('left')\n"
        "made.tool('ip', 'netns', 'add', name)\nprint(name)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    dead, mine = found.stdout.strip(), name_of("mine")
    tool("ip", "netns", "add", mine)
    try:
        assert cli.main(["doctor", "--clean"]) == 0
        assert f"removed network namespace {dead}" in capsys.readouterr().out
        assert dead not in stale() and not (FOLDER / dead).exists() and (FOLDER / mine).exists()
    finally:
        remove([mine])


def test_an_owner_that_cannot_be_seen_is_alive_while_it_holds_its_lock(places: Path) -> None:
    """A process id of another container means nothing here."""
    folder = places / "temporary" / "haloscope-999999999-abc-xyz"
    folder.mkdir()
    assert leftovers(places) == [], "in its first minute it may have no lock yet"
    with take_lock(folder / "owner"):
        assert leftovers(places) == []
    assert [left.path for left in leftovers(places)] == [folder]
    (folder / "owner").write_text("process 1 on another-host since 2026-01-01 00:00:00")
    assert leftovers(places) == [], "only its own host can tell"
    (folder / "owner").unlink()
    older(folder)
    assert [left.path for left in leftovers(places)] == [folder]


def test_entries_that_are_being_built(places: Path) -> None:
    root, entry = places / "cache", places / "cache" / "deep" / "entry"
    with building(entry):
        half, inside = hidden_name(entry), hidden_name(entry / "part")
        half.mkdir()
        inside.mkdir(parents=True)
        older(half)
        older(inside)
        assert half_built(root) == []
    assert half_built(root) == [half, inside]
    half.touch()
    assert half_built(root) == [inside]
    theirs = older(inside.rename(inside.with_name(f".part.{FOREIGN}0012345abcd")))
    assert half_built(root) == [], "a lock of another host may not be seen here"
    older(theirs, BUILD_S + 1)
    assert half_built(root) == [theirs]
