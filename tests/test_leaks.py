"""The checks for leaks and for the number of skipped tests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support import leaks, skips


def found(folder: Path, before: leaks.State) -> str:
    return "; ".join(leaks.left(before, leaks.state(folder)))


def test_nothing_is_found_where_nothing_is_left(tmp_path: Path) -> None:
    before = leaks.state(tmp_path)
    with tempfile.NamedTemporaryFile(dir=tmp_path), socket.socket():
        pass
    assert found(tmp_path, before) == ""


def test_every_kind_of_leak_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, go_on = leaks.state(tmp_path), threading.Event()
    thread = threading.Thread(target=go_on.wait, name="left-thread")
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "left-file").touch()
    monkeypatch.setenv("LEFT_VARIABLE", "1")
    with socket.socket() as opened:
        said = found(tmp_path, before)
        number = opened.fileno()
    go_on.set()
    thread.join()
    child.communicate(b"\n")
    for what in ("LEFT_VARIABLE", "left-thread", str(child.pid), "left-file", f"'{number} (socket:"):
        assert what in said


def test_namespaces_of_this_process_and_of_dead_ones_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "NAMESPACES", tmp_path / "netns")
    (tmp_path / "netns").mkdir()
    (tmp_path / "files").mkdir()
    before = leaks.state(tmp_path / "files")
    names = [f"hs{os.getpid()}-1f-h0", "hs999999999-1f-h0", f"hs{os.getppid()}-1f-h0", "somebody-else"]
    for name in names:
        (tmp_path / "netns" / name).touch()
    said = found(tmp_path / "files", before)
    assert [name in said for name in names] == [True, True, False, False]


def test_skips_beyond_their_budget_are_said() -> None:
    pattern, allowed = next(iter(skips.BUDGET.items()))
    reason = "needs a GPU"
    assert re.search(pattern, reason)
    assert skips.over([reason] * allowed) == []
    assert str(allowed + 1) in skips.over([reason] * (allowed + 1))[0]
    assert "made up: 1 tests, 0 allowed" in skips.over(["made up"])[0]


def test_only_a_whole_run_is_judged() -> None:
    class Asked:
        keyword = ""

    class Chosen:
        option, args = Asked(), ["tests"]

    assert skips.whole(Chosen())  # type: ignore[arg-type]
    Chosen.args = ["tests/test_leaks.py"]
    assert not skips.whole(Chosen())  # type: ignore[arg-type]
