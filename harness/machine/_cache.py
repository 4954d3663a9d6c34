"""Folders of plain arrays under one cache root, named by the hash of what produced them.

Generated graphs and partitions are expensive to make and to parse: they are stored as `.npy` files and memory-mapped.
Keys are chosen by callers; entries never become stale, because a key identifies the content, and are never evicted.
Every array is stored with a checksum, which is compared whenever an entry is loaded: this reads the whole array once,
at about the speed of memory (`python -m benchmarks.cache`). Mapped arrays are synchronised before an entry appears,
since other hosts may read it at once; files are not: closing them sends what others read, and what a power cut leaves
half-written is noticed and made again.

A lock may hold on one host only (NFS with `nolock`, Lustre with `localflock`). So names of what is half-built tell
their host, and what processes of other hosts are building is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal, TextIO, TypeVar

import numpy as np

from harness.errors import InputError
from harness.machine._arrays import ArrayMaker, synchronise_map
from harness.machine._files import YOUNG_S, give_lock, hidden_name, machine_in_name, take_lock, this_machine

T = TypeVar("T")

_META = "meta.json"
BUILD_S = 4 * 3600.0
"""How long a process waits for another one that builds an entry."""

TOLD_S = 10.0
"""A wait that takes longer is told, unless it is for a process of the same job."""

LOOK_S = 0.05
"""How often it looks."""

LATE_S = 10.0
"""How long a young entry of another host is read again and again before it counts as damaged: pages may arrive late."""

_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)  # a file is missing, or is not one; all else may pass


def store_arrays(folder: Path, arrays: dict[str, np.ndarray], meta: dict[str, object]) -> None:
    """Write `arrays` and the JSON-able `meta` as the entry `folder`, all or nothing.

    The files are written to a folder beside it, which is then renamed. If another process was faster its entry is
    kept: the key names the content, so both are equal. Raises InputError when the folder cannot be written.
    """
    with writing(folder) as entry:
        entry.keep(arrays, meta)


class NewEntry(ArrayMaker):
    """An entry while it is written: arrays that `new` mapped are files of it already."""

    def keep(self, arrays: dict[str, np.ndarray], meta: dict[str, object]) -> None:
        """Write all arrays, mapped ones included, and the JSON-able `meta`; call it once, last.

        Raises ValueError for an array with the name of a mapped one that is another.
        """
        assert self.folder is not None
        listing = {}
        for name, array in arrays.items():
            plain = np.asarray(array, order="C")
            made = self.mapped.get(name)
            if made is None:
                np.save(self.folder / f"{name}.npy", plain, allow_pickle=False)
            elif made.ctypes.data != plain.ctypes.data or made.shape != plain.shape or made.dtype != plain.dtype:
                raise ValueError(f"{name} is not the array that was mapped under this name")
            else:
                synchronise_map(made, self.folder / f"{name}.npy")
            listing[name] = [str(array.dtype), list(array.shape), _checksum(plain)]
        (self.folder / _META).write_text(
            json.dumps({"arrays": listing, "meta": meta, "writer": this_machine()}, sort_keys=True)
        )


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[NewEntry]:
    """An entry to fill, which appears as `folder` when the context ends without an error, as `store_arrays` says."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = _hidden_folder(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield NewEntry(made)
        publish_folder(made, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def scratch_in(folder: Path) -> Iterator[ArrayMaker]:
    """Arrays that nobody needs after the context, mapped from a hidden folder in `folder`, which exists.

    Raises InputError when it cannot be written.
    """
    try:
        made = _hidden_folder(folder / "scratch")
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield ArrayMaker(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _hidden_folder(folder: Path) -> Path:
    """A new folder beside `folder`, for this user alone."""
    made = hidden_name(folder)
    made.mkdir(0o700)
    return made


def _checksum(array: np.ndarray) -> str:
    from harness.machine._checksum import checksum  # compiled: commands that only list things need no numba

    return checksum(array)


def publish_folder(folder_tmp: Path, folder_final: Path) -> None:
    """Rename `folder_tmp` to `folder_final` (same file system); delete it where the final folder already exists."""
    os.chmod(folder_tmp, 0o755)  # it was private; a cache root may be shared by a group of users
    try:
        os.rename(folder_tmp, folder_final)
    except OSError:
        if not folder_final.is_dir():
            raise
        shutil.rmtree(folder_tmp, ignore_errors=True)


def load_arrays(folder: Path, mmap: bool = True) -> tuple[dict[str, np.ndarray], dict[str, object]] | None:
    """The arrays and meta of entry `folder`; None when there is none.

    Mapped arrays are copy-on-write: they may be written to (so torch accepts them without a warning) and the files
    never change. A damaged entry (a full disk, a file removed by hand, other bytes than were written) is removed and
    treated as absent.

    Raises:
        InputError: the entry cannot be read now, for want of memory, of open files or of permission; it is left as it
            is.
    """
    if not (folder / _META).is_file():
        return None

    def read(listing: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, object]]:
        arrays = {name: _read(folder, name, mmap, *kind) for name, kind in listing["arrays"].items()}
        return arrays, listing["meta"]

    return _read_entry(folder, read)


def has_entry(folder: Path) -> bool:
    """Whether `load_meta` finds entry `folder`; errors are the same."""
    return load_meta(folder) is not None


def load_meta(folder: Path) -> dict[str, object] | None:
    """The meta of entry `folder` if all its files are there and as long as they were written; None otherwise.

    Reads no array. What is incomplete, or was written by a version that kept no checksums, is removed.
    Raises InputError when it cannot be removed, or not be read now.
    """
    if not folder.is_dir():
        return None

    def read(listing: dict[str, Any]) -> dict[str, object]:
        for name, (dtype, shape, _) in listing["arrays"].items():
            if (folder / f"{name}.npy").stat().st_size < np.dtype(dtype).itemsize * math.prod(shape):
                raise ValueError(f"{name}.npy is shorter than it was written")
        return dict(listing["meta"])

    return _read_entry(folder, read)


def _read_entry(folder: Path, read: Callable[[dict[str, Any]], T]) -> T | None:
    """What `read` makes of the listing of an entry; None if it finds damage, after the entry was removed."""
    deadline, pause, listing = time.monotonic() + LATE_S, LOOK_S, None
    while True:
        try:
            listing = json.loads((folder / _META).read_text())
            return read(listing)
        except MemoryError:
            raise InputError(f"{folder}: not enough memory to read the cache entry; it is left as it is") from None
        except OSError as error:
            if error.errno is not None and error.errno not in _DAMAGE:
                raise _unreadable(folder, error) from error
        except (ValueError, EOFError, KeyError, TypeError, AttributeError, RecursionError, TokenError):
            pass
        if time.monotonic() + pause > deadline or not _may_be_late(folder, listing):
            _discard(folder)
            return None
        time.sleep(pause)
        pause *= 2


def _may_be_late(folder: Path, listing: Any) -> bool:
    """Whether another host has just written an entry: this one may not see all of it yet."""
    written_here = not isinstance(listing, dict) or listing.get("writer", this_machine()) == this_machine()
    return not written_here and folder.is_dir() and time.time() - _written(folder) < YOUNG_S


@contextlib.contextmanager
def building(folder: Path) -> Iterator[None]:
    """Look for an entry, or a folder of entries, and build it: one process at a time, the others wait for it.

    The lock is a file beside the folder, and ends with the process, however that ends; what a process of this machine
    that was killed left half-built is removed, and of another machine once nothing was written to it for `BUILD_S`. A
    cache that cannot be written to is not locked.

    Raises:
        InputError: another process has held the lock for `BUILD_S`.
    """
    path = folder.parent / f"{folder.name}.lock"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path, folder)
    except OSError:
        yield
        return
    try:
        for left in (*folder.parent.glob(f".{folder.name}.*"), *folder.glob(".*")):
            machine = machine_in_name(left)
            if machine == this_machine() or (machine and time.time() - _written(left) > BUILD_S):
                shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        give_lock(path, lock)


