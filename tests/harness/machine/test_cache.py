"""The cache: damage is noticed, moments without resources are not taken for damage, one process builds at a time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from harness.errors import InputError
from harness.machine import building, has_entry, load_arrays, load_meta, store_arrays, writing
from harness.machine._cache import BUILD_S
from harness.machine._checksum import checksum
from harness.machine._files import YOUNG_S, this_machine

WAIT_S = 60.0
FOREIGN = f"{int(this_machine(), 16) ^ 1:05x}"
"""Another machine, as names and listings tell it."""


@given(
    arrays_of.arrays(np.uint8, st.integers(1, 70)), st.data()
)  # fmt: skip
def test_a_checksum_depends_on_every_byte_and_its_place(data: np.ndarray, draw: st.DataObject) -> None:
    before, changed = checksum(data), data.copy()
    at = draw.draw(st.integers(0, len(data) - 1))
    changed[at] ^= draw.draw(st.integers(1, 255))
    assert checksum(changed) != before and checksum(data.copy()) == before
    assert checksum(np.concatenate([data, np.zeros(1, np.uint8)])) != before


def test_words_that_change_places_change_the_checksum() -> None:
    words = np.arange(100, dtype=np.int64)
    assert len({checksum(np.roll(words, shift)) for shift in range(100)}) == 100
    assert checksum(np.empty(0)) == checksum(np.empty(0, np.int32))


@pytest.mark.parametrize("mmap", [True, False])
def test_damage_of_the_same_size_is_noticed(mmap: bool, tmp_path: Path) -> None:
    folder = tmp_path / "key"
    store_arrays(folder, {"a": np.arange(1000.0), "b": np.ones(3)}, {})
    with (folder / "a.npy").open("r+b") as file:
        file.seek(4000)
        file.write(b"\0" * 8)
    assert load_arrays(folder, mmap) is None and not folder.exists()


def test_a_damaged_byte_of_the_header_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    """Whatever the parser of headers makes of it."""
    folder, data = tmp_path / "key", np.arange(12.0).reshape(3, 4)
    store_arrays(folder, {"a": data}, {})
    whole, listing = (folder / "a.npy").read_bytes(), (folder / "meta.json").read_bytes()
    for at, other in product(range(len(whole) - data.nbytes), b" (\xff"):
        folder.mkdir(exist_ok=True)
        (folder / "meta.json").write_bytes(listing)
        (folder / "a.npy").write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
        found = load_arrays(folder, mmap=bool(at % 2))
        assert found is None or np.array_equal(found[0]["a"], data), (at, other)


def no_checksums(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    meta["arrays"] = {name: kind[:2] for name, kind in meta["arrays"].items()}
    (folder / "meta.json").write_text(json.dumps(meta))


INCOMPLETE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda folder: os.truncate(folder / "a.npy", 4000),
    "file removed": lambda folder: (folder / "a.npy").unlink(),
    "no listing": lambda folder: (folder / "meta.json").unlink(),
    "listing cut off": lambda folder: os.truncate(folder / "meta.json", 20),
    "of a version without checksums": no_checksums,
}


@pytest.mark.parametrize("damage", INCOMPLETE.values(), ids=list(INCOMPLETE))
def test_an_incomplete_entry_is_removed_without_reading_its_arrays(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "key"
    assert not has_entry(folder)
    store_arrays(folder, {"a": np.arange(1000.0), "none": np.empty((0, 3))}, {})
    assert has_entry(folder) and folder.exists()
    damage(folder)
    assert not has_entry(folder) and not folder.exists()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO, errno.EACCES])
def test_a_moment_without_resources_is_not_damage(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "key"
    store_arrays(folder, {"a": np.arange(100)}, {})

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr("harness.machine._cache.np.load", refused)
        with pytest.raises(InputError, match="cannot read the cache entry now"):
            load_arrays(folder)
    found = load_arrays(folder)
    assert found is not None and len(found[0]["a"]) == 100


NO_HANDLES = """
import resource, sys
from pathlib import Path
from harness.errors import InputError
from harness.machine import load_arrays
load_arrays(Path(sys.argv[1]))
taken = [open("/dev/null") for _ in range(3)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1].fileno() + 1, taken[-1].fileno() + 1))
try:
    load_arrays(Path(sys.argv[1]))
except InputError as error:
    print(error)
"""


def test_a_process_without_open_files_left_keeps_the_entry(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    store_arrays(folder, {"a": np.arange(100)}, {})
    done = subprocess.run(
        [sys.executable, "-c", NO_HANDLES, str(folder)], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert "Too many open files" in done.stdout and load_arrays(folder) is not None


BUILD = """
import sys, time
from pathlib import Path
import numpy as np
from harness.machine import building, has_entry, load_arrays, store_arrays
folder = Path(sys.argv[1])
with building(folder):
    if load_arrays(folder) is None:
        with open(sys.argv[2], "a") as builds:
            builds.write("built\\n")
        time.sleep(1.0)
        store_arrays(folder, {"a": np.arange(10)}, {})
