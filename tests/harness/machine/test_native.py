"""C libraries are built once, whoever asks, and not at all where that is not possible."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine import THIS_PROCESSOR, native_library

SEVEN = "int seven(void) { return 7; }\n"
BUILDS = """
import ctypes, sys
from pathlib import Path
from harness.machine import native_library
print(ctypes.CDLL(str(native_library(Path(sys.argv[1]), ("-O2",)))).seven())
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C file, and an empty cache folder."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "some_numbers.c"
    file.write_text(SEVEN)
    return file


def test_a_library_is_built_once_for_its_source_and_flags(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = native_library(source, ("-O2",))
    assert first is not None and first.name.startswith("some-numbers-")
    assert ctypes.CDLL(str(first)).seven() == 7
    made = first.stat().st_mtime_ns
    assert native_library(source, ("-O2",)) == first and first.stat().st_mtime_ns == made
    here = native_library(source, ("-O2", THIS_PROCESSOR))
    monkeypatch.setattr("harness.machine._native.instructions", lambda: b"another processor")
    other = native_library(source, ("-O2", THIS_PROCESSOR))
    assert native_library(source, ("-O2",)) == first, "code for any processor of the kind is shared"
    source.write_text(SEVEN.replace("return 7", "return 8"))
    changed = native_library(source, ("-O2",))
    assert changed is not None and ctypes.CDLL(str(changed)).seven() == 8
    assert len({first, here, other, changed}) == 4


def test_processes_that_build_at_once_do_not_disturb_each_other(source: Path) -> None:
    command = [sys.executable, "-c", BUILDS, str(source)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0].strip() for process in running] == ["7"] * 4
    assert len(list((source.parent / "cache" / "native").iterdir())) == 1, "nothing is left half-built"


def test_none_where_it_cannot_be_built(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_library(source, ("--no-such-flag",)) is None
    source.write_text("int seven(void) { return missing(); ")
    assert native_library(source, ("-O2",)) is None
    source.write_text(SEVEN)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(source))  # a file, where nothing can be written
    assert native_library(source, ("-O2",)) is None
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native_library(source, ("-O2",)) is None
