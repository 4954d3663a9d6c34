"""One temporary folder for each run, which names its owner; and what the runs of dead processes left.

A folder is called `haloscope-<pid>-<start>-<random>`, where `start` is when its owner started, in hexadecimal ticks of
the kernel: a process id that has been reused is told apart. Inside is the file `owner`, which its owner keeps locked:
an owner in another container, whose processes cannot be seen from here, is alive while the lock is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from harness.machine._cache import half_built
from harness.machine._files import YOUNG_S, abandoned_scratch, take_lock
from harness.user_cache import cache_root

OWNER = "owner"
RUN_FOLDER_VARIABLE = "HALOSCOPE_RUN_FOLDER"
"""Set for the ranks of a run by their launcher: the folder in which theirs are made."""

_NAME = re.compile(r"haloscope-(\d+)-([0-9a-f]+)-\w+")
_OUTER: ContextVar[Path | None] = ContextVar("run folder", default=None)


class Leftover(NamedTuple):
    """Something that a dead process left."""

    path: Path
    what: str


@contextlib.contextmanager
def run_folder(root: Path | None = None) -> Iterator[Path]:
    """A folder for the files of a run, which is removed at the end; within another one, a folder inside that.

    Args:
        root: where to make it; the system's folder for temporary files when None.
    """
    outer = _OUTER.get() or os.environ.get(RUN_FOLDER_VARIABLE) if root is None else None
    if outer is not None:
        part = Path(tempfile.mkdtemp(prefix="part-", dir=outer))
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return
    name = f"haloscope-{os.getpid()}-{started(os.getpid())}-"
    folder = Path(tempfile.mkdtemp(prefix=name, dir=root))
    lock = None
    with contextlib.suppress(OSError):  # a file system without locks: the name has to do
        lock = take_lock(folder / OWNER)
    token = _OUTER.set(folder) if root is None else None
    try:
        yield folder
    finally:
        if token is not None:
            _OUTER.reset(token)
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.close()


def started(pid: int | str) -> str:
    """When a process started, in hexadecimal ticks since boot; empty where there is none, or it is dead."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if fields[0] == "Z" else f"{int(fields[19]):x}"


def leftovers(results: Path) -> list[Leftover]:
    """What dead processes left: run folders, half-built entries of the cache, half-written files of `results`."""
    root = cache_root()
    found = [Leftover(path, _told(path)) for place in (Path(tempfile.gettempdir()), root) for path in _dead(place)]
    found += [Leftover(path, "half-built entry of the cache") for path in half_built(root)]
    return found + [Leftover(path, "half-written file") for path in abandoned_scratch(results)]


def remove_leftover(left: Leftover) -> bool:
    """Remove something that `leftovers` named; returns whether it is gone."""
    if left.path.is_dir():
        shutil.rmtree(left.path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            left.path.unlink(missing_ok=True)
    return not left.path.exists()


def _dead(root: Path) -> list[Path]:
    """Run folders in `root` whose owner is dead."""
    if not root.is_dir():
        return []
    names = [(entry, _NAME.fullmatch(entry.name)) for entry in root.iterdir()]
    return sorted(
        entry for entry, made in names if made is not None and started(made[1]) != made[2] and _unlocked(entry)
    )


def _unlocked(folder: Path) -> bool:
    """Whether nobody holds the lock of a folder of this host; one without a lock file must be older than a minute."""
    try:
        with (folder / OWNER).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = stream.read()
            return not owner or f" on {os.uname().nodename} ".encode() in owner
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > YOUNG_S
    except OSError:
        pass
    return False


def _told(folder: Path) -> str:
    try:
        return f"temporary folder of {(folder / OWNER).read_text()}"
    except (OSError, UnicodeDecodeError):
        return "temporary folder of a dead process"