"""


def test_of_several_processes_one_builds_and_the_others_wait(tmp_path: Path) -> None:
    folder, builds = tmp_path / "key", tmp_path / "builds"
    command = [sys.executable, "-c", BUILD, str(folder), str(builds)]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [child.communicate(timeout=WAIT_S)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], said
    assert builds.read_text() == "built\n" and load_arrays(folder) is not None
    assert not any(said), "a short wait is not worth a line"


def test_who_waits_long_is_told_for_whom(tmp_path: Path) -> None:
    """Once, and not for a worker of the same command, which is of the same group of processes."""
    folder, code = tmp_path / "key", "import harness.machine._cache as cache\ncache.TOLD_S = 0.0\n" + BUILD
    command = [sys.executable, "-c", code, str(folder), str(tmp_path / "builds")]
    with building(folder):
        other = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
        mine = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert other.stderr is not None
        line = other.stderr.readline()
        time.sleep(0.5)
    assert line.startswith(f"process {os.getpid()} on ") and line.endswith("waiting for it\n")
    said = [child.communicate(timeout=WAIT_S)[1].splitlines() for child in (other, mine)]
    assert mine.returncode == other.returncode == 0 and load_arrays(folder) is not None
    assert all(f"process {mine.pid} on" in line for line in said[0]), "that one was in its way afterwards"
    assert all(f"process {other.pid} on" in line for line in said[1])


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.machine._cache.BUILD_S", 0.2)
    words = f"process {os.getpid()} on .* building it for"
    with building(tmp_path / "key"), pytest.raises(InputError, match=words), building(tmp_path / "key"):
        raise AssertionError("two at once")


HALF_BUILT = """
import sys, time
from pathlib import Path
from harness.machine import building
from harness.machine._files import hidden_name
folder = Path(sys.argv[1])
with building(folder):
    hidden_name(folder).mkdir()
    hidden_name(folder / "part-00000").mkdir(parents=True)
    print("half built", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_builder_left_is_removed_and_its_lock_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    child = subprocess.Popen([sys.executable, "-c", HALF_BUILT, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "half built\n"
    child.kill()
    child.communicate(timeout=WAIT_S)
    (tmp_path / ".other.x1").mkdir()
    with building(folder):
        assert sorted(path.name for path in tmp_path.rglob("*")) == [".other.x1", "key", "key.lock"]
    assert not (tmp_path / "key.lock").exists()


def test_what_another_host_is_building_stays_also_where_locks_hold_on_one_host_only(tmp_path: Path) -> None:
    """On NFS without locks, say: this process got the lock while another host builds the same entry."""
    folder = tmp_path / "key"
    theirs = [tmp_path / f".key.{FOREIGN}0012345abcd", folder / f".part-00000.{FOREIGN}0012345abcd"]
    for half in (*theirs, folder / ".git"):
        half.mkdir(parents=True)
    with building(folder):
        assert all(half.is_dir() for half in theirs)
    long_ago = time.time() - BUILD_S - 1
    for half in (theirs[1], folder / ".git"):
        os.utime(half, (long_ago, long_ago))
    with building(folder):
        assert (folder / ".git").is_dir(), "nothing but what is named so was half-built"
        assert theirs[0].is_dir() and not theirs[1].exists(), "nobody has written to it for hours"


def written_by(machine: str, folder: Path, name: str = "a") -> bytes:
    """An entry as another machine wrote it, and the bytes of its array, which are then damaged."""
    store_arrays(folder, {name: np.arange(1000.0)}, {})
    listing = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**listing, "writer": machine}))
    whole = (folder / f"{name}.npy").read_bytes()
    (folder / f"{name}.npy").write_bytes(whole[:-8] + bytes(8))
    return whole


@pytest.mark.parametrize("read", [load_arrays, load_meta])
def test_an_entry_of_another_host_that_arrives_late_is_waited_for(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "key"
    whole = written_by(FOREIGN, folder)
    if read is load_meta:  # it looks at lengths only
        (folder / "a.npy").write_bytes(whole[:-8])
    late = threading.Timer(0.3, lambda: (folder / "a.npy").write_bytes(whole))
    late.start()
    assert read(folder) is not None and folder.is_dir()
    late.join()


@pytest.mark.parametrize(
    ("machine", "young", "waits"), [(FOREIGN, True, True), (FOREIGN, False, False), ("", True, False)]
)
def test_only_a_young_entry_of_another_host_is_waited_for(
    machine: str, young: bool, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, waited = tmp_path / "key", list[float]()
    written_by(machine or this_machine(), folder)
    if not young:
        for path in (folder / "a.npy", folder / "meta.json", folder):
            os.utime(path, (time.time() - 2 * YOUNG_S,) * 2)
    monkeypatch.setattr("harness.machine._cache.LATE_S", 0.2)
    monkeypatch.setattr("harness.machine._cache.time.sleep", waited.append)
    assert load_arrays(folder) is None and not folder.exists()
    assert bool(waited) is waits


def test_mapped_arrays_are_on_the_disk_before_their_entry_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a file sends it to a file server, but pages that are only mapped are sent whenever the kernel likes."""
    folder, done = tmp_path / "key", list[str]()
    synchronise, rename = os.fsync, os.rename
    monkeypatch.setattr("harness.machine._arrays.IN_MEMORY", 1000)
    monkeypatch.setattr(os, "rename", lambda *a: (done.append("appears"), rename(*a)))
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name), synchronise(handle)),
    )
    monkeypatch.setattr(np.memmap, "flush", lambda array: done.append(f"map of {len(array)}"))
    with writing(folder) as entry:
        small, large = entry.new("small", (100,), np.int8), entry.new("large", (2000,), np.int8)
        small[:], large[:] = 1, 2
        entry.keep({"small": small, "large": large}, {})
    assert done == ["map of 2000", "large.npy", "appears"]
    assert load_arrays(folder) is not None


def test_a_cache_that_cannot_be_written_to_is_read_without_a_lock(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    store_arrays(folder, {"a": np.arange(3)}, {})
    (tmp_path / "key.lock").mkdir()  # cannot be opened as a file, even by root
    with building(folder):
        assert load_arrays(folder) is not None
