"""Files that are complete or absent, scratch files of killed writers, and locks with an owner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from harness.errors import InputError
from harness.machine import Lock, files_left, kept_json, load_arrays, remove_scratch, replacing, write_atomically
from harness.machine._files import YOUNG_S
from harness.running.results import load_result
from sims.replay import RECORDING_FORMAT, load_recording


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "file", [bytes([n]) * 100_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomically(path, content, durable=False), contents * 5))
    assert path.read_bytes() in contents and [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_writer_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"before")
    with pytest.raises(ZeroDivisionError), replacing(path) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"before" and [found.name for found in tmp_path.iterdir()] == ["file"]
    with pytest.raises(InputError, match="cannot write .*: No such file"):
        write_atomically(tmp_path / "none" / "file", b"")


def test_a_durable_file_is_synchronised_before_it_is_named_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        assert (tmp_path / "file").exists() == (synced[-1] == tmp_path.name)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", b"x")
    assert len(synced) == 2 and synced[0].startswith(".file.") and synced[1] == tmp_path.name
    write_atomically(tmp_path / "file", b"y", durable=False)
    assert len(synced) == 2


def test_only_scratch_that_nobody_writes_is_removed(tmp_path: Path) -> None:
    old, young = tmp_path / f".a.{'0' * 16}", tmp_path / f".b.{'1' * 16}"
    for path in (old, young, tmp_path / ".hidden"):
        path.write_text("")
    past = time.time() - 2 * YOUNG_S
    os.utime(old, (past, past))
    os.utime(tmp_path / ".hidden", (past, past))
    with replacing(tmp_path / "file") as stream:
        stream.write(b"x")
        stream.flush()
        (written,) = tmp_path.glob(".file.*")
        os.utime(written, (past, past))
        remove_scratch(tmp_path)
        assert written.exists() and young.exists() and not old.exists()
    assert (tmp_path / "file").read_bytes() == b"x" and (tmp_path / ".hidden").exists()


def test_scratch_of_a_process_that_was_killed_is_removed_at_once(tmp_path: Path) -> None:
    """And of no other: neither of one that lives and has not locked it yet, nor of another machine's."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom harness.machine import replacing\n"
        "with replacing(Path(sys.argv[1])) as stream:\n    stream.write(b'half')\n    stream.flush()\n"
        "    os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], timeout=60, check=False)
    (left,) = tmp_path.iterdir()
    assert killed.returncode == -9
    digits = left.name.rpartition(".")[2]
    elsewhere = tmp_path / f".file.{int(digits[:5], 16) ^ 1:05x}{digits[5:]}"
    living = tmp_path / f".file.{digits[:5]}{os.getpid():06x}{digits[11:]}"
    for path in (elsewhere, living):
        path.write_text("")
    remove_scratch(tmp_path)
    assert not left.exists() and elsewhere.exists() and living.exists()


def test_a_lock_names_its_owner_until_it_ends(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(InputError, match=f"is in use by process {os.getpid()} on .* since 2"):
        Lock(tmp_path)
    lock.release()
    lock.release()
    assert not list(tmp_path.iterdir())
    Lock(tmp_path).release()


def test_files_that_may_still_be_opened_are_counted() -> None:
    assert files_left(5) == files_left(5) == 5 and files_left(0) == 0


DAMAGED = (b"", b"{", b'{"a": "\xff"}', b"[" * 100_000, b"[1]", b'{"a": null}')


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: repr(content[:12]))
def test_what_is_kept_and_damaged_counts_as_absent(content: bytes, tmp_path: Path) -> None:
    """Not UTF-8 and too deep are errors of other classes than wrong JSON."""
    path = tmp_path / "kept.json"
    assert kept_json(path, dict[str, str]) is None
    path.write_bytes(content)
    assert kept_json(path, dict[str, str]) is None
    path.write_bytes(b'{"a": "b"}')
    assert kept_json(path, dict[str, str]) == {"a": "b"}


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: repr(content[:12]))
def test_results_recordings_and_entries_of_the_cache_that_are_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "meta.json").write_bytes(content)
    assert load_arrays(tmp_path / "entry") is None
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_result(path)
    bad = b"\x91" * 100_000 if content.startswith(b"[[") else b"\xa1\xff"  # too deep, or not UTF-8
    header = b"\x82\xa6format" + msgspec.msgpack.encode(RECORDING_FORMAT)
    path.write_bytes(zlib.compress(header + b"\xa6config\x81\xa1a" + bad))
    with pytest.raises(InputError, match="cannot read recording"):
        load_recording(path)