def half_built(root: Path) -> list[Path]:
    """Folders of entries that dead processes were building: nobody holds the lock of the entry.

    Those of other machines, whose locks may not be seen here, have not been written to for `BUILD_S`.
    """
    found = []
    for left in sorted(root.rglob(".*.*")) if root.is_dir() else ():
        name, machine = left.name[1:].rpartition(".")[0], machine_in_name(left)
        silent = YOUNG_S if machine == this_machine() else BUILD_S
        if not left.is_dir() or not machine or time.time() - _written(left) < silent:
            continue
        lock = left.parent / f"{name}.lock"
        around = left.parent.parent / f"{left.parent.name}.lock"  # of entries that are built together
        if not any(path.exists() and _held(path) for path in (lock, around)):
            found.append(left)
    return found


def _written(folder: Path) -> float:
    """When a folder or a file in it was last written, in seconds since 1970; now, if that cannot be seen."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


def _held(path: Path) -> bool:
    """Whether a process holds a lock."""
    try:
        give_lock(path, take_lock(path))
    except OSError:
        return True
    return False


def _locked(path: Path, folder: Path) -> TextIO:
    """The lock of an entry, once no other process has it."""
    begun, told = time.monotonic(), False
    while True:
        try:
            return take_lock(path)
        except BlockingIOError as held:
            waited = time.monotonic() - begun
            if waited > BUILD_S:
                raise InputError(f"{folder}: {held}: building it for {BUILD_S / 3600:g} h; end that process") from None
            if waited > TOLD_S and not told:
                told = True
                if not _of_this_job(str(held)):
                    logging.getLogger("haloscope").warning("%s builds %s; waiting for it", held, folder)
            time.sleep(LOOK_S)


def _of_this_job(owner: str) -> bool:
    """Whether the owner of a lock, as its file names it, is a process of this one's group: a worker of one command."""
    process, _, host = owner.removeprefix("process ").partition(" on ")
    try:
        return host.split(" ")[0] == os.uname().nodename and os.getpgid(int(process)) == os.getpgrp()
    except (ValueError, OSError):
        return False


def _read(folder: Path, name: str, mmap: bool, dtype: str, shape: list[int], written: str) -> np.ndarray:
    mode: Literal["c"] | None = "c" if mmap and 0 not in shape else None  # an empty array cannot be mapped
    array = np.asarray(np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False))  # a plain view of the map
    if str(array.dtype) != dtype or list(array.shape) != shape or _checksum(array) != written:
        raise ValueError(f"{name}.npy is not what was written")
    return array


def _discard(folder: Path) -> None:
    """Rename first: a reader elsewhere sees either the whole entry or none, and its open maps stay valid."""
    reason = "damaged cache entry that cannot be removed"
    try:
        aside = _hidden_folder(folder)
    except OSError as error:
        raise InputError(f"{folder}: {reason} ({error.strerror}); delete it") from error
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        pass  # another process found the same damage first
    except OSError as error:
        raise InputError(f"{folder}: {reason} ({error.strerror}); delete it") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _unreadable(folder: Path, error: OSError) -> InputError:
    return InputError(f"{folder}: cannot read the cache entry now ({error.strerror}); it is left as it is")


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder}: cannot write the cache entry ({error.strerror or error}); set HALOSCOPE_CACHE to a writable folder"
    )
